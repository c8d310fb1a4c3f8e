"""Removing from the log what all its queues have consumed. Compaction never does: it keeps the newest of each key."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.errors import QueueError, TopicMismatch
from lvq_kafka.managing.backlog import snapshot_queue
from lvq_kafka.registry import Registry

__all__ = ["Reclaim", "reclaim", "reclaimable"]


@dataclass(frozen=True, slots=True)
class Reclaim:
    """By partition, where the log began, and where it begins now; or would, if it was a dry run."""

    before: Mapping[int, int]
    after: Mapping[int, int]
    queues: tuple[str, ...]
    """The queues that have consumed what is gone."""
    dry_run: bool

    @property
    def offsets(self) -> int:
        """How many offsets are gone, whatever lay there."""
        return sum(self.after.values()) - sum(self.before.values())


def reclaim(cluster: Cluster, definition: QueueDefinition, *, dry_run: bool = False) -> Reclaim:
    """Remove what is consumed. See `lvq_kafka.queue.LastValueQueue.reclaim`."""
    topic = definition.topic
    _check_policy(cluster, topic)
    starts = cluster.start_offsets(topic)
    queues, lowest = _consumed_by_all(cluster, definition)
    if not dry_run and _ahead(lowest, starts):
        # Somebody may have declared a queue from the start, or reset one. Between this look and the deleting there are
        # milliseconds; who comes then finds a log that begins later.
        queues, now = _consumed_by_all(cluster, definition)
        lowest = reclaimable([lowest, now])
    ahead = _ahead(lowest, starts)
    if ahead and not dry_run:
        ahead = cluster.delete_before(topic, ahead)
    return Reclaim(starts, {**starts, **ahead}, queues, dry_run)


def _consumed_by_all(cluster: Cluster, definition: QueueDefinition) -> tuple[tuple[str, ...], dict[int, int]]:
    """The queues on the topic of this one, and where it may begin for all of them."""
    registry = Registry(cluster)
    registry.get(definition.name)
    queues = [other for other in registry.all(strict=True) if other.topic == definition.topic]
    browsed = [other.name for other in queues if other.non_destructive]
    if browsed:
        raise QueueError(
            f"The topic {definition.topic} also serves {', '.join(browsed)}, from which nothing is ever consumed.",
            queue=definition.name,
            hint="What one queue has consumed is still a current value of the other, so it has to stay.",
        )
    # Nothing that any of the queues could still hand out lies below the lowest base.
    maps = [snapshot_queue(cluster, queue).maps() for queue in queues]
    lowest = reclaimable([{partition: said.base for partition, said in of_queue.items()} for of_queue in maps])
    return tuple(queue.name for queue in queues), lowest


def _ahead(lowest: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, int]:
    return {partition: base for partition, base in lowest.items() if base > starts.get(partition, base)}


def reclaimable(bases: Collection[Mapping[int, int]]) -> dict[int, int]:
    """Where the partitions of a topic may begin, by the bases of its queues: all of them have consumed what is below.

    A partition of which one of them has no base is not in it.
    """
    partitions = set.intersection(*(set(of_queue) for of_queue in bases)) if bases else set()
    return {partition: min(of_queue[partition] for of_queue in bases) for partition in sorted(partitions)}


def _check_policy(cluster: Cluster, topic: str) -> None:
    policy = cluster.topic_config(topic).get("cleanup.policy", "")
    if {part.strip() for part in policy.split(",")} != {"compact", "delete"}:
        raise TopicMismatch(
            f"From the topic {topic} nothing can be reclaimed: its cleanup.policy is {policy}.",
            topic=topic,
            settings={"cleanup.policy": ("compact,delete", policy)},
            hint="A broker deletes records only where the policy is compact,delete. Set it, with retention.ms=-1 so "
            "that age alone removes nothing; a new queue gets both with TopicSpec(reclaim=True).",
        )
