"""Queues whose names documents give: they are the same in several tests, which share a broker."""

from __future__ import annotations

from contextlib import suppress

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import QueueNotDeclared, TopicNotFound
from lvq_kafka.kafka import KafkaCluster
from tests.waiting import eventually

__all__ = ["forget"]


def forget(cluster: KafkaCluster, *names: str) -> None:
    """Delete queues and their topics, those that `LastValueQueue.drop` left included.

    A consumer that was killed is a member of its group for some time still.
    """
    for name in names:
        with suppress(QueueNotDeclared):
            queue = LastValueQueue.open(name, cluster=cluster)
            eventually(lambda group=queue.definition.group: cluster.groups.member_count(group) == 0, 60)
            queue.drop()
        with suppress(TopicNotFound):
            cluster.topics.delete(name, timeout=60)
