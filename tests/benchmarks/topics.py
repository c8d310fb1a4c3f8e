"""The topics that all contestants read: created once, with the same bytes in every run."""

from __future__ import annotations

import uuid
import zlib
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Any, NamedTuple

from confluent_kafka import Producer

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.compaction import force_compaction
from tests.benchmarks.workload import key_of, value_of

PARTITIONS = 4
TAIL = 64
"""The number of records after the compacted part, some in every partition: compaction itself leaves a delete last."""


class Content(NamedTuple):
    """The contents that a reader must end up with; two different ones hardly ever compare equal."""

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
    """A topic to read, and its contents."""

    label: str
    name: str
    content: Content
    key_header: str | None = None
    """The header that holds each record's key, beside the record key itself."""


def create(cluster: KafkaCluster, label: str) -> str:
    """Create an empty topic, and return its name."""
    name = f"bench-{label}-{uuid.uuid4().hex[:8]}"
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    cluster.topics.create(name, partitions=PARTITIONS, config=config)
    return name


Headers = Sequence[tuple[str, bytes]]


def load(
    cluster: KafkaCluster,
    label: str,
    records: int,
    keys: int,
    headers: Headers | None = None,
    *,
    key_header: str | None = None,
    compacted: bool = False,
) -> Topic:
    """Create a topic of a number of records over a number of keys.

    Nothing is compacted, since all segments are still open; with ``compacted``, all but the last `TAIL` records are.
    """
    name = create(cluster, label)
    newest: dict[bytes, bytes] = {}

    def records_kept() -> Iterator[tuple[bytes, bytes]]:
        for number in range(records):
            key = key_of(number, keys).encode()
            newest[key] = value = value_of(number)
            yield key, value

    everything = records_kept()
    if compacted:
        write(cluster, name, islice(everything, records - TAIL), headers, key_header=key_header)
        force_compaction(cluster, name)
    write(cluster, name, everything, headers, key_header=key_header)
    return Topic(label, name, Content.of(newest.items()), key_header)


def write(
    cluster: KafkaCluster,
    name: str,
    records: Iterable[tuple[bytes, bytes]],
    headers: Headers | None = None,
    *,
    key_header: str | None = None,
) -> None:
    """Append keys and values as fast as possible, and wait until they are stored.

    All have the same headers, and ``key_header`` with their own key.
    """
    given: Any = {} if headers is None else {"headers": list(headers)}
    producer = Producer(
        {
            **cluster.config.for_producer(),
            "enable.idempotence": True,
            "log_level": 3,  # a broker that has just started makes it wait, which is not worth a message
            "partitioner": "murmur2_random",
            "linger.ms": 5,
            "queue.buffering.max.messages": 500_000,
        }
    )
    producer.list_topics(name, 10)  # connects now, so a timing starts with the first record
    for number, (key, value) in enumerate(records):
        while True:
            try:
                if key_header is not None:
                    given["headers"] = [*(headers or ()), (key_header, key)]
                producer.produce(name, value, key, **given)
                break
            except BufferError:
                producer.poll(0.05)
        if number % 1000 == 0:
            producer.poll(0)
    if producer.flush(120):
        raise RuntimeError(f"{name} could not be filled")
