"""Records that do not fit into memory, in a temporary file of columnar blocks."""

from __future__ import annotations

import marshal
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import IO

from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.errors import SpillFailed
from lvq_spark.scan.arrow_columns import BYTES, ROWS, header_bytes, parts

__all__ = ["Spill"]

_NO_REFERENCES = 2
"""The `marshal` version that does not look for repeated objects.

`pickle` looks for them, and takes half as long again.
"""


class Spill:
    """A temporary file of batches, written one after another and read in the same order.

    A block holds as much as an Arrow batch, which is the memory that reading takes. There is no random access: the
    reader goes through the whole file, and knows which records still count.

    The file has no name in its directory, and disappears with the process at the latest.
    """

    def __init__(self, *, values: bool = True) -> None:
        """Open the file; without ``values`` it only stores which records are deletes."""
        self._directory = _local_dir()
        self._values = values
        self._blocks: list[int] = []  # the length of each
        self.bytes = 0
        """Bytes of the values written."""
        with self._typed("made"):
            self._file: IO[bytes] = tempfile.TemporaryFile(prefix="lvq-", dir=self._directory)  # noqa: SIM115

    def close(self) -> None:
        """Close the file, which removes it."""
        with suppress(OSError):  # closing retries failed writes, which no longer matter
            self._file.close()

    def write(self, batch: RecordBatch) -> None:
        """Append a batch.

        Raises:
            SpillFailed: there is no room, no permission, or the disk is at fault.
        """
        for part in parts(batch, ROWS, BYTES, lambda part: part.size + header_bytes(part)):
            values = part.values if self._values else [value and b"" for value in part.values]
            columns = (part.partitions, part.offsets, part.timestamps, part.keys, values, part.headers)
            block = marshal.dumps(columns, _NO_REFERENCES)
            with self._typed("written"):
                self._file.write(block)
                self._file.flush()
            self._blocks.append(len(block))
            self.bytes += sum(map(len, filter(None, values)))

    def read(self) -> Iterator[RecordBatch]:
        """Yield everything that was written, a block at a time.

        Raises:
            SpillFailed: the disk is at fault.
        """
        with self._typed("read"):
            self._file.seek(0)
        for length in self._blocks:
            # Not mapped into memory: a file may exceed the address space that a Python worker is allowed.
            with self._typed("read"):
                block = self._file.read(length)
            yield RecordBatch(*marshal.loads(block))

    @contextmanager
    def _typed(self, done: str) -> Iterator[None]:
        try:
            yield
        except OSError as error:
            # Not `gettempdir`, which fails if the system has none.
            directory = Path(self._directory or tempfile.tempdir or os.environ.get("TMPDIR", os.curdir))
            raise SpillFailed(
                f"A temporary file in {directory} could not be {done}: {error.strerror}. It is for records that "
                f"exceed a task's memory, and holds {sum(self._blocks):,} bytes of them.",
                path=directory,
                hint="Free some space there, set spark.local.dir to a directory on another disk, raise "
                "lvq.memoryBytes, or give the topic more partitions.",
            ) from error


def _local_dir() -> str | None:
    """Return Spark's own directory, set by ``spark.local.dir``; None if it is not known."""
    first = os.environ.get("SPARK_LOCAL_DIRS", "").split(",")[0].strip()
    return first if os.path.isdir(first) else None
