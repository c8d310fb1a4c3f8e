"""Resumption of a watch: the keys that have changed since an earlier one."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, NoReturn

from lvq_kafka.cluster import Cluster
from lvq_kafka.cluster.reading_to_end import read_to_end
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.log.progress import Progress, describe
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.definition import QueueDefinition, time_rule
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.queue.topic_settings import DELETE_RETENTION, delete_retention
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import as_float
from lvq_kafka.core.timing.log_time import MOST_AHEAD
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, LVQError, TopicRecreated, TransportError
from lvq_kafka.reading.entries import EndOfDump
from lvq_kafka.reading.key_pages import TRUSTED, KeyPage, check_queue, token_of
from lvq_kafka.reading.snapshot import Snapshot

__all__ = ["Resumable", "ResumePoint", "changed_since", "check_known"]

Resumable = Mapping[int, int] | EndOfDump | Snapshot[Any] | KeyPage[Any] | str
"""The next offset of each partition, an object that has them, or the token of a page or watch."""

_POLL = 0.1  # seconds


@dataclass(frozen=True, slots=True)
class ResumePoint:
    """The next offset of each partition that an earlier reader had reached.

    The topic's id, and the time in seconds since the epoch, are empty and 0.0 if unknown.
    """

    offsets: Mapping[int, int]
    topic_id: str = ""
    as_of: float = 0.0

    @classmethod
    def of(cls, since: Resumable, queue: str) -> ResumePoint:
        """Check where to resume in a queue.

        Raises:
            ConfigError: it is none of a `Resumable`, or a page of another queue.
        """
        if isinstance(since, KeyPage | str):
            token = token_of(since, "since")
            check_queue(token, queue, "since")
            return cls(token.offsets, token.topic_id, token.as_of)
        offsets: Any = since.offsets if isinstance(since, EndOfDump | Snapshot) else since
        if not isinstance(offsets, Mapping) or not offsets or not all(map(_whole, [*offsets, *offsets.values()])):
            raise ConfigError(
                f"since={quoted(since)} has no offsets by partition.",
                options=["since"],
                hint="Give an EndOfDump, a snapshot, or their offsets; or the last page, or its token.",
            )
        if isinstance(since, EndOfDump | Snapshot):
            as_of = as_float(since.as_of)
            if not 0 <= 1000 * as_of < math.inf:  # in ms, too
                raise ConfigError(
                    f"since={quoted(since)} has no time in seconds since the epoch.",
                    options=["since"],
                    hint="Give an EndOfDump or a snapshot as it was returned, or offsets.",
                )
            return cls(dict(offsets), since.topic_id, as_of)
        return cls(dict(offsets))

    @property
    def end(self) -> EndOfDump:
        """The end of a dump of this point."""
        return EndOfDump(self.offsets, as_of=self.as_of, topic_id=self.topic_id)

    @property
    def moment(self) -> int:
        """Its time, in ms since the epoch; 0 if unknown."""
        return round(1000 * self.as_of)

    def check_time(self, topic: str, now: float, option: str = "since") -> None:
        """Check that this point has a time, which decides which messages counted.

        Args:
            topic: the topic, whose messages may be scheduled or expire.
            now: the time, in seconds since the epoch.
            option: the argument that the point was given as.

        Raises:
            ConfigError: it has none, or one too far ahead.
        """
        if not self.as_of:
            raise ConfigError(
                f"Messages in {topic} may be scheduled or expire, so offsets alone do not say which ones counted.",
                options=["since", "max_delay", "ttl"],
                hint="Give a token, an EndOfDump or a snapshot, which have a time (as_of), or begin with a dump.",
            )
        ahead = self.as_of - now
        if not ahead <= MOST_AHEAD / 1000:
            raise _later(topic, ahead, option)

    def check(self, cluster: Cluster, topic: str, topic_id: str) -> None:
        """Check that this point is in a topic with this id.

        Raises:
            TopicRecreated: the point belongs to another topic of that name.
            ConfigError: the point is beyond the end of the log, or in a partition that does not exist.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        self.check_topic(topic, topic_id)
        ends = cluster.logs.end_offsets(topic)
        for partition, offset in sorted(self.offsets.items()):
            if offset > ends.get(partition, -1):
                end = f"ends at {ends[partition]}" if partition in ends else "has no such partition"
                raise ConfigError(
                    f"since= names offset {offset} of partition {partition}, but {topic} {end}.",
                    options=["since"],
                    hint="These offsets are of another topic, or records were lost. Begin with a dump.",
                )

    def check_topic(self, topic: str, topic_id: str) -> None:
        """Check that the topic still has the id that it had at this point.

        Raises:
            TopicRecreated: it has another one.
        """
        if self.topic_id not in ("", topic_id):
            raise TopicRecreated(f"The topic {topic} was re-created since.", topic=topic, hint="Begin with a dump.")


