"""Open transactions of a broker's coordinator, from the coordinator's own log."""

from __future__ import annotations

import struct
import time

from confluent_kafka import Consumer, Message, TopicPartition

__all__ = ["time_left"]

_TOPIC = "__transaction_state"
_TIMEOUT = 20.0  # seconds
_VALUE = struct.Struct(">hqhib")  # version, producer id, producer epoch, timeout (ms), status; the rest is not needed
_ONGOING, _PREPARED = 1, {2, 3, 7}  # the protocol's numbers; 7 fences a producer off


def time_left(servers: str) -> dict[str, float]:
    """Return the seconds until the broker ends each open transaction, by transactional id.

    Zero or less if the transaction is about to be completed.
    """
    left: dict[str, float] = {}
    for message in _records(servers):
        name, value = (message.key() or b"")[4:].decode(), message.value()
        *_, timeout, status = _VALUE.unpack_from(value) if value else (0, 0)
        if status == _ONGOING:  # logged once for each partition that joins
            left.setdefault(name, message.timestamp()[1] / 1000 + timeout / 1000 - time.time())
        elif status in _PREPARED:
            left[name] = 0.0
        else:
            left.pop(name, None)
    return left


def _records(servers: str) -> list[Message]:
    """Return all records of the topic, each partition in order."""
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "coordinator", "enable.partition.eof": True})
    found: list[Message] = []
    try:
        running = set(consumer.list_topics(_TOPIC, _TIMEOUT).topics[_TOPIC].partitions)
        consumer.assign([TopicPartition(_TOPIC, partition, 0) for partition in running])
        while running:
            message = consumer.poll(_TIMEOUT)
            assert message is not None, f"the broker does not give out {_TOPIC}"
            if message.error() is None:
                found.append(message)
            else:
                running.discard(message.partition())
    finally:
        consumer.close()
    return found
