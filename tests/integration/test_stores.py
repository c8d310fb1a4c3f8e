"""R40 on a real broker: stores after restarts, and each change of a log from which none can be read on."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from lvq_kafka import TEXT, LastValueQueue, TopicSpec, Ttl
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import StoreFull
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from tests.integration.guarantees.writing import put, transaction
from tests.running import ROOT
from tests.waiting import eventually

PATIENCE = 60.0
KEPT = 3.0  # seconds


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[str]]:
    with LastValueQueue.declare(
        topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster, spec=TopicSpec(delete_retention=KEPT)
    ) as declared:
        yield declared
        declared.drop(delete_topic=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


def held(queue: LastValueQueue[str], **how: Any) -> dict[str, str]:
    with queue.view(**how) as view:
        return dict(view)


def read_of(queue: LastValueQueue[str], place: Path, **how: Any) -> tuple[dict[str, str], int]:
    """Return what a view with a store holds, and how many offsets it had to read."""
    with queue.view(store=place, **how) as view:
        assert view.state == "caught-up"
        return dict(view), view.progress[1]


def test_r40_a_restart_reads_what_is_new_whatever_ends_the_log(queue: LastValueQueue[str], place: Path) -> None:
    """Markers of transactions, aborted records and holes have offsets, too."""
    put(queue, a="1", b="1", c="1")
    assert read_of(queue, place) == ({"a": "1", "b": "1", "c": "1"}, 3)
    assert read_of(queue, place) == ({"a": "1", "b": "1", "c": "1"}, 0)
    with transaction(queue) as producer:
        producer.put("a", "2")
    with transaction(queue, abort=True) as producer:
        producer.put("b", "2")
    values, read = read_of(queue, place)
    assert values == {"a": "2", "b": "1", "c": "1"}
    assert read >= 3
    assert read_of(queue, place) == (values, 0)


def test_r18_r40_a_store_is_current_at_any_age_if_its_partition_ends_there_and_else_built_again(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, place: Path
) -> None:
    put(queue, a="1", b="1")
    held(queue, store=place)
    closed = time.monotonic()
    eventually(lambda: time.monotonic() - closed > 2 * KEPT, PATIENCE)
    assert read_of(queue, place) == ({"a": "1", "b": "1"}, 0)
    closed = time.monotonic()
    put(queue, a=None, b="2")
    force_compaction(kafka_cluster, queue.topic, drop_tombstones=True)
    eventually(lambda: time.monotonic() - closed > KEPT, PATIENCE)
    expected = held(queue)
    assert expected == {"b": "2"}
    assert read_of(queue, place)[0] == expected
    assert read_of(queue, place) == (expected, 0)


def recreate(queue: LastValueQueue[str], cluster: KafkaCluster) -> None:
    cluster.topics.delete(queue.topic)

    def created() -> bool:
        try:
            cluster.topics.create(queue.topic, partitions=1, config={"cleanup.policy": "compact"})
        except Exception:  # noqa: BLE001  # the old one may still be there
            return False
        return True

    eventually(created, PATIENCE, every=0.2)
    put(queue, c="1", d="1", e="1")


def add_partition(queue: LastValueQueue[str], cluster: KafkaCluster) -> None:
    cluster.topics.add_partitions(queue.topic, 2)
    eventually(lambda: cluster.topics.describe(queue.topic).partitions == 2, PATIENCE)
    put(queue, c="1")


@pytest.mark.parametrize(
    ("change", "why"), [(recreate, "deleted and created again"), (add_partition, "1 partitions, and has 2")]
)
def test_r40_a_store_of_another_topic_or_of_fewer_partitions_is_built_again(
    queue: LastValueQueue[str],
    kafka_cluster: KafkaCluster,
    place: Path,
    change: Callable[[LastValueQueue[str], KafkaCluster], None],
    why: str,
    caplog: pytest.LogCaptureFixture,
) -> None:
    put(queue, a="1", b="1")
    held(queue, store=place)
    change(queue, kafka_cluster)
    expected = held(queue)
    with queue.view(store=place).start() as view:
        assert why in caplog.text
        assert (view.state, dict(view)) == ("caught-up", expected)
    assert read_of(queue, place) == (expected, 0)


def test_r40_a_store_of_a_log_whose_start_was_deleted_is_built_again(
    kafka_cluster: KafkaCluster, topic_name: str, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=1, config={"cleanup.policy": "compact,delete"})
    with LastValueQueue(topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster) as queue:
        put(queue, a="1", b="1")
        held(queue, store=place)
        put(queue, a=None, c="1", d="1")
        kafka_cluster.logs.delete_before(topic_name, {0: 4})
        assert read_of(queue, place)[0] == held(queue) == {"d": "1"}
        assert "starts at offset 4" in caplog.text
    kafka_cluster.topics.delete(topic_name)


def test_r40_a_store_of_other_options_is_built_again(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    put(queue, a="1", b="1")
    held(queue, store=place)
    assert read_of(queue, place, keys=["a"]) == ({"a": "1"}, 2)
    assert "the selection was" in caplog.text
    with LastValueQueue(queue.topic, key_header=None, value=TEXT, cluster=kafka_cluster) as bare:
        assert read_of(bare, place, keys=["a"]) == ({"a": "1"}, 2)
        assert "the key header was 'ticker', and is 'none'" in caplog.text
    with LastValueQueue(
        queue.topic, key_header=None, ttl=Ttl(default=3600.0), value=TEXT, cluster=kafka_cluster
    ) as expiring:
        assert read_of(expiring, place, keys=["a"]) == ({"a": "1"}, 2)
        assert "the time rule was" in caplog.text


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """Start a broker whose disk can be damaged."""
    with EmbeddedBroker() as broker:
        yield broker


def write(cluster: KafkaCluster, topic: str, **values: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.config.bootstrap_servers, "log_level": 0})
    for key, value in values.items():
        producer.produce(topic, value, key=key, partition=0)
        assert producer.flush(20) == 0


@pytest.mark.parametrize("grown", [0, 20, 40])
def test_r40_a_store_of_a_log_that_was_truncated_is_built_again_however_far_it_has_grown(
    own_broker: EmbeddedBroker, place: Path, grown: int, caplog: pytest.LogCaptureFixture
) -> None:
    with closing(KafkaCluster(own_broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        write(cluster, "prices", **{f"a{number}": "v" * 50 for number in range(40)})
        with LastValueQueue("prices", key_header=None, value=TEXT, cluster=cluster) as queue:
            assert len(held(queue, store=place)) == 40
            own_broker.kill()
            [segment] = Path(own_broker.data_dir).glob("**/prices-0/*.log")
            os.truncate(segment, segment.stat().st_size // 2)
            own_broker.restart()
            eventually(lambda: cluster.logs.end_offsets("prices")[0] == 20, PATIENCE)
            write(cluster, "prices", **{f"b{number}": "v" for number in range(grown)})
            expected = held(queue)
            assert len(expected) == 20 + grown
            assert read_of(queue, place)[0] == expected
            assert "again: " in caplog.text
            assert read_of(queue, place) == (expected, 0)


def test_r40_a_broker_that_was_restarted_alone_is_no_reason_to_build_a_store_again(
    own_broker: EmbeddedBroker, place: Path, caplog: pytest.LogCaptureFixture
) -> None:
    """The leader's epoch is another one then."""
    with closing(KafkaCluster(own_broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        write(cluster, "prices", a="1", b="1")
        with LastValueQueue("prices", key_header=None, value=TEXT, cluster=cluster) as queue:
            held(queue, store=place)
            own_broker.kill()
            own_broker.restart()
            eventually(lambda: cluster.logs.stable_ends("prices", timeout=30)[0].leader_epoch > 0, PATIENCE)
            write(cluster, "prices", c="1")
            assert read_of(queue, place) == ({"a": "1", "b": "1", "c": "1"}, 1)
    assert "again: " not in caplog.text


@contextmanager
def small_disk(size: str) -> Iterator[Path]:
    """Mount a small file system; skip the test where this user may not."""
    place = Path(tempfile.mkdtemp(prefix="lvq-small-disk-"))
    try:
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        if subprocess.run(command, stderr=subprocess.DEVNULL).returncode:
            pytest.skip("this user may mount no file system")
        try:
            yield place
        finally:
            subprocess.run(["umount", "-l", str(place)], check=True)
    finally:
        place.rmdir()


def test_r40_a_view_whose_disk_is_full_shows_what_it_has_and_goes_on_once_there_is_room(
    queue: LastValueQueue[str],
) -> None:
    with small_disk("4m") as disk, queue.view(store=disk / "store") as view:
        put(queue, a="1")
        view.barrier(PATIENCE)
        ballast = disk / "ballast"
        with pytest.raises(OSError, match="No space left"):
            ballast.write_bytes(b"x" * (8 << 20))
        big = {f"k{number}": "v" * 100_000 for number in range(5)}
        put(queue, **big)
        eventually(lambda: view.state == "disconnected", PATIENCE)
        assert isinstance(view.status.trouble, StoreFull)
        assert dict(view) == {"a": "1"}
        eventually(lambda: view.lag > 0, PATIENCE)
        ballast.unlink()
        eventually(lambda: view.state == "caught-up" and dict(view) == {"a": "1", **big}, PATIENCE)


_HOLD = """
import sys
from lvq_kafka import BYTES, LastValueQueue
from tests.benchmarks.children import anonymous_memory

servers, name, place = sys.argv[1:]
queue = LastValueQueue(name, key_header=None, value=BYTES, bootstrap_servers=servers)
with queue.view(store=place or None) as view:
    assert sum(1 for _ in view.scan()) == len(list(view.scan().keys())) == len(view.snapshot())
    assert len(view.page(limit=1000).entries) == 1000
    print(len(view), anonymous_memory() >> 20)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says which memory is anonymous")
def test_r40_a_store_may_be_larger_than_the_memory_of_its_process(
    kafka_cluster: KafkaCluster, queue: LastValueQueue[str], place: Path
) -> None:
    number, size, servers = 60_000, 4096, str(kafka_cluster.config.bootstrap_servers)
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 5})
    for row in range(number):
        producer.produce(queue.topic, os.urandom(16).hex() * (size // 32), key=b"%d" % row)
        producer.poll(0)
    producer.flush()

    def held(place: str) -> tuple[int, int]:
        """Return the number of keys in a process of their own, and its anonymous memory in MB."""
        command = [sys.executable, "-c", _HOLD, servers, queue.topic, place]
        ran = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True, timeout=300)
        keys, memory = ran.stdout.split()
        return int(keys), int(memory)

    (keys, of_store), (_, of_memory) = held(str(place)), held("")
    assert keys == number
    assert of_store < of_memory - 100
    assert held(str(place))[1] < 80, "a restart keeps less"
