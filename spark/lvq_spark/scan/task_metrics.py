"""What a task met while it read, in numbers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, fields

from lvq_spark.pinning import SnapshotSpec

__all__ = ["TaskMetrics", "listen", "logger"]

logger = logging.getLogger("lvq_spark.tasks")

_OWN_LEVEL = logger.level


@dataclass(slots=True)
class TaskMetrics:
    """What reading one partition met; a task logs it at INFO when it is done. None for what it did not look at.

    A log line, since accumulators would lie: each further action on a DataFrame adds to them once more, while a task
    that a limit ends early adds nothing (both tried with ``mapInArrow``, Spark 4.3); nor does Spark promise that a
    stage which it runs again adds to them only once. One line is one complete reading, whatever became of its rows.

    Args:
        records: of the cut, as they were read from the log.
        rows: that were given on; deletes among them where a later step needs to see these.
        replaced: records with a newer one of their key in the same partition.
        deletes: of the newest records, or of all of them where nothing is conflated.
        keyless: records without a key.
        mismatched: records whose key header says another key than their record key, or cannot be read (R16).
        strays: keys that lie outside of their home partition (R14).
    """

    records: int | None = None
    rows: int = 0
    replaced: int | None = None
    deletes: int = 0
    keyless: int | None = None
    mismatched: int | None = None
    strays: int | None = None

    def log(self, spec: SnapshotSpec, partition: int) -> None:
        """Say it in words, and by name for formatters that show a record's ``context``, as Spark's own does."""
        said = {field.name: getattr(self, field.name) for field in fields(self)}
        counts = {name: str(count) for name, count in said.items() if count is not None}
        logger.info(
            "%s/%d, offsets %d to %d: %s",
            spec.topic,
            partition,
            spec.start[partition],
            spec.end[partition],
            " ".join(f"{name}={count}" for name, count in counts.items()),
            extra={"context": {"topic": spec.topic, "partition": str(partition), **counts}},
        )


def listen(level: int) -> None:
    """Have this process log as much as the driver does, since nobody sets up logging where a task runs.

    Args:
        level: the driver's. What this process has set up itself, if anything, is never made less.
    """
    logger.setLevel(_OWN_LEVEL)  # a job before may have said another
    logger.setLevel(min(level, logger.getEffectiveLevel()))
    if level < logging.WARNING and not logger.hasHandlers():
        logger.addHandler(logging.StreamHandler())
