"""Files of Arrow's record batches, as others read them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ArrowForm", "streamed", "write_batches"]

ArrowForm = Literal["arrow", "parquet"]

_MOST_ROWS, _MOST_BYTES = 1 << 17, 64 << 20
"""The most rows and bytes of one group of rows in a Parquet file; one batch more may be in it."""


def write_batches(reader: pa.RecordBatchReader, file: Any, form: ArrowForm) -> Iterator[pa.RecordBatch]:
    """Write a stream of batches to an open file, and yield each batch once it is written.

    The schema's metadata goes along.

    Args:
        reader: the stream.
        file: open for writing bytes. It stays open.
        form: Arrow's own form of files, or Parquet.
    """
    if form == "arrow":
        with pa.ipc.new_file(pa.PythonFile(file, "w"), reader.schema) as writer:
            for batch in reader:
                writer.write_batch(batch)
                yield batch
        return
    with pq.ParquetWriter(pa.PythonFile(file, "w"), reader.schema, compression="zstd") as writer:
        group: list[pa.RecordBatch] = []
        for batch in reader:
            group.append(batch)
            if sum(one.num_rows for one in group) >= _MOST_ROWS or sum(one.nbytes for one in group) >= _MOST_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
            yield batch
        if group:
            writer.write_table(pa.Table.from_batches(group))


def streamed(reader: pa.RecordBatchReader) -> Iterator[bytes]:
    """Yield a stream of batches as Arrow's own form of streams has it, batch by batch."""
    sink = io.BytesIO()

    def written() -> bytes:
        part = sink.getvalue()
        sink.seek(0)
        sink.truncate()
        return part

    with pa.ipc.new_stream(pa.PythonFile(sink, "w"), reader.schema) as writer:
        for batch in reader:
            writer.write_batch(batch)
            yield written()
    yield written()
