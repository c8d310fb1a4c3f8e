"""Messages of ``qpid.messaging``, and their dispositions."""

from __future__ import annotations

from typing import Any

from lvq_kafka.compat.qpid_messaging.constants import Constant
from lvq_kafka.compat.qpid_messaging.exceptions import EncodeError

__all__ = ["LIST", "MAP", "TEXT", "UNSPECIFIED", "Disposition", "Message"]

MAP, LIST, TEXT = "amqp/map", "amqp/list", "text/plain"
"""Content types that contents of some Python types have."""

UNSPECIFIED: Any = object()
"""Stands for the content type that the content's own type implies."""


class Message:
    """A message: its content, its properties and some fields, which all may be set.

    Args:
        content: text, bytes, a dict, a list or None. Dicts and lists become JSON in the log, text becomes UTF-8.
        content_type: its MIME type; if not given, ``text/plain`` for text, ``amqp/map`` for a dict, ``amqp/list`` for a
            list, and none for bytes.
        id: an id.
        subject: a subject. It becomes the header ``qpid.subject``.
        user_id: the name of its producer. Nobody checks it.
        reply_to: the address for answers.
        correlation_id: the id of the message that this one answers.
        durable: has no effect: each message is durable. It is True in received ones.
        priority: its priority, from 0 to 9; in a queue with priorities, 9 comes first (R20).
        ttl: the seconds after which it expires. The queue must allow that (R22). In a received message, what was left
            of it then.
        properties: the message headers, by name: text, bytes, numbers, booleans, UUIDs, None, dicts and lists. One of
            them is the queue's key header.

    Raises:
        EncodeError: the content has another type.
    """

    def __init__(
        self,
        content: Any = None,
        content_type: str | None = UNSPECIFIED,
        id: object = None,
        subject: str | None = None,
        user_id: str | None = None,
        reply_to: str | None = None,
        correlation_id: object = None,
        durable: bool | None = None,
        priority: int | None = None,
        ttl: float | None = None,
        properties: dict[str, Any] | None = None,
    ) -> None:
        self.id = id
        self.subject = subject
        self.user_id = user_id
        self.reply_to = reply_to
        self.correlation_id = correlation_id
        self.durable = durable
        self.priority = priority
        self.ttl = ttl
        self.redelivered = False
        """True if the queue has handed it out before, or may have."""
        self.properties: dict[str, Any] = {} if properties is None else properties
        self.content_type = type_of(content) if content_type is UNSPECIFIED else content_type
        self.content = content

    def __repr__(self) -> str:
        fields = ("id", "subject", "user_id", "reply_to", "correlation_id", "priority", "ttl")
        said = [(name, value) for name in fields if (value := getattr(self, name)) is not None]
        said += [(name, value) for name in ("durable", "redelivered", "properties") if (value := getattr(self, name))]
        if self.content_type != _implied_type(self.content):
            said.append(("content_type", self.content_type))
        shown = [f"{name}={value!r}" for name, value in said]
        if self.content is not None:
            shown.append(f"content={self.content!r}" if shown else repr(self.content))
        return f"Message({', '.join(shown)})"


class Disposition:
    """The fate of a message, for `Session.acknowledge`.

    Args:
        type: `REJECTED` or `RELEASED`.
        options: ``text``, the reason of a rejection; others have no effect.
    """

    def __init__(self, type: Constant, **options: Any) -> None:
        self.type = type
        self.options = options

    def __repr__(self) -> str:
        options = (f"{name}={value!r}" for name, value in self.options.items())
        return f"Disposition({', '.join([repr(self.type), *options])})"


def type_of(content: object) -> str | None:
    """Return the content type that a content's own type implies.

    Raises:
        EncodeError: it has none.
    """
    implied: str | None = _implied_type(content)
    if implied is UNSPECIFIED:
        raise EncodeError(
            text=f"A message cannot have a content of type {type(content).__name__}.",
            hint="Use text, bytes, a dict, a list or None.",
        )
    return implied


def _implied_type(content: object) -> Any:
    match content:
        case None | bytes() | bytearray() | memoryview():
            return None
        case str():
            return TEXT
        case dict():
            return MAP
        case list():
            return LIST
        case _:
            return UNSPECIFIED
