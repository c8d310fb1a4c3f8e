"""The message of a queue that stands for one of ``qpid.messaging``, and the way back.

Headers of Kafka are bytes. Text is UTF-8 there, and numbers and booleans are text, as everywhere in this library (R2),
so selectors, other readers and other clients see what they expect. The types of properties that are not text are in
one more header, `TYPES_HEADER`, so that they come back as they were.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any
from uuid import UUID

from lvq_kafka.codecs import JSON
from lvq_kafka.compat.qpid_messaging.exceptions import DecodeError, EncodeError
from lvq_kafka.compat.qpid_messaging.message import LIST, MAP, Message, type_of
from lvq_kafka.core.log.keys import encode_header
from lvq_kafka.core.log.records import Headers
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief, quoted
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import CodecError, UnencodableKey
from lvq_kafka.producing.producer import Message as QueueMessage

__all__ = ["SUBJECT_HEADER", "TYPES_HEADER", "from_record", "to_queue_message"]

SUBJECT_HEADER = "qpid.subject"
"""The header of a message's subject. Its value is among the properties, too, as in Qpid."""

_PREFIX = "amqp-"
TYPES_HEADER = f"{_PREFIX}property-types"
"""The header that names the types of properties that are not text, as JSON: ``{"price":"float"}``."""

_FIELDS = {
    f"{_PREFIX}message-id": "id",
    f"{_PREFIX}user-id": "user_id",
    f"{_PREFIX}reply-to": "reply_to",
    f"{_PREFIX}correlation-id": "correlation_id",
    f"{_PREFIX}content-type": "content_type",
    f"{_PREFIX}subject": "subject",
    f"{_PREFIX}priority": "priority",
}
"""The attributes of a message by header. A subject is written to `SUBJECT_HEADER`, and read from both."""

_OWN = frozenset({TYPES_HEADER, TTL_HEADER, NOT_BEFORE_HEADER, PRIORITY_HEADER, UNKEYED_HEADER, *_FIELDS})
"""Headers that are no properties."""

_EXCLUSIVE = frozenset({TYPES_HEADER, *_FIELDS})
"""Headers that no property may have the name of."""


def to_queue_message(message: Message, definition: QueueDefinition, subject: str | None = None) -> QueueMessage[bytes]:
    """Return the message to send.

    Args:
        subject: the subject of a message that has none.

    Raises:
        EncodeError: its content, a property or a field has no wire form.
    """
    value = _encoded_content(message)
    headers: list[tuple[str, Any]] = []
    types: dict[str, str] = {}
    for name, said in _checked_properties(message).items():
        if name in _EXCLUSIVE:
            raise EncodeError(text=f"The property {brief(name)} has the name of a header that holds a field.")
        if name != SUBJECT_HEADER or message.subject is None:
            headers.append((name, said if name == definition.key_header else _encoded_property(name, said)))
            if (kind := _kind_of(said)) is not None:
                types[name] = kind
    if (said := message.subject if message.subject is not None else subject) is not None:
        headers = [pair for pair in headers if pair[0] != SUBJECT_HEADER]
        headers.append((SUBJECT_HEADER, _encoded_property("subject", said)))
    ranked = definition.order == "priority"
    for header, field in _FIELDS.items():
        said = getattr(message, field)
        if said is not None and field != "subject" and not (ranked and field == "priority"):
            headers.append((header, _encoded_property(field, said)))
    if types:
        headers.append((TYPES_HEADER, json.dumps(types, separators=(",", ":")).encode()))
    return QueueMessage(value, headers, ttl=message.ttl or None, priority=message.priority if ranked else None)


def _checked_properties(message: Message) -> Mapping[str, Any]:
    properties: Any = message.properties
    if not isinstance(properties, Mapping):
        raise EncodeError(text=f"The properties are {quoted(properties)}.", hint="Give a dict, or leave them out.")
    for name in properties:
        if not isinstance(name, str):
            raise EncodeError(text=f"{quoted(name)} is not the name of a property.", hint="Give text.")
    return properties


