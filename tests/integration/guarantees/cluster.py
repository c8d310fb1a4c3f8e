"""The cluster through a plain client, for tests of guarantees.

A few lines here read and fold the log. They share no code with the library, so the two can be compared.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from threading import Event
from typing import Any, NamedTuple

from confluent_kafka import Consumer, KafkaError, Producer, TopicPartition
from confluent_kafka.admin import AdminClient

from lvq_kafka.cluster import Cluster, LogReader
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Fetch, RecordBatch
from tests.waiting import eventually

__all__ = ["Held", "Meanwhile", "Raw", "delete_records", "fold", "read_raw", "write_beside"]


class Raw(NamedTuple):
    """A record as a plain client reads it."""

    partition: int
    offset: int
    timestamp: int
    key: str
    value: str | None


def read_raw(servers: str, topic: str, *, committed: bool = True) -> list[Raw]:
    """Return everything in a topic; with ``committed`` False, also aborted and undecided records."""
    consumer = Consumer(
        {
            "bootstrap.servers": servers,
            "group.id": "raw",
            "enable.auto.commit": False,
            "enable.partition.eof": True,
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed" if committed else "read_uncommitted",
        }
    )
    partitions = consumer.list_topics(topic, 10).topics[topic].partitions
    consumer.assign([TopicPartition(topic, partition, 0) for partition in partitions])
    records: list[Raw] = []
    ended: set[int | None] = set()

    def at_the_end() -> bool:
        for message in consumer.consume(10_000, 0.1):
            error = message.error()
            if error is None:
                value = message.value()
                records.append(
                    Raw(
                        message.partition() or 0,
                        message.offset() or 0,
                        message.timestamp()[1],
                        _text(message.key()),
                        None if value is None else _text(value),
                    )
                )
            elif error.code() == KafkaError._PARTITION_EOF:
                ended.add(message.partition())
            else:
                assert error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN), error  # it retries
        return len(ended) == len(partitions)

    eventually(at_the_end, 60)
    consumer.close()
    return sorted(records)


def _text(data: Any) -> str:
    assert isinstance(data, bytes)
    return data.decode("utf-8", "surrogateescape")


def fold(records: Iterable[Raw], partitions: int = 1, below: Mapping[int, int] | None = None) -> dict[str, Raw]:
    """Return the current record of each key, the long way. ``below`` has offsets at which to stop.

    If several partitions have a key, its home partition wins, otherwise the latest timestamp (R14).
    """
    newest: dict[str, dict[int, Raw]] = {}
    for record in sorted(records):
        if below is None or record.offset < below[record.partition]:
            newest.setdefault(record.key, {})[record.partition] = record
    current: dict[str, Raw] = {}
    for key, by_partition in newest.items():
        home = home_partition(key.encode("utf-8", "surrogateescape"), partitions)
        winner = by_partition.get(home) or max(by_partition.values(), key=lambda record: (record.timestamp, record))
        if winner.value is not None:
            current[key] = winner
    return current


def write_beside(
    servers: str, topic: str, *pairs: tuple[str, str | None], partition: int | None = None, **properties: Any
) -> None:
    """Write as other programs do: with librdkafka's default partitioner (CRC32), or to a given partition."""
    producer = Producer({"bootstrap.servers": servers, "linger.ms": 0, **properties})
    for key, value in pairs:
        where: dict[str, Any] = {} if partition is None else {"partition": partition}
        producer.produce(topic, None if value is None else value.encode(), key.encode(), **where)
    assert producer.flush(30) == 0


def delete_records(servers: str, topic: str, partition: int, before: int) -> None:
    """Delete the records of a partition before an offset."""
    admin = AdminClient({"bootstrap.servers": servers})
    for future in admin.delete_records([TopicPartition(topic, partition, before)]).values():
        future.result(20)


class Meanwhile:
    """A cluster that runs an action once, after a reader has asked for the log's offsets and before it reads.

    Pass it as ``cluster=``. Everything else goes to the real cluster.
    """

    def __init__(self, cluster: Cluster, action: Callable[[], object]) -> None:
        self._cluster = cluster
        self._actions = [action]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._cluster, name)

    def reader(self, topic: str, positions: Mapping[int, int]) -> LogReader:
        """See `Cluster.reader`."""
        while self._actions:
            self._actions.pop()()
        return self._cluster.reader(topic, positions)


class Held:
    """A cluster that can hold up its readers: they fetch nothing meanwhile. It is used like `Meanwhile`."""

    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.readers: list[HeldReader] = []
        self.free = Event()
        self.free.set()

    def __getattr__(self, name: str) -> Any:
        return getattr(self.cluster, name)

    def reader(self, topic: str, positions: Mapping[int, int]) -> LogReader:
        """See `Cluster.reader`."""
        self.readers.append(HeldReader(self, topic, positions))
        return self.readers[-1]

    def hold(self) -> None:
        """Hold all readers up, and wait until they have stopped."""
        self.free.clear()
        eventually(lambda: all(reader.stuck for reader in self.readers))

    def release(self) -> None:
        """Let the readers continue."""
        self.free.set()


class HeldReader:
    """A reader of `Held`."""

    def __init__(self, held: Held, topic: str, positions: Mapping[int, int]) -> None:
        self._held = held
        self._topic = topic
        self._positions = dict(positions)
        self._reader = held.cluster.reader(topic, positions)
        self.stuck = False

    def poll(self, timeout: float) -> Fetch:
        """See `LogReader.poll`."""
        if self._held.free.is_set():
            fetch = self._reader.poll(timeout)
            self._positions.update(fetch.positions)
            return fetch
        self._reader.close()  # otherwise it would fetch ahead in the background
        self.stuck = True
        self._held.free.wait(60)
        self.stuck = False
        self._reader = self._held.cluster.reader(self._topic, self._positions)
        return Fetch(RecordBatch(), {})

    def assign(self, positions: Mapping[int, int]) -> None:
        """See `LogReader.assign`."""
        self._positions.update(positions)
        self._reader.assign(positions)

    def unassign(self, partitions: Iterable[int]) -> None:
        """See `LogReader.unassign`."""
        self._positions = {p: offset for p, offset in self._positions.items() if p not in set(partitions)}
        self._reader.unassign(partitions)

    def close(self) -> None:
        """See `LogReader.close`."""
        self._reader.close()
        self._held.readers.remove(self)
