"""Remove from the log what all its queues have consumed.

Compaction never does that: it keeps the newest record of each key. Nor does retention, which does not know what was
consumed: on topics of standard queues it is off.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.registry import Registry
from lvq_kafka.errors import QueueError, TopicMismatch
from lvq_kafka.managing.backlog import snapshot_queue

__all__ = ["Reclaim", "reclaim", "reclaimable"]


@dataclass(frozen=True, slots=True)
class Reclaim:
    """The log start offsets before and after, by partition; on a dry run, what they would be."""

    before: Mapping[int, int]
    after: Mapping[int, int]
    queues: tuple[str, ...]
    """The queues that have consumed the removed records."""
    dry_run: bool

    @property
    def offsets(self) -> int:
        """The number of removed offsets, including gaps."""
        return sum(self.after.values()) - sum(self.before.values())


def reclaim(cluster: Cluster, definition: QueueDefinition, *, dry_run: bool = False) -> Reclaim:
    """Remove consumed records. See `lvq_kafka.queue.LastValueQueue.reclaim`."""
    topic = definition.topic
    _check_policy(cluster, definition)
    starts = cluster.logs.start_offsets(topic)
    queues, lowest = _consumed_by_all(cluster, definition)
    if not dry_run and _ahead(lowest, starts):
        # A queue may have been declared from the start, or reset. Between this check and the deletion there are
        # milliseconds; a queue that comes then finds a log that starts later.
        queues, now = _consumed_by_all(cluster, definition)
        lowest = reclaimable([lowest, now])
    ahead = _ahead(lowest, starts)
    if ahead and not dry_run:
        ahead = cluster.logs.delete_before(topic, ahead)
    return Reclaim(starts, {**starts, **ahead}, queues, dry_run)


def _consumed_by_all(cluster: Cluster, definition: QueueDefinition) -> tuple[tuple[str, ...], dict[int, int]]:
    """Return the queues on this one's topic, and where the topic may begin for all of them."""
    registry = Registry(cluster)
    registry.get(definition.name)
    queues = registry.on_topic(definition.topic)
    browsed = [other.name for other in queues if other.non_destructive]
    if browsed:
        raise QueueError(
            f"The topic {definition.topic} also serves {', '.join(browsed)}, from which nothing is ever consumed.",
            queue=definition.name,
            hint="A message that one queue has consumed is still a current value of the other, so it must stay.",
        )
    # None of the queues can still hand out anything below the lowest base.
    maps = [snapshot_queue(cluster, queue).maps() for queue in queues]
    lowest = reclaimable([{partition: said.base for partition, said in of_queue.items()} for of_queue in maps])
    return tuple(queue.name for queue in queues), lowest


def _ahead(lowest: Mapping[int, int], starts: Mapping[int, int]) -> dict[int, int]:
    return {partition: base for partition, base in lowest.items() if base > starts.get(partition, base)}


def reclaimable(bases: Collection[Mapping[int, int]]) -> dict[int, int]:
    """Return where a topic's partitions may begin: at the lowest base of its queues.

    All of the queues have consumed everything below. Partitions without a base in one of the queues are left out.
    """
    partitions = set.intersection(*(set(of_queue) for of_queue in bases)) if bases else set()
    return {partition: min(of_queue[partition] for of_queue in bases) for partition in sorted(partitions)}


def _check_policy(cluster: Cluster, definition: QueueDefinition) -> None:
    topic = definition.topic
    policy = cluster.topics.config(topic).get("cleanup.policy", "")
    parts = {part.strip() for part in policy.split(",")}
    if not definition.conflate and "delete" not in parts:
        raise TopicMismatch(
            f"Nothing can be reclaimed from the topic {topic}: its cleanup.policy is {policy}.",
            topic=topic,
            settings={"cleanup.policy": ("delete", policy)},
            hint="Set it to delete, with retention.ms=-1; declaring the queue with "
            '`on_mismatch="reconcile"` does both.',
        )
    if definition.conflate and parts != {"compact", "delete"}:
        raise TopicMismatch(
            f"Nothing can be reclaimed from the topic {topic}: its cleanup.policy is {policy}.",
            topic=topic,
            settings={"cleanup.policy": ("compact,delete", policy)},
            hint="A broker deletes records only if the policy is compact,delete. Declaring the "
            "queue with `topic-config='cleanup.policy=compact,delete'|spec=TopicSpec(reclaim=True)` and "
            '`on_mismatch="reconcile"` sets it, and retention.ms=-1, so that age alone removes nothing.',
        )
