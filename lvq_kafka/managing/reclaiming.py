"""Removing from the log what all its queues have consumed. Compaction never does: it keeps the newest of each key."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.errors import QueueError, TopicMismatch
from lvq_kafka.managing.backlog import look
from lvq_kafka.ports import Log
from lvq_kafka.registry import Registry

__all__ = ["Reclaim", "reclaim"]


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


def reclaim(log: Log, definition: QueueDefinition, *, dry_run: bool = False) -> Reclaim:
    """Remove what is consumed. See `lvq_kafka.queue.LastValueQueue.reclaim`."""
    topic = definition.topic
    _check_policy(log, topic)
    registry = Registry(log)
    registry.get(definition.name)
    queues = [other for other in registry.all(strict=True) if other.topic == topic]
    browsed = [other.name for other in queues if other.non_destructive]
    if browsed:
        raise QueueError(
            f"The topic {topic} also serves {', '.join(browsed)}, from which nothing is ever consumed.",
            queue=definition.name,
            hint="What one queue has consumed is still a current value of the other, so it has to stay.",
        )
    # Nothing that any of the queues could still hand out lies below the lowest base.
    standings = [look(log, queue) for queue in queues]
    bases = [standing.maps() for standing in standings]
    starts = standings[0].starts
    lowest = {partition: min(maps[partition].base for maps in bases) for partition in starts}
    ahead = {partition: base for partition, base in lowest.items() if base > starts[partition]}
    if ahead and not dry_run:
        ahead = log.delete_before(topic, ahead)
    return Reclaim(starts, {**starts, **ahead}, tuple(queue.name for queue in queues), dry_run)


def _check_policy(log: Log, topic: str) -> None:
    policy = log.topic_config(topic).get("cleanup.policy", "")
    if {part.strip() for part in policy.split(",")} != {"compact", "delete"}:
        raise TopicMismatch(
            f"From the topic {topic} nothing can be reclaimed: its cleanup.policy is {policy}.",
            topic=topic,
            settings={"cleanup.policy": ("compact,delete", policy)},
            hint="A broker deletes records only where the policy is compact,delete. Set it, with retention.ms=-1 so "
            "that age alone removes nothing; a new queue gets both with TopicSpec(reclaim=True).",
        )
