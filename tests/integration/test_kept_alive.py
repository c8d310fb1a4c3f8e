"""R50 on Kafka: how long brokers keep what an idle queue has consumed, and what renews it.

The shortest retention that a broker takes is a minute, so this is one test, in which several queues wait together.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, suppress

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import GroupNotFound
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from tests.unit.managing import commits, consume, declare, drained, put
from tests.waiting import eventually

RETENTION = 60.0
PATIENCE = 300.0
ROUND = 5.0  # seconds; much less than the retention, also on a busy machine


@pytest.fixture(scope="module")
def broker() -> Iterator[EmbeddedBroker]:
    """Start a broker that forgets commits after a minute, and looks for them all the time."""
    settings = {"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "200"}
    with EmbeddedBroker(properties=settings) as broker:
        yield broker


@pytest.fixture(scope="module")
def classic(broker: EmbeddedBroker) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(broker.bootstrap_servers)) as cluster:
        yield cluster


@pytest.fixture(scope="module")
def newer(broker: EmbeddedBroker) -> Iterator[KafkaCluster]:
    """Return the cluster for consumers of the new protocol, with what only they may set."""
    properties = {"group.protocol": "consumer", "group.remote.assignor": "uniform"}
    with closing(KafkaCluster(ClientConfig(broker.bootstrap_servers, properties))) as cluster:
        yield cluster


def idle(cluster: KafkaCluster, name: str) -> LastValueQueue[str]:
    """Return a queue whose consumer has left, with one of three messages done."""
    queue = declare(cluster, name)
    put(queue, "a=1", "b=2", "c=3")
    consume(queue, "a")
    return queue


@pytest.mark.timeout(600)
def test_r50_a_member_that_joins_and_leaves_renews_what_a_broker_keeps_and_a_commit_does_not(
    classic: KafkaCluster, newer: KafkaCluster
) -> None:
    assert classic.groups.retention() == RETENTION
    held = declare(newer, "held")
    with held.consumer() as consumer:
        eventually(lambda: consumer.stats.partitions, 60)
        kept = [idle(classic, "kept"), idle(newer, "kept-newer"), declare(classic, "kept-declared")]
        before = [commits(queue) for queue in kept]
        # From here on, all that is forgotten is younger than the commits of those that are kept.
        left, purged, declared = idle(classic, "left"), idle(classic, "purged"), declare(classic, "declared")

        def others_are_forgotten() -> bool:
            assert all(queue.keep_alive() for queue in kept)
            with suppress(GroupNotFound):
                purged.purge()
            return not any(map(commits, (left, purged, declared)))

        eventually(others_are_forgotten, PATIENCE, every=ROUND)
        assert [commits(queue) for queue in kept] == before
        assert not held.keep_alive(), "it is consumed"
        assert commits(held), "a member keeps its group"
    for queue in kept[:2]:
        assert queue.stats().members == 0
        assert sorted(drained(queue)) == ["2", "3"], "no ack is undone, and no message was handed out"
    with pytest.raises(GroupNotFound):
        left.keep_alive()

    # In the new protocol, a commit is as old as it is: this consumer was a member all the time, but had nothing to do.
    eventually(lambda: not commits(held), PATIENCE, every=0.5)
