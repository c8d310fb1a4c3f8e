"""A codec that wraps confluent-kafka's serializers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from lvq_kafka.codecs import Codec
from lvq_kafka.core.text.validation import function
from lvq_kafka.errors import ConfigError, DecodeError, EncodeError

__all__ = ["serializers"]


class SerializerCodec(Codec[Any]):
    """Codec that calls a serializer and a deserializer as confluent-kafka's clients do."""

    __slots__ = ("_deserializer", "_serializer")

    def __init__(self, serializer: Callable[..., Any] | None, deserializer: Callable[..., Any] | None) -> None:
        if serializer is None and deserializer is None:
            raise ConfigError(
                "There is neither a serializer nor a deserializer.", options=["serializer", "deserializer"]
            )
        for name, part in (("serializer", serializer), ("deserializer", deserializer)):
            if part is not None:
                function(name, part, "value", "context", hint="Use the serializer's version without asyncio.")
        self._serializer = serializer
        self._deserializer = deserializer
        self.model = None
        self.name = "/".join(type(part).__name__ for part in (serializer, deserializer) if part is not None)

    def _write(self, value: Any, topic: str, headers: list[tuple[str, bytes | None]]) -> bytes:
        if self._serializer is None:
            raise EncodeError("This codec has no serializer.", hint="Use serializers(serializer, deserializer).")
        data: bytes = self._serializer(value, _context(topic, headers))
        return data

    def _read(self, data: bytes, topic: str, headers: Sequence[tuple[str, bytes | None]]) -> Any:
        if self._deserializer is None:
            raise DecodeError(
                "This codec has no deserializer.", position=None, raw=data, hint="Use serializers(None, deserializer)."
            )
        return self._deserializer(data, _context(topic, list(headers)))


def _context(topic: str, headers: list[tuple[str, bytes | None]]) -> Any:
    # `import lvq_kafka` imports this module, and does not load the client.
    from confluent_kafka.serialization import MessageField, SerializationContext

    return SerializationContext(topic, MessageField.VALUE, headers)  # type: ignore[arg-type]


def serializers(
    serializer: Callable[..., Any] | None = None, deserializer: Callable[..., Any] | None = None
) -> Codec[Any]:
    """Return a codec for confluent-kafka's serializers, including Schema Registry's.

    They are called as confluent-kafka calls them, ``serializer(value, SerializationContext(topic, VALUE, headers))``.
    A deserializer decides what it accepts: Avro's (confluent-kafka 2.16) ignores bytes after a value.
    A program that only reads or only writes may omit the other one.

    Raises:
        ConfigError: both are missing.
    """
    return SerializerCodec(serializer, deserializer)
