"""The contents of a topic at a cut, computed in the plainest way: from a list of all committed records."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from confluent_kafka import Consumer, KafkaError, TopicPartition

from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record

__all__ = ["Journal", "Place"]

Place = tuple[int, int, bytes]
"""The place of a key's value, and the value: partition, offset, value."""


@dataclass
class Journal:
    """The records of a topic as a plain consumer reads them, before compaction or anything else removes some."""

    servers: str
    topic: str
    read_up_to: dict[int, int] = field(default_factory=dict)
    records: list[Record] = field(default_factory=list)

    def read_on(self) -> None:
        """Read the records committed since the last call."""
        # Nothing is committed, but the client requires a group all the same.
        settings = {"bootstrap.servers": self.servers, "group.id": "the plain truth", "enable.auto.commit": False}
        consumer = Consumer({**settings, "enable.partition.eof": True, "auto.offset.reset": "error"})
        try:
            left = set(consumer.list_topics(self.topic, 20).topics[self.topic].partitions)
            consumer.assign([TopicPartition(self.topic, p, self.read_up_to.get(p, 0)) for p in left])
            while left:
                message = consumer.poll(20)
                assert message is not None, f"nothing came of {self.topic}"
                error, partition, offset = message.error(), message.partition(), message.offset()
                assert partition is not None
                assert offset is not None
                if error is None:
                    key, stamp = message.key(), message.timestamp()[1]
                    self.records.append(Record(partition, offset, stamp, key, message.value()))
                    offset += 1
                else:
                    assert error.code() == KafkaError._PARTITION_EOF, error
                    left.discard(partition)
                self.read_up_to[partition] = offset
        finally:
            consumer.close()

    def rows(self, start: Mapping[int, int], end: Mapping[int, int]) -> dict[bytes, Place]:
        """Return each key's value at a cut: the newest in its home partition, or else the last one anywhere (R14)."""
        newest: dict[bytes, dict[int, Record]] = {}
        for record in self.records:
            if start.get(record.partition, 0) <= record.offset < end.get(record.partition, 0):
                newest.setdefault(record.key or b"", {})[record.partition] = record
        found = {}
        for key, rivals in newest.items():
            home = home_partition(key, len(end))
            last = max(rivals.values(), key=lambda r: (r.partition == home, r.timestamp, r.partition, r.offset))
            if last.value is not None:
                found[key] = (last.partition, last.offset, last.value)
        return found
