"""Keys on the wire (R2), and their home partitions (G15)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.log.keys import encode_key, home_partition, key_text, murmur2
from lvq_kafka.errors import UnencodableKey


@pytest.mark.parametrize(
    ("key", "wire"),
    [("IBM", b"IBM"), ("", b""), ("ü", b"\xc3\xbc"), (b"\xff", b"\xff"), (1, b"1"), (-7, b"-7"), (True, b"true")],
)
def test_r2_keys_have_one_wire_form(key: Any, wire: bytes) -> None:
    assert encode_key(key) == wire


def test_r2_one_and_its_text_are_one_key() -> None:
    assert encode_key(1) == encode_key("1")
    assert encode_key(False) == encode_key("false")


@pytest.mark.parametrize("key", [None, 1.5, ["a"], object(), bytearray(b"a")])
def test_r2_other_types_are_refused_with_their_name(key: object) -> None:
    with pytest.raises(UnencodableKey, match=type(key).__name__):
        encode_key(key)


def test_an_integer_with_more_digits_than_python_writes_is_refused() -> None:
    with pytest.raises(UnencodableKey, match="too many digits"):
        encode_key(10**5_000)


def test_text_that_utf8_cannot_write_is_refused() -> None:
    with pytest.raises(UnencodableKey):
        encode_key("\ud800")


@given(st.binary())
def test_any_key_survives_its_text(key: bytes) -> None:
    assert encode_key(key_text(key)) == key


@pytest.mark.parametrize(
    ("data", "expected"),
    # From org.apache.kafka.common.utils.UtilsTest; the integration tests ask Java itself.
    [
        (b"21", -973932308),
        (b"foobar", -790332482),
        (b"a-little-bit-long-string", -985981536),
        (b"a-little-bit-longer-string", -1486304829),
        (b"lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8", -58897971),
        (b"abc", 479470107),
    ],
)
def test_g15_murmur2_is_javas(data: bytes, expected: int) -> None:
    assert murmur2(data) == expected & 0xFFFFFFFF
    assert home_partition(data, 7) == (expected & 0x7FFFFFFF) % 7
