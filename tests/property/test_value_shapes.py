"""Shapes of values: whatever the values are, they fit into the column of their joined shape (R49)."""

from __future__ import annotations

import json
from collections.abc import Sequence
from datetime import UTC
from functools import reduce
from itertools import permutations
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.tabular.arrow_rows import _type_of
from lvq_kafka.tabular.value_shapes import (
    JSON_TEXT,
    NOTHING,
    Listed,
    Plain,
    ValueShape,
    counting,
    fitting,
    joined,
    shape_of,
)

TEXTS = st.text(st.characters(codec="utf-8"), max_size=5)
NAMES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=5)
PLAIN = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(),
    st.floats(allow_nan=False),
    TEXTS,
    st.binary(max_size=5),
    st.decimals(allow_nan=False),
    st.dates(),
    st.datetimes(),
    st.datetimes(timezones=st.just(UTC)),
)
VALUES = st.recursive(
    PLAIN, lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(NAMES, inner, max_size=3)), max_leaves=8
)


def whole(values: Sequence[Any]) -> ValueShape:
    return reduce(joined, map(shape_of, values), NOTHING)


@given(st.lists(VALUES, max_size=5))
def test_r49_values_fit_into_their_joined_shape(values: list[Any]) -> None:
    shape = whole(values)
    array = pa.array(map(fitting(shape), values), _type_of(shape), size=len(values))
    assert [cell is None for cell in array.to_pylist()] == [value is None for value in values]


@given(st.lists(VALUES, max_size=3))
def test_r49_the_order_of_values_makes_no_difference(values: list[Any]) -> None:
    assert len({repr_of(whole(order)) for order in permutations(values)}) == 1


def repr_of(shape: ValueShape) -> str:
    if isinstance(shape, Plain):
        return shape.kind
    if isinstance(shape, Listed):
        return f"[{repr_of(shape.items)}]"
    return repr(sorted((name, repr_of(inner)) for name, inner in shape.fields.items()))


@given(st.lists(st.one_of(st.none(), st.integers(), st.floats(allow_nan=False, allow_infinity=False)), min_size=1))
def test_r49_no_number_is_rounded(numbers: list[int | float | None]) -> None:
    shape = whole(numbers)
    cells = pa.array(map(fitting(shape), numbers), _type_of(shape), size=len(numbers)).to_pylist()
    read = [json.loads(cell) if isinstance(cell, str) else cell for cell in cells]
    assert read == numbers


@given(st.lists(st.dictionaries(NAMES, st.integers(0, 9), max_size=3), min_size=1))
def test_r49_objects_keep_all_their_fields(objects: list[dict[str, int]]) -> None:
    shape = whole(objects)
    if shape == shape_of({}):
        return  # a column has no objects without fields: they are text
    cells = pa.array(map(fitting(shape), objects), _type_of(shape)).to_pylist()
    assert [{name: part for name, part in cell.items() if part is not None} for cell in cells] == objects


def test_r49_an_object_with_very_many_fields_is_text() -> None:
    assert shape_of({str(number): 1 for number in range(1001)}) == JSON_TEXT
    halves = [{str(number): 1 for number in range(start, start + 501)} for start in (0, 501)]
    assert whole(halves) == JSON_TEXT


def test_r49_the_fields_of_an_object_are_counted_with_those_within() -> None:
    within = {str(number): 1 for number in range(400)}
    assert shape_of({"a": within, "b": [within]}) != JSON_TEXT
    assert shape_of({"a": within, "b": [within], "c": [[within]]}) == JSON_TEXT
    assert whole([{"a": within}, {"b": within}, {"c": within}]) == JSON_TEXT


def cells_of(value: Any) -> int:
    """Return the number of cells of a column of Arrow that have no further ones."""
    if pa.types.is_struct(value.type):
        return sum(map(cells_of, value.flatten()))
    return cells_of(value.flatten()) if pa.types.is_list(value.type) else len(value)


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_r49_no_more_cells_are_filled_than_counted(values: list[Any]) -> None:
    shape = whole(values)
    fit, count = fitting(shape), counting(shape)
    filled = cells_of(pa.array(map(fit, values), _type_of(shape), size=len(values)))
    assert filled <= sum(map(count, values)) + sum(map(plain_items, values))


def plain_items(value: Any) -> int:
    if isinstance(value, dict):
        return sum(map(plain_items, value.values()))
    return len(value) + sum(map(plain_items, value)) if isinstance(value, list) else 0


def test_r49_a_value_that_is_nested_very_deeply_is_text() -> None:
    value: Any = 1
    for _ in range(200):
        value = [value]
    shape, depth = shape_of(value), 0
    while isinstance(shape, Listed):
        shape, depth = shape.items, depth + 1
    assert (shape, depth) == (JSON_TEXT, 32)
    assert pa.array([fitting(shape_of(value))(value)], _type_of(shape_of(value))).null_count == 0


@pytest.mark.parametrize("name", ["\0", "a\0b", "\ud800"])
def test_r49_an_object_with_a_name_that_no_column_can_have_has_no_shape_and_fits_into_none(name: str) -> None:
    with pytest.raises(ValueError, match="no column can have"):
        shape_of([{name: 1}])
    with pytest.raises(ValueError, match="no column can have"):
        fitting(shape_of({"a": 1}))({name: 1})