def _encoded_content(message: Message) -> bytes:
    content = message.content
    if content is None:
        return b""  # a null value would delete the key (R9)
    if isinstance(content, str):
        return _or_encode_error("The content", encode_header, content)
    if isinstance(content, bytes | bytearray | memoryview):
        return bytes(content)
    implied = type_of(content)
    if message.content_type != implied:
        raise EncodeError(
            text=f"A content of type {type(content).__name__} does not go with content_type={message.content_type!r}.",
            hint=f"Leave content_type at {implied}, or encode the content: json.dumps(content).",
        )
    return _or_encode_error("The content", partial(JSON.encode, topic="", headers=[]), content)


def _encoded_property(name: str, said: object) -> bytes | None:
    if said is None:
        return None
    if isinstance(said, UUID):
        return str(said).encode()
    if isinstance(said, bytearray | memoryview):
        return bytes(said)
    write: Callable[[Any], bytes] = encode_header
    if isinstance(said, dict | list | tuple):
        write = partial(JSON.encode, topic="", headers=[])
    return _or_encode_error(f"The property {brief(name)}", write, said)


def _or_encode_error(what: str, write: Callable[[Any], bytes], said: object) -> bytes:
    try:
        return write(said)
    except UnencodableKey as error:
        raise EncodeError(
            text=f"{what} is {quoted(said)}, of type {type(said).__name__}, which has no wire form: {error}",
            hint="Use text that UTF-8 can encode, bytes, numbers, booleans, UUIDs, None, and dicts and lists of them.",
        ) from error
    except CodecError as error:
        raise EncodeError(text=f"{what} cannot be written as JSON: {error}") from error


def _kind_of(said: object) -> str | None:
    """Return the name of a property's type; None for text and None."""
    match said:
        case None | str():
            return None
        case bool():
            return "bool"
        case int():
            return "int"
        case float():
            return "float"
        case UUID():
            return "uuid"
        case dict() | list() | tuple():
            return "json"
        case _:
            return "bytes"


def _read_boolean(text: str) -> bool:
    return {"true": True, "false": False}[text]


_READERS: Mapping[str, Callable[[str], Any]] = {
    "bool": _read_boolean,
    "int": int,
    "float": float,
    "uuid": UUID,
    "json": read_json,
}


def from_record(value: bytes, headers: Headers, *, expires: float | None, now: float, redelivered: bool) -> Message:
    """Return the message that a record of a queue stands for.

    Args:
        expires: the time at which it expires, in seconds since the epoch.
        now: the current time, likewise.

    Raises:
        DecodeError: the value is not what its content type says.
    """
    last = dict(headers)  # of repeated headers, the last one counts
    message = Message()
    for header, field in _FIELDS.items():
        if (data := last.get(header)) is not None:
            setattr(message, field, _text_or_bytes(data))
    types = _types(last.get(TYPES_HEADER))
    message.properties = {name: _property(data, types.get(name)) for name, data in last.items() if name not in _OWN}
    message.subject = message.properties.get(SUBJECT_HEADER, message.subject)
    message.priority = _priority(last.get(PRIORITY_HEADER, last.get(f"{_PREFIX}priority")))
    message.durable = True
    message.redelivered = redelivered
    message.ttl = None if expires is None else max(0.0, expires - now)
    message.content = _content(value, message.content_type)
    return message


def _types(data: bytes | None) -> Mapping[str, object]:
    """Return the types of properties by name: none if the header makes no sense."""
    try:
        types = read_json((data or b"{}").decode())
    except ValueError:
        return {}
    return types if isinstance(types, dict) else {}


def _property(data: bytes | None, kind: object) -> Any:
    if data is None or kind == "bytes":
        return data
    said = _text_or_bytes(data)
    read = _READERS.get(kind) if isinstance(kind, str) else None
    if read is None or isinstance(said, bytes):
        return said
    try:
        return read(said)
    except (KeyError, ValueError):
        return said


def _text_or_bytes(data: bytes) -> str | bytes:
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _priority(data: bytes | None) -> int | None:
    return int(data) if data is not None and data.isdigit() and len(data) < 4 else None


def _content(value: bytes, content_type: object) -> Any:
    try:
        if isinstance(content_type, str) and content_type.startswith("text/"):
            return value.decode()
        if content_type in (MAP, LIST):
            content = read_json(value.decode())
            if isinstance(content, dict if content_type == MAP else list):
                return content
            raise ValueError(f"it is a JSON {type(content).__name__}")
    except ValueError as error:
        raise DecodeError(
            text=f"A content of {len(value):,} bytes is not {brief(str(content_type))}: {error}."
        ) from None
    return value
