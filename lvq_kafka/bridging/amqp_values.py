"""Values in the encoding of AMQP 1.0, as far as messages need them.

Other brokers' messages may be malformed, or of any depth. So lists and maps are read to a depth only. A value that lies
deeper, or has a type without a counterpart here, is skipped by its size, and stands for itself as `Unsupported`.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from uuid import UUID

__all__ = [
    "AmqpSymbol",
    "Malformed",
    "Scalar",
    "Unsupported",
    "Value",
    "ValueReader",
    "encode_list",
    "encode_map",
    "encode_scalar",
    "encode_value",
]

_DEEPEST = 16  # lists and maps within each other
_MOST_DESCRIPTORS = 8  # descriptors of descriptors


class Malformed(Exception):
    """Bytes that are not AMQP 1.0."""


class AmqpSymbol(str):
    """A text that is written as a symbol, which has ASCII only."""

    __slots__ = ()


@dataclass(frozen=True, slots=True)
class Unsupported:
    """A value that has no counterpart here, such as an array; ``kind`` names it."""

    kind: str

    def __str__(self) -> str:
        return f"{'an' if self.kind.startswith('a') else 'a'} {self.kind}"


Scalar = None | bool | int | float | str | bytes | UUID | Unsupported
"""A value as it is read. Symbols and characters are text, and times are milliseconds since the epoch."""

Value = Scalar | list["Value"] | dict[str, "Value"]
"""A scalar, or a list or map of values."""

_unpack_int = {
    code: struct.Struct(f">{form}").unpack_from
    for code, form in {
        0x50: "B",
        0x51: "b",
        0x52: "B",
        0x53: "B",
        0x54: "b",
        0x55: "b",
        0x60: "H",
        0x61: "h",
        0x70: "I",
        0x71: "i",
        0x72: "f",
        0x80: "Q",
        0x81: "q",
        0x82: "d",
        0x83: "q",
    }.items()
}
_CONSTANTS: Mapping[int, Scalar] = MappingProxyType({0x40: None, 0x41: True, 0x42: False, 0x43: 0, 0x44: 0})
_KINDS = MappingProxyType(
    {
        0x45: "list",
        0x74: "decimal32",
        0x84: "decimal64",
        0x94: "decimal128",
        0xC0: "list",
        0xC1: "map",
        0xD0: "list",
        0xD1: "map",
        0xE0: "array",
        0xF0: "array",
    }
)
_BYTES, _TEXT, _SYMBOL = (0xA0, 0xB0), (0xA1, 0xB1), (0xA3, 0xB3)
_CHARACTER, _UUID, _BOOLEAN, _DESCRIBED = 0x73, 0x98, 0x56, 0x00
_LISTS, _MAPS = (0xC0, 0xD0), (0xC1, 0xD1)
_COMPOUNDS = (0x45, *_LISTS, *_MAPS)
_FIXED = {0x4: 0, 0x5: 1, 0x6: 2, 0x7: 4, 0x8: 8, 0x9: 16}
_WIDTH_OF_SIZE = {0xA: 1, 0xB: 4, 0xC: 1, 0xD: 4, 0xE: 1, 0xF: 4}


class ValueReader:
    """Reads values one after another.

    Every method raises `Malformed` if the bytes do not hold what it reads.
    """

    __slots__ = ("_at", "_data", "_end")

    def __init__(self, data: bytes, at: int = 0, end: int | None = None) -> None:
        self._data = data
        self._at = at
        self._end = len(data) if end is None else end

    @property
    def at(self) -> int:
        """The place of the next value."""
        return self._at

    @property
    def more(self) -> bool:
        """True if something is left."""
        return self._at < self._end

    def section(self) -> int:
        """Read the descriptor of a section of a message, and return its code."""
        if self._code() != _DESCRIBED:
            raise Malformed("a section has no descriptor")
        code = self.scalar()
        if isinstance(code, bool) or not isinstance(code, int):
            raise Malformed("a section is described by something else than a number")
        return code

    def scalar(self) -> Scalar:
        """Read any value. One that is not a scalar is skipped, and returned as `Unsupported`."""
        code = self._code()
        if code in _CONSTANTS:
            return _CONSTANTS[code]
        if code == _DESCRIBED:
            self._skip_described()
            return Unsupported("described value")
        start, end = self._content(code)
        data = self._data
        if code in _TEXT:
            return _text(data[start:end])
        if code in _unpack_int:
            number: int | float = _unpack_int[code](data, start)[0]
            return number
        if code in _BYTES:
            return data[start:end]
        if code in _SYMBOL:
            return data[start:end].decode("latin-1")
        if code == _BOOLEAN:
            return data[start] != 0
        if code == _UUID:
            return UUID(bytes=data[start:end])
        if code == _CHARACTER:
            return _character(int.from_bytes(data[start:end], "big"))
        return Unsupported(_KINDS.get(code, f"type 0x{code:02x}"))

    def value(self, depth: int = _DEEPEST) -> Value:
        """Read a scalar, or a list or map with its values.

        A map whose keys are not text is `Unsupported`.
        """
        code = self._data[self._at] if self.more else None
        if not depth or code not in _COMPOUNDS:
            return self.scalar()
        if code not in _MAPS:
            return [inside.value(depth - 1) for inside in self._elements(_LISTS, "list")]
        value: dict[str, Value] = {}
        named = True
        for name, of_name in self.pairs(depth - 1):
            if isinstance(name, str):
                value[name] = of_name
            else:
                named = False
        return value if named else Unsupported("map with keys that are not text")

    def fields(self) -> list[Scalar]:
        """Read a list, and return its elements."""
        return [inside.scalar() for inside in self._elements(_LISTS, "list")]

    def pairs(self, depth: int = 0) -> list[tuple[Scalar, Value]]:
        """Read a map, and return its pairs in order, their values to a depth."""
        elements = self._elements(_MAPS, "map")
        return [(inside.scalar(), next(elements).value(depth)) for inside in elements]

    def skip(self) -> None:
        """Skip a value of any type."""
        code = self._code()
        if code == _DESCRIBED:
            self._skip_described()
        else:
            self._content(code)

    def _elements(self, codes: tuple[int, int], kind: str) -> Iterator[ValueReader]:
        """Yield a reader, once for each element, which the caller reads."""
        code = self._code()
        if code == 0x45 and kind == "list":
            return
        if code not in codes:
            raise Malformed(f"there is no {kind} where there should be one")
        start, end = self._content(code)
        width = _WIDTH_OF_SIZE[code >> 4]
        if end - start < width:
            raise Malformed(f"a {kind} has no count")
        count = int.from_bytes(self._data[start : start + width], "big")
        if kind == "map" and count % 2:
            raise Malformed("a map has a key without a value")
        inside = ValueReader(self._data, start + width, end)
        for _ in range(count):  # each takes a byte at least, so a count that lies ends with the bytes
            yield inside

    def _skip_described(self) -> None:
        """Skip a descriptor and what it describes; its first byte has been read."""
        descriptors = 1
        left = 2  # values to skip
        while left:
            code = self._code()
            left -= 1
            if code == _DESCRIBED:
                descriptors += 1
                left += 2
                if descriptors > _MOST_DESCRIPTORS:
                    raise Malformed("descriptors are nested too deeply")
            else:
                self._content(code)

    def _code(self) -> int:
        if self._at >= self._end:
            raise Malformed("it ends within a value")
        code = self._data[self._at]
        self._at += 1
        return code

    def _content(self, code: int) -> tuple[int, int]:
        """Return where the content of a value begins and ends, and continue there."""
        start, category = self._at, code >> 4
        size = _FIXED.get(category)
        if size is None:
            width = _WIDTH_OF_SIZE.get(category)
            if width is None:
                raise Malformed(f"0x{code:02x} is not a type")
            start += width
            if start > self._end:
                raise Malformed("it ends within a value")
            size = int.from_bytes(self._data[start - width : start], "big")
        end = start + size
        if end > self._end:
            raise Malformed("it ends within a value")
        self._at = end
        return start, end


def _text(data: bytes) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError:
        raise Malformed("a text is not UTF-8") from None


def _character(code: int) -> str:
    try:
        return chr(code).encode().decode()
    except (ValueError, OverflowError):
        raise Malformed("a character does not exist") from None


def encode_scalar(value: Scalar, kind: str = "") -> bytes:
    """Encode a value in the type that its Python type suggests, or in the one named.

    The latter may be ``ubyte``, ``uint`` or ``timestamp``. Text is a string, bytes are binary, an integer is a long.
    """
    if kind:
        code, form = _NAMED[kind]
        return bytes((code,)) + form(value)
    match value:
        case None:
            return b"\x40"
        case bool():
            return b"\x41" if value else b"\x42"
        case int():
            return b"\x81" + struct.pack(">q", value)
        case float():
            return b"\x82" + struct.pack(">d", value)
        case AmqpSymbol():
            return _sized(_SYMBOL, value.encode("ascii"))
        case str():
            return _sized(_TEXT, value.encode())
        case bytes():
            return _sized(_BYTES, value)
        case UUID():
            return b"\x98" + value.bytes
        case _:
            raise TypeError(f"{value} cannot be encoded")


_NAMED: Mapping[str, tuple[int, Callable[[Scalar], bytes]]] = MappingProxyType(
    {
        "ubyte": (0x50, struct.Struct(">B").pack),
        "uint": (0x70, struct.Struct(">I").pack),
        "timestamp": (0x83, struct.Struct(">q").pack),
    }
)


def _sized(codes: tuple[int, int], data: bytes) -> bytes:
    if len(data) < 256:
        return bytes((codes[0], len(data))) + data
    return bytes((codes[1],)) + struct.pack(">I", len(data)) + data


def encode_value(value: Value) -> bytes:
    """Encode a scalar, a list or a map, of a depth for which Python has room."""
    if isinstance(value, list):
        return encode_list([encode_value(element) for element in value])
    if isinstance(value, dict):
        return encode_map([(encode_scalar(name), encode_value(of_name)) for name, of_name in value.items()])
    return encode_scalar(value)


def encode_list(elements: list[bytes]) -> bytes:
    """Encode a list of values that are encoded already."""
    return _compound(0xD0, len(elements), elements)


def encode_map(pairs: list[tuple[bytes, bytes]]) -> bytes:
    """Encode a map of values that are encoded already."""
    return _compound(0xD1, 2 * len(pairs), [part for pair in pairs for part in pair])


def _compound(code: int, count: int, parts: list[bytes]) -> bytes:
    data = b"".join(parts)
    return bytes((code,)) + struct.pack(">II", len(data) + 4, count) + data
