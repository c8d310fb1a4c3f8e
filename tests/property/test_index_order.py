"""R45: the bytes of an index sort as the values do, whatever these are, and hold the keys."""

from __future__ import annotations

import math
from collections.abc import Iterator
from decimal import Decimal, FloatOperation, localcontext
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.index_order import (
    IndexValue,
    encode_value,
    encoding_of,
    equal_to,
    from_greatest,
    from_least,
    key_at,
    kind_of,
)
from lvq_kafka.core.latest.sorted_keys import SortedKeys

numbers = st.one_of(
    st.integers(),
    st.integers(-3, 3),
    st.sampled_from([2**53, 2**53 + 1, 10**400, 10**400 + 1, -(10**400), 100, 1000, True, False]),
    st.floats(allow_nan=False),
    st.sampled_from([0.1, -0.1, 5e-324, -5e-324, 1.7976931348623157e308, 2.0**53, math.inf, -math.inf, -0.0]),
    st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**20), max_value=10**20),
    st.decimals(allow_nan=False, allow_infinity=False, places=2, min_value=-100, max_value=100),
    st.sampled_from(
        [Decimal("0.1"), Decimal("1E+30"), Decimal("1E-400"), Decimal("-0"), Decimal("118.50"), Decimal("-Infinity")]
    ),
)
texts = st.one_of(st.text(), st.sampled_from(["", "\0", "\0\x01", "a\0", "a", "\0\xff", "\udcff", "é"]))
data = st.one_of(st.binary(), st.sampled_from([b"", b"\0", b"\0\x01", b"\0\xff", b"\xff", b"a\0", b"a"]))
values: st.SearchStrategy[IndexValue] = st.one_of(numbers, texts, data)
keys = st.one_of(st.binary(max_size=3), st.sampled_from([b"", b"\0", b"\x01", b"\xff"]))


def rank(value: IndexValue) -> tuple[int, object]:
    """Return what sorts in Python as a value does in an index."""
    if isinstance(value, str):
        return 1, value.encode("utf-8", "surrogateescape")
    if isinstance(value, bytes):
        return 2, value
    infinite = math.isinf(value) if isinstance(value, float) else isinstance(value, Decimal) and value.is_infinite()
    return 0, float(value) if infinite else Fraction(value)


@given(values, values, keys, keys)
def test_r45_places_sort_by_value_and_then_by_key(a: IndexValue, b: IndexValue, key: bytes, other: bytes) -> None:
    one, two = (rank(a), key), (rank(b), other)
    place, second = encode_value(a) + key, encode_value(b) + other
    assert (place < second, place == second) == (one < two, one == two)


@given(values, keys)
def test_r45_a_place_has_its_value_and_its_key(value: IndexValue, key: bytes) -> None:
    place = encode_value(value) + key
    assert (encoding_of(place), key_at(place)) == (encode_value(value), key)
    assert kind_of(place) == ("numbers", "text", "bytes")[rank(value)[0]]


@given(numbers)
def test_r45_no_decimal_context_changes_a_number(number: IndexValue) -> None:
    with localcontext(prec=1, Emax=1, Emin=-1, capitals=0, traps=[FloatOperation]):
        assert encode_value(number) == encode_value(number)
        within = encode_value(number)
    assert within == encode_value(number)


@pytest.mark.parametrize("value", [None, [], {}, 1j, Fraction(1, 3)], ids=repr)
def test_r45_other_types_have_no_place(value: object) -> None:
    with pytest.raises(TypeError, match="has no place in an index"):
        encode_value(value)


@pytest.mark.parametrize("value", [math.nan, Decimal("NaN"), Decimal("-sNaN"), "\ud800"], ids=ascii)
def test_r45_nan_and_text_that_is_not_unicode_have_no_place(value: IndexValue) -> None:
    with pytest.raises(ValueError, match=r"NaN|encode"):
        encode_value(value)


@given(st.dictionaries(keys, values), st.none() | st.tuples(values, keys), values)
def test_r45_questions_to_an_index_are_answered_as_by_a_sort(
    held: dict[bytes, IndexValue], after: tuple[IndexValue, bytes] | None, value: IndexValue
) -> None:
    places = SortedKeys(encode_value(one) + key for key, one in held.items())
    start = None if after is None else encode_value(after[0]) + after[1]

    def shown(found: Iterator[bytes]) -> list[bytes]:
        return [key_at(place) for place in found]

    least = sorted(held, key=lambda key: (rank(held[key]), key))
    greatest = sorted(sorted(held), key=lambda key: rank(held[key]), reverse=True)  # a sort is stable
    if after is not None:
        at = rank(after[0])
        least = [key for key in least if (rank(held[key]), key) > (at, after[1])]
        greatest = [key for key in greatest if rank(held[key]) < at or (rank(held[key]) == at and key > after[1])]
    assert shown(from_least(places, start)) == least
    assert shown(from_greatest(places, start)) == greatest
    assert shown(equal_to(places, encode_value(value))) == sorted(k for k in held if rank(held[k]) == rank(value))
