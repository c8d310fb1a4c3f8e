"""Keeping a store up to date from a stream: what a streaming query does with each of its batches."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.errors import ConfigError, KeyMismatch, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue
from lvq_spark.errors import raised
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.schema import SCHEMA
from lvq_spark.store import tables
from lvq_spark.store.building import draft_of
from lvq_spark.store.guards import LogState, OnStale, aging, look
from lvq_spark.store.layers import reached
from lvq_spark.store.manifest import Version
from lvq_spark.store.refreshing import Refresher
from lvq_spark.store.upkeep import ATTEMPTS

if TYPE_CHECKING:
    from os import PathLike

    from pyspark.sql import Column, DataFrame

__all__ = ["upsert"]

logger = logging.getLogger("lvq_spark.store")

_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")


def upsert(
    queue: LastValueQueue[Any],
    path: str | PathLike[str],
    *,
    on_stale: OnStale = "rebuild",
    keep: int = 3,
    grace: float = 3600.0,
    timeout: float = 10.0,
) -> Callable[[DataFrame, int], None]:
    """A function for ``foreachBatch`` that works a stream of a queue's topic into a store::

        source = spark.readStream.format("lvq").option("queue", "prices")...    # or format("kafka") and subscribe
        stream = source.option("includeHeaders", "true").option("lvq.strays", "pass").load()
        stream.writeStream.foreachBatch(upsert(queue, "/data/prices")).option("checkpointLocation", ...).start()

    It takes all committed records of the topic, as this library's source or Spark's Kafka connector gives them, with
    ``includeHeaders`` set to ``true``, since a store has headers. A null value deletes. Each batch becomes a version of
    the store, with one row for each key, so `read_version`, `versions` and `refresh` work on it all the same.

    - The source ``lvq`` with ``lvq.strays`` set to ``pass``: what several partitions hold of a key (R14) is settled
      here. Without it the stream fails for good as soon as partitions are added, or where others write by a partitioner
      of their own.
    - It must not have ``lvq.tombstones=drop``, nor be filtered: a delete that does not come leaves its key in the
      store, and nothing can tell.
    - The connector with ``kafka.isolation.level`` set to ``read_committed``.

    The store knows up to which offset it is, so what it has already changes nothing: a batch that comes again after a
    restart, one of a query that started over, or records that a refresh has brought meanwhile. What the stream does not
    bring is read from the log: all of it where there is no store yet, and where the stream begins beyond the store's
    cut. What rules out that a version is built upon does so here, too; see `refresh`.

    Every batch costs some Spark jobs, and now and then a copy of the store, as with `refresh`: let batches come every
    minute or so, not every second.

    Args:
        queue: the queue, on a Kafka cluster. The driver asks it how the topic is, and the executors read what is
            missing.
        path, on_stale, keep, grace, timeout: as for `refresh`.

    Raises:
        ConfigError: an option is bad. The function it returns raises it, too, where the stream lacks columns, has
            records of another topic or without a key; and all that `refresh` raises.
    """

    def run(batch: DataFrame, batch_id: int) -> None:
        spark = batch.sparkSession
        refresher = Refresher(spark, queue, path, on_stale, "pinned", keep, grace, timeout)
        query = spark.sparkContext.getLocalProperty("sql.streaming.queryId") or ""
        _Upsert(refresher, query, batch_id).apply(_keyed(batch, queue.definition))

    return run


def _keyed(batch: DataFrame, definition: QueueDefinition) -> DataFrame:
    """The batch with the columns of a snapshot, and the key that counts (R16)."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    missing = [name for name in _COLUMNS if name not in batch.columns]
    if missing:
        raise ConfigError(
            f"The stream lacks the column {', '.join(missing)}.",
            options=["batch"],
            hint="Give it as the source does, before anything is selected; headers come with includeHeaders=true.",
        )
    if definition.key_header is not None and definition.key_mismatch != "record":
        said, fails = _said(str(definition.key_header)), definition.key_mismatch == "fail"
        differs = F.raise_error(F.lit(raised(KeyMismatch, "The key header of a record and its key disagree.")))
        batch = batch.withColumn(
            "key", F.when(~said.eqNullSafe(F.col("key")), differs).otherwise(said) if fails else said
        )
    columns = [field.split(" ", 1) for field in SCHEMA.split(", ", 6)]
    return batch.select(*(F.col(name).cast(kind).alias(name) for name, kind in columns))


def _said(key_header: str) -> Column:
    """The key that a record's header names, the last of them; its record key where none does."""
    from pyspark.sql import functions as F  # noqa: N812

    def names_it(header: Column) -> Column:
        return header["key"].eqNullSafe(key_header)

    return F.coalesce(F.try_element_at(F.filter("headers", names_it), F.lit(-1))["value"], F.col("key"))


