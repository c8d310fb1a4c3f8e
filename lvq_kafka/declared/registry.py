"""The registry: the definition of every declared queue, in a compacted topic."""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator
from itertools import chain

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import encode_key, key_text
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC, QueueDefinition, check_name, is_name, topic_of
from lvq_kafka.core.queue.history import (
    QueueHistory,
    alteration_key,
    alteration_to_json,
    is_alteration,
    read_history,
)
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.declared.compacted_topic import CompactedTopic
from lvq_kafka.errors import ConfigError, LVQError, QueueMismatch, QueueNotDeclared, TopicMismatch, Unauthorized

__all__ = ["Registry", "describe_differences", "value_in_words"]

logger = logging.getLogger("lvq_kafka.registry")

_MOST_TOLD = 10  # unreadable definitions logged individually
_SPARED = "opening and using a queue needs no such right."


class Registry:
    """Reads and writes definitions.

    Every call reads the topic to its end; it is only as large as the number of queues.

    An unreadable definition (malformed, or from a newer library) affects only its own queue. Calls about other queues
    skip it, with a warning in the log.

    Args:
        timeout: seconds for each request to the cluster.
    """

    def __init__(self, cluster: Cluster, *, timeout: float = 10.0) -> None:
        self._topic = CompactedTopic(
            cluster, REGISTRY_TOPIC, spared=_SPARED, timeout=timeout, first_counts=_is_declaration
        )
        self._left_out: set[str] = set()

    def get(self, name: str) -> QueueDefinition:
        """Return the definition of a queue.

        Raises:
            QueueNotDeclared: there is no queue of that name.
            ConfigError: the name is not valid for a queue, or its definition is unreadable or newer than this library.
        """
        return self.history(name).newest

    def history(self, name: str) -> QueueHistory:
        """Return the definition of a queue, and its alterations. Raises what `get` raises."""
        check_name("queue", name)
        table = self._topic.read().table
        found = read_history(name, _records(table, name))
        if found is None:
            names = [name for name in map(key_text, table.key_range()) if is_name(name)]
            raise QueueNotDeclared(f"No queue {name} is declared.", queue=name, hint=_instead(name, names))
        return found

    def find(self, name: str) -> QueueDefinition | None:
        """Return the definition of a queue; None if there is none.

        Raises:
            ConfigError: as for `get`.
        """
        try:
            return self.get(name)
        except QueueNotDeclared:
            return None

    def end(self, timeout: float) -> int:
        """Return the end of the registry's log. While it stays, so do all definitions.

        Raises:
            TransportError: the cluster cannot be reached or refuses.
        """
        return self._topic.end(timeout)

    def all(self) -> list[QueueDefinition]:
        """Return every readable definition, by name, as it was altered last."""
        return self._definitions(self._topic.read().table)

    def on_topic(self, topic: str) -> list[QueueDefinition]:
        """Return the definitions of all queues on a topic, by name.

        Raises:
            ConfigError: one of them is unreadable. Whatever wrote it, it names the topic.
        """
        table, found = self._topic.read().table, []
        for name, value in _declared(table):
            try:
                history = read_history(name, _records(table, name))
            except ConfigError:
                if topic_of(value) == topic:
                    raise
                continue
            if history is not None and history.newest.topic == topic:
                found.append(history.newest)
        return found

    def check(self, definition: QueueDefinition, planned: Iterable[QueueDefinition] = ()) -> bool:
        """Return whether the queue has exactly this definition, or had it before it was altered.

        Args:
            planned: other queues, which somebody will declare before it.

        Raises:
            QueueMismatch: it is declared with other properties, or another queue on its topic has another key header or
                placement.
            ConfigError: it is declared, but its definition is unreadable or newer than this library.
        """
        is_there = self._matches(self._topic.read().table, definition)
        for other in planned:
            if other.topic == definition.topic:
                _check_shared(other, definition)
        return is_there

    def check_may_declare(self, definition: QueueDefinition) -> None:
        """Check that the definition can be written. Creates the registry's topic if necessary.

        Raises:
            Unauthorized: this user may not write it.
        """
        self._topic.create()
        self.check_may_write(definition.name)

    def check_may_write(self, name: str) -> None:
        """Check that a queue's definition can be changed.

        Raises:
            Unauthorized: this user may not change it.
        """
        self._topic.check_may_write(_what(name))

    def check_times(self) -> None:
        """Check that the registry has its times from brokers: alterations hold by them.

        Raises:
            TopicMismatch: it takes them from clients.
        """
        try:
            found = self._topic.config().get("message.timestamp.type", "LogAppendTime")
        except Unauthorized:
            return
        if found != "LogAppendTime":
            raise TopicMismatch(
                f"The topic {REGISTRY_TOPIC} takes its times from clients (message.timestamp.type is {found}), so a "
                "wrong clock could have an alteration hold before others know of it.",
                topic=REGISTRY_TOPIC,
                settings={"message.timestamp.type": ("LogAppendTime", found)},
                hint=f"Set message.timestamp.type=LogAppendTime for {REGISTRY_TOPIC}, with kafka-configs.",
            )

    def declare(self, definition: QueueDefinition) -> bool:
        """Write a definition unless the queue has it, or had it; return whether it was written.

        If two are declared concurrently, the first in the log wins, and the other caller gets an error.

        Raises:
            QueueMismatch, ConfigError: as for `check`.
            Unauthorized: this user may not write to the registry's topic.
        """
        values = self._topic.read()
        table = values.table
        if self._matches(table, definition):
            return False
        self._topic.create()
        self._forget_alterations(table, definition.name)  # of a queue of that name that was not dropped completely
        mine = self._append(definition.name, definition.to_json())
        for record in chain.from_iterable(self._topic.read_on(dict(values.progress.positions) or {0: 0})):
            if record.offset < mine:
                self._topic.apply(values, RecordBatch.of([record]))
        try:
            return not self._matches(table, definition)
        except LVQError:
            self._append(definition.name, table.value(definition.name.encode()))
            raise

    def remove(self, name: str) -> QueueDefinition:
        """Remove a queue's definition and return it.

        Raises:
            QueueNotDeclared: there is no queue of that name.
        """
        definition = self.get(name)
        self._append(name, None)
        self._forget_alterations(self._topic.read().table, name)
        return definition

    def alter(self, name: str, change: Callable[[QueueDefinition], QueueDefinition]) -> QueueHistory:
        """Append an alteration, unless it changes nothing; return the queue's history with it.

        Of several at once, the first in the log counts: others may know of it already.

        Args:
            change: returns the new definition, given the one that the queue was given last.

        Raises:
            QueueMismatch: another alteration came first.
            QueueNotDeclared, ConfigError: as for `get`; or what ``change`` raises.
            Unauthorized: this user may not write to the registry's topic.
        """
        before = self.history(name)
        definition = change(before.newest)
        if definition == before.newest:
            return before
        own_id = uuid.uuid4().hex
        key = alteration_key(name, own_id)
        self._append(name, alteration_to_json(definition, after=before.newest_id), key=key)
        try:
            after = self.history(name)
        except QueueNotDeclared:
            self._append(name, None, key=key)  # else it would be one of the next queue of that name
            raise
        is_same = after.revisions[0] == before.revisions[0]
        if is_same and after.has(own_id):
            return after
        self._append(name, None, key=key)
        what = "altered at the same time by someone else, whose alteration came first"
        raise QueueMismatch(
            f"The queue {name} was {what if is_same else 'dropped at the same time, and declared otherwise'}.",
            queue=name,
            differences=before.newest.differences(after.newest),
            hint="Look at it, and alter it again if that is still what you want.",
        )

    def _forget_alterations(self, table: NewestRecords, name: str) -> None:
        for record in _records(table, name):
            key = record.key or b""
            if is_alteration(key):
                self._append(name, None, key=key_text(key))

    def _append(self, name: str, document: bytes | None, *, key: str | None = None) -> int:
        return self._topic.append(key or name, document, _what(name))

    def _matches(self, table: NewestRecords, definition: QueueDefinition) -> bool:
        mine = read_history(definition.name, _records(table, definition.name))
        had = () if mine is None else [revision.definition for revision in mine.revisions]
        if mine is not None and all(definition.with_format_of(one) != one for one in had):
            raise _mismatch(mine.newest, definition.with_format_of(mine.newest))
        for other in self._definitions(table):
            if other.topic == definition.topic:
                _check_shared(other, definition)
        return mine is not None

    def _definitions(self, table: NewestRecords) -> list[QueueDefinition]:
        found: list[QueueDefinition] = []
        left_out: list[ConfigError] = []
        for name, _ in _declared(table):
            try:
                history = read_history(name, _records(table, name))
            except ConfigError as error:
                if name not in self._left_out:
                    self._left_out.add(name)
                    left_out.append(error)
            else:
                found += [] if history is None else [history.newest]
        for unreadable in left_out[:_MOST_TOLD]:
            logger.warning("left out: %s", unreadable)
        if len(left_out) > _MOST_TOLD:
            logger.warning("left out: %d more definitions that cannot be read", len(left_out) - _MOST_TOLD)
        return found


