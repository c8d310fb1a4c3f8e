"""Reading partitions: from the client's messages to columns, and from its events to positions and errors."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException, Message, TopicPartition

from lvq_kafka.core.records import Fetch, RecordBatch
from lvq_kafka.errors import Closed, LVQError, TransportError
from lvq_kafka.kafka.client import ClientConfig, PropertyValue
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.errors import kafka_error

__all__ = ["FETCH_DEFAULTS", "READ_RULES", "KafkaReader", "MessageBatch", "MessagePump", "to_fetch"]

DRAIN = 500
"""Messages taken from the client at once, at most. More at once would not be faster."""

_NEW_OBJECTS = 600
"""What may be made of messages at once. After 700 new objects Python's cyclic collector runs, by default.

They are gone before the next come, so it does not run at all while a topic is read; else it takes a fifth of the time.
"""

FETCH_DEFAULTS: Mapping[str, PropertyValue] = {
    "fetch.queue.backoff.ms": 1,  # by default a full queue pauses a partition for a second
    # How long a broker holds back an answer without data. The client learns that it stands at the end of a partition
    # from an empty answer only, and reads a partition that was just added with the next request only.
    "fetch.wait.max.ms": 100,
    "reconnect.backoff.max.ms": 1000,  # by default a broker that is back may be noticed ten seconds later
    "topic.metadata.propagation.max.ms": 2000,  # by default a missing topic is reported after half a minute
}
"""Settings for speed; a user's own go before them."""

READ_RULES: Mapping[str, PropertyValue] = {
    "enable.auto.commit": False,
    "enable.auto.offset.store": False,
    "enable.partition.eof": True,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "allow.auto.create.topics": False,
}
"""What every consumer of the library keeps to."""

_GROUP = "lvq-reader"  # the client wants a group id even where nothing is joined or committed
_TOLERATED = frozenset({KafkaError._MAX_POLL_EXCEEDED})  # the loss of the partitions, which follows, says it
_TOLERATED_WITHOUT_GROUP = _TOLERATED | {KafkaError.GROUP_AUTHORIZATION_FAILED}  # it is asked for nevertheless


_LATE: Mapping[str, Callable[[Message], Any]] = {
    "partitions": Message.partition,
    "offsets": Message.offset,
    "timestamps": lambda message: message.timestamp()[1],
    "keys": Message.key,
    "values": Message.value,
    "headers": Message.headers,
}


class MessageBatch(RecordBatch):
    """Messages that become columns when these are asked for, and only then.

    A message reads its headers from the client's memory at the first look, which takes longer than all else. So who
    keeps the newest message of each key has to pay for the headers of these only.
    """

    __slots__ = ("_messages", "_with_headers")

    def __init__(self, messages: Sequence[Message], *, with_headers: bool = True, **known: list[Any]) -> None:
        self._messages = messages
        self._with_headers = with_headers
        for name, column in known.items():
            setattr(self, name, column)

    def __getattr__(self, name: str) -> Any:
        """A column that nobody has looked at before."""
        read = _LATE.get(name)
        if read is None:
            raise AttributeError(name)
        without = name == "headers" and not self._with_headers
        column = [None] * len(self) if without else list(map(read, self._messages))
        setattr(self, name, column)
        return column

    def __len__(self) -> int:
        return len(self._messages)

    @property
    def ends(self) -> tuple[int, int]:
        """See `RecordBatch.ends`."""
        return self._messages[0].offset(), self._messages[-1].offset()  # type: ignore[return-value]

    @property
    def deletes(self) -> bool:
        """See `RecordBatch.deletes`."""
        return not all(map(len, self._messages)) and super().deletes

    def rows(self, start: int, end: int) -> RecordBatch:
        """See `RecordBatch.rows`."""
        return self.gather(self._messages[start:end])

    def pick(self, rows: Sequence[int]) -> RecordBatch:
        """See `RecordBatch.pick`."""
        return self.gather([self._messages[row] for row in rows])

    def entries(self) -> Sequence[Message]:
        """See `RecordBatch.entries`."""
        return self._messages

    def gather(self, entries: Sequence[Any]) -> RecordBatch:
        """See `RecordBatch.gather`."""
        return MessageBatch(entries, with_headers=self._with_headers)


def to_fetch(
    messages: Sequence[Message], sole: int | None = None, *, with_headers: bool = True, late: bool = False
) -> tuple[Fetch, list[Message]]:
    """Turn messages into columns and positions; returns the messages that are neither records nor ends, too.

    An end of partition carries the offset that the reader has reached, past markers and holes, so it is a position.
    ``sole`` is the partition that all messages are of, where there is only one; it saves a tenth of the reading time.
    The columns are made at once, unless they are to be ``late``.
    """
    ends: dict[int, int] = {}
    errors: list[Message] = []
    keys = list(map(Message.key, messages))
    if not all(keys) and any(map(Message.error, messages)):  # what has an error has no key
        messages = _set_aside(messages, ends, errors)
        keys = list(map(Message.key, messages))
    partitions: list[int] = [sole] * len(messages)  # type: ignore[list-item]
    if sole is None:
        partitions = list(map(Message.partition, messages))  # type: ignore[arg-type]
    positions = _behind(partitions, messages)
    for partition, end in ends.items():
        if end > positions.get(partition, -1):
            positions[partition] = end
    if late:
        some = MessageBatch(messages, with_headers=with_headers, partitions=partitions, keys=keys)
        return Fetch(some, positions), errors
    batch = RecordBatch(
        partitions=partitions,
        offsets=list(map(Message.offset, messages)),  # type: ignore[arg-type]
        timestamps=[stamp for _, stamp in map(Message.timestamp, messages)],
        keys=keys,
        values=list(map(Message.value, messages)),
        headers=list(map(Message.headers, messages)) if with_headers else [None] * len(messages),  # type: ignore[arg-type]
    )
    return Fetch(batch, positions), errors


