"""Scanning one partition of a pinned cut in a task, from the log to Arrow batches."""

from __future__ import annotations

import gc
import math
import time
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING, Literal, cast

import pyarrow.compute as pc

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.log.selecting import only_selected
from lvq_kafka.core.queue.ranking import Ranking
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import DataLoss, KeyMismatch
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.selectors.selector import Selector
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.scan.arrow_columns import BYTES, COLUMNS, ROWS, Origin, to_arrow
from lvq_spark.scan.candidates import as_deletes, expired
from lvq_spark.scan.compaction_gap import Superseded, aborted_without_gap, first_without_gap
from lvq_spark.scan.filters import DueFilter, KnownCut, selector_of
from lvq_spark.scan.home_partition import JAVA, Partitioner, check_homes
from lvq_spark.scan.latest import Latest
from lvq_spark.scan.log_range import (
    PATIENCE,
    Consistency,
    check_changes,
    check_deletes,
    check_topic,
    check_uncut,
    read_on,
    read_range,
)
from lvq_spark.scan.reused_readers import ReusedReaders
from lvq_spark.scan.shares import Slice
from lvq_spark.scan.task_metrics import TaskMetrics
from lvq_spark.schema import EXPIRES, GROUP, PRIORITY, SORT_KEY
from lvq_spark.session.task_failures import out_of_memory

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Keyless", "Scan", "Strays", "connected"]

Keyless = Literal["pass", "drop", "fail"]
"""Policy for records without a key: a row for each (R1), no row, or an error."""

Strays = Literal["pass", "fail"]
"""Policy for keys outside their home partition, which may have a value there, too (R14).

Accept them, or fail.
"""

LOOK = 1000
"""The number of keys to check for their home partition before everything is read."""

_Cells = Sequence[bytes | None]


