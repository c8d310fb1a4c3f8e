"""Codecs: writing, reading, and values that they cannot handle."""

from __future__ import annotations

import math
import struct
from collections.abc import Callable
from typing import Any

import pytest
from confluent_kafka.serialization import (
    IntegerDeserializer,
    IntegerSerializer,
    MessageField,
    SerializationContext,
    StringDeserializer,
    StringSerializer,
)
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.codecs import BYTES, JSON, TEXT, Codec
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import ConfigError, DecodeError, EncodeError
from lvq_kafka.kafka.serializers import serializers

HERE = Position("prices", 2, 41)


def written(codec: Codec[Any], value: object) -> bytes:
    return codec.encode(value, "prices", [])


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text("aé€😀\n\x00"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text("aé"), inner, max_size=3),
    max_leaves=8,
)


@given(st.binary())
def test_bytes_pass_through(value: bytes) -> None:
    assert written(BYTES, value) == BYTES.decode_at(value, HERE) == value


@given(st.text(st.characters(exclude_categories=["Cs"])))
def test_text_is_utf8_and_comes_back(value: str) -> None:
    assert written(TEXT, value) == value.encode()
    assert TEXT.decode_at(written(TEXT, value), HERE) == value


@given(json_values)
def test_json_comes_back(value: object) -> None:
    assert JSON.decode_at(written(JSON, value), HERE) == value


def test_json_is_compact_utf8() -> None:
    assert written(JSON, {"name": "Zoë", "bid": [1, 2.5, None]}) == '{"name":"Zoë","bid":[1,2.5,null]}'.encode()


def test_json_escapes_what_utf8_lacks() -> None:
    value = {"\ud800": ["a\udfffb", "\\ud800"]}
    data = written(JSON, value)
    assert data == rb'{"\ud800":["a\udfffb","\\ud800"]}'
    assert JSON.decode_at(data, ("prices", 0, 0)) == value


def test_bytes_like_objects_are_bytes() -> None:
    assert written(BYTES, bytearray(b"ab")) == b"ab"
    assert written(BYTES, memoryview(b"ab")) == b"ab"


@pytest.mark.parametrize(
    ("codec", "value", "says"),
    [
        (BYTES, "text", r"'bytes' cannot write an object of type str.*TEXT or JSON"),
        (BYTES, None, r"cannot write None.*delete\(\)"),
        (TEXT, b"bytes", "'text' cannot write an object of type bytes"),
        (TEXT, None, r"cannot write None.*delete\(\)"),
        (TEXT, 5, "'text' cannot write an object of type int.*another codec"),
        (TEXT, "\ud800", "'text' cannot write an object of type str"),
        (JSON, {1, 2}, "'json' cannot write an object of type set"),
        (JSON, math.nan, "'json' cannot write an object of type float"),
        (JSON, math.inf, "'json' cannot write an object of type float"),
    ],
)
def test_a_value_that_cannot_be_written_is_an_encode_error_that_names_codec_and_type(
    codec: Codec[Any], value: object, says: str
) -> None:
    with pytest.raises(EncodeError, match=says):
        written(codec, value)


def test_an_encode_error_does_not_show_the_value() -> None:
    with pytest.raises(EncodeError) as caught:
        written(BYTES, "hunter2")
    assert "hunter2" not in str(caught.value)


@pytest.mark.parametrize(
    ("codec", "data"),
    [
        (TEXT, b"\xff"),
        (JSON, b"{"),
        (JSON, b""),
        (JSON, b"\xff"),
        (JSON, b"NaN"),
        (JSON, b"[Infinity]"),
        (JSON, b"1 2"),
    ],
)
def test_a_value_that_cannot_be_read_is_a_decode_error_with_position_and_bytes(codec: Codec[Any], data: bytes) -> None:
    with pytest.raises(DecodeError, match=rf"codec '{codec.name}' cannot read the value at prices/2/41") as caught:
        codec.decode_at(data, HERE)
    assert caught.value.position == HERE
    assert caught.value.raw == data
    assert caught.value.__cause__ is not None


def test_a_value_that_cannot_be_read_is_kept_raw_when_asked_for() -> None:
    assert JSON.decode_at(b"{", HERE, raw_on_error=True) == b"{"
    assert JSON.decode_at(b"{}", HERE, raw_on_error=True) == {}


