"""Arrow arrays built from buffers: they hold what went in, and need no pandas."""

from __future__ import annotations

import subprocess
import sys

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_spark.scan.arrays import binary, booleans, integers, lists, nulls_for_empty_lists, repeated, strings

CELLS = st.lists(st.none() | st.binary(max_size=9), max_size=40)


@given(CELLS, st.lists(st.text(max_size=5), max_size=20))
def test_an_array_is_what_pyarrow_makes_of_the_same_cells(cells: list[bytes | None], texts: list[str]) -> None:
    for found, expected in (
        (binary(cells), pa.array(cells, pa.binary())),
        (strings(texts), pa.array(texts, pa.string())),
        (repeated("".join(texts), len(cells)), pa.array(["".join(texts)] * len(cells), pa.string())),
        (integers(pa.int32(), list(range(len(cells)))), pa.array(range(len(cells)), pa.int32())),
        (booleans(cell is None for cell in cells), pa.array([cell is None for cell in cells], pa.bool_())),
    ):
        found.validate(full=True)
        assert found.equals(expected)
        assert found.null_count == expected.null_count


@given(st.lists(st.none() | CELLS, max_size=20))
def test_an_empty_list_is_null(rows: list[list[bytes | None] | None]) -> None:
    kind = pa.list_(pa.binary())
    found = lists(kind, rows, binary([cell for row in rows for cell in row or ()]))
    found.validate(full=True)
    assert found.equals(pa.array([row or None for row in rows], kind))


@given(st.lists(st.none() | CELLS, max_size=20), st.integers(0, 20))
def test_an_empty_list_becomes_null_and_a_full_one_stays(rows: list[list[bytes | None] | None], cut: int) -> None:
    kind, numbers = pa.list_(pa.binary()), pa.array(range(len(rows)), pa.int32())
    batch = pa.RecordBatch.from_arrays([pa.array(rows, kind), numbers], ["headers", "number"]).slice(cut)
    found = nulls_for_empty_lists(batch)
    found.validate(full=True)
    assert found["headers"].equals(pa.array([row or None for row in rows[cut:]], kind))
    assert found.schema == batch.schema
    assert found["number"].equals(batch["number"])


def test_integers_that_a_type_cannot_hold_are_refused() -> None:
    with pytest.raises(OverflowError):
        integers(pa.int32(), [1 << 31])


def test_reading_imports_no_pandas() -> None:
    """Importing pandas takes a fresh Python worker a second."""
    program = """
import sys
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_spark import SnapshotSpec
from lvq_spark.scan.arrays import nulls_for_empty_lists
from lvq_spark.scan.candidates import strays, to_candidates
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import Ttl
from lvq_spark.scan.arrow_columns import COLUMNS, Origin, to_arrow
from lvq_spark.scan.candidates import as_deletes, expired

records = [Record(0, 1, 2, b"k", b"v", (("h", b"1"),)), Record(0, 2, 2, None, None)]
origin = Origin("t", expiry_times=ExpiryTimes(Ttl(default=1.0)))
(rows,) = to_arrow(RecordBatch.of(records), origin, columns=list(COLUMNS))
assert as_deletes(rows, expired(rows, 5.0))["value"].to_pylist() == [None, None]
spec = SnapshotSpec("t", "id", {0: 0, 1: 0}, {0: 9, 1: 9}, done={0: CommitMap(2, ()), 1: CommitMap(0, ())})
claims = to_candidates(nulls_for_empty_lists(rows), 0, spec)
assert strays(claims, spec) in (0, 1)
assert claims["value"].to_pylist() == [None, None]
assert "pandas" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