def _behind(partitions: list[int], messages: Sequence[Message]) -> dict[int, int]:
    """The offset behind the last record of each partition. When there is much to read, all are of one partition."""
    if partitions and partitions.count(partitions[0]) == len(partitions):
        return {partitions[0]: messages[-1].offset() + 1}  # type: ignore[operator]
    backwards = partitions[::-1]
    last = {partition: messages[-1 - backwards.index(partition)] for partition in set(partitions)}
    return {partition: message.offset() + 1 for partition, message in last.items()}  # type: ignore[operator]


def _next_drain(batch: RecordBatch) -> int:
    """How many messages to take next, if they are like the last of this batch: a message, its headers, each of them."""
    (headers,) = batch.rows(len(batch) - 1, len(batch)).headers or (None,)
    return max(2, min(DRAIN, _NEW_OBJECTS // (2 + len(headers)))) if headers else DRAIN


def _set_aside(messages: Sequence[Message], ends: dict[int, int], errors: list[Message]) -> list[Message]:
    """The records alone; the other messages go where they belong."""
    records = []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        elif error.code() == KafkaError._PARTITION_EOF:
            ends[message.partition()] = message.offset()  # type: ignore[index,assignment]
        else:
            errors.append(message)
    return records


class MessagePump:
    """Polls a consumer: takes all that is at hand, waits only when nothing is, and raises what went wrong.

    Records that came together with an error are handed out first; the next `poll` raises it. An error that does not
    pass by itself is raised by every later `poll`, too: what is read of the other partitions would be incomplete.
    """

    def __init__(
        self,
        consumer: Consumer,
        topic: str,
        health: Health,
        *,
        groupless: bool = False,
        headers: bool = True,
        late: bool = False,
    ) -> None:
        self._tolerated = _TOLERATED_WITHOUT_GROUP if groupless else _TOLERATED
        self._consumer = consumer
        self._topic = topic
        self._health = health
        self._headers = headers
        self._late = late
        self._broken: dict[int | None, LVQError] = {}
        self._drain = DRAIN
        self.sole: int | None = None
        """The partition that is read, while there is only one."""

    def poll(self, timeout: float) -> Fetch:
        """As `LogReader.poll`."""
        self._raise_broken()
        consume = self._consumer.consume
        try:
            messages = consume(self._drain, 0)
            if not messages:
                # consume() would sit out the timeout until it has them all; poll() wakes up for the first
                first = self._consumer.poll(timeout)
                messages = [] if first is None else [first, *consume(self._drain - 1, 0)]
        except KafkaException as exception:
            error = kafka_error(exception)
            if error is None:
                raise
            raise self._explain(error) from exception
        fetch, events = to_fetch(messages, self.sole, with_headers=self._headers, late=self._late)
        if self._headers:
            self._drain = _next_drain(fetch.batch)
        if fetch.positions:
            self._health.recovered()
        for event in events:
            error, partition = event.error(), event.partition()
            if error is not None and error.code() not in self._tolerated:
                self._broken[partition] = self._explain(error, partition)
        news = self._health.take_news()
        if news is not None:
            self._broken[None] = self._explain(news)
        if not fetch.positions:
            self._raise_broken()
        return fetch

    def mend(self, partitions: Iterable[int]) -> None:
        """These partitions were assigned anew: what was wrong with them is over."""
        for partition in partitions:
            self._broken.pop(partition, None)

    def _raise_broken(self) -> None:
        for partition, error in self._broken.items():
            if isinstance(error, TransportError) and error.retriable:
                del self._broken[partition]
            raise error

    def _explain(self, error: KafkaError, partition: int | None = None) -> LVQError:
        where = "" if partition is None or partition < 0 else f", partition {partition}"
        return self._health.explain(error, f"read topic {self._topic!r}{where}", topic=self._topic)


class KafkaReader:
    """Reads partitions of one topic by assignment. See `lvq_kafka.ports.LogReader`."""

    def __init__(
        self,
        config: ClientConfig,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        late: bool = False,
    ) -> None:
        health = Health(config.bootstrap_servers)
        rules = {**READ_RULES, "group.id": _GROUP}
        self._topic = topic
        self._consumer: Consumer | None = open_consumer(config, health, rules, FETCH_DEFAULTS)
        self._pump = MessagePump(self._consumer, topic, health, groupless=True, headers=headers, late=late)
        self._assigned: set[int] = set()
        self.assign(positions)

    def poll(self, timeout: float) -> Fetch:
        """See `lvq_kafka.ports.LogReader.poll`."""
        self._open()
        return self._pump.poll(timeout)

    def assign(self, positions: Mapping[int, int]) -> None:
        """See `lvq_kafka.ports.LogReader.assign`."""
        consumer = self._open()
        again = self._assigned.intersection(positions)
        if again:
            consumer.incremental_unassign([TopicPartition(self._topic, partition) for partition in again])
        # absolute offsets: a logical one ("beginning") waits half a second for a retry timer
        consumer.incremental_assign([TopicPartition(self._topic, p, offset) for p, offset in positions.items()])
        self._assigned.update(positions)
        self._pump.sole = next(iter(self._assigned)) if len(self._assigned) == 1 else None
        self._pump.mend(positions)

    def close(self) -> None:
        """See `lvq_kafka.ports.LogReader.close`."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _open(self) -> Consumer:
        if self._consumer is None:
            raise Closed(f"The reader of topic {self._topic!r} is closed.")
        return self._consumer
