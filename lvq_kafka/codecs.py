"""Codecs: conversion between a program's values and the bytes in the log.

`BYTES`, `TEXT` and `JSON` are built in. A dataclass, a model of pydantic or a struct of msgspec stands for the codec of
its JSON (`codec_of`). A custom codec is two functions: ``Codec(packb, unpackb, name="pack")``.
`serializers` wraps confluent-kafka's serializer objects, including Schema Registry's.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Generic, Literal, NoReturn, cast, get_args

from lvq_kafka.core.facts import Format, Position
from lvq_kafka.core.text.dataclass_json import json_parts, reader_of
from lvq_kafka.core.text.json_text import check_nesting, read_json
from lvq_kafka.core.text.validation import function
from lvq_kafka.errors import ConfigError, DecodeError, EncodeError

__all__ = [
    "BYTES",
    "CODECS",
    "DECLARED",
    "JSON",
    "TEXT",
    "Codec",
    "T",
    "Undecodable",
    "V",
    "check_undecodable",
    "codec_of",
    "form_of",
]

if TYPE_CHECKING:
    from typing_extensions import TypeVar

    V = TypeVar("V", default=bytes)  # a queue without a codec holds bytes
    T = TypeVar("T", default=bytes)  # the same, for class methods: there, V is the class's own
else:
    from typing import TypeVar

    V = TypeVar("V")
    T = TypeVar("T")

Undecodable = Literal["raise", "skip", "raw"]
"""The policy for values that their codec cannot decode.

- ``raise``: reading that key raises `DecodeError`; other keys are not affected.
- ``skip``: the key counts as having no value until its next good one; a consumer rejects the message. ``skipped`` of
  the view, browser or consumer counts them.
- ``raw``: the bytes are returned as they are.
"""

_PLAIN = "A codec needs plain functions: values are decoded in threads, too, without an event loop."

HeaderPairs = Sequence[tuple[str, bytes | None]]


class Codec(Generic[V]):
    """Encodes values to bytes and decodes them. Used by several threads at once.

    Args:
        encode: converts a value to bytes. It must raise for None and for anything else that it cannot encode; deletes
            are not values, see `Producer.delete`.
        decode: converts bytes to a value, as a class such as ``Decimal`` does; may raise any exception if it cannot.
        name: the codec's name in errors.

    Raises:
        ConfigError: one of the two is not a plain function of one argument.
    """

    __slots__ = ("_decode", "_encode", "model", "name")

    def __init__(self, encode: Callable[[V], bytes], decode: Callable[[bytes], V], *, name: str = "custom") -> None:
        function("encode", encode, "value", hint=_PLAIN)
        function("decode", decode, "data", hint=_PLAIN)
        self._encode = encode
        self._decode = decode
        self.name = name
        self.model: type[V] | None = None
        """The dataclass or model that all values are of, as JSON; None if there is none."""

    def encode(self, value: V, topic: str, headers: list[tuple[str, bytes | None]]) -> bytes:
        """Encode a value for ``topic``. A codec may add to ``headers``, as Schema Registry's can.

        Raises:
            EncodeError: the value cannot be encoded.
        """
        try:
            data: object = self._write(value, topic, headers)  # a custom codec may return anything
        except EncodeError:
            raise
        except Exception as error:  # a custom codec may raise anything
            raise EncodeError(f"The codec {self.name!r} cannot write {_kind(value)}: {error}") from error
        if not isinstance(data, bytes):
            hint = "Use delete() to remove a key." if value is None else ""
            raise EncodeError(
                f"The codec {self.name!r} turned {_kind(value)} into {_kind(data)}, not bytes.", hint=hint
            )
        return data

    def decode_at(
        self, data: bytes, at: tuple[str, int, int], *, headers: HeaderPairs = (), raw_on_error: bool = False
    ) -> V:
        """Decode the value at a position; on failure ``raw_on_error`` returns the bytes instead.

        Raises:
            DecodeError: the bytes cannot be decoded.
        """
        try:
            return self._read(data, at[0], headers)
        except Exception as error:  # a custom codec may raise anything
            if raw_on_error:
                return cast(V, data)
            position = Position(*at)
            raise DecodeError(
                f"The codec {self.name!r} cannot read the value at {position} ({len(data)} bytes): {error}",
                position=position,
                raw=data,
                hint="The key's next good value replaces it.",
            ) from error

    def check(self, data: bytes, topic: str, headers: HeaderPairs) -> None:
        """Check that bytes are what this codec reads, before they are sent as they are.

        Raises:
            EncodeError: they are not.
        """
        try:
            self._read(data, topic, headers)
        except Exception as error:  # a custom codec may raise anything
            raise EncodeError(f"The codec {self.name!r} cannot read this value ({len(data)} bytes): {error}") from error

    def _write(self, value: V, topic: str, headers: list[tuple[str, bytes | None]]) -> bytes:
        return self._encode(value)

    def _read(self, data: bytes, topic: str, headers: HeaderPairs) -> V:
        return self._decode(data)

    def __repr__(self) -> str:
        return f"<Codec {self.name}>"


def check_undecodable(policy: object) -> None:
    """Raise ConfigError unless the policy is an `Undecodable`."""
    if policy not in get_args(Undecodable):
        raise ConfigError(
            f"undecodable={policy!r} is not a policy.",
            options=["undecodable"],
            hint=f"Choose one of {', '.join(get_args(Undecodable))}.",
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
    return text.encode("utf-8", "backslashreplace")  # lone surrogates, which UTF-8 lacks, get the escapes of JSON


def _read_json(data: bytes) -> Any:
    return read_json(data.decode("utf-8"))


BYTES: Codec[bytes] = Codec(_bytes, bytes, name="bytes")
"""Values are bytes, passed through unchanged."""

TEXT: Codec[str] = Codec(_text, _read_text, name="text")
"""Values are text, encoded as UTF-8."""

JSON: Codec[Any] = Codec(_json, _read_json, name="json")
"""Values are anything that JSON can hold, encoded compactly as UTF-8.

