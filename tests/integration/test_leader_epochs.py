"""Logs that were truncated and have grown again: offsets look unchanged, and only leader epochs show it."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka import Producer

from lvq_kafka.cluster import LogEnd
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import DataLoss, TransportError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.waiting import eventually

COMPACT = {"cleanup.policy": "compact"}


@pytest.fixture
def own_broker() -> Iterator[EmbeddedBroker]:
    """Start a broker whose disk can be damaged."""
    with EmbeddedBroker() as broker:
        yield broker


def put(cluster: KafkaCluster, topic: str, *keys: str) -> None:
    """Write one batch for each key to the first partition."""
    producer = Producer({"bootstrap.servers": cluster.config.bootstrap_servers, "log_level": 0})
    for key in keys:
        producer.produce(topic, b"v" * 50, key=key, partition=0)
        assert producer.flush(20) == 0


def cut(broker: EmbeddedBroker, topic: str) -> None:
    """Remove the newer half of a log from a stopped broker."""
    [segment] = Path(broker.data_dir).glob(f"**/{topic}-0/*.log")
    os.truncate(segment, segment.stat().st_size // 2)


def test_a_log_that_lost_records_shows_it_however_far_it_has_grown_since(own_broker: EmbeddedBroker) -> None:
    with closing(KafkaCluster(own_broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=2, config=COMPACT)
        put(cluster, "prices", *map(str, range(40)))
        first = cluster.logs.stable_ends("prices")
        own_broker.kill()
        own_broker.restart()
        put(cluster, "prices", *map(str, range(40)))
        second = cluster.logs.stable_ends("prices", timeout=30)
        assert second[0].leader_epoch > first[0].leader_epoch
        cluster.logs.check_uncut("prices", first)  # another epoch alone is fine
        cluster.logs.check_uncut("prices", second)
        own_broker.kill()
        cut(own_broker, "prices")
        own_broker.restart()
        shorter = cluster.logs.stable_ends("prices", timeout=30)
        assert 0 < shorter[0].offset < second[0].offset
        put(cluster, "prices", *map(str, range(80)))
        assert cluster.logs.end_offsets("prices")[0] > second[0].offset
        with pytest.raises(DataLoss, match=r"partition 0.*truncation"):
            cluster.logs.check_uncut("prices", second)
        cluster.logs.check_uncut("prices", shorter)
        cluster.logs.check_uncut("prices", {1: second[1]})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_r17_a_queue_does_not_skip_what_was_written_where_its_log_was_cut(
    own_broker: EmbeddedBroker, protocol: str
) -> None:
    config = {"bootstrap.servers": own_broker.bootstrap_servers, "group.protocol": protocol}
    with LastValueQueue.declare("prices", key_header=None, config=config) as queue:
        cluster = queue.cluster
        assert isinstance(cluster, KafkaCluster)
        put(cluster, "prices", *(f"a{number}" for number in range(40)))
        taken = []
        with queue.consumer() as consumer:
            while len(taken) < 40:
                with consumer.acquire(30) as delivery:
                    taken.append(delivery.key)
        own_broker.kill()
        cut(own_broker, "prices")
        own_broker.restart()
        eventually(lambda: cluster.logs.stable_ends("prices")[0].offset == 20, timeout=30)
        put(cluster, "prices", *(f"b{number}" for number in range(60)))
        for _ in range(2):
            with queue.consumer() as consumer, pytest.raises(DataLoss, match=r"up to 40, but .* below 20"):
                consumer.acquire(30)
        assert [damage.kind for damage in queue.repair().found] == ["offsets-lost"]
        assert queue.stats().depth == 60
        with queue.consumer() as consumer:
            assert [consumer.acquire(30).key for _ in range(60)] == [f"b{number}" for number in range(60)]


def test_a_check_without_an_answer_says_so(own_broker: EmbeddedBroker) -> None:
    with closing(KafkaCluster(own_broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=1, config=COMPACT)
        ends = cluster.logs.stable_ends("prices")
        own_broker.pause()
        with pytest.raises(TransportError) as caught:
            cluster.logs.check_uncut("prices", ends, timeout=1)
        assert caught.value.retriable
        own_broker.resume()
        cluster.logs.check_uncut("prices", ends, timeout=30)


def test_the_overwritten_part_of_a_log_is_found_by_the_epochs_of_its_records(own_broker: EmbeddedBroker) -> None:
    with closing(KafkaCluster(own_broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=2, config=COMPACT)
        put(cluster, "prices", *map(str, range(40)))
        own_broker.kill()
        cut(own_broker, "prices")
        own_broker.restart()
        end = cluster.logs.stable_ends("prices", timeout=30)[0]
        put(cluster, "prices", *map(str, range(80)))
        assert end.offset == 20
        now = cluster.logs.stable_ends("prices")
        assert cluster.logs.overwritten("prices", {0: LogEnd(40, 0), 1: LogEnd(40, 0)}) == {0: 20}
        for below in (1, 19, 20, 21, 22, 39, 100):
            assert cluster.logs.overwritten("prices", {0: LogEnd(below, 0)}) == ({0: 20} if below > 20 else {})
            assert cluster.logs.overwritten("prices", {0: LogEnd(below, now[0].leader_epoch)}) == {}


def test_markers_of_a_later_epoch_overwrite_nothing(own_broker: EmbeddedBroker) -> None:
    with closing(KafkaCluster(own_broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=1, config=COMPACT)
        writer = cluster.writer(transactional_id="x")
        writer.begin_transaction()
        writer.append("prices", b"k", b"v")
        assert writer.flush(20) == 0
        own_broker.kill()
        own_broker.restart()
        writer.commit_transaction(30)
        eventually(lambda: cluster.logs.end_offsets("prices") == {0: 2}, timeout=30)
        assert cluster.logs.overwritten("prices", {0: LogEnd(2, 0)}, timeout=30) == {}
        put(cluster, "prices", "k")
        assert cluster.logs.overwritten("prices", {0: LogEnd(2, 0)}) == {}
        assert cluster.logs.overwritten("prices", {0: LogEnd(3, 0)}) == {0: 2}
        writer.close()
