"""The counterpart of a message on the other side of a bridge.

A header of Kafka is bytes, so types of properties do not survive. Text is UTF-8 there, and numbers and booleans are
text, as everywhere in this library (R2); what comes back is text, or binary where it is not UTF-8. A value is bytes,
too. Of a body that is text, a list or a map, the header `BODY_HEADER` says so, and lists and maps are JSON.
"""

from __future__ import annotations

import json
from collections import Counter
from contextlib import suppress
from typing import Any
from uuid import UUID

from lvq_kafka.bridging.amqp_message import PROPERTIES, AmqpMessage
from lvq_kafka.bridging.amqp_values import Scalar, Unsupported, Value
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import encode_header, encode_key
from lvq_kafka.core.log.records import Headers
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.foreign_headers import DELAY_HEADERS, TIME_HEADERS
from lvq_kafka.core.queue.headers import UNKEYED_HEADER, check_key_header
from lvq_kafka.core.queue.message_groups import JMS_GROUP_HEADER
from lvq_kafka.core.queue.ranking import DEFAULT_PRIORITY, HIGHEST_PRIORITY, PRIORITY_HEADER, priority_of
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief, quoted
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError, UnencodableKey
from lvq_kafka.producing.producer import Message

__all__ = ["BODY_HEADER", "DUPLICATE_ID", "KEY_PROPERTIES", "FromAmqp", "ToAmqp", "Unfit"]

BODY_HEADER = "amqp-body"
"""The header that says that a value was ``text``, a ``list`` or a ``map``; without it, it was binary."""

KEY_PROPERTIES = ("_AMQ_LVQ_NAME", "qpid.LVQ_key")
"""Application properties that hold the key by default in Artemis, and in Qpid."""

DUPLICATE_ID = "_AMQ_DUPL_ID"
"""The application property by which Artemis recognizes a message that it has."""

_PREFIX = "amqp-"  # of the headers that hold AMQP's own properties
_ELSEWHERE = ("absolute-expiry-time", "group-id")  # properties that become terms of the message
_HONORED = TIME_HEADERS | DELAY_HEADERS  # the other broker has held the message back until it was due
_NUMBERS = {"creation-time": 2**63, "group-sequence": 2**32}  # with the number that is too large
_LONGEST_TTL = 100 * 365 * 86_400_000  # milliseconds; what lasts longer does not expire
_MOST_MS = 2**32 - 1  # that a TTL of AMQP holds
_MOST_NAMES = 50  # of what is not carried
_DEEPEST = 32  # lists and maps within each other
_LONG = 2**63  # the first number that is too large for a long


class Unfit(Exception):
    """A message has no counterpart on the other side; the text says why."""


