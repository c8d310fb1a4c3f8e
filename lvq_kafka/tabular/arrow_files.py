"""Files of Arrow's record batches, as others read them."""

from __future__ import annotations

import io
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any, Literal

import pyarrow as pa
import pyarrow.parquet as pq

__all__ = ["ArrowForm", "streamed", "write_batches"]

ArrowForm = Literal["arrow", "parquet"]

_MOST_ROWS, _MOST_BYTES = 1 << 17, 64 << 20
"""The most rows and bytes of one group of rows in a Parquet file; one batch more may be in it."""


def write_batches(reader: pa.RecordBatchReader, file: Any, form: ArrowForm) -> Iterator[pa.RecordBatch]:
    """Write a stream of batches to an open file, and yield each batch once it is written.

    The schema's metadata goes along. If the stream fails, or is not read to its end, the file gets no footer, so nobody
    takes it for a whole one.

    Args:
        reader: the stream.
        file: open for writing bytes. It stays open.
        form: Arrow's own form of files, or Parquet.
    """
    target = _Target(file)
    if form == "arrow":
        with pa.ipc.new_file(pa.PythonFile(target, "w"), reader.schema) as writer, target.whole_or_cut():
            for batch in reader:
                writer.write_batch(batch)
                yield batch
        return
    with (
        pq.ParquetWriter(pa.PythonFile(target, "w"), reader.schema, compression="zstd") as writer,
        target.whole_or_cut(),
    ):
        group: list[pa.RecordBatch] = []
        for batch in reader:
            group.append(batch)
            if sum(one.num_rows for one in group) >= _MOST_ROWS or sum(one.nbytes for one in group) >= _MOST_BYTES:
                writer.write_table(pa.Table.from_batches(group))
                group = []
            yield batch
        if group:
            writer.write_table(pa.Table.from_batches(group))


class _Target(io.RawIOBase):
    """A file that drops what Arrow's writers add when they are closed after a failure."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._cut = False

    def writable(self) -> bool:
        return True

    def write(self, data: Any) -> int:
        if not self._cut:
            self._file.write(data)
        return len(data)

    @contextmanager
    def whole_or_cut(self) -> Iterator[None]:
        """Write nothing more if the block fails."""
        try:
            yield
        except BaseException:
            self._cut = True
            raise


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
