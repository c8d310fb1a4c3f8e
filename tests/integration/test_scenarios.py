"""The scenarios on a real broker: the same functions as on the in-memory cluster.

Left out are scenarios that need no cluster, or that need faults which no broker offers.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka import TopicPartition as At
from confluent_kafka.admin import AdminClient

pytest.register_assert_rewrite("tests.scenarios.harness")

from lvq_kafka import TEXT, LastValueQueue, TopicSpec  # noqa: E402
from lvq_kafka.embedded import EmbeddedBroker  # noqa: E402
from lvq_kafka.kafka import ClientConfig, KafkaCluster  # noqa: E402  # the harness must not be imported before this
from lvq_kafka.runtime.overriding import override  # noqa: E402
from lvq_kafka.runtime.retrying import patiently  # noqa: E402
from lvq_kafka.testing.brokers import ProvidedBroker, provide_broker  # noqa: E402
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction  # noqa: E402
from tests.cable import Cable  # noqa: E402
from tests.scenarios import (  # noqa: E402
    test_browsing,
    test_compacted_log,
    test_conflation,
    test_consuming,
    test_grouping,
    test_keys,
    test_management,
    test_non_destructive,
    test_overflow,
    test_paging,
    test_ranked_browsing,
    test_ranked_consuming,
    test_restart,
    test_ring,
    test_scheduling,
    test_selecting,
    test_standard,
    test_time_to_live,
    test_transactions,
)
from tests.scenarios.harness import PATIENCE, Declare, Queue, Venue, declaring  # noqa: E402
from tests.scenarios.test_compacted_log import check_what_is_left, write_what_goes  # noqa: E402
from tests.waiting import eventually  # noqa: E402

ON_A_BROKER = (
    test_browsing,
    test_compacted_log,
    test_conflation,
    test_consuming,
    test_grouping,
    test_keys,
    test_management,
    test_non_destructive,
    test_overflow,
    test_paging,
    test_ranked_browsing,
    test_ranked_consuming,
    test_restart,
    test_ring,
    test_scheduling,
    test_selecting,
    test_standard,
    test_time_to_live,
    test_transactions,
)
assert {module.__name__ for module in ON_A_BROKER} == {
    f"tests.scenarios.{path.stem}" for path in Path(test_keys.__file__).parent.glob("test_*.py")
} - {"tests.scenarios.test_completeness"}, "a module of scenarios is not run on a broker"
NOT_ON_A_BROKER = {
    test_keys.test_s025_a_queue_without_the_name_of_its_key_header_is_refused,
    test_keys.test_s026_a_switch_alone_brings_the_key_header_and_the_order_of_its_system,
    test_keys.test_s026_switches_of_two_systems_need_the_name_of_the_key_header,
    test_keys.test_s029_options_that_clash_with_a_key_are_refused_and_named,
    test_keys.test_s030_the_old_no_browse_switch_says_what_is_always_so,
    test_ring.test_s125_a_limit_that_nothing_fits_is_refused_up_front,
    test_selecting.test_s144_a_replay_period_that_is_none_is_refused_by_its_value,
    test_selecting.test_s144_a_filter_that_does_not_exist_fails_when_the_browser_is_made,
    test_time_to_live.test_s100_a_ttl_is_kept_within_the_bounds_of_its_queue,
    test_time_to_live.test_s101_a_minimum_gives_no_ttl_to_a_message_without_one,
    test_time_to_live.test_s102_never_precedes_an_own_ttl_which_precedes_the_default,
    # Replaced by the versions below.
    test_compacted_log.test_s157_a_log_whose_last_records_were_compacted_away_is_loaded_to_its_end,
    test_restart.test_s094_a_view_that_was_cut_off_goes_on_where_it_was,
}


def test_s094_a_view_that_was_cut_off_goes_on_where_it_was(q: Queue, lvq_broker: ProvidedBroker) -> None:
    """As on the in-memory cluster, which has an outage on request. Here the cable between view and broker is cut."""
    q.send("a=a1", "b=b1")
    with (
        Cable(lvq_broker.bootstrap_servers) as cable,
        closing(KafkaCluster(ClientConfig(cable.bootstrap_servers, {"socket.timeout.ms": 2000}))) as cluster,
        LastValueQueue.open(q.name, value=TEXT, cluster=cluster) as queue,
        queue.view(catch_up_timeout=PATIENCE, metadata_interval=0.1) as view,
    ):
        cable.cut()
        eventually(lambda: view.state == "disconnected", 60)
        q.send("a=a2")
        q.delete("b")
        assert dict(view) == {"a": "a1", "b": "b1"}
        cable.mend()
        eventually(lambda: dict(view) == {"a": "a2"}, 60)
        patiently(lambda: view.barrier(PATIENCE), PATIENCE)
        assert dict(view) == dict(q.view()) == {"a": "a2"}
        assert view.stats.stale == 0


def last_record(segment: Path) -> int:
    """Return the offset of a segment's last record or marker. A broker keeps the last batch, even if it is empty."""
    log, at, last = segment.read_bytes(), 0, -1
    while at < len(log):
        offset, length = struct.unpack_from(">qi", log, at)
        (records,) = struct.unpack_from(">i", log, at + 57)
        at += 12 + length
        last = offset + records - 1 if records else last
    return int(last)


