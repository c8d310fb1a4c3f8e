"""Codecs: between the values a program works with and the bytes in the log.

Built in are `BYTES`, `TEXT` and `JSON`. A codec of one's own is two functions: ``Codec(packb, unpackb, name="pack")``.
`serializers` makes one of confluent-kafka's serializer objects, Schema Registry's included.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, cast, get_args

from lvq_kafka.core.json_text import check_nesting, read_json
from lvq_kafka.core.records import Position
from lvq_kafka.core.validation import callables
from lvq_kafka.errors import ConfigError, DecodeError, EncodeError

__all__ = ["BYTES", "JSON", "TEXT", "Codec", "Undecodable", "V", "check_undecodable", "serializers"]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)  # a queue that names no codec is one of bytes
else:
    from typing import TypeVar

    V = TypeVar("V")

Undecodable = Literal["raise", "skip", "raw"]
"""What to do with a value that its codec cannot read.

- ``raise``: reading that key raises `DecodeError`; the others are not affected.
- ``skip``: the key counts as having no value, until its next good one; a consumer rejects the message. ``skipped`` of
  view, browser and consumer counts them.
- ``raw``: its bytes are given as they are.
"""

HeaderPairs = Sequence[tuple[str, bytes | None]]


class Codec(Generic[V]):
    """How values are written to bytes and read from them. Used by several threads at once.

    Args:
        encode: from a value to bytes. None, and whatever else it cannot write, must make it raise; a delete is not a
            value but `Producer.delete`.
        decode: from bytes to a value; raises what it likes when it cannot read them.
        name: what errors call it.
    """

    __slots__ = ("_decode", "_encode", "name")

    def __init__(self, encode: Callable[[V], bytes], decode: Callable[[bytes], V], *, name: str = "custom") -> None:
        callables(encode=encode, decode=decode)
        self._encode = encode
        self._decode = decode
        self.name = name

    def encode(self, value: V, topic: str, headers: list[tuple[str, bytes | None]]) -> bytes:
        """Write a value that goes to ``topic``. A codec may add to ``headers``, as Schema Registry's can do.

        Raises:
            EncodeError: the value cannot be written.
        """
        try:
            data: object = self._write(value, topic, headers)  # a foreign codec may return anything, too
        except EncodeError:
            raise
        except Exception as error:  # a foreign codec may raise anything
            raise EncodeError(f"The codec {self.name!r} cannot write {_kind(value)}: {error}") from error
        if not isinstance(data, bytes):
            hint = "Use delete() to remove a key." if value is None else ""
            raise EncodeError(f"The codec {self.name!r} made {_kind(data)} of {_kind(value)}, not bytes.", hint=hint)
        return data

    def decode_at(
        self, data: bytes, at: tuple[str, int, int], *, headers: HeaderPairs = (), raw_on_error: bool = False
    ) -> V:
        """Read the value that lies at a position; with ``raw_on_error`` return the bytes where that fails.

        Raises:
            DecodeError: the bytes cannot be read.
        """
        try:
            return self._read(data, at[0], headers)
        except Exception as error:  # a foreign codec may raise anything
            if raw_on_error:
                return cast(V, data)
            position = Position(*at)
            raise DecodeError(
                f"The codec {self.name!r} cannot read the value at {position} ({len(data)} bytes): {error}",
                position=position,
                raw=data,
                hint="The next good value for the key cures it.",
            ) from error

    def _write(self, value: V, topic: str, headers: list[tuple[str, bytes | None]]) -> bytes:
        return self._encode(value)

    def _read(self, data: bytes, topic: str, headers: HeaderPairs) -> V:
        return self._decode(data)

    def __repr__(self) -> str:
        return f"<Codec {self.name}>"


def serializers(
    serializer: Callable[..., Any] | None = None, deserializer: Callable[..., Any] | None = None
) -> Codec[Any]:
    """A codec of confluent-kafka's serializer and deserializer objects, Schema Registry's included.

    They are called as confluent-kafka calls them, ``serializer(value, SerializationContext(topic, VALUE, headers))``.
    What a deserializer takes is its own matter: that of Avro (confluent-kafka 2.16) ignores bytes behind a value.
    One of the two may be missing in a program that only reads or only writes.

    Raises:
        ConfigError: both are missing.
    """
    from lvq_kafka.kafka.serializers import SerializerCodec

    return SerializerCodec(serializer, deserializer)


def check_undecodable(policy: object) -> None:
    """Raise ConfigError unless it is an `Undecodable`."""
    if policy not in get_args(Undecodable):
        raise ConfigError(
            f"undecodable={policy!r} is no policy.",
            options=["undecodable"],
            hint=f"It is one of {', '.join(get_args(Undecodable))}.",
        )


def _kind(value: object) -> str:
    return "None" if value is None else f"an object of type {type(value).__name__}"


def _bytes(value: object) -> bytes:
    if isinstance(value, bytes):
        return value
    if isinstance(value, bytearray | memoryview):
        return bytes(value)
    hint = "Use delete() to remove a key." if value is None else "Open the queue with the codec TEXT or JSON."
    raise EncodeError(f"The codec 'bytes' cannot write {_kind(value)}.", hint=hint)


def _text(value: object) -> bytes:
    if isinstance(value, str):
        return value.encode("utf-8")
    hint = "Use delete() to remove a key." if value is None else "Give text, or open the queue with another codec."
    raise EncodeError(f"The codec 'text' cannot write {_kind(value)}.", hint=hint)


_to_json = json.JSONEncoder(ensure_ascii=False, allow_nan=False, separators=(",", ":")).encode


def _read_text(data: bytes) -> str:
    return data.decode("utf-8")


def _json(value: object) -> bytes:
    text = _to_json(value)
    check_nesting(text, value)
    return text.encode("utf-8")


def _read_json(data: bytes) -> Any:
    return read_json(data.decode("utf-8"))


BYTES: Codec[bytes] = Codec(_bytes, bytes, name="bytes")
"""Values are bytes, taken and given as they are."""

TEXT: Codec[str] = Codec(_text, _read_text, name="text")
"""Values are text, written as UTF-8."""

JSON: Codec[Any] = Codec(_json, _read_json, name="json")
"""Values are what JSON can hold, written compactly as UTF-8. NaN and infinities are refused, and so is what is nested
more than 500 deep; None is JSON's null."""
