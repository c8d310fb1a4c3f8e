"""What the connector's rows go through before they are a snapshot: checks that Spark cannot make, and R14."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import closing
from dataclasses import dataclass

import pyarrow as pa
import pyarrow.compute as pc

from lvq_kafka.errors import DataLoss
from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_kafka.ports import Log
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.scan.columns import SNAPSHOT_COLUMNS, merge_partitions, to_arrow
from lvq_spark.scan.reading import PATIENCE, Consistency, check_topic
from lvq_spark.scan.scanning import Scan

__all__ = ["Guard", "Settle"]

_CELLS = ("key", "value", "partition", "offset", "timestamp", "headers")


@dataclass(frozen=True, slots=True)
class Guard:
    """Passes on the newest rows of whole partitions, and adds what might have superseded records that are missing.

    Its column ``records`` says how many records of the cut a row stands for; null marks a row from behind the cut. A
    row without an offset only names a partition.
    """

    spec: SnapshotSpec
    config: ClientConfig

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; raises `TopicRecreated` when the topic is not the one that was pinned."""
        records: Counter[int] = Counter()
        schema = None
        for batch in rows:
            schema = batch.schema
            sums = pa.table({name: batch[name] for name in ("partition", "records")})
            for found in sums.group_by("partition").aggregate([("records", "sum")]).to_pylist():
                records[found["partition"]] += found["records_sum"] or 0
            yield batch.filter(pc.is_valid(batch["offset"]))
        if schema is None:
            return
        with closing(KafkaLog(self.config)) as log:
            behind = [batch for partition in sorted(records) for batch in self._behind(log, partition, records)]
            check_topic(log, self.spec)
        for batch in behind:
            unknown = pa.nulls(len(batch), pa.int64())
            yield pa.RecordBatch.from_arrays([*batch.columns, unknown], [*_CELLS, "records"]).cast(schema)

    def _behind(self, log: Log, partition: int, records: Counter[int]) -> Iterator[pa.RecordBatch]:
        """The newest records from behind the cut, if any of the cut may be missing: without holes none can be."""
        spec = self.spec
        if records[partition] == spec.end[partition] - spec.start[partition]:
            return
        scan = Scan(spec, self.config, consistency="atleast")
        newer = scan.overtaken(log, partition, frozenset(), PATIENCE)
        yield from to_arrow(newer, spec.topic, columns=_CELLS)


@dataclass(frozen=True, slots=True)
class Settle:
    """One row for each key of a share of the keys: what was overtaken is found out, and several partitions merged."""

    spec: SnapshotSpec
    consistency: Consistency

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The rows; raises `DataLoss` when a key of the cut may be missing, and it has to be exact."""
        received = list(rows)
        if not received:
            return
        table = self._complete(pa.Table.from_batches(received))
        for batch in merge_partitions(table.to_batches(), self.spec.topic, self.spec.partitions):
            yield self._not_done(batch)

    def _complete(self, table: pa.Table) -> pa.Table:
        """The connector's rows with what is missing, as columns of a snapshot."""
        of_cut = pc.is_valid(table["records"])
        if not pc.all(of_cut).as_py():
            behind, table = table.filter(pc.invert(of_cut)), table.filter(of_cut)
            table = pa.concat_tables([table, self._missing(behind, table)])
        return table.append_column("topic", pa.repeat(self.spec.topic, len(table))).select(SNAPSHOT_COLUMNS)

    def _not_done(self, batch: pa.RecordBatch) -> pa.RecordBatch:
        """What a group has done is taken out last: it hides what is older in another partition (R7)."""
        done = self.spec.done
        if done is None:
            return batch
        places = zip(batch["partition"].to_pylist(), batch["offset"].to_pylist())
        return batch.filter(pa.array([not done[partition].done(offset) for partition, offset in places], pa.bool_()))

    def _missing(self, behind: pa.Table, cut: pa.Table) -> pa.Table:
        """Those from behind the cut whose key has no record in the same partition of the cut."""
        of_same_keys = cut.filter(pc.is_in(cut["key"], value_set=behind["key"].combine_chunks()))
        there = set(zip(of_same_keys["key"].to_pylist(), of_same_keys["partition"].to_pylist()))
        places = list(zip(behind["key"].to_pylist(), behind["partition"].to_pylist()))
        missing = behind.filter(pa.array([place not in there for place in places], pa.bool_()))
        if len(missing) and self.consistency == "pinned":
            key, partition = min(zip(missing["key"].to_pylist(), missing["partition"].to_pylist()))
            raise DataLoss(
                f"Keys of {self.spec.topic} have newer records behind the cut and none before it, among them {key!r} "
                f"of partition {partition}, where the cut ends at offset {self.spec.end[partition]}. If they are not "
                "new, compaction has removed the record that belongs to the cut.",
                hint="Take a new cut, raise the topic's min.compaction.lag.ms above the longest job, "
                "or read with consistency='atleast'.",
            )
        return missing