class _Differences:
    """The keys whose newest record that counts differs from that at a point.

    Args:
        definition: the queue.
        point: the point. Records below it counted if they were due at its time.
        end: the cut up to which changes are reported. Records below it count if they are due at its time.
    """

    def __init__(self, definition: QueueDefinition, point: ResumePoint, end: EndOfDump) -> None:
        rules = QueueRules.of(definition)
        self._keys_of = rules.keys.of
        self._judge = rules.times.due_times()
        self._point, self._end = point, end
        self._then, self._now = point.moment, round(1000 * end.as_of)
        self._found: dict[tuple[int, bytes], bool | None] = {}  # None: as at the point

    def read(self, batch: RecordBatch) -> None:
        """Examine records in the order of the log."""
        keys, since, judge, found = self._keys_of(batch), self._point.offsets, self._judge, self._found
        rows = zip(keys, batch.values, batch.partitions, batch.offsets, batch.timestamps, batch.headers)
        for key, value, partition, offset, timestamp, headers in rows:
            if key is None or offset >= self._end.offsets[partition]:  # the watch is notified of it anyway
                continue
            if judge is not None and not judge.counts(self._now, timestamp, headers):
                continue
            before = offset < since.get(partition, 0)
            known = before and (judge is None or judge.counts(self._then, timestamp, headers))
            found.pop((partition, key), None)
            found[partition, key] = None if known else value is None

    @property
    def keys(self) -> dict[bytes, bool]:
        """The keys, in the order of their last records, and whether those are deletes."""
        changed: dict[bytes, bool] = {}
        for (_, key), deleted in self._found.items():
            if deleted is not None:
                changed.pop(key, None)
                changed[key] = deleted
        return changed


def check_known(changed: Mapping[bytes, Cause | None] | None, topic: str) -> Mapping[bytes, Cause | None]:
    """Return the keys that have changed since a point, as a store knows them.

    Raises:
        DataLoss: the point is before what it knows.
    """
    if changed is None:
        raise DataLoss(
            f"It is unknown what has changed in {topic} since that point: the store was first complete later, or has "
            "removed the traces of what was deleted longer ago than the topic keeps deletes (delete.retention.ms).",
            hint="Begin with a dump, resume sooner, or raise delete.retention.ms.",
        )
    return changed


