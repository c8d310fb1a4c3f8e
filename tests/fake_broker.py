"""Brokers for answers that no real broker can be made to give, or not at a chosen moment.

`FakeBroker` answers metadata requests only. `FakeLeaders` also take records, by producer epoch and sequence, and may
disagree about who leads.
"""

from __future__ import annotations

import socket
import struct
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from io import BytesIO
from threading import Lock, Thread
from types import TracebackType
from typing import BinaryIO, NamedTuple, Self

__all__ = ["INVALID_RECORD", "NOT_ENOUGH_REPLICAS", "Answer", "Batch", "FakeBroker", "FakeLeaders"]

_PRODUCE, _PRODUCE_VERSION = 0, 3
_FETCH, _FETCH_VERSION = 1, 4
_LIST_OFFSETS = 2
_METADATA, _METADATA_VERSION = 3, 4
_API_VERSIONS, _UNSUPPORTED_VERSION = 18, 35
_INIT_PRODUCER_ID = 22
_OTHERS = (
    _LIST_OFFSETS,
    8,
    9,
    10,
    11,
    12,
    13,
    14,
    19,
    20,
    _INIT_PRODUCER_ID,
    32,
)  # other requests that they claim to support
_LEADER_NOT_AVAILABLE, _NOT_LEADER, _OUT_OF_ORDER, _OLD_EPOCH = 5, 6, 45, 47
NOT_ENOUGH_REPLICAS, INVALID_RECORD = 19, 87
"""Errors of a leader that has appended nothing: one to try again, and one that is final."""
_KNOWN_BATCHES = 5  # of a producer: by these a leader recognizes what is sent again
_NULL_TEXT = struct.pack(">h", -1)


class _Listener:
    """The socket of one broker.

    ``answer`` answers its requests, given the API key and the body. Where it is empty, none is sent; None closes the
    connection.
    """

    def __init__(self, node: int, answer: Callable[[int, BinaryIO], bytes | None], produces: bool) -> None:
        self._answer = answer
        self._apis = _apis(produces)
        self._connections: list[socket.socket] = []
        self._socket = socket.create_server(("127.0.0.1", 0))
        host, port = self._socket.getsockname()
        self.address = f"{host}:{port}"
        self.listed = struct.pack(">i", node) + _packed(host.encode()) + struct.pack(">i", port) + _NULL_TEXT

    def open(self) -> None:
        Thread(target=self._serve, daemon=True).start()

    def close(self) -> None:
        with suppress(OSError):
            self._socket.shutdown(socket.SHUT_RDWR)  # a thread is waiting in it
        self._socket.close()

    def disconnect(self) -> None:
        for connection in self._connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RDWR)

    def _serve(self) -> None:
        with suppress(OSError):  # closed
            while True:
                connection, _ = self._socket.accept()
                self._connections.append(connection)
                Thread(target=self._talk, args=[connection], daemon=True).start()

    def _talk(self, connection: socket.socket) -> None:
        with suppress(OSError, struct.error), connection, connection.makefile("rwb") as stream:
            while True:
                request = BytesIO(stream.read(*_read(stream, ">i")))
                key, version, correlation = _read(request, ">hhi")
                _text(request)  # client id
                # In the oldest form. A client understands it when its own version is unsupported.
                answer: bytes | None = struct.pack(">h", _UNSUPPORTED_VERSION if version else 0) + self._apis
                if key != _API_VERSIONS:
                    answer = self._answer(key, request)
                if answer is None:
                    return
                if answer:
                    stream.write(struct.pack(">ii", 4 + len(answer), correlation) + answer)
                    stream.flush()


class FakeBroker:
    """A broker that reports no live brokers, as a real one does while the controller has fenced all.

    Each requested topic exists, with one partition without a leader. The first ``alive`` answers that ask for no topic
    name the broker itself: a client needs them to learn who the controller is.
    """

    def __init__(self, *, alive: int = 0) -> None:
        self._alive = alive
        self._listener = _Listener(1, self._answer, produces=False)
        self.address = self._listener.address

    def __enter__(self) -> Self:
        self._listener.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._listener.close()

    def _answer(self, key: int, request: BinaryIO) -> bytes | None:
        if key != _METADATA:
            return None
        topics = _topics(request)
        self._alive -= not topics
        alive = not topics and self._alive >= 0
        return _metadata([self._listener.listed] if alive else [], topics, {0: 0})


class Batch(NamedTuple):
    """The records that a producer has sent at once to a partition."""

    partition: int
    producer_id: int
    epoch: int
    sequence: int
    values: tuple[bytes, ...]