NaN, infinities and nesting deeper than 500 are refused; None is JSON's null. Fractions are floats, so one with more
digits than a float holds is read as the nearest. Lone surrogates, which UTF-8 lacks, are escaped.
"""


def _undeclared(value: object) -> NoReturn:
    raise ValueError("only a declared queue has a declared format")


DECLARED: Codec[Any] = Codec(_undeclared, _undeclared, name="declared")
"""Values are of the format that the queue was declared with: bytes, text or JSON; bytes if it names none (R53).

For programs that are not written for a certain queue. Opening the queue looks it up.
"""

CODECS: Mapping[Format, Codec[Any]] = {"bytes": BYTES, "text": TEXT, "json": JSON}
"""The codec of each format."""


def form_of(codec: Codec[Any]) -> Format:
    """Return the format of the values of a codec; bytes, if it is a program's own."""
    if codec.model is not None:
        return "json"
    return next((form for form, known in CODECS.items() if known is codec), "bytes")


def codec_of(value: Codec[V] | type[V]) -> Codec[V]:
    """Return a codec as it is, or the one for the JSON of a dataclass or model.

    The values of a model are JSON, as pydantic or msgspec writes and reads it. For dataclasses, see
    `lvq_kafka.core.text.dataclass_json`.

    Raises:
        ConfigError: this is neither, or `DECLARED`, or a dataclass with a field that JSON has no form for.
    """
    if value is DECLARED:
        raise ConfigError(
            "Only a declared queue has a declared format.", options=["value"], hint="Say what its values are."
        )
    if isinstance(value, Codec):
        return value
    given: Any = value
    functions = _functions_of(cast("type[V]", given)) if isinstance(given, type) else None
    if functions is None:
        raise ConfigError(
            f"value={value!r} is not a codec.",
            options=["value"],
            hint="Use BYTES, TEXT, JSON, a dataclass, a model of pydantic or msgspec, Codec(encode, decode) or "
            "serializers(...).",
        )
    encode, decode = functions

    def encode_own(one: V) -> bytes:
        if not isinstance(one, given):
            raise TypeError(f"it is no {given.__name__}")
        return encode(one)

    codec = Codec(encode_own, decode, name=given.__name__)
    codec.model = given
    return codec


def _functions_of(model: type[V]) -> tuple[Callable[[V], bytes], Callable[[bytes], V]] | None:
    """Return what writes and reads the values of a class; None if nothing does."""
    # A program that has made a model has imported its library.
    msgspec, pydantic = sys.modules.get("msgspec"), sys.modules.get("pydantic")
    if msgspec is not None and issubclass(model, msgspec.Struct):
        return msgspec.json.Encoder().encode, msgspec.json.Decoder(model).decode
    if pydantic is not None and (issubclass(model, pydantic.BaseModel) or hasattr(model, "__pydantic_validator__")):
        adapter = pydantic.TypeAdapter(model)

        def encode(one: V) -> bytes:
            data: bytes = adapter.dump_json(one, by_alias=True)
            return data

        return encode, adapter.validate_json
    if not dataclasses.is_dataclass(model):
        return None
    try:
        read = reader_of(model)
    except (TypeError, NameError) as error:
        raise ConfigError(
            f"value={model.__name__} cannot be read from JSON: {error}.",
            options=["value"],
            hint="Change the field, or use a model of pydantic or msgspec, or a codec of your own.",
        ) from error
    return lambda one: _json(json_parts(one)), lambda data: cast(V, read(_read_json(data)))
