"""The topics that everybody reads: made once, the same bytes in every run."""

from __future__ import annotations

import random
import uuid
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from typing import NamedTuple

from confluent_kafka import Producer

from lvq_kafka.kafka import KafkaLog

PARTITIONS = 4
VALUE_SIZE = 256
_NOISE = random.Random(7).randbytes(8192)


class Content(NamedTuple):
    """What a reader must hold in the end; two different contents hardly ever agree in it."""

    keys: int
    checksum: int

    @classmethod
    def of(cls, items: Iterable[tuple[bytes, bytes]]) -> Content:
        count = total = 0
        for key, value in items:
            count += 1
            total += zlib.crc32(value, zlib.crc32(key))
        return cls(count, total)


@dataclass(frozen=True)
class Topic:
    """A topic to read, and what is in it."""

    label: str
    name: str
    content: Content


def create(log: KafkaLog, label: str) -> str:
    """A new, empty topic; its name."""
    name = f"bench-{label}-{uuid.uuid4().hex[:8]}"
    log.create_topic(name, partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    return name


def load(log: KafkaLog, label: str, records: int, keys: int) -> Topic:
    """A topic of so many records over so many keys. Nothing is compacted away: its segments are all still open."""
    name = create(log, label)
    producer = Producer(
        {
            **log.config.for_producer(),
            "enable.idempotence": True,
            "log_level": 3,  # a broker that has just started makes it wait, which is no news
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
        }
    )
    newest: dict[bytes, bytes] = {}
    for number in range(records):
        key = b"k%09d" % (number * 7919 % keys)  # 7919 is prime: neighbours in the log are none among the keys
        newest[key] = value = _value(number)
        while True:
            try:
                producer.produce(name, value, key)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{name} could not be filled")
    return Topic(label, name, Content.of(newest.items()))


def _value(number: int) -> bytes:
    """The number and a piece of noise: no two alike, and nothing for a compressor."""
    begin = number * 37 % (len(_NOISE) - VALUE_SIZE)
    return b"%016d" % number + _NOISE[begin : begin + VALUE_SIZE - 16]