class FromAmqp:
    """Makes messages of a queue from those of another broker.

    Args:
        definition: the queue.
        key_property: the application property that holds the key; None for the queue's key header or, where a message
            lacks that, one of `KEY_PROPERTIES`.
    """

    def __init__(self, definition: QueueDefinition, key_property: str | None = None) -> None:
        self._definition = definition
        names = (key_property,) if key_property is not None else (definition.key_header, *KEY_PROPERTIES)
        self._key_properties = [name for name in names if name is not None]
        self.not_carried: Counter[str] = Counter()
        """The number of messages that lost something on their way, by its name."""
        self._warnings: list[str] = []

    def message(self, amqp: AmqpMessage, now: float) -> Message[bytes]:
        """Return the message to send.

        Args:
            now: the time at which it arrived, in seconds since the epoch.

        Raises:
            Unfit: its body or one of its properties has no counterpart.
        """
        headers: list[tuple[str, bytes | None]] = [
            (f"{_PREFIX}{name}", _header(f"the property {name}", value))
            for name, value in amqp.properties.items()
            if name not in _ELSEWHERE
        ]
        headers += [
            (name, _header(f"the application property {quoted(name)}", value))
            for name, value in amqp.application.items()
            if name not in _HONORED
        ]
        kind, value = _value_of(amqp.body)
        if kind:
            headers.append((BODY_HEADER, kind.encode()))
        message = Message(value, headers)
        self._add_key(message, headers, amqp.application)
        self._add_ttl(message, amqp, now)
        self._add_priority(message, amqp)
        self._add_group(message, headers, amqp.properties.get("group-id"))
        for name in amqp.annotations:
            if name not in _HONORED:
                self._lose(f"annotation {name}", f"have the annotation {quoted(name)}, which has no place here")
        return message

    def key_of(self, message: Message[bytes]) -> bytes | None:
        """Return the key of a message that this has made; None if it has none."""
        key_header = self._definition.key_header
        if key_header is None:
            return None if message.key is None else encode_key(message.key)
        named: Any = dict(message.headers).get(key_header)
        return None if named is None else encode_key(named)

    def pop_warnings(self) -> list[str]:
        """Return lines for the log about what is not carried, each once."""
        warnings, self._warnings = self._warnings, []
        return warnings

    def _add_key(
        self, message: Message[bytes], headers: list[tuple[str, bytes | None]], application: dict[str, Scalar]
    ) -> None:
        said = next((name for name in self._key_properties if application.get(name) is not None), None)
        if said is None:
            return
        value = application[said]
        try:
            key = encode_key(str(value) if isinstance(value, UUID) else value)
        except UnencodableKey:
            raise Unfit(f"its key, the application property {quoted(said)}, is {_kind(value)}") from None
        key_header = self._definition.key_header
        if key_header is None:
            message.key = key
        elif said != key_header:
            headers.append((key_header, key))

    def _add_ttl(self, message: Message[bytes], amqp: AmqpMessage, now: float) -> None:
        expiry = amqp.properties.get("absolute-expiry-time")
        left = [] if not amqp.ttl else [amqp.ttl]
        if isinstance(expiry, int) and expiry > 0:
            left.append(expiry - round(now * 1000))
        if not left or min(left) > _LONGEST_TTL:
            return
        if self._definition.ttl is None:
            self._lose("ttl", "expire there, and not here: declare the queue with `ttl=Ttl()`")
        else:  # one that has expired meanwhile still replaces the values before it (R8)
            message.ttl = max(1, min(left)) / 1000

    def _add_priority(self, message: Message[bytes], amqp: AmqpMessage) -> None:
        if amqp.priority is None or amqp.priority == DEFAULT_PRIORITY:
            return
        if self._definition.order == "priority":
            message.priority = min(amqp.priority, HIGHEST_PRIORITY)
        else:
            self._lose("priority", 'have priorities there, and not here: declare the queue with `order="priority"`')

    def _add_group(self, message: Message[bytes], headers: list[tuple[str, bytes | None]], group: Scalar) -> None:
        if not isinstance(group, str) or not group:
            return
        groups = self._definition.groups
        if groups is None:
            headers.append((JMS_GROUP_HEADER, group.encode()))  # the producer warns that it has no effect
        elif groups.header not in dict(headers):
            message.group = group

    def _lose(self, name: str, what: str) -> None:
        if name not in self.not_carried:
            if len(self.not_carried) < _MOST_NAMES:
                self._warnings.append(f"messages for {brief(self._definition.name)} {what}")
            else:
                name = "others"
        self.not_carried[name] += 1


class ToAmqp:
    """Makes messages for another broker from those of a queue.

    Args:
        definition: the queue.
        key_property: the application property that gets the key, in addition to the key header; None for none.
        text: whether values without `BODY_HEADER` are text there, an amqp-value, instead of binary data.
        duplicate_ids: a text that distinguishes this topic from others in `DUPLICATE_ID`; None to leave that out.

    Raises:
        ConfigError: nothing would name the key, or the property cannot be.
    """

    def __init__(
        self,
        definition: QueueDefinition,
        key_property: str | None = None,
        *,
        text: bool = False,
        duplicate_ids: str | None = None,
    ) -> None:
        if key_property is not None:
            check_key_header(key_property)
        elif definition.key_header is None and definition.conflate:
            raise ConfigError(
                f"The record key is the key of {definition.name}, and no application property would hold it.",
                options=["key_property"],
                hint=f"Name one in `key_property`: Artemis reads {KEY_PROPERTIES[0]}, Qpid the lvqKey of its queue.",
            )
        self._definition = definition
        self._key_property = key_property
        self._text = text
        self._duplicate_ids = duplicate_ids

    def message(
        self, key: str, value: bytes, headers: Headers, *, expires: float | None, position: Position, now: float
    ) -> AmqpMessage:
        """Return the message to send.

        Args:
            expires: the time at which it expires, in seconds since the epoch.
            now: the current time, likewise.

        Raises:
            Unfit: it has no counterpart.
        """
        last = dict(headers)  # of repeated headers, the last one counts
        amqp = AmqpMessage(self._body(value, last.pop(BODY_HEADER, None)))
        application = amqp.application
        for name, data in last.items():
            if not self._is_term(amqp, name, data) and not _is_property(amqp, name, data):
                application[name] = _scalar(data)
        if self._key_property is not None and key and UNKEYED_HEADER not in last:
            application[self._key_property] = _scalar(encode_key(key))
        if self._duplicate_ids is not None:
            application[DUPLICATE_ID] = f"{self._duplicate_ids}/{position.partition}/{position.offset}"
        if expires is not None:
            ttl = max(1, round((expires - now) * 1000))
            amqp.ttl = ttl if ttl <= _MOST_MS else None  # the property holds what is longer
            amqp.properties["absolute-expiry-time"] = round(expires * 1000)
        return amqp

    def _body(self, value: bytes, kind: bytes | None) -> Value:
        if kind is None:
            kind = b"text" if self._text else b""
        try:
            if kind == b"text":
                return value.decode()
            if kind in (b"list", b"map"):
                return _checked(read_json(value.decode(), _DEEPEST), kind.decode())
        except ValueError as error:  # an error of UTF-8 is one
            raise Unfit(f"its value is no {kind.decode()}: {error}") from None
        return value

    def _is_term(self, amqp: AmqpMessage, name: str, data: bytes | None) -> bool:
        """Return whether a header belongs to an option of the queue; use AMQP's own for it."""
        definition = self._definition
        if name == PRIORITY_HEADER and definition.order == "priority":
            amqp.priority = None if data is None else priority_of(data)
            return True
        if definition.groups is not None and name == definition.groups.header:
            if data is not None:
                amqp.properties["group-id"] = data.decode("utf-8", "replace")
            return True
        return (
            name == UNKEYED_HEADER
            or (name == TTL_HEADER and definition.ttl is not None)
            or (name == NOT_BEFORE_HEADER and definition.max_delay is not None)
        )