@dataclass(frozen=True, slots=True)
class Scan:
    """A reader of partitions of a cut, without a client, so an executor can receive it.

    Args:
        spec: the cut.
        config: the client configuration, secrets included; its repr hides them.
        columns: the columns of `COLUMNS` to build. Reading is twice as fast if headers are not needed, and without
            ``value`` no values are written to a temporary file.
        consistency: see `Consistency`.
        deletes: whether a key that is deleted, or whose newest value has expired, has a row with a null value.
        keyless, strays: see `Keyless` and `Strays`.
        partitioner: the partitioner that decides where keys are at home, for ``strays``.
        conflate: whether to return one row for each key, its newest record; otherwise all records in the log, without a
            check whether compaction has removed any.
        keys: leave out all other keys, and records without a key.
        slice: keep only this slice of a partition's keys; None for all of them. All records are read anyway.
        memory: bytes of records that a task holds in memory; others go to a temporary file.
        rows, bytes: limits of an Arrow batch; a single value may be larger.
        changes: whether this is a batch of a stream. Later batches bring whatever superseded the records that
            compaction has removed, so there is no search for it. But no delete of a record that the stream has read
            before may be missing.
        known: a cut whose rows are known. Of the records before its end, only those are returned that have become due
            since.
        patience: seconds without any progress until reading fails.
    """

    spec: SnapshotSpec
    config: ClientConfig
    columns: tuple[str, ...] = tuple(COLUMNS)
    consistency: Consistency = "pinned"
    deletes: bool = False
    keyless: Keyless = "pass"
    strays: Strays = "pass"
    conflate: bool = True
    partitioner: Partitioner = JAVA
    keys: frozenset[bytes] | None = None
    slice: Slice | None = None
    memory: int = 256 << 20
    rows: int = ROWS
    bytes: int = BYTES
    changes: bool = False
    known: KnownCut | None = None
    patience: float = PATIENCE

    def rows_of(
        self, cluster: Cluster, partition: int, *, metrics: TaskMetrics | None = None
    ) -> Iterator[pa.RecordBatch]:
        """Read the rows of one partition, in offset order.

        Args:
            metrics: the counters to fill, which are logged after the last row.

        Raises:
            DataLoss: records of the cut are missing, or may be (see `Consistency`).
            TopicRecreated: the topic is not the one that was pinned.
            CatchUpTimeout: nothing moved for ``patience`` seconds.
            KeyMismatch: a record's header and key disagree, or it has no key, and the policy for that is ``"fail"``.
            ConfigError: a key is not at home, and the policy for that is ``"fail"``.
            TransportError: the cluster cannot be reached, or refuses.
            TaskOutOfMemory: the keys and values do not fit into memory.
        """
        try:
            yield from self._rows_of(cluster, partition, self.patience, TaskMetrics() if metrics is None else metrics)
        except MemoryError:  # Arrow's is one, too
            where = f"{self.spec.topic}/{partition}{'' if self.slice is None else f', {self.slice}'}"
            of = 1 if self.slice is None else self.slice.of
            raise out_of_memory(f"The rows of {where} do not fit", of) from None

    def _rows_of(
        self, cluster: Cluster, partition: int, patience: float, metrics: TaskMetrics
    ) -> Iterator[pa.RecordBatch]:
        read = self._newest if self.conflate else self._all
        spec, expiry_times, columns = self.spec, self.spec.times.expiry_times(), self.columns
        expired_by = spec.expired_by
        if expired_by is not None:
            more = ("key", EXPIRES) if self.deletes else (EXPIRES,)
            metrics.expired, columns = 0, tuple(dict.fromkeys((*columns, *more)))
        priorities = None
        if spec.order == "priority" and PRIORITY in self.columns:
            priorities = Ranking.of(spec.order, priorities=None, sort_header=None)
        origin = Origin(spec.topic, spec.timestamp_type, expiry_times, priorities, spec.sort_header, spec.groups)
        for batch in read(cluster, partition, patience, metrics):
            for rows in to_arrow(batch, origin, columns=columns, most=self.bytes):
                shown = rows if expired_by is None else self._current(rows, expired_by, metrics)
                metrics.rows += len(shown)
                yield shown
        if expiry_times is not None and self._expiring:
            metrics.malformed_ttls = expiry_times.malformed
        if priorities is not None:
            metrics.malformed_priorities = priorities.malformed
        metrics.log(spec, partition, self.slice)

    def _current(self, rows: pa.RecordBatch, as_of: float, metrics: TaskMetrics) -> pa.RecordBatch:
        """Treat rows that have expired at a time like deletes.

        One without a key would delete nothing, and is left out.
        """
        gone = expired(rows, as_of)
        metrics.expired = (metrics.expired or 0) + gone.true_count
        if gone.true_count and self.deletes:
            without_key = pc.and_(gone, pc.is_null(rows["key"]))
            rows = as_deletes(rows, gone)
            gone = without_key
        if gone.true_count:
            rows = rows.filter(pc.invert(gone))
        return rows.select(self.columns)

    def _newest(self, cluster: Cluster, partition: int, patience: float, metrics: TaskMetrics) -> Iterator[RecordBatch]:
        spec, selector, aside = self.spec, selector_of(self.spec), DueFilter.of(self.spec)
        start, end = spec.start[partition], spec.end[partition]
        with self._latest() as latest:
            count, looked, overtaken, began = 0, False, RecordBatch(), time.time()
            superseded = None if self.slice is None else Superseded()
            for batch in read_range(cluster, spec.topic, partition, start, end, patience=patience, **self._how):
                count += len(batch)
                if superseded is not None:
                    superseded.search(batch)
                wanted = self._wanted(batch)
                if aside is not None:
                    wanted = self._counting(wanted, aside)
                if not looked and len(wanted) and spec.decisive_header is None:
                    # Check early: otherwise it takes a whole reading to find out, and one more for each retry.
                    self._check_homes(wanted.keys[:LOOK], partition)
                    looked = True
                latest.apply(wanted)
            metrics.records, metrics.replaced, metrics.keyless = count, latest.replaced, latest.keyless
            metrics.mismatched = None if self.spec.decisive_header is None else latest.mismatched
            if aside is not None:
                metrics.note(aside)
            # Without gaps in the offsets nothing is missing. Gaps may date from before the cut or from after it.
            if count < end - start and self.changes:
                check_changes(cluster, spec, partition, time.time())
            elif count < end - start:
                check_deletes(spec, partition, began, time.time())
                overtaken = self._missing(cluster, partition, latest, patience, superseded)
            check_topic(cluster, spec)
            check_uncut(cluster, spec, partition)
            behind = (overtaken.rows(at, at + self.rows) for at in range(0, len(overtaken), self.rows))
            for batch in chain(latest.batches(self.rows), behind):
                self._check_homes(batch.keys, partition)
                if self.known is not None:
                    batch = self.known.news(batch)
                yield self._visible(batch if selector is None else self._selected(batch, selector, metrics), metrics)

    def _all(self, cluster: Cluster, partition: int, patience: float, metrics: TaskMetrics) -> Iterator[RecordBatch]:
        spec, selector = self.spec, selector_of(self.spec)
        metrics.records = 0
        start, end = spec.start[partition], spec.end[partition]
        for batch in read_range(cluster, spec.topic, partition, start, end, patience=patience, **self._how):
            metrics.records += len(batch)
            wanted = self._wanted(batch)
            if self.keyless == "drop":
                wanted = wanted.pick([row for row, key in enumerate(spec.keys_of(wanted)) if key is not None])
            if selector is not None:
                wanted = self._left(wanted, selector, metrics)
            for at in range(0, len(wanted), self.rows):
                yield self._visible(wanted.rows(at, at + self.rows), metrics)
        if self.changes and metrics.records < end - start:
            check_changes(cluster, spec, partition, time.time())
        check_topic(cluster, spec)
        check_uncut(cluster, spec, partition)

    @property
    def _how(self) -> dict[str, bool]:
        spec = self.spec
        times = self._expiring or spec.due_by is not None
        groups = spec.groups is not None and GROUP in self.columns
        decides = spec.decisive_header is not None or spec.selector is not None or times or groups
        ranks = {"priority": PRIORITY, "sorted": SORT_KEY}.get(spec.order)
        looks_at_headers = "headers" in self.columns or ranks in self.columns or decides
        return {"headers": looks_at_headers, "late": self.conflate}

    @property
    def _expiring(self) -> bool:
        """True if it matters when records expire, which their headers say."""
        return self.spec.times.expires and (self.spec.expired_by is not None or EXPIRES in self.columns)

    def _latest(self) -> Latest:
        return Latest(
            self.spec.topic,
            key_header=self.spec.decisive_header,
            key_mismatch=self.spec.key_mismatch,
            memory=self.memory,
            keyless=self.keyless == "pass" and self.keys is None,
            values="value" in self.columns,
        )

    def _wanted(self, batch: RecordBatch) -> RecordBatch:
        """Apply the options that leave records out, before anything is conflated."""
        if self.keys is None and self.slice is None and (self.keyless != "fail" or None not in batch.keys):
            return batch
        keys = self.spec.keys_of(batch)
        if self.keyless == "fail" and None in keys:
            row = keys.index(None)
            position = Position(self.spec.topic, batch.partitions[row], batch.offsets[row])
            raise KeyMismatch(
                f"The record at {position} has no key, and the policy for keyless records is to fail.",
                position=position,
                hint="Pass or drop them, or write to the topic through a queue, which gives every record a key.",
            )
        if self.slice is not None:
            rows = self.slice.rows(keys, batch.offsets)
            batch, keys = batch.pick(rows), [keys[row] for row in rows]
        wanted = self.keys
        return batch if wanted is None else batch.pick([row for row, key in enumerate(keys) if key in wanted])

    def _counting(self, batch: RecordBatch, aside: DueFilter) -> RecordBatch:
        """Leave out the records that do not count yet."""
        if self.spec.key_mismatch == "fail":
            self.spec.keys_of(batch)  # one that does not count yet fails, too
        return aside.counting(batch)

    def _selected(self, batch: RecordBatch, selector: Selector, metrics: TaskMetrics) -> RecordBatch:
        """Turn the newest records that are not selected into deletes.

        One without a key would delete nothing, and is left out.
        """
        before = batch.values.count(None)
        batch = only_selected(batch, batch.keys, selector.matches)
        metrics.unjudged = selector.unjudged
        left_out = batch.values.count(None) - before
        metrics.unselected = (metrics.unselected or 0) + left_out
        metrics.deletes -= left_out  # `_visible` counts them among the others
        if None in batch.keys:
            rows = [row for row, key in enumerate(batch.keys) if key is not None or batch.values[row] is not None]
            batch = batch.pick(rows)
        return batch

    def _left(self, batch: RecordBatch, selector: Selector, metrics: TaskMetrics) -> RecordBatch:
        """Leave out all records that are not selected.

        Deletes stay, since they have nothing to select.
        """
        selected = only_selected(batch, self.spec.keys_of(batch), selector.matches).values
        metrics.unjudged = selector.unjudged
        rows = [row for row, value in enumerate(batch.values) if value is None or selected[row] is not None]
        metrics.unselected = (metrics.unselected or 0) + len(batch) - len(rows)
        return batch.pick(rows)

    def _visible(self, batch: RecordBatch, metrics: TaskMetrics) -> RecordBatch:
        """Leave out the newest records that a group has done, and deletes unless requested."""
        deletes = batch.values.count(None)
        metrics.deletes += deletes
        if deletes and not self.deletes:
            batch = batch.pick([row for row, value in enumerate(batch.values) if value is not None])
        done = self.spec.done
        if done is not None:
            partitions, offsets = batch.partitions, batch.offsets
            batch = batch.pick([row for row in range(len(batch)) if not done[partitions[row]].done(offsets[row])])
        return batch

    def _check_homes(self, keys: _Cells, partition: int) -> None:
        spec = self.spec
        if self.strays == "fail" and spec.partitions > 1:
            check_homes(keys, spec.topic, partition, spec.partitions, self.partitioner)

    def _missing(
        self, cluster: Cluster, partition: int, latest: Latest, patience: float, superseded: Superseded | None
    ) -> RecordBatch:
        """Return the newest records of keys that the cut may have lost, unless that is an error.

        Args:
            superseded: a key that proves that nothing is missing may be in another slice; None if there are none.
        """
        behind = self._overtaken(cluster, partition, latest, patience)
        if not len(behind):
            return behind
        first = first_without_gap(cluster, self.spec, self.config, partition, patience=patience)
        if any(key in latest and latest.offset(key) > offset for key, offset in first.items()):
            return RecordBatch()
        if superseded is not None and superseded.among(first):
            return RecordBatch()
        if aborted_without_gap(cluster, self.spec, self.config, partition, patience=patience):
            return RecordBatch()
        if self.consistency == "pinned":
            raise _vanished(self.spec, partition, behind.keys)
        return _due_now(behind, self.spec)

    def _overtaken(self, cluster: Cluster, partition: int, latest: Latest, patience: float) -> RecordBatch:
        """Return the newest records of keys that have one after the cut and none in it.

        They may have been in it once: a record of the cut can only be compacted away in favor of a newer one of its key
        after the cut, and only once that one is older than the topic's compaction lag. So the records written after the
        cut, up to the end of the log once the cut has been read, include all keys that this may have happened to.
        """
        spec, end = self.spec, self.spec.end[partition]
        if spec.compaction_lag == math.inf:
            return RecordBatch()
        suspects: set[bytes] = set()
        with self._latest() as newer:
            for batch in read_on(cluster, spec.topic, partition, end, patience=patience, **self._how):
                wanted = self._wanted(batch)
                # Without a lag the cleaner ignores timestamps. Anything cleaned by now counts, as in `read_on`.
                cleanable = (time.time() - spec.compaction_lag) * 1000 if spec.compaction_lag else math.inf
                suspects.update(
                    key
                    for key, timestamp in zip(spec.keys_of(wanted), wanted.timestamps)
                    if key is not None and timestamp <= cleanable and key not in latest
                )
                newer.apply(wanted)
            return RecordBatch.of(record for batch in newer.batches(ROWS) for record in batch if record.key in suspects)


