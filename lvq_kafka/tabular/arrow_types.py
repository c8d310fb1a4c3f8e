"""The names of Arrow's types in signatures, which can be resolved without Arrow."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

__all__ = ["RecordBatchReader"]

if TYPE_CHECKING:
    from pyarrow import RecordBatchReader
else:
    RecordBatchReader = Any
