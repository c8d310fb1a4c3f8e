"""Queue definitions, and their JSON form."""

from __future__ import annotations

import dataclasses
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields, replace
from typing import Any, TypedDict

from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.default_filters import DefaultFilters, check_selector
from lvq_kafka.core.queue.headers import check_group_header, check_key_header, check_sort_header
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.option_names import CHOICES, KeylessPolicy
from lvq_kafka.core.queue.queue_options import GivenOptions
from lvq_kafka.core.queue.ranking import (
    HIGHEST_PRIORITY,
    PRIORITY_HEADER,
    SORT_HEADER,
    QueueOrder,
    check_priorities,
)
from lvq_kafka.core.queue.settings_by_pattern import SETTINGS_TOPIC, given_from_wire
from lvq_kafka.core.queue.standard import check_standard, conflate_from_wire
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import abridged, brief, listed, quoted, shell_word
from lvq_kafka.core.text.validation import at_least_one, instance
from lvq_kafka.core.timing.delay import check_max_delay, delay_from_wire, delay_to_wire
from lvq_kafka.core.timing.earlier_terms import EarlierTerms, in_order
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.errors import ConfigError

__all__ = [
    "REGISTRY_TOPIC",
    "BareOptions",
    "KeylessPolicy",
    "QueueDefinition",
    "QueueOptions",
    "check_letter_topic",
    "check_name",
    "check_own_topic",
    "is_name",
    "removal",
    "time_rule",
    "topic_of",
]

REGISTRY_TOPIC = "_lvq_queues"
"""The compacted topic, with one partition, that maps queue names to definitions."""

_RESERVED = {REGISTRY_TOPIC: "holds the definitions of queues", SETTINGS_TOPIC: "holds address settings"}

_PLAIN, _WITH_OPTIONS = 1, 2
"""Versions of the format. The second has options that older clients do not know, and so must refuse."""

_OPTIONS: Mapping[str, tuple[Callable[[Any], object], Callable[[Any], Any]]] = {
    "ttl": (Ttl.to_wire, Ttl.from_wire),
    "expiry_topic": (str, lambda topic: topic),
    "selector": (str, check_selector),
    "default_filters": (DefaultFilters.to_wire, DefaultFilters.from_wire),
    "max_delay": (delay_to_wire, delay_from_wire),
    "conflate": (bool, conflate_from_wire),
    "priorities": (int, lambda levels: levels),
    "sort_header": (str, lambda header: header),
    "groups": (Groups.to_wire, Groups.from_wire),
    "limits": (Limits.to_wire, Limits.from_wire),
    "max_deliveries": (int, lambda number: number),
    "dead_letters": (str, lambda topic: topic),
    "format": (str, lambda form: form),
    "from_settings": (dict, given_from_wire),
}
"""The fields of version 2, each with the writer and the parser of its JSON.

Fields that are not used are not written.
"""

_LONGEST_NAME = 200
_LEGAL_NAME = re.compile(rf"[a-zA-Z0-9._-]{{1,{_LONGEST_NAME}}}")


class BareOptions(TypedDict, total=False):
    """The part of `QueueOptions` that holds for a topic without a declaration, too."""

    keyless: KeylessPolicy
    order: QueueOrder
    key_mismatch: KeyMismatchPolicy
    ttl: Ttl | None
    max_delay: float | None
    conflate: bool
    priorities: int | None
    sort_header: str | None
    groups: Groups | None
    limits: Limits | None


