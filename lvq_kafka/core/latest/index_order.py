"""The order of an index: values and their keys as bytes that sort as these do (R45)."""

from __future__ import annotations

from collections.abc import Iterator
from decimal import Decimal
from numbers import Integral
from typing import Protocol

from lvq_kafka.core.latest.sorted_keys import after_prefix

__all__ = [
    "IndexValue",
    "OrderedPlaces",
    "encode_text",
    "encode_value",
    "encoding_of",
    "equal_to",
    "from_greatest",
    "from_least",
    "key_at",
    "kind_of",
]

IndexValue = int | float | Decimal | str | bytes
"""The values that an index can be by. Python's ``bool`` is an ``int``."""

# The first byte of an encoding. The half byte to the left says what kind of value it is.
_LEAST, _NEGATIVE, _ZERO, _POSITIVE, _GREATEST = b"\x10", b"\x11", b"\x12", b"\x13", b"\x14"
_TEXT, _BYTES = b"\x20", b"\x30"
_KINDS = {1: "numbers", 2: "text", 3: "bytes"}

_EXPONENT = 8  # bytes, of which the first bit is the sign
_BIAS = 1 << 63
_DIGITS_AT = 1 + _EXPONENT
_NIBBLES = str.maketrans("0123456789", "123456789a")  # so that no byte of digits is 0, which ends them
_COMPLEMENT = bytes(range(255, -1, -1))
_END = b"\0\x01"  # of text and bytes, in which a zero byte is followed by 0xff


class OrderedPlaces(Protocol):
    """The places of an index in order.

    A place is the encoding of a value, followed by the key that has it.
    """

    def walk(self, start: bytes, stop: bytes | None) -> Iterator[bytes]:
        """Yield the places from ``start`` up to but not including ``stop``."""

    def before(self, stop: bytes | None) -> bytes | None:
        """Return the last place before ``stop``, or the last one; None if there is none."""


# ---------------------------------------------------------------- encoding


def encode_value(value: object) -> bytes:
    """Encode a value.

    Numbers sort before text, and text before bytes. Numbers sort by what they are exactly: ``2**53 + 1`` is greater
    than ``2.0**53``, and ``0.1`` than ``Decimal("0.1")``. Text sorts by its bytes in UTF-8. Values that are equal have
    one encoding, and none is the beginning of another.

    Raises:
        TypeError: the value is of another type.
        ValueError: it is not a number (NaN), or is text that UTF-8 cannot encode.
    """
    if isinstance(value, str):
        return encode_text(value.encode("utf-8", "surrogateescape"))
    if isinstance(value, bytes):
        return b"".join((_BYTES, value.replace(b"\0", b"\0\xff"), _END))
    if isinstance(value, float):
        return _encode_number(Decimal.from_float(value))
    if isinstance(value, Decimal):
        return _encode_number(value)
    if isinstance(value, Integral):
        return _encode_number(Decimal(int(value)))
    raise TypeError(f"a value of type {type(value).__name__} has no place in an index")


def encode_text(text: bytes) -> bytes:
    """Encode text that is given in UTF-8."""
    return b"".join((_TEXT, text.replace(b"\0", b"\0\xff"), _END))


def _encode_number(number: Decimal) -> bytes:
    """Encode a number by its sign, its exponent and its digits.

    The decimal context does not matter.
    """
    if not number:
        return _ZERO
    if not number.is_finite():
        if number.is_nan():
            raise ValueError("NaN has no place in an index")
        return _LEAST if number.is_signed() else _GREATEST
    mantissa, _, exponent = format(number.copy_abs(), "E").partition("E")
    digits = mantissa.replace(".", "").rstrip("0").translate(_NIBBLES)
    packed = bytes.fromhex(digits + "0" if len(digits) % 2 else digits)
    size = b"".join(((int(exponent) + _BIAS).to_bytes(_EXPONENT, "big"), packed, b"\0"))
    return _NEGATIVE + size.translate(_COMPLEMENT) if number.is_signed() else _POSITIVE + size


# ---------------------------------------------------------------- places


def _end_of_encoding(place: bytes) -> int:
    first = place[:1]
    if first == _POSITIVE:
        return place.index(b"\0", _DIGITS_AT) + 1
    if first in (_TEXT, _BYTES):
        return place.index(_END, 1) + len(_END)
    if first == _NEGATIVE:
        return place.index(b"\xff", _DIGITS_AT) + 1
    return 1


def encoding_of(place: bytes) -> bytes:
    """Return the encoding of the value of a place."""
    return place[: _end_of_encoding(place)]


def key_at(place: bytes) -> bytes:
    """Return the key of a place."""
    return place[_end_of_encoding(place) :]


def kind_of(place: bytes) -> str:
    """Return in a word what kind of value is at a place."""
    return _KINDS[place[0] >> 4]


# ---------------------------------------------------------------- questions


def equal_to(places: OrderedPlaces, encoding: bytes) -> Iterator[bytes]:
    """Yield the places with this value, in the order of their keys."""
    return places.walk(encoding, after_prefix(encoding))


def from_least(places: OrderedPlaces, after: bytes | None) -> Iterator[bytes]:
    """Yield the places in order, from the least value on, or after a place."""
    return places.walk(b"" if after is None else after + b"\0", None)


def from_greatest(places: OrderedPlaces, after: bytes | None) -> Iterator[bytes]:
    """Yield the places from the greatest value on, or after a place.

    Those of one value are in the order of their keys.
    """
    stop = None
    if after is not None:
        stop = encoding_of(after)
        yield from places.walk(after + b"\0", after_prefix(stop))
    while (last := places.before(stop)) is not None:
        stop = encoding_of(last)
        yield from places.walk(stop, after_prefix(stop))
