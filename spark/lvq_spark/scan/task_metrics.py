"""Counters of what a task met while it read."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields
from typing import TYPE_CHECKING

from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.selectors.like_patterns import LONGEST_TEXT
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.scan.shares import Slice

if TYPE_CHECKING:
    from lvq_spark.scan.filters import DueFilter

__all__ = ["TaskMetrics", "listen", "logger"]

logger = logging.getLogger("lvq_spark.tasks")

_OWN_LEVEL = logger.level


@dataclass(slots=True)
class TaskMetrics:
    """Counters for one read of a partition, logged at INFO when the task is done.

    None stands for anything that the task did not look at.

    The log is used because accumulators would lie: each further action on a DataFrame adds to them again, while a task
    that a limit ends early adds nothing (both tried with ``mapInArrow``, Spark 4.3), and Spark does not promise that a
    stage which it reruns adds to them only once. One line stands for one complete read, whatever became of its rows.

    With slices, each has a line of its own: all of them read all records, and each counts the rest for its keys.

    Args:
        records: records of the cut, as read from the log.
        rows: rows passed on, including deletes if a later step needs them.
        replaced: records with a newer one of their key in the same partition.
        deletes: deletes among the newest records, or among all of them if nothing is conflated.
        keyless: records without a key.
        mismatched: records whose key header differs from their record key, or cannot be read (R16).
        strays: keys outside their home partition (R14).
        expired: newest records that have expired at the time of the cut (R10).
        malformed_ttls: newest records with a TTL that is 0 or cannot be read, which counts as none.
        unselected: newest records that a selector leaves out (R26), or all of them if nothing is conflated.
        unjudged: of these, records with a text too long for LIKE, by which it is unknown whether they are selected.
        scheduled: records that do not count yet at the time of the cut (R11).
        scheduled_from: the offset of the first of these in the log.
        next_due: the time when the first of them counts, in ms since the epoch.
        malformed_times: records, not older than the longest delay, with a time that cannot be read, which counts as
            none.
        malformed_priorities: rows whose priority cannot be read, which counts as none (R20).
    """

    records: int | None = None
    rows: int = 0
    replaced: int | None = None
    deletes: int = 0
    keyless: int | None = None
    mismatched: int | None = None
    strays: int | None = None
    expired: int | None = None
    malformed_ttls: int | None = None
    unselected: int | None = None
    unjudged: int | None = None
    scheduled: int | None = None
    scheduled_from: int | None = None
    next_due: int | None = None
    malformed_times: int | None = None
    malformed_priorities: int | None = None

    def note(self, aside: DueFilter) -> None:
        """Note what a read has set aside."""
        self.scheduled, self.malformed_times = aside.count, aside.malformed
        if aside.scheduled is not None:
            self.scheduled_from, self.next_due = aside.scheduled

    @property
    def waiting(self) -> NotDue | None:
        """The records set aside; None if there are none."""
        if self.scheduled_from is None or self.next_due is None:
            return None
        return NotDue(self.scheduled_from, self.next_due)

    def log(self, spec: SnapshotSpec, partition: int, part: Slice | None = None) -> None:
        """Log the counters as text, and by name in the record's ``context``.

        Formatters such as Spark's own show the context.

        Args:
            part: the slice that was kept; None for all of the partition.
        """
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        counts = {name: str(count) for name, count in said.items() if count is not None}
        where = {"topic": spec.topic, "partition": str(partition)}
        if part is not None:
            where["slice"] = f"{part.number + 1}/{part.of}"
        logger.info(
            "%s/%d%s, offsets %d to %d: %s",
            spec.topic,
            partition,
            "" if part is None else f", {part}",
            spec.start[partition],
            spec.end[partition],
            " ".join(f"{name}={count}" for name, count in counts.items()),
            extra={"context": {**where, **counts}},
        )
        for header, malformed, what in (
            (TTL_HEADER, self.malformed_ttls, "a positive number of milliseconds"),
            (NOT_BEFORE_HEADER, self.malformed_times, "a number of milliseconds"),
            (PRIORITY_HEADER, self.malformed_priorities, "a priority"),
        ):
            if malformed:
                logger.warning(
                    "%s/%d: the header %s of %d records is not %s, and counts as none.",
                    *(spec.topic, partition, header, malformed, what),
                )
        if self.unjudged:
            logger.warning(
                "%s/%d: %d records have a text too long for LIKE (%s bytes are allowed), and are not selected.",
                *(spec.topic, partition, self.unjudged, f"{LONGEST_TEXT:,}"),
            )


def listen(level: int) -> None:
    """Make this process log as much as the driver does.

    Nobody sets up logging where a task runs.

    Args:
        level: the driver's level. Logging that this process has set up itself is never reduced.
    """
    logger.setLevel(_OWN_LEVEL)  # an earlier job may have set another
    logger.setLevel(min(level, logger.getEffectiveLevel()))
    if level < logging.WARNING and not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