class QueueOptions(BareOptions, total=False):
    """The options of a queue.

    Attributes:
        keyless: a message without the key header passes through and is never replaced, or is refused (R1).
        order: a new value goes to the tail; or, with ``"in-place"``, keeps its key's place until compaction removes the
            record that gives it, and the key then is where its newest record is (R4). With ``"priority"`` or
            ``"sorted"``, the next message handed out depends on its rank (R20).
        key_mismatch: which one counts when key header and record key disagree (R16).
        ttl: how long messages live; None if none of them expires, and none may carry a TTL (R10, R22).
        max_delay: the longest time, in seconds, by which a message may be scheduled ahead; None if none may (R11, R22).
            The topic is not compacted for as long.
        conflate: False makes it a standard queue, in which no message replaces another (R35). A key is then optional,
            and a property of its message like any other. The topic is not compacted, and keeps all messages until
            `LastValueQueue.reclaim`.
        priorities: with ``order="priority"``, the number of levels, from 2 to 10; 10 unless another is given (R20).
        sort_header: with ``order="sorted"``, the header by whose text messages are sorted; ``lvq-sort`` unless another
            is given. Messages without it are first (R20).
        groups: how messages are grouped; None if each is for any consumer (R36). A group is one consumer's at a time if
            it lies in one partition: if the topic has one, with ``placement="group"``, or if the group is the key.
        limits: how much the queue may hold, and what happens beyond; None for no limit (R12).
        non_destructive: the queue can be browsed, viewed and snapshotted, but not consumed (R13).
        expiry_topic: the existing topic to which consumers write expired messages; None drops them. Needs ``ttl``, and
            consumers.
        selector: the condition that a message must meet to be in the queue, in the syntax of JMS selectors, for example
            ``"exchange = 'NYSE'"``; None for all. Other messages are done for this queue, and replace the value of
            their key (R26). Needs the extra ``selectors``.
        default_filters: the selection of a browser whose caller names none: ``"replay_period"`` and ``"selector"``, as
            for `LastValueQueue.browser` (R28).
        max_deliveries: how often a message may be delivered to any of the queue's consumers, which count durably; None
            for no limit. The next attempt rejects it instead. A consumer may have a limit of its own.
        dead_letters: the existing topic that rejected messages go to, unless their consumer names another one; None
            drops them.
        format: the format of values, for readers that name none (R53): the command line, HTTP, Spark. Nothing checks
            that values have it. A new queue whose ``value`` is `TEXT`, `JSON` or a model has that of its codec.
    """

    non_destructive: bool
    expiry_topic: str | None
    selector: str | None
    default_filters: DefaultFilters | Mapping[str, Any] | None
    max_deliveries: int | None
    dead_letters: str | None
    format: Format | None


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class QueueDefinition:
    """The name of a queue and the options it was declared with, see `QueueOptions`.

    Args:
        name: the queue's name; its consumer group is ``lvq.<name>``.
        topic: the topic of the queue, log-compacted unless it is a standard queue. Several queues may share one.
        key_header: the message header that holds the key; None if the record key itself is the key.
        from_settings: which of the options address settings gave when the queue was declared, by their pattern (R37);
            None if they gave none. Two definitions are equal whatever these are.

    Raises:
        ConfigError: a name is not allowed by Kafka, a header name is empty (R3) or reserved (R22), a choice is unknown,
            or options exclude each other.
    """

    name: str
    topic: str
    key_header: str | None
    keyless: KeylessPolicy = "pass"
    order: QueueOrder = "tail"
    key_mismatch: KeyMismatchPolicy = "record"
    non_destructive: bool = False
    ttl: Ttl | None = None
    expiry_topic: str | None = None
    selector: str | None = None
    default_filters: DefaultFilters | None = None
    max_delay: float | None = None
    conflate: bool = True
    priorities: int | None = None
    sort_header: str | None = None
    groups: Groups | None = None
    limits: Limits | None = None
    max_deliveries: int | None = None
    dead_letters: str | None = None
    format: Format | None = None
    from_settings: Mapping[str, Mapping[str, object]] | None = dataclasses.field(default=None, compare=False)
    earlier: tuple[EarlierTerms, ...] = dataclasses.field(default=(), compare=False)
    """The ``ttl`` and ``max_delay`` that the queue had before it was altered, oldest first.

    They hold for the messages of their time. Two definitions with the same options are equal, whatever held before.
    """

    __repr__ = abridged

    def __post_init__(self) -> None:
        check_name("queue", self.name)
        check_name("topic", self.topic)
        if self.key_header is not None and (type(self.key_header) is not str or not self.key_header.strip()):
            raise ConfigError(
                f"The queue {self.name} needs the name of its key header, not {quoted(self.key_header)}.",
                options=["key_header"],
                hint='Name the message header that holds the key, for example `key_header="ticker"`; or say that it is '
                "the record key: `record-key=True|None`.",
            )
        check_key_header(self.key_header)
        for option, (name, choices) in CHOICES.items():
            value = getattr(self, name)
            if value not in choices and not (name == "format" and value is None):
                raise ConfigError(
                    f"{quoted(value)} is not a valid `{option}` for the queue {self.name}.",
                    options=[option],
                    hint=f"Choose one of {', '.join(choices)}.",
                )
        for switch in ("non_destructive", "conflate"):
            if not isinstance(value := getattr(self, switch), bool):
                raise ConfigError(
                    f"{switch} of the queue {self.name} is {quoted(value)}, not True or False.", options=[switch]
                )
        if not self.conflate:
            check_standard(self.name, order=self.order, keyless=self.keyless, key_mismatch=self.key_mismatch)
        if self.ttl is not None:
            instance("ttl", self.ttl, Ttl, "For example ttl=Ttl(default=3600.0).")
        if self.expiry_topic is not None:
            self._check_expiry_topic(self.expiry_topic)
        if self.selector is not None:
            check_selector(self.selector)
        if self.default_filters is not None:
            instance("default_filters", self.default_filters, DefaultFilters, "DefaultFilters.of(...) makes them.")
        if self.max_delay is not None:
            check_max_delay("max_delay", self.max_delay)
            object.__setattr__(self, "max_delay", round(self.max_delay * 1000) / 1000)  # as it is stored
        self._check_ranks()
        if self.groups is not None:
            instance("groups", self.groups, Groups, "For example groups=Groups().")
            check_group_header(self.groups.header)
        if self.limits is not None:
            instance("limits", self.limits, Limits, 'For example limits=Limits(messages=1000, policy="reject").')
            if self.limits.limiting:
                self._check_consumed()
            else:
                object.__setattr__(self, "limits", None)
        self._check_rejecting()
        if not in_order(self.earlier):
            raise ConfigError(f"The terms that the queue {self.name} had before do not follow one another in time.")

    def _check_ranks(self) -> None:
        for option, order, default in (
            ("priorities", "priority", HIGHEST_PRIORITY + 1),
            ("sort_header", "sorted", SORT_HEADER),
        ):
            value = getattr(self, option)
            if self.order != order:
                if value is not None:
                    raise ConfigError(
                        f"`{option}` of the queue {self.name} is for `order={order!r}`, not for "
                        f"`order={self.order!r}`.",
                        options={option: value, "order": self.order},
                        hint=f"Leave `{option}` out, or choose that order.",
                    )
            elif value is None:
                object.__setattr__(self, option, default)
        if self.priorities is not None:
            check_priorities("priorities", self.priorities)
        if self.sort_header is not None:
            check_sort_header(self.sort_header)

    def _check_consumed(self) -> None:
        """Check that a queue has consumers if they enforce its limits."""
        assert self.limits is not None
        policy = self.limits.policy
        does = {"ring": "evict what is beyond a ring", "disk": "page to disk what is beyond the limits"}.get(policy)
        if does is not None and self.non_destructive:
            raise ConfigError(
                f"`policy={policy!r}|limits with policy={policy!r}` and `non_destructive=True` of the queue "
                f"{self.name} exclude each other: consumers {does}, and the queue has none.",
                options=["limits", "non_destructive"],
                hint='Consume the queue, or choose another policy, such as `policy="reject"`.',
            )

    def _check_rejecting(self) -> None:
        """Check what becomes of messages that consumers reject."""
        for option in ("max_deliveries", "dead_letters"):
            if self.non_destructive and (value := getattr(self, option)) is not None:
                raise ConfigError(
                    f"`{option}` and `non_destructive` of the queue {self.name} exclude each other: consumers reject "
                    "messages, and the queue has none.",
                    options={option: value, "non_destructive": True},
                    hint="Leave one of them out.",
                )
        if self.max_deliveries is not None:
            at_least_one(max_deliveries=self.max_deliveries)
        if self.dead_letters is not None:
            check_letter_topic(self.dead_letters, self.topic, "dead_letters")

    def _check_expiry_topic(self, topic: str) -> None:
        if not self.expires:
            raise ConfigError(
                f"`expiry_topic` of the queue {self.name} is for messages that expire, and none does.",
                options={"expiry_topic": topic, "ttl": self.ttl},
                hint="Let messages expire, for example with `ttl=Ttl()`, or leave `expiry_topic` out.",
            )
        if self.non_destructive:
            raise ConfigError(
                f"`expiry_topic` and `non_destructive` of the queue {self.name} exclude each other: consumers write "
                "what has expired, and the queue has none.",
                options={"expiry_topic": topic, "non_destructive": True},
                hint="Leave one of them out.",
            )
        check_letter_topic(topic, self.topic, "expiry_topic")

    def check_declarable(self) -> None:
        """Check that this queue may be declared.

        A queue used bare, without a declaration, may have any topic.

        Raises:
            ConfigError: the shell would take its name for an option, or its topic belongs to Kafka or to this library.
        """
        if self.name.startswith("-"):
            raise ConfigError(
                f"{self.name!r} cannot be the name of a queue: the shell would take it for an option.",
                options=["name"],
                hint="Start it with another character.",
            )
        check_own_topic(self.topic)

    @property
    def rank_header(self) -> str | None:
        """The header that holds the rank of a message (R20); None if messages have none."""
        return PRIORITY_HEADER if self.order == "priority" else self.sort_header

    @property
    def placed_by(self) -> tuple[str, ...] | None:
        """The header by which producers place messages, and the default group; None for the key."""
        if self.groups is None or self.groups.placement == "key":
            return None
        return (self.groups.header, *filter(None, (self.groups.default,)))

    @property
    def expires(self) -> bool:
        """True if messages may expire (R10)."""
        return time_rule(self).expires

    @property
    def group(self) -> str:
        """The consumer group that records what was consumed."""
        return f"lvq.{self.name}"

    def with_format_of(self, declared: QueueDefinition) -> QueueDefinition:
        """Return this definition; if it names no format, with that of a queue that is declared.

        A declaration that leaves the format open matches a queue of any (R53).
        """
        return self if self.format is not None else replace(self, format=declared.format)

    def differences(self, other: QueueDefinition) -> dict[str, tuple[object, object]]:
        """Return the fields that differ, as pairs of this and the other's value."""
        mine, theirs = self.as_row(), other.as_row()
        compared = [each.name for each in fields(self) if each.compare]
        return {name: (mine[name], theirs[name]) for name in compared if mine[name] != theirs[name]}

    def as_row(self) -> dict[str, Any]:
        """Return the fields as values of JSON.

        Options that are not used are None, and ``conflate`` true.
        """
        row = {option: getattr(self, option) for option in _OWN_FIELDS}
        return row | {name: write(row[name]) for name, (write, _) in _OPTIONS.items() if row[name] is not None}

    def to_json(self) -> bytes:
        """Return the form stored in the registry topic: UTF-8 JSON with sorted names.

        Without options, that is version 1, which every version of this library reads.
        """
        row = {name: value for name, value in self.as_row().items() if name not in _OPTIONS or value is not None}
        if self.conflate:
            del row["conflate"]
        version = _PLAIN if row.keys().isdisjoint(_OPTIONS) else _WITH_OPTIONS
        return json.dumps({"version": version, **row}, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes, *, name: str, where: str = "", mend: str = "") -> QueueDefinition:
        """Parse the definition that the registry holds under ``name``.

        Args:
            where: the place of the definition, for errors, unless it is that of a declaration.
            mend: how to get rid of it.

        Raises:
            ConfigError: the definition is malformed, of a newer version, or has fields that this library does not know.
        """
        where = where or f"The definition of the queue {brief(name)} in {REGISTRY_TOPIC}"
        mend = mend or f"Remove it ({removal(name)}), and declare the queue again."
        try:
            content = read_json(data.decode("utf-8"))
            if not isinstance(content, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise ConfigError(f"{where} is not readable: {error}.", hint=mend) from None
        version = content.pop("version", None)
        known = set(_OWN_FIELDS) - (set() if version == _WITH_OPTIONS else _OPTIONS.keys())
        unknown = sorted(content.keys() - known)
        if version not in (_PLAIN, _WITH_OPTIONS) or unknown:
            what = f"unknown fields {listed(unknown)}" if unknown else f"version {quoted(version)}"
            raise ConfigError(f"{where} has {what}.", options=unknown, hint="A newer lvq-kafka wrote it: upgrade.")
        try:
            options = {option: parse(content[option]) for option, (_, parse) in _OPTIONS.items() if option in content}
            definition = cls(**{**content, **options})
            definition.check_declarable()
        except (TypeError, ConfigError) as error:
            raise ConfigError(f"{where} is malformed: {str(error).rstrip('.')}.", hint=mend) from None
        if definition.name != name:
            raise ConfigError(f"{where} names another queue, {definition.name}.", hint=mend)
        return definition

    @classmethod
    def from_options(
        cls,
        name: str,
        options: Mapping[str, object],
        *,
        topic: str | None = None,
        record_key: bool = False,
        arguments: Mapping[str, Any] | None = None,
    ) -> QueueDefinition:
        """Build a definition from options by name, ours or those of the systems in `OPTION_NAMES`.

        Names count in any case and with any separators, and values are read as text or as JSON has them. Booleans are
        read by value, so ``last-value=false`` asks for a standard queue (R3).

        Args:
            name: the queue's name.
            options: the options.
            topic: its topic; the same as its name unless another is given.
            record_key: True if no option has to name the key header: unless one does, the record key is the key.
            arguments: fields that have values already, and hold together with the options.

        Raises:
            ConfigError: an option is unknown (names the nearest), malformed, or refused with its reason, or clashes
                with another (names both).
        """
        given = GivenOptions(options, arguments)
        try:
            return cls(name=name, topic=topic or name, **given.fields(name, record_key=record_key))
        except ConfigError as error:
            raise error.of_options(given.setters) from None


_OWN_FIELDS = tuple(one.name for one in fields(QueueDefinition) if one.name != "earlier")


def time_rule(definition: QueueDefinition) -> TimeRule:
    """Return the rule of when a queue's messages count (R10, R11)."""
    keeps_expired = definition.expiry_topic is not None
    return TimeRule(definition.ttl, definition.max_delay, keeps_expired, definition.earlier)


def check_own_topic(topic: str, option: str = "topic") -> None:
    """Check that messages may be written to a topic, by a queue or on its behalf.

    Raises:
        ConfigError: the topic is one of this library's own, or one of Kafka's internal ones.
    """
    whose = _RESERVED.get(topic, "has a name reserved by Kafka" if topic.startswith("__") else None)
    if whose is not None:
        raise ConfigError(f"`{option}` {whose}.", options={option: topic}, hint="Name another topic.")


def check_letter_topic(topic: str, own: str, option: str) -> None:
    """Check that messages which leave a queue may be written to this topic.

    Raises:
        ConfigError: it is the queue's own topic, where such a message would be the newest value of its key; or the
            registry's, or one of Kafka's own; or its name is not allowed.
    """
    if topic == own:
        raise ConfigError(f"`{option}` is the queue's own topic.", options={option: topic}, hint="Name another topic.")
    if not is_name(topic):
        raise ConfigError(f"`{option}` cannot be the name of a topic.", options={option: topic})
    check_own_topic(topic, option)


def is_name(name: object) -> bool:
    """Return whether a queue or a topic can have this name."""
    return isinstance(name, str) and _LEGAL_NAME.fullmatch(name) is not None and name not in (".", "..")


def check_name(what: str, name: object) -> None:
    """Check that a queue or a topic (``what``) can have this name.

    Raises:
        ConfigError: the name is not allowed.
    """
    if not is_name(name):
        raise ConfigError(
            f"{quoted(name)} cannot be the name of a {what}.",
            options=["name" if what == "queue" else what],
            hint="Use 1 to 200 of the characters a-z, A-Z, 0-9, dot, underscore and hyphen.",
        )


def topic_of(definition: bytes) -> str | None:
    """Return the topic that a definition names; None if it names none.

    The rest may be unreadable. Every version of the format has it, so what has none is no definition.
    """
    try:
        content = read_json(definition.decode("utf-8"))
    except ValueError:
        return None
    topic = content.get("topic") if isinstance(content, dict) else None
    return topic if isinstance(topic, str) else None


def removal(name: str) -> str:
    """Return instructions to remove a definition, whatever its name."""
    if len(name) > _LONGEST_NAME:
        return f"delete the record with that key from the topic {REGISTRY_TOPIC}"
    word = shell_word(name)
    return f"lvq delete {REGISTRY_TOPIC} " + (f"--bare -- {word}" if name.startswith("-") else f"{word} --bare")
