"""Size limits of the messages and batches that a writer's client sends."""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.kafka.client import PropertyValue

__all__ = ["MESSAGE", "batch_limit", "compresses", "message_limit"]

MESSAGE = 1_048_588
"""The value of ``message.max.bytes`` unless the user sets it.

It is what a broker accepts by default, so that messages of one topic fit into another; the client's own default is 5 %
less. A batch is no larger than ``batch.size``, unless a single message is.
"""
_BATCH = 1_000_000  # the client's default

Properties = Mapping[str, PropertyValue]


def message_limit(properties: Properties) -> int:
    """Return how many bytes a message may have before compression."""
    return _number(properties, "message.max.bytes", MESSAGE)


def batch_limit(properties: Properties) -> int:
    """Return how many bytes a batch of several messages may have before compression."""
    return min(_number(properties, "batch.size", _BATCH), message_limit(properties))


def compresses(properties: Properties) -> bool:
    """Return whether batches are compressed."""
    return any(str(properties.get(name, "none")) != "none" for name in ("compression.type", "compression.codec"))


def _number(properties: Properties, name: str, usual: int) -> int:
    try:
        return int(str(properties.get(name, usual)))
    except ValueError:  # the client reports what is wrong with it
        return usual
