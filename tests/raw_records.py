"""Records as clients in other languages may write them: any bytes that the protocol can carry."""

from __future__ import annotations

import socket
import struct
from collections.abc import Iterable, Iterator, Sequence
from typing import NamedTuple

__all__ = ["UNREADABLE_NAME", "RawRecord", "produce_raw"]

UNREADABLE_NAME = b"\xff\xfe\x80"
"""A header name that is not UTF-8. The protocol requires UTF-8, but no broker checks."""

_PRODUCE, _VERSION, _CORRELATION = 0, 3, 1  # the oldest version with headers that brokers still support
_ALL_REPLICAS = -1
_NO_PRODUCER = struct.pack(">qhi", -1, -1, -1)  # id, epoch, sequence: neither idempotent nor transactional


class RawRecord(NamedTuple):
    """A record in bytes."""

    key: bytes | None
    value: bytes | None
    headers: Sequence[tuple[bytes, bytes | None]] = ()


def produce_raw(address: str, topic: str, *records: RawRecord, partition: int = 0) -> int:
    """Append records in one batch to a partition that the broker at this address leads. Return the first offset."""
    batch = _batch(records)
    request = (
        struct.pack(">hhi", _PRODUCE, _VERSION, _CORRELATION)
        + _text("another client")
        + struct.pack(">hhi", -1, _ALL_REPLICAS, 30_000)  # no transactional id
        + struct.pack(">i", 1)
        + _text(topic)
        + struct.pack(">iii", 1, partition, len(batch))
        + batch
    )
    host, _, port = address.partition(",")[0].rpartition(":")
    with socket.create_connection((host, int(port)), 30) as connection, connection.makefile("rwb") as stream:
        stream.write(struct.pack(">i", len(request)) + request)
        stream.flush()
        answer = stream.read(*struct.unpack(">i", stream.read(4)))
    _, error, offset = struct.unpack_from(">ihq", answer, 4 + 4 + 2 + len(topic.encode()) + 4)
    assert error == 0, f"error {error}"
    assert isinstance(offset, int)
    return offset


def _batch(records: Sequence[RawRecord]) -> bytes:
    """Return a record batch in the format that introduced headers ("magic" 2)."""
    rows = b"".join(_sized(_record(place, record)) for place, record in enumerate(records))
    last = len(records) - 1
    checked = struct.pack(">hiqq", 0, last, 1, 1) + _NO_PRODUCER + struct.pack(">i", len(records)) + rows
    rest = struct.pack(">ibI", -1, 2, _crc32c(checked)) + checked
    return struct.pack(">qi", 0, len(rest)) + rest


def _record(place: int, record: RawRecord) -> bytes:
    headers = b"".join(_sized(name) + _nullable(value) for name, value in record.headers)
    fields = [b"\0", _varint(0), _varint(place), _nullable(record.key), _nullable(record.value)]
    return b"".join(fields) + _varint(len(record.headers)) + headers


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text.encode())) + text.encode()


def _sized(data: bytes) -> bytes:
    return _varint(len(data)) + data


def _nullable(data: bytes | None) -> bytes:
    return _varint(-1) if data is None else _sized(data)


def _varint(number: int) -> bytes:
    """Zigzag-encode a number below 2^63 as a varint."""
    rest = number << 1 if number >= 0 else (-number << 1) - 1
    return bytes(_groups(rest))


def _groups(rest: int) -> Iterator[int]:
    while rest >= 0x80:
        yield rest & 0x7F | 0x80
        rest >>= 7
    yield rest


def _crc32c(data: Iterable[int]) -> int:
    crc = 0xFFFFFFFF
    for byte in data:
        crc = _CRC32C[(crc ^ byte) & 0xFF] ^ (crc >> 8)
    return crc ^ 0xFFFFFFFF


def _crc32c_of(byte: int) -> int:
    for _ in range(8):
        byte = (byte >> 1) ^ (0x82F63B78 if byte & 1 else 0)
    return byte


_CRC32C = [_crc32c_of(byte) for byte in range(256)]
