"""Batches by partition: in runs that keep the order of all rows, or once per partition."""

from __future__ import annotations

from itertools import pairwise

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.log.records import rows_by_partition, runs

PARTITIONS = st.lists(st.integers(0, 3), max_size=12)


def rows_of(partitions: list[int], rows: slice | list[int] | None) -> list[int]:
    every = range(len(partitions))
    return list(every if rows is None else every[rows] if isinstance(rows, slice) else rows)


@given(PARTITIONS)
def test_runs_are_all_rows_in_order_and_as_long_as_can_be(partitions: list[int]) -> None:
    found = [(partition, rows_of(partitions, rows)) for partition, rows in runs(partitions)]
    assert [(partition, row) for partition, rows in found for row in rows] == [
        (partition, row) for row, partition in enumerate(partitions)
    ]
    assert all(one != other for (one, _), (other, _) in pairwise(found))


@given(PARTITIONS)
def test_each_partition_has_its_rows_once(partitions: list[int]) -> None:
    found = rows_by_partition(partitions)
    assert [partition for partition, _ in found] == list(dict.fromkeys(partitions))
    for partition, rows in found:
        assert rows_of(partitions, rows) == [row for row, one in enumerate(partitions) if one == partition]


def test_rows_that_are_adjacent_are_no_list() -> None:
    assert list(rows_by_partition([2, 2, 2])) == runs([2, 2, 2]) == [(2, None)]
    assert list(rows_by_partition([2, 2, 0])) == runs([2, 2, 0]) == [(2, slice(0, 2)), (0, slice(2, 3))]
    assert list(rows_by_partition([2, 0, 2])) == [(2, [0, 2]), (0, [1])]
    assert list(rows_by_partition([])) == runs([]) == []