def _is_property(amqp: AmqpMessage, name: str, data: bytes | None) -> bool:
    """Set a property of AMQP from its header; return False if it is not one of those."""
    field = name.removeprefix(_PREFIX)
    if data is None or field == name or field not in PROPERTIES or field in _ELSEWHERE:
        return False
    value: Scalar = _scalar(data)
    if field == "user-id":
        value = data
    elif field in _NUMBERS:
        if not data.isdigit() or (len(data) > 1 and data.startswith(b"0")) or int(data[:20]) >= _NUMBERS[field]:
            return False
        value = int(data)
    elif not isinstance(value, str) or (field.startswith("content-") and not value.isascii()):
        return False
    amqp.properties[field] = value
    return True


def _value_of(body: Value) -> tuple[str, bytes]:
    """Return the kind of a body, as in `BODY_HEADER`, and its value.

    A missing body is empty, since a null value would delete the key (R9).
    """
    if body is None or isinstance(body, bytes):
        return "", body or b""
    if isinstance(body, Unsupported):
        raise Unfit(f"its body is {body}")
    if isinstance(body, list | dict):
        kind = "list" if isinstance(body, list) else "map"
        try:
            said = json.dumps(body, ensure_ascii=False, allow_nan=False, separators=(",", ":"), default=_in_json)
        except ValueError:
            raise Unfit(f"its body is a {kind} with a number that JSON lacks") from None
        except _NotJson as error:
            raise Unfit(f"its body is a {kind} with {error}") from None
        return kind, said.encode()
    return "text", _bytes_of(body)


class _NotJson(Exception):
    """A value in a list or map that JSON lacks."""


def _in_json(value: object) -> str:
    """Return text for a value that JSON lacks."""
    if isinstance(value, UUID):
        return str(value)
    if isinstance(value, bytes):
        with suppress(UnicodeDecodeError):
            return value.decode()
        raise _NotJson("binary data that is not UTF-8")
    raise _NotJson(str(value) if isinstance(value, Unsupported) else type(value).__name__)


def _checked(value: Any, kind: str) -> Value:
    """Return what was read from JSON.

    Raises:
        ValueError: it is of another kind, or has an integer or a text that AMQP lacks.
    """
    result: Value = value
    if not isinstance(value, dict if kind == "map" else list):
        raise ValueError("it is JSON of another type")
    inner: list[Any] = [value]
    while inner:
        of_inner = inner.pop()
        if isinstance(of_inner, dict):
            inner += [*of_inner, *of_inner.values()]
        elif isinstance(of_inner, list):
            inner += of_inner
        elif isinstance(of_inner, str):
            of_inner.encode()  # half of a surrogate pair, which JSON can write, is an error
        elif isinstance(of_inner, int) and not -_LONG <= of_inner < _LONG:
            raise ValueError("it has an integer of more than 64 bits")
    return result


def _header(what: str, value: Scalar) -> bytes | None:
    if isinstance(value, Unsupported):
        raise Unfit(f"{what} is {value}")
    return None if value is None else _bytes_of(value)


def _bytes_of(value: Any) -> bytes:
    return encode_header(str(value) if isinstance(value, UUID) else value)


def _scalar(data: bytes | None) -> Scalar:
    if data is None:
        return None
    try:
        return data.decode()
    except UnicodeDecodeError:
        return data


def _kind(value: Scalar) -> str:
    return str(value) if isinstance(value, Unsupported) else f"of type {type(value).__name__}"
