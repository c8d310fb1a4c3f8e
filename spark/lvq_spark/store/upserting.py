"""Keep a store up to date from a stream: apply each batch of a streaming query."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from contextlib import nullcontext
from dataclasses import dataclass, replace
from os import PathLike
from typing import Any

from pyspark.sql import Column, DataFrame

from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import ConfigError, DataLoss, KeyMismatch, OutcomeUnknown
from lvq_kafka.queue import LastValueQueue
from lvq_spark.cut.pinning import SnapshotSpec, check_queue
from lvq_spark.rules.scheduling import scheduled_in_stream
from lvq_spark.schema import SCHEMA
from lvq_spark.session.local_session import require_frame
from lvq_spark.session.remote import require_classic
from lvq_spark.session.task_failures import raised, task_errors
from lvq_spark.store.guards import LogState, OnStale, aging, check_policies, check_upkeep, log_state
from lvq_spark.store.incremental import ATTEMPTS
from lvq_spark.store.layout import spark_delta
from lvq_spark.store.layout.builder import draft_of
from lvq_spark.store.layout.layers import reached
from lvq_spark.store.manifest import Version
from lvq_spark.store.refreshing import Refresher
from lvq_spark.store.storage import storage_errors

__all__ = ["upsert"]

logger = logging.getLogger("lvq_spark.store")

# Local properties of a Spark thread: the id of its query, which a checkpoint keeps, and the id of this run.
_QUERY, _RUN = "sql.streaming.queryId", "spark.jobGroup.id"

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
    """Return a ``foreachBatch`` function that works a stream of a queue's topic into a store.

    For example::

        source = spark.readStream.format("lvq").option("queue", "prices")...    # or format("kafka") and subscribe
        stream = source.option("includeHeaders", "true").option("lvq.strays", "pass").load()
        stream.writeStream.foreachBatch(upsert(queue, "/data/prices")).option("checkpointLocation", ...).start()

    The function takes all committed records of the topic, as produced by this library's source or by Spark's Kafka
    connector. Set ``includeHeaders`` to ``true``, since a store has headers. A null value deletes its key. Each batch
    becomes a version of the store, with one row for each key, so `read_version`, `versions` and `refresh` all work on
    it.

    - With the source ``lvq``, set ``lvq.strays`` to ``pass``: keys that lie in several partitions (R14) are resolved
      here. Without it, the stream fails permanently as soon as partitions are added, or if others write with a
      partitioner of their own.
    - Do not set ``lvq.tombstones=drop``, and do not filter the stream: a missing delete leaves its key in the store,
      and nothing can detect that.
    - With the source ``lvq``, and a queue with a TTL, set ``lvq.expired`` to ``keep``: a value that has expired still
      counts against others of its key (R14), and `read_version` leaves it out.
    - With the connector, set ``kafka.isolation.level`` to ``read_committed``.

    The store knows its offsets, and only offsets count. Batch numbers do not: they are reused when a checkpoint is
    restored or copied. So anything that the store already has changes nothing: a repeated batch, a batch of a query
    that started over, or records that a refresh has brought meanwhile. Anything that the stream does not bring is read
    from the log: everything if there is no store yet, and otherwise any gap between the store's cut and the batch. A
    batch does not say where its range begins, only which records are left of it. So the first batch after each start of
    the query may be read from the log once more; later batches of the same run need not be. Checkpoint and store
    can be restored, copied or deleted at will, and several streams may share a store.

    The conditions that rule out building on a version are those of `refresh`.

    Every batch costs some Spark jobs, and now and then a copy of the store, as with `refresh`: trigger batches every
    minute or so, not every second.

    Args:
        queue: the queue, on a Kafka cluster. The driver asks it about the topic, and the executors read what is
            missing.
        path: as for `refresh`.
        on_stale: as for `refresh`.
        keep: as for `refresh`.
        grace: as for `refresh`.
        timeout: as for `refresh`.

    Raises:
        ConfigError: this is a process of Spark Connect, an option is invalid, the queue has a selector, or its
            messages may be scheduled: a stream brings them when they are written, not when they are due. The returned
            function raises it if the stream lacks columns, or has records of another topic or without a key. It also
            raises everything that `refresh` raises.
    """
    require_classic("upsert", "refresh")
    check_queue(queue)
    check_policies(on_stale, "pinned")
    check_upkeep(keep, grace, timeout)
    _check_whole(queue)
    come = _Come("", -1, {})

    def run(batch: DataFrame, batch_id: int) -> None:
        nonlocal come
        require_frame(batch, "batch")
        spark = batch.sparkSession
        refresher = Refresher(spark, queue, path, on_stale, "pinned", keep, grace, timeout)
        query_id, run_id = (spark.sparkContext.getLocalProperty(name) or "" for name in (_QUERY, _RUN))
        upsert = _Upsert(refresher, (query_id, batch_id), come.before(run_id, batch_id))
        with storage_errors(refresher.store.storage.root):
            come = _Come(run_id, batch_id, upsert.apply(_keyed(batch, queue.definition)))

    return run


def _check_whole(queue: LastValueQueue[Any]) -> None:
    if queue.definition.max_delay is not None:
        raise scheduled_in_stream(queue.name, ["queue"])
    if queue.definition.selector is not None:
        raise ConfigError(
            f"The queue {queue.name} has a selector, and the records of a stream come as its source has read them, "
            "selected or not.",
            options=["queue"],
            hint="Keep the store up to date with lvq_spark.refresh, which reads the log itself, or upsert a queue of "
            "the whole topic.",
        )


@dataclass(frozen=True, slots=True)
class _Come:
    """The progress of a stream after a batch.

    Within one run of a query, each batch begins where the previous one ended. Spark does not say where a batch begins
    and ends, nor do its records: the first or the last of its range may be missing, or all of them. They only show, for
    each partition, an offset from which everything is still to come.
    """

    run_id: str
    batch_id: int
    to_come: Mapping[int, int]

    def before(self, run_id: str, batch_id: int) -> Mapping[int, int]:
        """Return the offsets from which this batch and later ones bring all records, if known."""
        return self.to_come if run_id and (run_id, batch_id) == (self.run_id, self.batch_id + 1) else {}


def _keyed(batch: DataFrame, definition: QueueDefinition) -> DataFrame:
    """Return the batch with the columns of a snapshot, and the key that counts (R16)."""
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    missing = [name for name in _COLUMNS if name not in batch.columns]
    if missing:
        raise ConfigError(
            f"The stream lacks the column {', '.join(missing)}.",
            options=["batch"],
            hint="Pass the source's rows before selecting columns; headers come with includeHeaders=true.",
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
    """Return the key in a record's last key header; the record key if it has none."""
    from pyspark.sql import functions as F  # noqa: N812

    def names_it(header: Column) -> Column:
        return header["key"].eqNullSafe(key_header)

    return F.coalesce(F.try_element_at(F.filter("headers", names_it), F.lit(-1))["value"], F.col("key"))