def test_s157_a_log_whose_last_records_were_compacted_away_is_loaded_to_its_end(tmp_path: Path) -> None:
    """As on the in-memory cluster. No client can empty a broker's active segment, so the test adds a file between runs.

    A leader truncated to the beginning of a segment has such a log, and so have brokers other than Kafka.
    """
    spec = TopicSpec(partitions=2, config=FORCED_COMPACTION | {"segment.ms": "604800000"})
    with own_cluster(tmp_path) as cluster, declaring(cluster, "q") as declare:
        ends = write_what_goes(declare(spec=spec))
    data = tmp_path / "data"
    for partition, end in ends.items():
        (data / f"q-{partition}" / f"{end:020}.log").touch()

    def cleaned() -> bool:
        # The first cleaning only records the time of deletes and markers. A second one would find nothing to do, so
        # reset the cleaner's checkpoint.
        forgotten = data / "forgotten"
        forgotten.write_text("0\n0\n")  # version and number of partitions
        forgotten.replace(data / "cleaner-offset-checkpoint")
        with suppress(FileNotFoundError):  # it is being replaced
            return [last_record(data / f"q-{partition}" / f"{0:020}.log") for partition in ends] == [0, 0]
        return False

    with own_cluster(tmp_path) as cluster, declaring(cluster, "q") as declare:
        # The marker of a producer that the broker still knows is kept.
        cluster.cluster.brokers.alter_config({"log.cleaner.backoff.ms": "100", "producer.id.expiration.ms": "1"})
        eventually(cleaned, PATIENCE, every=0.05)
        cluster.cluster.topics.alter_config("q", DELETES_STAY)
        check_what_is_left(declare(spec=spec), ends)


@contextmanager
def own_cluster(directory: Path) -> Iterator[OnKafka]:
    """Start a broker on the test's own files."""
    properties = {"producer.id.expiration.check.interval.ms": "50"}
    with (
        EmbeddedBroker(data_dir=directory, properties=properties) as broker,
        closing(OnKafka(ProvidedBroker(broker.bootstrap_servers, "embedded"))) as cluster,
    ):
        yield cluster


for _module in ON_A_BROKER:
    for _name, _test in vars(_module).items():
        if _name.startswith(("test_s", "test_r")) and _test not in NOT_ON_A_BROKER:
            globals()[_name] = _test


class ClusterLater(KafkaCluster):
    """A cluster whose clients read a clock that is ahead by some seconds."""

    def __init__(self, servers: str, ahead: float) -> None:
        super().__init__(servers)
        self.ahead = ahead

    @override
    def now(self) -> float:
        return super().now() + self.ahead


class OnKafka:
    """`Venue` on a real broker."""

    def __init__(self, broker: ProvidedBroker) -> None:
        self._broker = broker
        self.cluster = ClusterLater(broker.bootstrap_servers, 0.0)

    def compact(self, topic: str, *, drop_tombstones: bool = False) -> None:
        force_compaction(self.cluster, topic, drop_tombstones=drop_tombstones)

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap_servers})
        for future in admin.delete_records([At(topic, partition, before)]).values():
            future.result(10)

    def write(self, topic: str, partition: int, key: str, value: str | None, timestamp: int | None = None) -> None:
        producer = Producer({"bootstrap.servers": self._broker.bootstrap_servers})
        body = None if value is None else value.encode()
        producer.produce(topic, body, key.encode(), partition, timestamp=timestamp or 0)  # 0 means now
        assert producer.flush(30) == 0

    def close(self) -> None:
        self.cluster.close()

    def later(self, seconds: float) -> None:
        self.cluster.ahead += seconds + 0.01

    def restart(self) -> None:
        self.close()
        self._broker.restart()
        self.cluster = ClusterLater(self._broker.bootstrap_servers, self.cluster.ahead)


@pytest.fixture(scope="module")
def restarted_broker() -> Iterator[ProvidedBroker]:
    """Start a broker for the scenarios that restart it."""
    with provide_broker("embedded") as broker:
        yield broker


@pytest.fixture
def venue(request: pytest.FixtureRequest, lvq_broker: ProvidedBroker) -> Iterator[Venue]:
    restarts = request.function.__module__ in {test_restart.__name__, test_transactions.__name__}
    cluster = OnKafka(request.getfixturevalue("restarted_broker") if restarts else lvq_broker)
    yield cluster
    cluster.close()


@pytest.fixture
def declare(venue: Venue, topic_name: str) -> Iterator[Declare]:
    with declaring(venue, topic_name) as declare:
        yield declare


@pytest.fixture
def q(declare: Declare) -> Queue:
    """Return the scenarios' queue Q: keyed by the header k, empty."""
    return declare()
