"""Arrow arrays built from Python values through their buffers.

`pyarrow.array` and `pyarrow.scalar` import pandas if it is installed, whatever they are given. That takes a fresh
Python worker a second, in which it could read a million records.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

__all__ = ["binary", "booleans", "integers", "lists", "nulls_for_empty_lists", "repeated", "strings", "texts_or_nulls"]


def binary(cells: Sequence[bytes | None]) -> pa.Array:
    """Return an array of bytes or nulls."""
    return _variable(pa.binary(), cells)


def strings(cells: Iterable[str]) -> pa.Array:
    """Return an array of texts without nulls."""
    return _variable(pa.string(), [text.encode() for text in cells])


def texts_or_nulls(cells: Iterable[str | None]) -> pa.Array:
    """Return an array of texts or nulls."""
    return _variable(pa.string(), [None if text is None else text.encode() for text in cells])


def repeated(text: str, times: int) -> pa.Array:
    """Return an array of one text repeated."""
    cell = text.encode()
    return pa.Array.from_buffers(pa.string(), times, [None, _ends([len(cell)] * times), pa.py_buffer(cell * times)])


def integers(kind: pa.DataType, cells: npt.ArrayLike, valid: npt.NDArray[np.bool_] | None = None) -> pa.Array:
    """Return integers or timestamps of the type's width; null where they are not ``valid``."""
    numbers = np.array(cells, f"i{kind.bit_width // 8}")
    return pa.Array.from_buffers(kind, len(numbers), [None if valid is None else _bits(valid), pa.py_buffer(numbers)])


def booleans(cells: Iterable[bool]) -> pa.Array:
    """Return an array of booleans without nulls."""
    values = np.fromiter(cells, np.bool_)
    return pa.Array.from_buffers(pa.bool_(), len(values), [None, _bits(values)])


def lists(kind: pa.ListType, cells: Sequence[Sequence[Any] | None], values: pa.Array) -> pa.Array:
    """Return lists as long as these cells, with the values of all of them in sequence.

    A cell that is None or empty becomes null.
    """
    valid = _bits(np.fromiter(map(bool, cells), np.bool_))
    return pa.Array.from_buffers(kind, len(cells), [valid, _ends(len(cell or ()) for cell in cells)], children=[values])


def nulls_for_empty_lists(batch: pa.RecordBatch) -> pa.RecordBatch:
    """Replace each empty list of a batch with null."""
    for place, field in enumerate(batch.schema):
        if pa.types.is_list(field.type):
            cells = batch.column(place)
            full = pc.list_value_length(cells).cast(pa.bool_())
            if full.true_count < len(cells):
                batch = batch.set_column(place, field, pc.if_else(full, cells, pa.nulls(len(cells), field.type)))
    return batch


def _variable(kind: pa.DataType, cells: Sequence[bytes | None]) -> pa.Array:
    valid = _bits(np.fromiter((cell is not None for cell in cells), np.bool_)) if None in cells else None
    filled = [cell or b"" for cell in cells]
    return pa.Array.from_buffers(kind, len(cells), [valid, _ends(map(len, filled)), pa.py_buffer(b"".join(filled))])


def _ends(lengths: Iterable[int]) -> pa.Buffer:
    """Return the offsets of the cells, with the end of the last one.

    Raises:
        OverflowError: the cells are too long together for these offsets.
    """
    return pa.py_buffer(np.fromiter(accumulate(lengths, initial=0), np.int32))


def _bits(values: npt.NDArray[np.bool_]) -> pa.Buffer:
    return pa.py_buffer(np.packbits(values, bitorder="little"))