class Answer(NamedTuple):
    """A leader's answer to a batch."""

    error: int = 0
    offset: int = -1
    lost: bool = False
    """True if it is not sent."""


class FakeLeaders:
    """Brokers that lead the partitions of every topic, and share their logs as if these were replicated at once.

    They take a batch as Kafka does: by its producer's epoch and sequence. One that is there already is acknowledged
    with the offset that it has, and not appended.

    Args:
        leaders: the node that leads each partition, from 1; 0 if none does. It may be changed at any time.
        takes: called with the node and each batch that reaches its leader; returns the answer, in most cases that of
            `append`.
        nodes: how many there are; by default, as many as the leaders take.
    """

    def __init__(
        self, leaders: Mapping[int, int], takes: Callable[[int, Batch], Answer] | None = None, nodes: int = 0
    ) -> None:
        self.leaders = dict(leaders)
        self.cut_off: dict[int, Mapping[int, int]] = {}
        """By node, the leaders that it knew when it was cut off from the others: it has learned of none since."""
        self.ends: dict[int, int] = defaultdict(int)
        """The end of each partition's log, as each node has it."""
        self.asked: list[int] = []
        """The nodes that were asked for the end of a log."""
        self.log: dict[int, list[Batch]] = defaultdict(list)
        """The batches in each partition."""
        self._takes = takes or (lambda node, batch: self.append(batch))
        self._lock = Lock()
        self._producers = 0
        count = nodes or max(leaders.values())
        self._listeners = [_Listener(node, self._for(node), produces=True) for node in range(1, count + 1)]
        self.bootstrap_servers = ",".join(listener.address for listener in self._listeners)

    def __enter__(self) -> Self:
        for listener in self._listeners:
            listener.open()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for listener in self._listeners:
            listener.close()

    def stop(self, node: int) -> None:
        """Close a node's connections, and take no new ones."""
        self._listeners[node - 1].close()
        self.disconnect(node)

    def disconnect(self, node: int) -> None:
        """Close the connections to a node. It takes new ones."""
        self._listeners[node - 1].disconnect()

    def values(self, partition: int) -> list[bytes]:
        """Return the values in a partition, in the order of the log."""
        return [value for batch in self.log[partition] for value in batch.values]

    def append(self, batch: Batch) -> Answer:
        """Append a batch by Kafka's rules, and return the answer."""
        with self._lock:
            log = self.log[batch.partition]
            known = [one for one in log if one.producer_id == batch.producer_id]
            latest = known[-1] if known else None
            if latest is not None:
                if batch.epoch < latest.epoch:
                    return Answer(_OLD_EPOCH)
                if batch in known[-_KNOWN_BATCHES:]:
                    return Answer(offset=self._offset_of(batch))
                follows = latest.sequence + len(latest.values) if batch.epoch == latest.epoch else 0
                if batch.sequence != follows:
                    return Answer(_OUT_OF_ORDER)
            elif batch.sequence:  # a real leader that knows nothing of a producer would take it
                return Answer(_OUT_OF_ORDER)
            log.append(batch)
            return Answer(offset=self._offset_of(batch))

    def _offset_of(self, batch: Batch) -> int:
        log = self.log[batch.partition]
        return sum(len(one.values) for one in log[: log.index(batch)])

    def _for(self, node: int) -> Callable[[int, BinaryIO], bytes | None]:
        return lambda key, request: self._answer(node, key, request)

    def _answer(self, node: int, key: int, request: BinaryIO) -> bytes | None:
        if key == _METADATA:
            return _metadata([one.listed for one in self._listeners], _topics(request), self._leaders(node))
        if key == _LIST_OFFSETS:
            return self._ends(node, request)
        if key == _INIT_PRODUCER_ID:
            with self._lock:
                self._producers += 1
                return struct.pack(">ihqh", 0, 0, 1000 + self._producers, 0)
        return self._produced(node, request) if key == _PRODUCE else None

    def _leaders(self, node: int) -> Mapping[int, int]:
        return self.cut_off.get(node, self.leaders)

    def _ends(self, node: int, request: BinaryIO) -> bytes:
        self.asked.append(node)
        _read(request, ">ii")  # replica, number of topics: the client asks for one
        topic = _text(request)
        (count,) = _read(request, ">i")
        partitions = [partition for partition, _ in (_read(request, ">iq") for _ in range(count))]
        errors = [0 if self._leaders(node)[partition] == node else _NOT_LEADER for partition in partitions]
        ends = [struct.pack(">ihqq", *one, -1, self.ends[node]) for one in zip(partitions, errors, strict=True)]
        return struct.pack(">i", 1) + _packed(topic) + struct.pack(">i", count) + b"".join(ends)

    def _produced(self, node: int, request: BinaryIO) -> bytes:
        _text(request)  # transactional id
        _read(request, ">hii")  # acks, timeout, number of topics: the client sends one
        topic = _text(request)
        (count,) = _read(request, ">i")
        answers = [self._answer_to(node, request) for _ in range(count)]
        if not all(answers):
            return b""
        return (
            struct.pack(">i", 1) + _packed(topic) + struct.pack(">i", count) + b"".join(answers) + struct.pack(">i", 0)
        )

    def _answer_to(self, node: int, request: BinaryIO) -> bytes:
        (partition,) = _read(request, ">i")
        batch = _batch(partition, request)
        answer = self._takes(node, batch) if self._leaders(node)[partition] == node else Answer(_NOT_LEADER)
        return b"" if answer.lost else struct.pack(">ihqq", partition, answer.error, answer.offset, -1)