@dataclass(frozen=True, slots=True)
class _Upsert:
    """One batch of a query.

    ``since`` has the offsets from which the records have come in full, for the partitions where these are known.
    """

    refresher: Refresher
    batch: tuple[str, int]
    since: Mapping[int, int]

    def apply(self, batch: DataFrame) -> Mapping[int, int]:
        """Work the batch in, once. Return the offsets from which all records are still to come."""
        with spark_delta.held(batch) as whole:
            if not whole.upserts:
                self._stay_fresh()
                return self.since
            ranges = self._ranges(whole.rows)
            for _ in range(ATTEMPTS):
                to_come = self._step(whole, ranges)
                if to_come is not None:
                    return to_come
        raise OutcomeUnknown(
            f"Others wrote the next version of {self.refresher.store.storage.root} first, {ATTEMPTS} times in a row.",
            hint="Run one writer at a time.",
        )

    def _stay_fresh(self) -> None:
        """Refresh a store that may soon be too old for a delta.

        An empty batch of an idle stream says that nothing was missed. Unless the store records that, it would be
        rebuilt.
        """
        refresher = self.refresher
        base = self._base()
        if base is not None and aging(base, log_state(refresher.queue, refresher.timeout)):
            refresher.bring_up_to_date()

    def _base(self) -> Version | None:
        """Return the newest version; None if there is none.

        If its manifest is damaged, the store is rebuilt first.
        """
        try:
            return self.refresher.store.latest()
        except DataLoss:
            return self.refresher.bring_up_to_date()

    def _ranges(self, rows: DataFrame) -> dict[int, tuple[int, int]]:
        """Return each partition's first offset in the batch, and the one after the last."""
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

    def _step(self, whole: spark_delta.Delta, ranges: Mapping[int, tuple[int, int]]) -> Mapping[int, int] | None:
        """Bring the store up to the batch; return None if another writer was faster.

        Otherwise return the offsets from which all records are still to come.
        """
        refresher = self.refresher
        base = self._base()
        log = log_state(refresher.queue, refresher.timeout)
        to_come = {**self.since, **{partition: end for partition, (_, end) in ranges.items()}}
        from_the_log = base is None or refresher.problem(base, log) is not None or self._may_lack(base, ranges)
        if base is None or from_the_log:
            base = refresher.bring_up_to_date()
            log = log_state(refresher.queue, refresher.timeout)
        self._check_committed(log, ranges)
        end = {partition: max(offset, ranges.get(partition, (0, 0))[1]) for partition, offset in base.end.items()}
        if from_the_log:
            to_come = end  # the stream is no further than the log
        if end == dict(base.end):
            return to_come
        known = any(first < base.end[partition] for partition, (first, _) in ranges.items())
        rest = spark_delta.held(reached(whole.rows, base.end)) if known else nullcontext(whole)
        try:
            with task_errors(), rest as delta:
                version = self._built_upon(base, delta, end, log)
        except DataLoss as error:  # `problem` does not verify all of a large store
            logger.warning("The stream's records cannot be merged, and are read from the log instead: %s", error)
            return refresher.bring_up_to_date().end
        return to_come if refresher.commit(version) else None

    def _built_upon(self, base: Version, delta: spark_delta.Delta, end: Mapping[int, int], log: LogState) -> Version:
        from lvq_spark.store.driver_delta import gathered

        draft = draft_of(self.refresher.queue, base.number + 1, self._spec(base, log, end), log)
        draft = replace(draft, read_from=base.end, stream=self.batch)
        with self.refresher.store.attempt(draft.number) as folder:
            return self.refresher.builder.built_upon(base, gathered(base, delta) or delta, draft, log, folder)

    def _may_lack(self, base: Version, ranges: Mapping[int, tuple[int, int]]) -> bool:
        """Return whether there may be records between the version's cut and those of the batch."""
        first = {partition: first for partition, (first, end) in ranges.items() if end > base.end.get(partition, 0)}
        beyond = {p: at for p, at in {**first, **self.since}.items() if at > base.end.get(p, 0)}
        for partition, offset in beyond.items():
            if partition in self.since:
                logger.warning(
                    "%s was restored or replaced: version %d ends before offset %d of partition %d, up to which the "
                    "stream has delivered everything. The rest is read from the log.",
                    *(self.refresher.store.storage.root, base.number, offset, partition),
                )
                break
        return bool(beyond)

    def _check_committed(self, log: LogState, ranges: Mapping[int, tuple[int, int]]) -> None:
        for partition, (_, end) in sorted(ranges.items()):
            if end > log.end.get(partition, 0):
                raise ConfigError(
                    f"The stream has offset {end - 1} of partition {partition} of {log.topic}, which is not "
                    f"committed yet: the last stable offset is {log.end.get(partition, 0)}.",
                    options=["kafka.isolation.level"],
                    hint="Set kafka.isolation.level to read_committed at the stream's source.",
                )

    def _spec(self, base: Version, log: LogState, end: Mapping[int, int]) -> SnapshotSpec:
        start = {partition: min(log.start[partition], end[partition]) for partition in end}
        return SnapshotSpec(
            topic=base.topic,
            topic_id=base.topic_id,
            start=start,
            end=end,
            key_header=base.key_header,
            key_mismatch=base.key_mismatch,
            ttl=base.ttl,
            groups=self.refresher.queue.definition.groups,
        )
