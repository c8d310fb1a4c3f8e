"""Pinning: the cut through a topic's log that a snapshot shows, fixed once on the driver."""

from __future__ import annotations

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.mismatch import KeyMismatchPolicy
from lvq_kafka.core.progress import Shortfall, describe
from lvq_kafka.errors import ConfigError, DataLoss, Unauthorized
from lvq_kafka.ports import Log
from lvq_kafka.queue import LastValueQueue

__all__ = ["SnapshotSpec", "pin"]


@dataclass(frozen=True, slots=True)
class SnapshotSpec:
    """What a snapshot reads: the same spec gives the same rows, whenever and wherever it is read. Holds no secret.

    Args:
        topic_id: tells the topic from another one of the same name.
        start: the first offset to read, for every partition of the topic.
        end: the offset to stop before, for every partition. ``view.snapshot().offsets`` is such a vector.
        key_header, key_mismatch: what names a record's key; see `lvq_kafka.QueueDefinition`.
        compaction_lag: seconds for which the topic keeps a superseded record (``min.compaction.lag.ms``).
        blocked: partitions where an open transaction hides what was written after ``end``.
        done: what a consumer group has done, by partition, when only what it has not is to be seen.
        timestamp_type: what timestamps are: 0 the producers', 1 append times, -1 not known.
    """

    topic: str
    topic_id: str
    start: Mapping[int, int]
    end: Mapping[int, int]
    key_header: str | None = None
    key_mismatch: KeyMismatchPolicy = "record"
    compaction_lag: float = 0.0
    blocked: tuple[Shortfall, ...] = ()
    done: Mapping[int, CommitMap] | None = None
    timestamp_type: int = -1

    @property
    def partitions(self) -> int:
        """The topic's partition count."""
        return len(self.end)

    @property
    def ranges(self) -> list[int]:
        """The partitions that have anything to read."""
        return [partition for partition in sorted(self.end) if self.start[partition] < self.end[partition]]


def pin(
    queue: LastValueQueue[Any],
    *,
    start: Mapping[int, int] | None = None,
    end: Mapping[int, int] | None = None,
    timeout: float = 10.0,
) -> SnapshotSpec:
    """Fix the cut that a snapshot of a queue shows.

    Args:
        queue: the queue.
        start: the first offset of each partition; by default where its log starts.
        end: the offset to stop before in each partition, such as ``view.snapshot().offsets``. By default the last
            stable offset: all that is committed now. What an open transaction holds back is then in ``blocked``,
            and a warning says so.
        timeout: seconds for each question to the cluster.

    Raises:
        TopicNotFound: there is no such topic.
        DataLoss: offsets that the cut needs are gone, or the log has never held them.
        ConfigError: the offsets do not fit the topic's partitions, or end behind an open transaction.
        TransportError: the cluster cannot be reached or refuses.
    """
    definition, log = queue.definition, queue.log
    topic = definition.topic
    described = log.describe_topic(topic, timeout=timeout)
    lowest = log.start_offsets(topic, timeout=timeout)
    stable = log.end_offsets(topic, stable=True, timeout=timeout)
    highest = log.end_offsets(topic, timeout=timeout)
    for option, offsets in (("start", start), ("end", end)):
        if offsets is not None:
            _check_partitions(topic, option, offsets, described.partitions)
    blocked: tuple[Shortfall, ...] = ()
    if end is None:
        end = stable
        if stable != highest:
            # Perhaps the log only grew between the two questions. By now nothing but an open transaction parts them.
            now = log.end_offsets(topic, stable=True, timeout=timeout)
            blocked = tuple(Shortfall(p, end[p], highest[p], now[p]) for p in sorted(end) if now[p] < highest[p])
    else:
        _check_end(topic, end, lowest, stable, highest)
    start = {p: min(lowest[p], end[p]) for p in end} if start is None else start
    _check_start(topic, start, end, lowest)
    if blocked:
        warnings.warn(f"The snapshot of {topic} ends early: {describe(blocked)}.", stacklevel=2)
    return SnapshotSpec(
        topic=topic,
        topic_id=described.id,
        start=dict(sorted(start.items())),
        end=dict(sorted(end.items())),
        key_header=definition.key_header,
        key_mismatch=definition.key_mismatch,
        compaction_lag=_compaction_lag(log, topic, timeout),
        blocked=blocked,
    )


def _check_partitions(topic: str, option: str, offsets: Mapping[int, int], partitions: int) -> None:
    missing = sorted(set(range(partitions)) - set(offsets))
    unknown = sorted(set(offsets) - set(range(partitions)))
    if missing or unknown:
        what = [f"lacks partition {', '.join(map(str, missing))}"] if missing else []
        what += [f"names partition {', '.join(map(str, unknown))}, which is not there"] if unknown else []
        raise ConfigError(
            f"{option} does not fit the topic {topic} of {partitions} partitions: it {' and '.join(what)}.",
            options=[option],
            hint="Give one offset for each partition, all taken from the same topic since it last grew.",
        )


def _check_end(
    topic: str, end: Mapping[int, int], lowest: Mapping[int, int], stable: Mapping[int, int], highest: Mapping[int, int]
) -> None:
    for partition, offset in sorted(end.items()):
        if not lowest[partition] <= offset <= highest[partition]:
            raise DataLoss(
                f"The cut ends at offset {offset} of partition {partition} of {topic}, "
                f"which holds {lowest[partition]} to {highest[partition]}.",
                hint="The log was truncated, or the topic is another one by now: take a new cut.",
            )
    held = [Shortfall(p, stable[p], end[p], stable[p]) for p in sorted(end) if stable[p] < end[p]]
    if held:
        raise ConfigError(
            f"The cut through {topic} ends behind an open transaction: {describe(held)}.",
            options=["end"],
            hint="Leave end out to stop before it, or wait until the transaction has ended.",
        )


def _check_start(topic: str, start: Mapping[int, int], end: Mapping[int, int], lowest: Mapping[int, int]) -> None:
    for partition, offset in sorted(start.items()):
        if offset > end[partition]:
            raise ConfigError(
                f"In partition {partition} of {topic}, start {offset} is behind end {end[partition]}.",
                options=["start", "end"],
            )
        if offset < lowest[partition] and offset < end[partition]:
            raise DataLoss(
                f"The cut starts at offset {offset} of partition {partition} of {topic}, "
                f"whose log starts at {lowest[partition]}.",
                hint="Leave start out to read what is there.",
            )


def _compaction_lag(log: Log, topic: str, timeout: float) -> float:
    try:
        return int(log.topic_config(topic, timeout=timeout).get("min.compaction.lag.ms", 0)) / 1000
    except Unauthorized:
        return 0.0  # not known, so nothing is built on it