def _batch(partition: int, request: BinaryIO) -> Batch:
    """Read a record batch of the format with producer epochs ("magic" 2), not compressed."""
    _read(request, ">iqiib")  # its size; offset, length, leader epoch, magic
    _read(request, ">Ihiqq")  # checksum, attributes, last offset, times
    producer_id, epoch, sequence, count = _read(request, ">qhii")
    return Batch(partition, producer_id, epoch, sequence, tuple(_value(request) for _ in range(count)))


def _value(request: BinaryIO) -> bytes:
    """Read a record, and return its value."""
    record = BytesIO(request.read(_varint(request)))
    record.read(1)  # attributes
    _varint(record)  # time and offset
    _varint(record)
    record.read(max(0, _varint(record)))
    return record.read(max(0, _varint(record)))


def _varint(stream: BinaryIO) -> int:
    number = shift = 0
    while True:
        (byte,) = stream.read(1)
        number |= (byte & 0x7F) << shift
        shift += 7
        if byte < 0x80:
            return number >> 1 ^ -(number & 1)


def _metadata(brokers: list[bytes], topics: list[bytes], leaders: Mapping[int, int]) -> bytes:
    """Return an answer in which each topic has these leaders and a replica on each broker.

    The first broker is the controller.
    """
    replicas = range(1, max(1, len(brokers)) + 1)
    return (
        struct.pack(">ii", 0, len(brokers))
        + b"".join(brokers)
        + _NULL_TEXT
        + struct.pack(">ii", 1 if brokers else -1, len(topics))
        + b"".join(_topic(name, leaders, replicas) for name in topics)
    )


def _topic(name: bytes, leaders: Mapping[int, int], replicas: Sequence[int]) -> bytes:
    partitions = (
        struct.pack(">hii", 0 if leader else _LEADER_NOT_AVAILABLE, partition, leader or -1)
        + _numbers(replicas)
        + _numbers(replicas if leader else [])  # in sync
        for partition, leader in leaders.items()
    )
    return struct.pack(">h", 0) + _packed(name) + struct.pack(">bi", 0, len(leaders)) + b"".join(partitions)


def _numbers(numbers: Sequence[int]) -> bytes:
    return struct.pack(f">i{len(numbers)}i", len(numbers), *numbers)


def _topics(request: BinaryIO) -> list[bytes]:
    """Return the topics that a metadata request asks for."""
    (count,) = _read(request, ">i")
    return [_text(request) for _ in range(count)]


def _apis(produces: bool) -> bytes:
    """Return the versions of the requests that a broker supports."""
    known = [
        (_API_VERSIONS, 0, 0),
        (_METADATA, _METADATA_VERSION, _METADATA_VERSION),
        (_PRODUCE, 0, _PRODUCE_VERSION if produces else 1),
        (_FETCH, 0, _FETCH_VERSION if produces else 1),  # without this one, clients write an older format
        *((key, 0, 1) for key in _OTHERS),
    ]
    return struct.pack(">i", len(known)) + b"".join(struct.pack(">hhh", *api) for api in known)


def _read(stream: BinaryIO, form: str) -> tuple[int, ...]:
    return struct.unpack(form, stream.read(struct.calcsize(form)))


def _text(stream: BinaryIO) -> bytes:
    (length,) = _read(stream, ">h")
    return stream.read(max(0, length))


def _packed(text: bytes) -> bytes:
    return struct.pack(">h", len(text)) + text
