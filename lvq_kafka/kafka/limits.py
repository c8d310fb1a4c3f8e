"""How large the messages and batches are that a writer's client sends, by its properties."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.kafka.client import PropertyValue

__all__ = ["MESSAGE", "batch_limit", "compresses", "message_limit"]

MESSAGE = 1_048_588
"""``message.max.bytes``, unless the user sets it. As much as a broker takes by default, so that what lies in one topic
can be put into another; the client's own default is 5 % less. A batch is no larger than ``batch.size``, unless one
message is.
"""
_BATCH = 1_000_000  # the client's default

Properties = Mapping[str, PropertyValue]


def message_limit(properties: Properties) -> int:
    """Bytes that a message may have, before it is compressed."""
    return _number(properties, "message.max.bytes", MESSAGE)


def batch_limit(properties: Properties) -> int:
    """Bytes that a batch of several messages may have, before it is compressed."""
    return min(_number(properties, "batch.size", _BATCH), message_limit(properties))


def compresses(properties: Properties) -> bool:
    """Whether batches are compressed."""
    return any(str(properties.get(name, "none")) != "none" for name in ("compression.type", "compression.codec"))


def _number(properties: Properties, name: str, usual: int) -> int:
    try:
        return int(str(properties.get(name, usual)))
    except ValueError:  # the client says what is wrong with it
        return usual