def _is_declaration(key: bytes) -> bool:
    return not is_alteration(key)


def _declared(table: NewestRecords) -> Iterator[tuple[str, bytes]]:
    """Yield the names of all declared queues, each with the value of its record."""
    for key in table.key_range():
        value = table.value(key)
        if value is not None and not is_alteration(key):
            yield key_text(key), value


def _records(table: NewestRecords, name: str) -> Iterator[Record]:
    """Yield the records of a queue: its declaration, and its alterations."""
    key = encode_key(name)
    for one in (key, *table.key_range(key + b"/", key + b"0")):  # in ASCII, 0 comes after the slash
        record = table.record(one)
        if record is not None:
            yield record


def _check_shared(there: QueueDefinition, mine: QueueDefinition) -> None:
    """Check that two queues can share their topic.

    Raises:
        QueueMismatch: they cannot.
    """
    if there.key_header != mine.key_header:
        raise QueueMismatch(
            f"The queues {there.name} and {mine.name} would share the topic {mine.topic} with different key headers, "
            f"{quoted(there.key_header)} and {quoted(mine.key_header)}.",
            queue=mine.name,
            differences={"key_header": (there.key_header, mine.key_header)},
            hint="Queues on one topic must agree on the key header.",
        )
    if there.conflate != mine.conflate:
        standard, other = (mine, there) if there.conflate else (there, mine)
        raise QueueMismatch(
            f"The queues {there.name} and {mine.name} would share the topic {mine.topic}, and {standard.name} is a "
            f"standard queue (conflate=False): compaction, which {other.name} needs, would remove its messages.",
            queue=mine.name,
            differences={"conflate": (there.conflate, mine.conflate)},
            hint="Give one of them a topic of its own.",
        )
    if there.placed_by != mine.placed_by:
        raise QueueMismatch(
            f"The queues {there.name} and {mine.name} would share the topic {mine.topic}, but {_placed(there)} and "
            f"{_placed(mine)}: readers have to know which records of a key count (R14).",
            queue=mine.name,
            differences={"groups": (there.placed_by, mine.placed_by)},
            hint="Queues on one topic must agree on the placement.",
        )


