"""The registry: every declared queue's definition, in a compacted topic."""

from __future__ import annotations

import time

from lvq_kafka.core.definition import REGISTRY_TOPIC, QueueDefinition
from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.progress import Progress
from lvq_kafka.core.records import Record
from lvq_kafka.errors import CatchUpTimeout, QueueMismatch, QueueNotDeclared, TopicNotFound
from lvq_kafka.ports import Log

__all__ = ["Registry"]

_SETTINGS = {"cleanup.policy": "compact", "segment.ms": "86400000", "min.cleanable.dirty.ratio": "0.1"}


class Registry:
    """Reads and writes definitions. Every call reads the topic to its end; it is as small as there are queues.

    Args:
        timeout: seconds that one call may take.
    """

    def __init__(self, log: Log, *, timeout: float = 15.0) -> None:
        self._log = log
        self._timeout = timeout

    def get(self, name: str) -> QueueDefinition:
        """The definition of a queue.

        Raises:
            QueueNotDeclared: there is no queue of that name.
            ConfigError: its definition is unreadable or newer than this library.
        """
        record = self._read().record(name.encode())
        if record is None or record.value is None:
            raise QueueNotDeclared(f"No queue {name} is declared.", queue=name, hint=f"lvq declare {name} …")
        return QueueDefinition.from_json(record.value, name=name)

    def all(self) -> list[QueueDefinition]:
        """Every definition, by name."""
        table = self._read()
        names = table.key_range()
        return [
            QueueDefinition.from_json(value, name=name.decode())
            for name in names
            if (value := table.value(name)) is not None
        ]

    def check(self, definition: QueueDefinition) -> bool:
        """Whether the queue is declared, just like this.

        Raises:
            QueueMismatch: it is declared with other properties, or another queue on its topic has another key header.
        """
        return self._matches(self._read(), definition)

    def declare(self, definition: QueueDefinition) -> bool:
        """Write a definition unless the queue has it already; whether it was written.

        Of two that are declared at the same moment the first in the log wins, and the other caller is told.

        Raises:
            QueueMismatch: as `check`.
        """
        self._create_topic()
        table = self._read()
        if self._matches(table, definition):
            return False
        name = definition.name.encode()
        mine = self._append(name, definition.to_json())
        for record in self._read_to_end(dict(table.positions) or {0: 0}):
            if record.offset < mine and record.key == name and record.value is not None:
                first = QueueDefinition.from_json(record.value, name=definition.name)
                if first != definition:
                    self._append(name, record.value)
                    raise _mismatch(first, definition)
                return False
        return True

    def remove(self, name: str) -> QueueDefinition:
        """Take a queue's definition out and return it.

        Raises:
            QueueNotDeclared: there is no queue of that name.
        """
        definition = self.get(name)
        self._append(name.encode(), None)
        return definition

    def _matches(self, table: LatestValues, definition: QueueDefinition) -> bool:
        for record in table.records():
            assert record.key is not None
            assert record.value is not None
            other = QueueDefinition.from_json(record.value, name=record.key.decode())
            if other.name == definition.name and other != definition:
                raise _mismatch(other, definition)
            if other.topic == definition.topic and other.key_header != definition.key_header:
                raise QueueMismatch(
                    f"The queues {other.name} and {definition.name} would share the topic {definition.topic} "
                    f"with different key headers, {other.key_header!r} and {definition.key_header!r}.",
                    queue=definition.name,
                    differences={"key_header": (other.key_header, definition.key_header)},
                    hint="Queues on one topic must agree on the key header.",
                )
        return definition.name.encode() in table

    def _create_topic(self) -> None:
        try:
            self._log.describe_topic(REGISTRY_TOPIC, timeout=self._timeout)
        except TopicNotFound:
            self._log.create_topic(REGISTRY_TOPIC, partitions=1, config=_SETTINGS, timeout=self._timeout)

    def _append(self, name: bytes, value: bytes | None) -> int:
        writer = self._log.writer()
        try:
            return writer.append(REGISTRY_TOPIC, name, value).result(self._timeout).offset
        finally:
            writer.close(self._timeout)

    def _read(self) -> LatestValues:
        table = LatestValues(topic=REGISTRY_TOPIC)
        try:
            starts = self._log.start_offsets(REGISTRY_TOPIC, timeout=self._timeout)
        except TopicNotFound:
            return table
        table.advance(starts)
        self._read_to_end(starts, table)
        return table

    def _read_to_end(self, positions: dict[int, int], table: LatestValues | None = None) -> list[Record]:
        ends = self._log.end_offsets(REGISTRY_TOPIC, timeout=self._timeout)
        progress = Progress(positions)
        records: list[Record] = []
        if progress.reached(ends):
            return records
        reader = self._log.reader(REGISTRY_TOPIC, positions)
        deadline = time.monotonic() + self._timeout
        try:
            while not progress.reached(ends):
                if time.monotonic() > deadline:
                    raise CatchUpTimeout(
                        f"Reading {REGISTRY_TOPIC} took more than {self._timeout:g} s.",
                        shortfalls=progress.shortfalls(ends),
                    )
                fetch = reader.poll(0.1)
                if table is not None:
                    table.apply(fetch.batch)
                else:
                    records += fetch.batch
                progress.advance(fetch.positions)
        finally:
            reader.close()
        return records


def _mismatch(declared: QueueDefinition, asked: QueueDefinition) -> QueueMismatch:
    differences = declared.differences(asked)
    told = ", ".join(f"{name} {mine!r} (asked: {theirs!r})" for name, (mine, theirs) in differences.items())
    return QueueMismatch(
        f"The queue {declared.name} is declared already, with {told}.",
        queue=declared.name,
        differences=differences,
        hint="Open it as it is, or delete it first.",
    )
