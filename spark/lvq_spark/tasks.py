"""What runs on the executors: one task for each partition, and one for each share of the keys that are merged."""

from __future__ import annotations

import gc
from collections.abc import Iterable, Iterator
from contextlib import closing, contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_spark.columns import merge_partitions, to_batches
from lvq_spark.pinning import SnapshotSpec
from lvq_spark.reading import Consistency, read_partition

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Merge", "Read"]


@dataclass(frozen=True, slots=True)
class Read:
    """Reads the partitions whose numbers come in. ``config`` holds the secrets, and its repr hides them."""

    spec: SnapshotSpec
    config: ClientConfig
    consistency: Consistency
    keep_deletes: bool

    def __call__(self, partitions: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """The newest record of each key of each partition."""
        with closing(KafkaLog(self.config)) as log:
            for batch in partitions:
                for index in batch.column(0).to_pylist():
                    with _collector_held_back():
                        records = read_partition(log, self.spec, self.spec.ranges[index], self.consistency)
                        if not self.keep_deletes:
                            records = (record for record in records if record.value is not None)
                        yield from to_batches(records, self.spec.topic)


@dataclass(frozen=True, slots=True)
class Merge:
    """Merges what several partitions hold of the same keys (R14)."""

    topic: str
    partitions: int

    def __call__(self, rows: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """One row for each key that is not deleted."""
        return merge_partitions(rows, self.topic, self.partitions)


@contextmanager
def _collector_held_back() -> Iterator[None]:
    """Without the cyclic garbage collector: messages that come and go would have it walk everything, for nothing."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