def _placed(queue: QueueDefinition) -> str:
    """Describe how the messages of a queue are placed."""
    return f"{queue.name} places messages by " + ("key" if queue.placed_by is None else " or ".join(queue.placed_by))


def _what(name: str) -> str:
    return f"the definition of the queue {name}"


def _instead(name: str, names: list[str]) -> str:
    """Return a hint for a missing queue, given the names that exist."""
    similar = nearest(name, names)
    if similar:
        return f"Did you mean {similar[0]}? `lvq queues` lists all queues."
    others = "" if not names else ", or list the queues: `lvq queues`"
    return f"Declare it first, with LastValueQueue.declare or `lvq declare {name} --key-header NAME`{others}."


def _mismatch(declared: QueueDefinition, asked: QueueDefinition) -> QueueMismatch:
    differences = declared.differences(asked)
    return QueueMismatch(
        f"The queue {declared.name} is already declared with {describe_differences(declared, asked, differences)}.",
        queue=declared.name,
        differences=differences,
        hint="Open it as it is, alter it (`lvq alter`), or drop it first.",
    )


def describe_differences(declared: QueueDefinition, asked: QueueDefinition, names: Collection[str]) -> str:
    """Describe the options of these names, as they were declared and asked for."""
    follows = {"priorities"} if "order" in names else set()
    return ", ".join(_difference(declared, asked, name) for name in names if name not in follows)


def _difference(declared: QueueDefinition, asked: QueueDefinition, name: str) -> str:
    """Describe an option of a queue that was declared otherwise."""
    if name == "conflate":
        if declared.conflate:
            return "messages that replace each other (requested: `conflate=False`)"
        return "`conflate=False` (requested: not)"
    spelled = name if name in _IN_WORDS else f"`{name}`"
    return f"{spelled} {value_in_words(getattr(declared, name))} (requested: {value_in_words(getattr(asked, name))})"


_IN_WORDS = ("ttl", "default_filters", "groups", "limits")  # not written as anybody types them


def value_in_words(value: object) -> str:
    """Describe the value of a queue's option."""
    match value:
        case None:
            return "none"
        case Limits():
            return f"{value.described} ({value.policy})"
        case Ttl() | Groups():
            return value.described
        case float():
            return f"{value:,g} s"
        case _:
            return quoted(value)
