"""The bytes of keys and records in a store's file.

A change of any of them is a new `FORMAT`.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from hashlib import sha256
from itertools import repeat
from operator import is_, itemgetter
from struct import Struct
from typing import NamedTuple, TypeVar, cast

from lvq_kafka.core.latest.columns import IMPLIED, Columns
from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.latest.tables import SetAside
from lvq_kafka.core.log.records import UNSELECTED_HEADERS, Headers, RawHeaders, Record

T = TypeVar("T")

__all__ = [
    "FORMAT",
    "HEAD",
    "INDEX",
    "OFFSET",
    "PLACE",
    "STEM",
    "TIME",
    "Head",
    "bounds",
    "entry_of",
    "head_of",
    "in_key_order",
    "is_long",
    "key_of",
    "pack_aside",
    "pack_key",
    "pack_keys",
    "pack_place",
    "pack_records",
    "pack_rivals",
    "pack_time",
    "place_bounds",
    "place_in",
    "unpack_aside",
    "unpack_headers",
    "unpack_rivals",
    "unpack_time",
    "unpack_value",
]

FORMAT = 3
"""The version of what is in the files of a store."""

STEM = 462
"""The bytes of a long key, or place, that are in its packed form. One that is no longer is stored as it is.

With a time before it and a digest after it, 511 are the most that LMDB takes.
"""
_BEGIN = b"k"  # of every key, since LMDB takes no empty one

HEAD = Struct(">Biqqqqq")
"""The fixed fields of a record: those of `Head`."""

INDEX = Struct(">H")
"""The number of an index, which its places begin with."""
OFFSET = Struct(">Q")
PLACE = Struct(">IQ")
"""A partition and an offset."""
TIME = Struct(">Q")
"""A time in ms, so that bytes sort as times do; see `pack_time`."""

_SIGN = 1 << 63
_LENGTH = Struct(">I")
_CELL = Struct(">Ii")  # of a header: the lengths of its name and of its value, or -1
_RIVAL = Struct(">iqqBi")  # partition, offset, timestamp, kind of headers, length of the value or -1
_ASIDE = Struct(">qqBBi")  # due time, timestamp, kind of headers, kind of value, length of the record's own key or -1

# Kinds of headers. The key header alone, with the key as its value, is implied.
_NO_HEADERS, _KEY_HEADER, _OWN_HEADERS, _UNSELECTED = range(4)
_KIND, _LONG_KEY = 3, 4  # bits of a record's flags
_NO_VALUE, _BYTES, _NOT_SELECTED = range(3)


class Head(NamedTuple):
    """The fixed fields of a stored record."""

    flags: int
    partition: int
    offset: int
    timestamp: int
    expiry: int
    """The last moment at which it counts, in ms; `NEVER` for always."""
    queued: int
    """The time under which its key is in the index of expiries; `NEVER` if it is not there."""
    place: int
    """A number that grows with each key that enters, which is the order in place (R4)."""


# ---------------------------------------------------------------- keys


def pack_key(key: bytes) -> bytes:
    """Return the key under which LMDB keeps that of a message.

    Keys of at most 462 bytes sort as they do; longer ones that begin alike are in any order.
    """
    return _BEGIN + key if len(key) <= STEM else b"".join((_BEGIN, key[:STEM], sha256(key).digest()))


def pack_keys(keys: Collection[bytes]) -> list[bytes]:
    """Return what `pack_key` returns, for each key."""
    if max(map(len, keys), default=0) <= STEM:  # almost always, and then without a call for each
        return list(map(_BEGIN.__add__, keys))
    return list(map(pack_key, keys))


def is_long(key: bytes | memoryview) -> bool:
    """Return whether a packed key stands for one that is stored with the record."""
    return len(key) > STEM + 1


def in_key_order(found: Iterable[tuple[bytes, bool, T]]) -> Iterator[tuple[bytes, T]]:
    """Yield keys, or places, in byte order, with what belongs to each.

    Args:
        found: each with whether it is long, in the order of their packed forms.
    """
    alike: list[tuple[bytes, T]] = []  # long ones that begin alike
    begin = b""
    for key, long, thing in found:
        if alike and not key.startswith(begin):
            yield from sorted(alike, key=itemgetter(0))
            alike.clear()
        if long:
            begin = key[:STEM]
            alike.append((key, thing))
        else:
            yield key, thing
    yield from sorted(alike, key=itemgetter(0))


def bounds(start: bytes, stop: bytes | None) -> tuple[bytes, bytes | None]:
    """Return packed keys between which all keys of a range are; the last one is excluded."""
    if stop is None:
        return _BEGIN + start[:STEM], None
    return _BEGIN + start[:STEM], _BEGIN + stop if len(stop) <= STEM else _BEGIN + stop[:STEM] + b"\xff" * 33


def entry_of(number: int, packed: bytes) -> bytes:
    """Return the key under which LMDB keeps the place of a packed key in an index."""
    return INDEX.pack(number) + packed


def pack_place(number: int, place: bytes) -> bytes:
    """Return the key under which LMDB keeps a place of an index.

    Like those of `pack_key`, long ones that begin alike are in any order; these are stored whole beside it.
    """
    stem = INDEX.pack(number) + place[:STEM]
    return stem if len(place) <= STEM else stem + sha256(place).digest()


def place_in(packed: bytes | memoryview, data: bytes | memoryview) -> tuple[bytes, bool]:
    """Return a place, and whether it is a long one, given what LMDB has of it."""
    return (bytes(data), True) if len(packed) > INDEX.size + STEM else (bytes(packed[INDEX.size :]), False)


def place_bounds(number: int, start: bytes, stop: bytes | None) -> tuple[bytes, bytes]:
    """Return packed places between which all places of a range are; the last one is excluded."""
    low, last = INDEX.pack(number), INDEX.pack(number + 1)
    high = last if stop is None else low + stop if len(stop) <= STEM else low + stop[:STEM] + b"\xff" * 33
    return low + start[:STEM], high


def pack_time(moment: int) -> bytes:
    """Return a time, which may be before the epoch, as bytes that sort."""
    return TIME.pack(moment + _SIGN)


def unpack_time(data: bytes | memoryview) -> int:
    """Return the time that bytes begin with."""
    return int(TIME.unpack_from(data)[0]) - _SIGN


# ---------------------------------------------------------------- headers


def _pack_headers(headers: Sequence[tuple[str, bytes | None]]) -> bytes:
    parts = [_LENGTH.pack(len(headers))]
    for name, value in headers:
        raw = name.encode("utf-8", "surrogatepass")
        parts += (_CELL.pack(len(raw), -1 if value is None else len(value)), raw, value or b"")
    return b"".join(parts)


def _unpack_headers(data: bytes | memoryview, at: int) -> tuple[Headers, int]:
    """Return the headers that begin at an index, and the index of what follows."""
    (count,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    found = []
    for _ in range(count):
        name_length, length = _CELL.unpack_from(data, at)
        at += _CELL.size
        name = str(data[at : at + name_length], "utf-8", "surrogatepass")
        at += name_length
        found.append((name, None if length < 0 else bytes(data[at : at + length])))
        at += max(0, length)
    return tuple(found), at


def _kind(key: bytes, headers: RawHeaders, key_header: str | None) -> int:
    if not headers:
        return _NO_HEADERS
    if headers is IMPLIED:
        return _KEY_HEADER
    if headers is UNSELECTED_HEADERS:
        return _UNSELECTED
    if len(headers) == 1 and headers[0][1] == key and headers[0][0] == key_header:
        return _KEY_HEADER
    return _OWN_HEADERS


# ---------------------------------------------------------------- the record of a key


def pack_records(
    partition: int,
    packed: Sequence[bytes],
    columns: Columns,
    expiries: Sequence[int],
    queued: Sequence[int],
    places: Sequence[int],
    key_header: str | None,
) -> list[tuple[bytes, bytes]]:
    """Return records of one partition, each with the key that LMDB keeps it under.

    Args:
        partition: the partition.
        packed: the keys, packed.
        columns: the records.
        expiries: the `Head.expiry` of each.
        queued: the `Head.queued` of each.
        places: the `Head.place` of each.
        key_header: the key header of the queue.
    """
    offsets, timestamps, keys, values, headers = columns
    kind = _common_kind(headers)
    if kind is not None and max(map(len, packed), default=0) <= STEM + 1:  # no Python runs for each of them
        heads = map(HEAD.pack, repeat(kind), repeat(partition), offsets, timestamps, expiries, queued, places)
        return list(zip(packed, map(bytes.__add__, heads, cast("Sequence[bytes]", values))))
    items = []
    rest = zip(offsets, timestamps, expiries, queued, places)
    for name, key, value, own, fields in zip(packed, keys, values, headers, rest):
        assert value is not None
        kind = _kind(key, own, key_header)
        if kind != _OWN_HEADERS and len(name) <= STEM + 1:
            data = HEAD.pack(kind, partition, *fields) + value
        else:
            data = _pack_long(name, key, value, own, (kind, partition, *fields))
        items.append((name, data))
    return items


def _common_kind(headers: Sequence[RawHeaders]) -> int | None:
    """Return the kind of all these headers, where it takes no look into them."""
    if not any(headers):
        return _NO_HEADERS
    return _KEY_HEADER if all(map(is_, headers, repeat(IMPLIED))) else None


def _pack_long(name: bytes, key: bytes, value: bytes, headers: RawHeaders, head: tuple[int, ...]) -> bytes:
    """Return a record with headers of its own, or a key that is not in its packed one."""
    kind, *fields = head
    long = is_long(name)
    parts = [HEAD.pack(kind | (_LONG_KEY if long else 0), *fields)]
    if kind == _OWN_HEADERS and headers:
        parts.append(_pack_headers(headers))
    if long:
        parts += (_LENGTH.pack(len(key)), key)
    return b"".join((*parts, value))


def head_of(data: bytes | memoryview) -> Head:
    """Return the fixed fields of a record."""
    return Head._make(HEAD.unpack_from(data))


def _parts(data: bytes | memoryview) -> tuple[Headers | None, bytes | None, int]:
    """Return the own headers and the long key of a record, if any, and where its value begins."""
    flags, at, headers, key = data[0], HEAD.size, None, None
    if flags & _KIND == _OWN_HEADERS:
        headers, at = _unpack_headers(data, at)
    if flags & _LONG_KEY:
        (length,) = _LENGTH.unpack_from(data, at)
        at += _LENGTH.size
        key = bytes(data[at : at + length])
        at += length
    return headers, key, at


def unpack_value(data: bytes | memoryview) -> bytes:
    """Return the value of a record."""
    return bytes(data[HEAD.size if data[0] < _OWN_HEADERS else _parts(data)[2] :])


def unpack_headers(data: bytes | memoryview, key: bytes, key_header: str | None) -> Headers:
    """Return the headers of a record."""
    kind = data[0] & _KIND
    if kind == _NO_HEADERS:
        return ()
    if kind == _KEY_HEADER:
        assert key_header is not None
        return ((key_header, key),)
    return _parts(data)[0] or ()


def key_of(packed: bytes | memoryview, data: bytes | memoryview) -> bytes:
    """Return the key of a record, given what LMDB keeps it under."""
    return _parts(data)[1] or b"" if data[0] & _LONG_KEY else bytes(packed[1:])


# ---------------------------------------------------------------- rivals (R14)


def pack_rivals(key: bytes, rivals: Mapping[int, Record], key_header: str | None) -> bytes:
    """Return the records that one key has in several partitions."""
    parts = [_LENGTH.pack(len(key)), key]
    for partition, record in rivals.items():
        kind, value = _kind(key, record.headers, key_header), record.value
        length = -1 if value is None else len(value)
        parts.append(_RIVAL.pack(partition, record.offset, record.timestamp, kind, length))
        if kind == _OWN_HEADERS:
            parts.append(_pack_headers(record.headers))
        if value:
            parts.append(value)
    return b"".join(parts)


def unpack_rivals(data: bytes | memoryview) -> tuple[bytes, dict[int, Record]]:
    """Return a key and its records."""
    (length,) = _LENGTH.unpack_from(data)
    at = _LENGTH.size + length
    key, rivals = bytes(data[_LENGTH.size : at]), {}
    while at < len(data):
        partition, offset, timestamp, kind, length = _RIVAL.unpack_from(data, at)
        at += _RIVAL.size
        headers: Headers = ()
        if kind == _OWN_HEADERS:
            headers, at = _unpack_headers(data, at)
        elif kind == _KEY_HEADER:
            headers = IMPLIED
        elif kind == _UNSELECTED:
            headers = UNSELECTED_HEADERS
        value = None if length < 0 else bytes(data[at : at + length])
        at += max(0, length)
        rivals[partition] = Record(partition, offset, timestamp, key, value, headers)
    return key, rivals


# ---------------------------------------------------------------- records that are not due (R11)


def pack_aside(one: SetAside) -> bytes:
    """Return a record that is set aside; its partition and offset are in its key."""
    record = one.record
    value_kind = _NO_VALUE if record.value is None else _NOT_SELECTED if record.value is UNSELECTED else _BYTES
    own = record.key
    headers = _pack_headers(record.headers) if record.headers else b""
    return b"".join(
        (
            _ASIDE.pack(one.due, record.timestamp, bool(headers), value_kind, -1 if own is None else len(own)),
            headers,
            own or b"",
            _LENGTH.pack(len(one.key)),
            one.key,
            record.value or b"" if value_kind == _BYTES else b"",
        )
    )


def unpack_aside(place: bytes | memoryview, data: bytes | memoryview) -> SetAside:
    """Return a record that is set aside, given its place."""
    partition, offset = PLACE.unpack(place)
    due, timestamp, has_headers, value_kind, length = _ASIDE.unpack_from(data)
    at = _ASIDE.size
    headers: Headers = ()
    if has_headers:
        headers, at = _unpack_headers(data, at)
    own = None if length < 0 else bytes(data[at : at + length])
    at += max(0, length)
    (length,) = _LENGTH.unpack_from(data, at)
    at += _LENGTH.size
    key = bytes(data[at : at + length])
    rest = bytes(data[at + length :])
    value = (None, rest, UNSELECTED)[value_kind]
    return SetAside(due, key, Record(partition, offset, timestamp, own, value, headers))
