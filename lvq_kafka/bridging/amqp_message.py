"""Messages of AMQP 1.0: as bytes, and as the parts that a bridge passes on.

Delivery annotations and the footer belong to the hop between two containers, and are skipped.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

from lvq_kafka.bridging.amqp_values import (
    AmqpSymbol,
    Malformed,
    Scalar,
    Value,
    ValueReader,
    encode_list,
    encode_scalar,
    encode_value,
)

__all__ = ["PROPERTIES", "AmqpMessage", "decode_message", "encode_message"]

_HEADER, _ANNOTATIONS, _PROPERTIES, _APPLICATION, _DATA, _SEQUENCE, _VALUE = 0x70, 0x72, 0x73, 0x74, 0x75, 0x76, 0x77
_DELIVERY_ANNOTATIONS, _FOOTER = 0x71, 0x78
_CHANGING = (_HEADER, _DELIVERY_ANNOTATIONS, _ANNOTATIONS)

PROPERTIES = (
    "message-id",
    "user-id",
    "to",
    "subject",
    "reply-to",
    "correlation-id",
    "content-type",
    "content-encoding",
    "absolute-expiry-time",
    "creation-time",
    "group-id",
    "group-sequence",
    "reply-to-group-id",
)
"""The fields of the section *properties*, in their order."""

_TYPES: Mapping[str, str] = MappingProxyType(
    {"absolute-expiry-time": "timestamp", "creation-time": "timestamp", "group-sequence": "uint"}
)
_SYMBOLS = ("content-type", "content-encoding")


@dataclass(slots=True)
class AmqpMessage:
    """A message as another broker has it."""

    body: Value = b""
    """Data sections, joined, are bytes; an amqp-value is itself; sequences, joined, are a list."""
    durable: bool = True
    priority: int | None = None
    ttl: int | None = None
    """In milliseconds from the moment at which the broker sent it."""
    properties: dict[str, Scalar] = field(default_factory=dict)
    """The section *properties*, by the names in `PROPERTIES`."""
    application: dict[str, Scalar] = field(default_factory=dict)
    """The application properties."""
    annotations: list[str] = field(default_factory=list)
    """The names of the message annotations, whose values are skipped."""
    bare_at: int = field(default=0, compare=False)
    """Where the bare message begins in the bytes that were read: what comes before may change on its way."""


def decode_message(data: bytes) -> AmqpMessage:
    """Decode a message.

    Raises:
        Malformed: the bytes are not a message.
    """
    reader = ValueReader(data)
    message = AmqpMessage(body=None, durable=False)
    parts: list[bytes] = []
    elements: list[Value] | None = None
    bare_at: list[int] = []
    while reader.more:
        begin, section = reader.at, reader.section()
        if section not in _CHANGING:
            bare_at.append(begin)
        if section == _DATA:
            part = reader.scalar()
            if not isinstance(part, bytes):
                raise Malformed("a data section is not binary")
            parts.append(part)
        elif section == _HEADER:
            _read_header(message, reader.fields())
        elif section == _PROPERTIES:
            message.properties = {name: value for name, value in zip(PROPERTIES, reader.fields()) if value is not None}
        elif section == _APPLICATION:
            message.application = dict(_named(name, value) for name, value in reader.pairs())
        elif section == _ANNOTATIONS:
            message.annotations = [name for name, _ in reader.pairs() if isinstance(name, str)]
        elif section == _VALUE:
            message.body = reader.value()
        elif section == _SEQUENCE:
            sequence = reader.value()
            if not isinstance(sequence, list):
                raise Malformed("a sequence is not a list")
            elements = [*(elements or []), *sequence]
        elif section in (_DELIVERY_ANNOTATIONS, _FOOTER):
            reader.skip()
        else:
            raise Malformed(f"0x{section:02x} is not a section")
    if parts:
        message.body = b"".join(parts)
    elif elements is not None:
        message.body = elements
    message.bare_at = min(bare_at, default=0)
    return message


def _read_header(message: AmqpMessage, fields: list[Scalar]) -> None:
    durable, priority, ttl, *_ = [*fields, None, None, None]
    message.durable = durable is True
    message.priority = _number(priority)
    message.ttl = _number(ttl)


def _number(value: Scalar) -> int | None:
    return value if isinstance(value, int) and not isinstance(value, bool) else None


def _named(name: Scalar, value: Value) -> tuple[str, Scalar]:
    if not isinstance(name, str):
        raise Malformed("an application property has no name")
    assert not isinstance(value, list | dict)  # none was read that deep
    return name, value


def encode_message(message: AmqpMessage) -> bytes:
    """Encode a message.

    A body of bytes becomes a data section, any other one an amqp-value.
    """
    scalar: Callable[..., bytes] = encode_scalar
    header = [
        scalar(message.durable),
        scalar(message.priority, "ubyte" if message.priority is not None else ""),
        scalar(message.ttl, "uint" if message.ttl is not None else ""),
    ]
    sections = [_section(_HEADER, encode_list(header))]
    if message.properties:
        fields = [_property(name, message.properties.get(name)) for name in PROPERTIES]
        sections.append(_section(_PROPERTIES, encode_list(fields)))
    if message.application:
        sections.append(_section(_APPLICATION, encode_value(dict(message.application))))
    kind = _DATA if isinstance(message.body, bytes) else _VALUE
    sections.append(_section(kind, encode_value(message.body)))
    return b"".join(sections)


def _property(name: str, value: Scalar) -> bytes:
    if value is None:
        return encode_scalar(None)
    if name in _SYMBOLS and isinstance(value, str):
        return encode_scalar(AmqpSymbol(value))
    return encode_scalar(value, _TYPES.get(name, ""))


def _section(code: int, data: bytes) -> bytes:
    return bytes((0x00, 0x53, code)) + data