@dataclass(frozen=True, slots=True)
class _Upsert:
    refresher: Refresher
    query: str
    batch_id: int

    def apply(self, batch: DataFrame) -> None:
        """Work the batch in, once."""
        with tables.held(batch) as whole:
            if not whole.upserts:
                self._stay_fresh()
                return
            ends = self._ends(whole.rows)
            for _ in range(ATTEMPTS):
                if self._step(whole, ends):
                    return
        raise OutcomeUnknown(
            f"Others have written the next version of {self.refresher.store.storage.root} {ATTEMPTS} times in a row.",
            hint="One writer at a time is enough.",
        )

    def _stay_fresh(self) -> None:
        """An idle stream says now and then that nothing was missed, and so has the store to, or it would be rebuilt."""
        refresher = self.refresher
        base = refresher.store.latest()
        if base is not None and aging(base, look(refresher.queue, refresher.timeout)):
            refresher.bring_up_to_date()

    def _ends(self, rows: DataFrame) -> dict[int, tuple[int, int]]:
        """The first offset in each partition, and the one behind the last."""
        from pyspark.sql import functions as F  # noqa: N812

        topic = self.refresher.queue.definition.topic
        faults = rows.where(F.col("key").isNull() | (F.col("topic") != topic)).limit(1).collect()
        if faults:
            row = faults[0]
            what = f"of the topic {row.topic}, not of {topic}" if row.topic != topic else "without a key"
            raise ConfigError(
                f"The stream has a record {what}: {row.topic}/{row.partition}/{row.offset}.", options=["batch"]
            )
        found = rows.groupBy("partition").agg(F.min("offset"), F.max("offset") + 1).collect()
        return {row[0]: (row[1], row[2]) for row in found}

    def _step(self, whole: tables.Delta, ends: Mapping[int, tuple[int, int]]) -> bool:
        """Whether the store has the batch by now."""
        from lvq_spark.store.little import gathered

        refresher = self.refresher
        base = refresher.store.latest()
        if base is not None and base.stream is not None and self._is_done(base.stream):
            logger.info("Batch %d of %s is in version %d already.", self.batch_id, self.query, base.number)
            return True
        log = look(refresher.queue, refresher.timeout)
        if base is None or refresher.problem(base, log) is not None or self._has_gap(base, ends):
            base = refresher.bring_up_to_date()
            log = look(refresher.queue, refresher.timeout)
        self._check_committed(log, ends)
        end = {partition: max(offset, ends.get(partition, (0, 0))[1]) for partition, offset in base.end.items()}
        if end == dict(base.end):
            return True
        known = any(first < base.end[partition] for partition, (first, _) in ends.items())
        rest = tables.held(reached(whole.rows, base.end)) if known else nullcontext(whole)
        builder = refresher.builder
        with rest as delta:
            draft = draft_of(refresher.queue, base.number + 1, self._spec(base, log, end), log)
            draft = replace(draft, stream=(self.query, self.batch_id))
            return refresher.commit(builder.built_upon(base, gathered(base, delta) or delta, draft, log))

    def _check_committed(self, log: LogState, ends: Mapping[int, tuple[int, int]]) -> None:
        for partition, (_, end) in sorted(ends.items()):
            if end > log.end[partition]:
                raise ConfigError(
                    f"The stream has offset {end - 1} of partition {partition} of {log.topic}, which no transaction "
                    f"has committed yet: the last stable offset is {log.end[partition]}.",
                    options=["kafka.isolation.level"],
                    hint="Set kafka.isolation.level to read_committed at the stream's source.",
                )

    def _is_done(self, stream: tuple[str, int]) -> bool:
        return bool(self.query) and stream[0] == self.query and self.batch_id <= stream[1]

    def _has_gap(self, base: Version, ends: Mapping[int, tuple[int, int]]) -> bool:
        """Whether there may be records between the version's cut and the batch. Batches of one query have none."""
        if base.stream is not None and self.query and base.stream == (self.query, self.batch_id - 1):
            return False
        return any(first > base.end[partition] for partition, (first, _) in ends.items())

    def _spec(self, base: Version, log: LogState, end: Mapping[int, int]) -> SnapshotSpec:
        start = {partition: min(log.start[partition], end[partition]) for partition in end}
        return SnapshotSpec(
            topic=base.topic,
            topic_id=base.topic_id,
            start=start,
            end=end,
            key_header=base.key_header,
            key_mismatch=base.key_mismatch,
        )
