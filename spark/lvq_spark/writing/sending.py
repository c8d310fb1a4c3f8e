"""Tasks that write a frame's rows, and their reports."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing
from dataclasses import dataclass
from typing import TYPE_CHECKING

from lvq_kafka.core.facts import Position
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.producing.producer import Producer

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["Ends", "Write"]


class Ends(dict[int, int]):
    """For each partition written to, the offset after the last record."""

    def note(self, position: Position) -> None:
        """Note the position of a record."""
        self[position.partition] = max(position.offset + 1, self.get(position.partition, 0))

    def report(self, counts: Mapping[str, int]) -> pa.RecordBatch:
        """Return a row of counts, and a row of ``partition`` and ``end`` for each partition."""
        import pyarrow as pa

        from lvq_spark.scan.arrays import integers

        places = (pa.int32(), list(self)), (pa.int64(), list(self.values()))
        ends = [pa.concat_arrays([pa.nulls(1, kind), integers(kind, cells)]) for kind, cells in places]
        nothing = [0] * len(self)
        numbers = [integers(pa.int64(), [count, *nothing]) for count in counts.values()]
        return pa.RecordBatch.from_arrays([*ends, *numbers], ["partition", "end", *counts])


@dataclass(frozen=True, slots=True)
class Write:
    """Writes rows of key, value and headers to a topic.

    ``rules`` are those of the queue. ``config`` holds the secrets; its repr hides them.
    """

    rules: QueueRules
    config: ClientConfig

    REPORT = "partition int, end bigint, written bigint, deleted bigint"

    def __call__(self, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Write the rows, and report once all of them are acknowledged."""
        ends, written, deleted = Ends(), 0, 0
        with (
            closing(KafkaCluster(self.config)) as cluster,
            Producer(cluster, self.rules) as producer,
        ):
            for batch in batches:
                columns = (batch.column(name).to_pylist() for name in ("key", "value", "headers"))
                receipts = []
                for key, value, headers in zip(*columns):
                    pairs = [(header["key"], header["value"]) for header in headers or ()]
                    if value is None:
                        receipts.append(producer.delete(key, pairs))
                        deleted += 1
                    else:
                        receipts.append(producer.put(key, value, pairs))
                        written += 1
                producer.flush()
                for receipt in receipts:
                    ends.note(receipt.result())
        yield ends.report({"written": written, "deleted": deleted})