def test_two_functions_make_a_codec() -> None:
    codec = Codec[int](
        lambda value: struct.pack(">i", value), lambda data: int(struct.unpack(">i", data)[0]), name="i4"
    )
    assert codec.decode_at(written(codec, 7), HERE) == 7
    with pytest.raises(EncodeError, match="codec 'i4' cannot write an object of type str"):
        written(codec, "7")
    with pytest.raises(DecodeError, match="codec 'i4'"):
        codec.decode_at(b"123", HERE)


@pytest.mark.parametrize("made", [None, "text", 1, bytearray(b"x")])
def test_a_codec_that_does_not_make_bytes_is_an_encode_error(made: Any) -> None:
    codec = Codec[Any](lambda value: made, lambda data: data)
    with pytest.raises(EncodeError, match="not bytes"):
        written(codec, "x")


# -- serializers of confluent-kafka ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("codec", "value", "data"),
    [
        (serializers(StringSerializer(), StringDeserializer()), "Zoë", "Zoë".encode()),
        (serializers(IntegerSerializer(), IntegerDeserializer()), 7, b"\0\0\0\x07"),
    ],
)
def test_a_serializer_writes_and_its_deserializer_reads(codec: Codec[Any], value: object, data: bytes) -> None:
    assert written(codec, value) == data
    assert codec.decode_at(data, HERE) == value


class Recorder:
    """A serializer that records its calls. Schema Registry's serializers use the topic, field and headers."""

    def __init__(self, answer: Callable[[Any], Any] = lambda value: value) -> None:
        self.answer = answer
        self.contexts: list[SerializationContext] = []

    def __call__(self, value: Any, context: SerializationContext | None = None) -> Any:
        assert context is not None
        self.contexts.append(context)
        return self.answer(value)


def test_a_serializer_is_told_topic_field_and_headers() -> None:
    serializer, deserializer = Recorder(), Recorder()
    codec = serializers(serializer, deserializer)
    headers: list[tuple[str, bytes | None]] = [("ticker", b"IBM")]
    codec.encode(b"1", "prices", headers)
    codec.decode_at(b"1", HERE, headers=headers)
    for context in [*serializer.contexts, *deserializer.contexts]:
        assert (context.topic, context.field, context.headers) == ("prices", MessageField.VALUE, headers)


def test_a_serializer_that_puts_the_schema_into_a_header_reaches_the_record() -> None:
    def serializer(value: bytes, context: SerializationContext) -> bytes:
        assert isinstance(context.headers, list)  # confluent_kafka.schema_registry.header_schema_id_serializer needs it
        context.headers.append(("__value_schema_id", b"\x01"))
        return value

    headers: list[tuple[str, bytes | None]] = [("ticker", b"IBM")]
    assert serializers(serializer).encode(b"1", "prices", headers) == b"1"
    assert headers == [("ticker", b"IBM"), ("__value_schema_id", b"\x01")]


def test_the_errors_of_serializers_are_codec_errors() -> None:
    codec = serializers(IntegerSerializer(), IntegerDeserializer())
    with pytest.raises(EncodeError, match="'IntegerSerializer/IntegerDeserializer' cannot write an object of type str"):
        written(codec, "seven")
    with pytest.raises(DecodeError, match="IntegerDeserializer' cannot read the value at prices/2/41"):
        codec.decode_at(b"123", HERE)


def test_none_is_a_delete_to_a_serializer_and_must_be_said_so() -> None:
    with pytest.raises(EncodeError, match=r"delete\(\)"):
        written(serializers(StringSerializer()), None)


def test_a_program_that_only_writes_needs_no_deserializer_and_the_other_way_round() -> None:
    with pytest.raises(DecodeError, match="no deserializer") as caught:
        serializers(StringSerializer()).decode_at(b"x", HERE)
    assert caught.value.position == HERE
    with pytest.raises(EncodeError, match="no serializer"):
        written(serializers(None, StringDeserializer()), "x")
    with pytest.raises(ConfigError, match="neither"):
        serializers()


def test_a_codec_says_what_it_is() -> None:
    assert repr(JSON) == "<Codec json>"
    assert repr(serializers(StringSerializer())) == "<Codec StringSerializer>"
