"""Conversion of the client's messages to columns, and its events to positions and errors."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from operator import length_hint
from typing import Any

from confluent_kafka import KafkaError, Message

from lvq_kafka.codecs import HeaderPairs
from lvq_kafka.core.log.records import UNREADABLE, UNREADABLE_HEADER, Fetch, RecordBatch, runs
from lvq_kafka.runtime.notice import Notice
from lvq_kafka.runtime.overriding import override

__all__ = ["HeaderReader", "MessageBatch", "to_fetch"]

logger = logging.getLogger("lvq_kafka.reader")

_HeaderColumn = list[HeaderPairs | None]
_UNDECODED = (SystemError, UnicodeError)  # the client raises the first; the second would be right

_LATE: Mapping[str, Callable[[Sequence[Message]], list[Any]]] = {
    "partitions": lambda messages: list(map(Message.partition, messages)),
    "offsets": lambda messages: list(map(Message.offset, messages)),
    "timestamps": lambda messages: [stamp for _, stamp in map(Message.timestamp, messages)],
    "keys": lambda messages: list(map(Message.key, messages)),
    "values": lambda messages: list(map(Message.value, messages)),
}
"""Readers of columns. None calls a Python function for each message: the client is faster than that."""


class HeaderReader:
    """Reader of message headers; logs the first record whose headers cannot be read.

    The client (2.16.1) cannot read a name that is not UTF-8. It sets an error, but still returns what it has built:
    tuples, one of which contains a null pointer. `map` checks for the error; the interpreter's own calls do not. The
    message keeps those tuples and returns them the next time, without an error: so `UNREADABLE` replaces them.
    """

    def __init__(self) -> None:
        self._unreadable = Notice()

    def __call__(self, messages: Sequence[Message]) -> _HeaderColumn:
        """Return the headers of each message."""
        left = iter(messages)
        try:
            return list(map(Message.headers, left))  # type: ignore[arg-type]
        except _UNDECODED:
            self._give_up(messages[len(messages) - length_hint(left) - 1])
        return list(self._one_by_one(messages))

    def _one_by_one(self, messages: Sequence[Message]) -> Iterator[HeaderPairs | None]:
        found = map(Message.headers, messages)
        for message in messages:
            try:
                yield next(found)  # type: ignore[misc]
            except _UNDECODED:
                self._give_up(message)
                yield UNREADABLE

    def _give_up(self, message: Message) -> None:
        message.set_headers(UNREADABLE)  # type: ignore[arg-type]
        if self._unreadable.begins():
            logger.warning(
                "the headers of the record at %s/%s/%s cannot be read, because one of their names is not UTF-8; the "
                "header %s stands in for them, here and in later records",
                *(message.topic(), message.partition(), message.offset(), UNREADABLE_HEADER),
            )


class MessageBatch(RecordBatch):
    """Messages whose columns are made on first access.

    A message reads its headers from the client's memory on first access, too, which takes longer than everything else.
    So a caller that keeps the newest message of each key pays only for the headers of those.
    """

    __slots__ = ("_messages", "_read_headers")

    def __init__(
        self, messages: Sequence[Message], *, read_headers: HeaderReader | None = None, **known: list[Any]
    ) -> None:
        self._messages = messages
        self._read_headers = read_headers
        for name, column in known.items():
            setattr(self, name, column)

    def __getattr__(self, name: str) -> Any:
        """Make a column on first access."""
        column: list[Any]
        if name == "headers":
            column = _headers_of(self._messages, self._read_headers)
        elif (read := _LATE.get(name)) is not None:
            column = read(self._messages)
        else:
            raise AttributeError(name)
        setattr(self, name, column)
        return column

    def __len__(self) -> int:
        return len(self._messages)

    @property
    @override
    def ends(self) -> tuple[int, int]:
        return self._messages[0].offset(), self._messages[-1].offset()  # type: ignore[return-value]

    @property
    @override
    def deletes(self) -> bool:
        return not all(self._messages) and super().deletes  # a message is as long as its value

    @property
    @override
    def size(self) -> int:
        return sum(map(len, self._messages))

    @override
    def rows(self, start: int, end: int) -> RecordBatch:
        return self.gather(self._messages[start:end])

    @override
    def pick(self, rows: Sequence[int]) -> RecordBatch:
        return self.gather([self._messages[row] for row in rows])

    @override
    def entries(self) -> Sequence[Message]:
        return self._messages

    @override
    def gather(self, entries: Sequence[Any]) -> RecordBatch:
        return MessageBatch(entries, read_headers=self._read_headers)


def to_fetch(
    messages: Sequence[Message],
    sole: int | None = None,
    *,
    read_headers: HeaderReader | None = None,
    late: bool = False,
) -> tuple[Fetch, list[Message]]:
    """Turn messages into columns and positions.

    Also returns the messages that are neither records nor partition ends. A partition end carries the offset that the
    reader has reached, past markers and holes, so it is a position. ``sole`` is the partition of all messages, if there
    is only one; it saves a tenth of the reading time. Without ``read_headers`` every record appears to have none. The
    columns are made at once, unless ``late``.
    """
    ends: dict[int, int] = {}
    errors: list[Message] = []
    keys = list(map(Message.key, messages))
    if not all(keys) and any(map(Message.error, messages)):  # a message with an error has no key
        messages = _set_aside(messages, ends, errors)
        keys = list(map(Message.key, messages))
    partitions: list[int] = [sole] * len(messages)  # type: ignore[list-item]
    if sole is None:
        partitions = list(map(Message.partition, messages))  # type: ignore[arg-type]
    last = {p: messages[-1 if rows is None else rows.stop - 1] for p, rows in runs(partitions)}
    positions: dict[int, int] = {p: message.offset() + 1 for p, message in last.items()}  # type: ignore[operator]
    epochs = {p: -1 if (epoch := message.leader_epoch()) is None else epoch for p, message in last.items()}
    for partition, end in ends.items():
        if end > positions.get(partition, -1):
            positions[partition] = end
    if late:
        some = MessageBatch(messages, read_headers=read_headers, partitions=partitions, keys=keys)
        return Fetch(some, positions, epochs), errors
    batch = RecordBatch(
        partitions=partitions,
        offsets=list(map(Message.offset, messages)),  # type: ignore[arg-type]
        timestamps=[stamp for _, stamp in map(Message.timestamp, messages)],
        keys=keys,
        values=list(map(Message.value, messages)),
        headers=_headers_of(messages, read_headers),
    )
    return Fetch(batch, positions, epochs), errors


def _headers_of(messages: Sequence[Message], read: HeaderReader | None) -> _HeaderColumn:
    return [None] * len(messages) if read is None else read(messages)


def _set_aside(messages: Sequence[Message], ends: dict[int, int], errors: list[Message]) -> list[Message]:
    """Return the records, and sort the other messages into ``ends`` and ``errors``."""
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
