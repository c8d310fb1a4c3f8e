"""Tasks that delete a queue's keys at a cut, unless others have written them since (R25)."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from itertools import chain
from typing import TYPE_CHECKING

from lvq_kafka.cluster import Receipt
from lvq_kafka.core.facts import Position
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.producing.producer import Producer
from lvq_spark.cut.pinning import SnapshotSpec
from lvq_spark.schema import GROUP
from lvq_spark.writing.sending import Ends
from lvq_spark.writing.tail import Tail

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["AT_ONCE", "Delete"]

AT_ONCE = 1000
"""Keys to delete between two reads of the tail. They are acknowledged within tens of ms."""


@dataclass(frozen=True, slots=True)
class Delete:
    """Deletes keys of a cut.

    ``rules`` are those of the queue. ``config`` holds the secrets; its repr hides them.
    """

    cut: SnapshotSpec
    rules: QueueRules
    config: ClientConfig

    REPORT = "partition int, end bigint, vanished bigint, spared bigint, overwritten binary"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Delete the keys, and report once all deletes are acknowledged.

        The report counts deleted and spared keys, and has a row for each key overwritten.
        """
        portions = _portions(batches)
        first = next(portions, None)
        if first is None:
            return
        with (
            closing(KafkaCluster(self.config)) as cluster,
            Tail(cluster, self.cut) as tail,
            Producer(cluster, self.rules) as producer,
        ):
            deletes = _Deletes(tail, producer, self.cut.groups)
            for keys in chain([first], portions):
                deletes.send(keys)
            deletes.read_tail()
        yield from deletes.report()


class _Deletes:
    """Deletes keys in portions, and reads what others have written before each of them."""

    def __init__(self, tail: Tail, producer: Producer[bytes], groups: Groups | None) -> None:
        self._tail, self._producer = tail, producer
        self._group_header = None if groups is None else groups.header
        self._newer: set[bytes] = set()
        self._last: dict[bytes, Position] = {}  # positions of the last portion's deletes
        self._ends = Ends()
        self._vanished = self._spared = 0
        self._overwritten: list[bytes] = []

    def read_tail(self) -> None:
        """Read new values, and note those that lie before one of our deletes."""
        for key, partition, offset in self._tail.new_values():
            self._newer.add(key)
            lies = self._last.get(key)
            if lies is not None and lies.partition == partition and offset < lies.offset:
                self._overwritten.append(key)
                del self._last[key]  # several values count once

    def send(self, keys: Mapping[bytes, bytes | None]) -> None:
        """Delete the keys that nobody has written so far, each with its group."""
        self.read_tail()
        receipts = {key: self._delete(key, group) for key, group in keys.items() if key not in self._newer}
        self._producer.flush()
        self._last = {key: receipt.result() for key, receipt in receipts.items()}
        for position in self._last.values():
            self._ends.note(position)
        self._vanished += len(receipts)
        self._spared += len(keys) - len(receipts)

    def _delete(self, key: bytes, group: bytes | None) -> Receipt:
        return self._producer.delete(key, None if self._group_header is None else {self._group_header: group})

    def report(self) -> Iterator[pa.RecordBatch]:
        """Return the report, as in `Delete.REPORT`."""
        import pyarrow as pa

        from lvq_spark.scan.arrays import binary

        batch = self._ends.report({"vanished": self._vanished, "spared": self._spared})
        yield batch.append_column("overwritten", pa.nulls(len(batch), pa.binary()))
        if keys := self._overwritten:
            nothing = (pa.nulls(len(keys), field.type) for field in batch.schema)
            yield pa.RecordBatch.from_arrays([*nothing, binary(keys)], [*batch.schema.names, "overwritten"])


def _portions(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[bytes, bytes | None]]:
    """Yield keys with their groups."""
    for batch in batches:
        pairs = list(zip(batch.column("key").to_pylist(), batch.column(GROUP).to_pylist()))
        yield from (dict(pairs[at : at + AT_ONCE]) for at in range(0, len(pairs), AT_ONCE))