def changed_since(
    cluster: Cluster, definition: QueueDefinition, point: ResumePoint, end: EndOfDump, *, timeout: float
) -> dict[bytes, bool]:
    """Return the keys whose newest record that counts has changed from a point to a cut.

    They are in the order of their last records. The value of a key is whether that record is a delete.

    Raises:
        ConfigError: the time of the point is later than that of the cut.
        TopicRecreated: the topic was re-created meanwhile.
        DataLoss: records from there on are gone, and deletes may be among them (R34).
        CatchUpTimeout: reading took longer than ``timeout`` seconds.
        TransportError: the cluster cannot be reached or refuses the request.
    """
    topic = definition.topic
    began = time.monotonic()
    if time_rule(definition).may_schedule and end.as_of < point.as_of:
        raise _later(topic, point.as_of - end.as_of)
    since = _reading_starts(cluster, definition, point, end.offsets)
    range_ends = {partition: at for partition, at in end.offsets.items() if at > since[partition]}
    young, retention = _young(cluster, topic, point.as_of, since, range_ends)
    changes = _Differences(definition, point, end)
    holes = {partition: max(0, min(young[partition], at) - since[partition]) for partition, at in range_ends.items()}
    progress = Progress({partition: since[partition] for partition in range_ends})

    def give_up(shortfalls: list[Shortfall], error: TransportError | None) -> NoReturn:
        raise CatchUpTimeout(
            f"Reading {topic} since these offsets took longer than {timeout:g} s: {error or describe(shortfalls)}.",
            shortfalls=shortfalls,
        )

    reader = cluster.reader(topic, progress.positions)
    try:
        for fetch in read_to_end(lambda: reader.poll(_POLL), progress, range_ends, give_up=give_up, timeout=timeout):
            changes.read(fetch.batch)
            for partition, offset in zip(fetch.batch.partitions, fetch.batch.offsets):
                holes[partition] -= offset < min(young[partition], range_ends[partition])
    finally:
        reader.close()
    if cluster.topics.describe(topic).id != end.topic_id:
        raise TopicRecreated(f"The topic {topic} was re-created meanwhile.", topic=topic, hint="Begin with a dump.")
    lost = sorted(partition for partition, count in holes.items() if count)
    if lost or time.monotonic() - began > (1 - TRUSTED) / 2 * retention:
        _refuse(topic, lost, holes, retention)
    return changes.keys


def _reading_starts(
    cluster: Cluster, definition: QueueDefinition, point: ResumePoint, until: Mapping[int, int]
) -> dict[int, int]:
    """Return the offsets from which records may have begun to count since a point.

    A message scheduled at that time had been appended at most the longest delay before.

    Raises:
        DataLoss: the log begins after the point.
    """
    topic = definition.topic
    starts = cluster.logs.start_offsets(topic)
    for partition, offset in sorted(point.offsets.items()):
        if offset < starts.get(partition, 0):
            raise DataLoss(
                f"Partition {partition} of {topic} begins at offset {starts[partition]}: what it had from offset "
                f"{offset} on is gone.",
                hint="Begin with a dump.",
            )
    since = {partition: point.offsets.get(partition, starts.get(partition, 0)) for partition in until}
    longest = time_rule(definition).longest_delay
    if longest is None:
        return since
    earlier = cluster.logs.offsets_at(topic, max(0, round(1000 * (point.as_of - longest))))
    return {p: max(starts.get(p, 0), min(offset, earlier.get(p, offset))) for p, offset in since.items()}


def _young(
    cluster: Cluster, topic: str, as_of: float, since: Mapping[int, int], ends: Mapping[int, int]
) -> tuple[Mapping[int, int], float]:
    """Return offsets from which no delete is gone, and the retention in seconds."""
    retention, stamped = DELETE_RETENTION, False
    with suppress(LVQError):  # a user who may not read the settings gets the safe assumption
        config = cluster.topics.config(topic)
        retention, stamped = delete_retention(config), config.get("message.timestamp.type") == "LogAppendTime"
    horizon = cluster.now() - TRUSTED * retention
    if as_of >= horizon:
        return since, retention
    if not stamped:  # producers' times do not show when a delete was appended
        return ends, retention
    young = cluster.logs.offsets_at(topic, max(0, round(horizon * 1000)))
    return {partition: young.get(partition, end) for partition, end in ends.items()}, retention


def _later(topic: str, ahead: float, option: str = "since") -> ConfigError:
    return ConfigError(
        f"{option}= is {ahead:,.1f} s later than the time by which messages in {topic} are due here.",
        options=[option],
        hint=f"Set the clocks of this machine and of the one that {option}= is from, or begin again.",
    )


def _refuse(topic: str, lost: list[int], holes: Mapping[int, int], retention: float) -> NoReturn:
    where = f"partition {lost[0]}: {holes[lost[0]]} records are missing since" if lost else "reading took too long"
    raise DataLoss(
        f"It is unknown what was deleted from {topic} since these offsets ({where}): the topic keeps deletes for "
        f"{retention:g} s (delete.retention.ms), and some may be gone.",
        hint="Begin with a dump, resume sooner, or raise delete.retention.ms.",
    )


def _whole(number: object) -> bool:
    return isinstance(number, int) and not isinstance(number, bool) and number >= 0