def _due_now(batch: RecordBatch, spec: SnapshotSpec) -> RecordBatch:
    """Leave out the records after a cut that do not count yet, even now."""
    if spec.due_by is None:
        return batch
    return DueFilter(spec.times, max(spec.due_by, time.time())).counting(batch)


def _vanished(spec: SnapshotSpec, partition: int, keys: Collection[bytes | None]) -> DataLoss:
    """Return the error for keys with records after the cut and none in it.

    Some of the cut may be missing.
    """
    among = min(key for key in keys if key is not None)
    return DataLoss(
        f"{len(keys)} keys of {spec.topic}, partition {partition}, have newer records after the cut at offset "
        f"{spec.end[partition]} and none before it, among them {quoted(among)}. If they are not new, compaction has "
        "removed the record that belongs to the cut.",
        hint="Take a new cut, raise the topic's min.compaction.lag.ms above the longest job, or read with "
        "consistency='atleast'. A DataFrame of the format lvq and a view USING lvq keep the cut of their first "
        "query; a table takes one for each query: CREATE TABLE ... USING lvq.",
    )


_SHORT_WAIT: Mapping[str, int] = {"fetch.wait.max.ms": 5}
"""The next partition of a reader is not in the fetch that waits at the end of the last one, but in the one after."""


@contextmanager
def connected(config: ClientConfig) -> Iterator[Cluster]:
    """Open the connection of a task, which reads one partition after another with it."""
    config = ClientConfig(config.bootstrap_servers, {**_SHORT_WAIT, **config.properties})
    with closing(KafkaCluster(config)) as cluster, closing(ReusedReaders(cluster)) as reused, _collector_held_back():
        yield cast("Cluster", reused)


@contextmanager
def _collector_held_back() -> Iterator[None]:
    """Disable the cyclic garbage collector.

    Messages come and go, and it would walk all objects each time, for nothing.
    """
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
