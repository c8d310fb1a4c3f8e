"""Common steps of tests of queue management."""

from __future__ import annotations

from typing import Any

from lvq_kafka import TEXT, Consumer, LastValueQueue
from lvq_kafka.cluster import Cluster, Commit
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from tests.waiting import eventually

_PATIENCE = 30.0  # seconds; a real broker on a busy machine may need them


def declare(cluster: Cluster, name: str = "prices", **options: Any) -> LastValueQueue[str]:
    return LastValueQueue.declare(name, **{"key_header": "ticker", "value": TEXT, "cluster": cluster, **options})


def put(queue: LastValueQueue[str], *pairs: str) -> None:
    """Send ``"a=1"`` as the value 1 of the key a, and ``"a"`` as a delete of it."""
    with queue.producer() as producer:
        for pair in pairs:
            key, equals, value = pair.partition("=")
            if equals:
                producer.put(key, value)
            else:
                producer.delete(key)


def _taken(consumer: Consumer[str]) -> list[Delivery[str]]:
    """Take everything, once it has been read and may be handed out."""
    shared = consumer._shared

    def take() -> bool:
        with shared._changed:
            stats = consumer.stats
            if not stats.partitions or stats.catching_up or shared.core.hand_out.is_suspended(shared.clock()):
                return False
            taken.extend(consumer.acquire_many(1000, 0))
            return True

    taken: list[Delivery[str]] = []
    eventually(take, _PATIENCE)
    return taken


def consume(queue: LastValueQueue[str], *keys: str) -> None:
    """Take everything, ack these keys, and put the others back."""
    with queue.consumer() as consumer:
        taken = _taken(consumer)
        for delivery in taken:
            if delivery.key in keys:
                delivery.ack(wait=True, timeout=_PATIENCE)
        for delivery in taken:
            if delivery.key not in keys:
                delivery.release()


def drained(queue: LastValueQueue[str]) -> list[str]:
    """Take and ack everything in the queue, and return the values."""
    values = []
    with queue.consumer() as consumer:
        while taken := _taken(consumer):
            for delivery in taken:
                with delivery:
                    values.append(delivery.value)
    return values


def commits(queue: LastValueQueue[str]) -> dict[int, Commit]:
    return queue.cluster.groups.committed(queue.definition.group, queue.topic)


def maps(queue: LastValueQueue[str]) -> dict[int, CommitMap]:
    return {p: CommitMap.decode(commit.offset, commit.metadata) for p, commit in commits(queue).items()}


def claims(queue: LastValueQueue[str]) -> dict[int, tuple[int, tuple[int, ...]]]:
    """Return what the commits call done. Sequence numbers are left out: active consumers repeat their commits."""
    return {partition: (one.base, one.runs) for partition, one in maps(queue).items()}


def overwrite(queue: LastValueQueue[str], **by_partition: Commit) -> None:
    """Commit as another program might, for the partitions ``p0``, ``p1`` and so on."""
    at = {int(name[1:]): commit for name, commit in by_partition.items()}
    queue.cluster.groups.commit(queue.definition.group, queue.topic, at)


def said(queue: LastValueQueue[str], base: int, *runs: int, **options: Any) -> Commit:
    """Return a commit of this queue for its current topic."""
    described = queue.cluster.topics.describe(queue.topic)
    facts = {"topic_tag": topic_tag(described.id), "partitions": described.partitions, **options}
    return Commit(base, CommitMap(base, runs, **facts).encode())
