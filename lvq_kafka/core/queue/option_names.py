"""The names of all options of a queue, ours and those of other systems.

This is the one table of names: declarations are read by it, errors search it, `lvq options` prints it. A name counts in
any case and with any separators, so ``lastValueKey`` is ``last-value-key``.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from itertools import chain
from typing import Any, Literal, get_args

from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.mismatch import KeyMismatchPolicy
from lvq_kafka.core.queue.limits import OverflowPolicy
from lvq_kafka.core.queue.message_groups import JMS_GROUP_HEADER, GroupMode, Placement
from lvq_kafka.core.queue.option_values import (
    NO,
    YES,
    OptionReader,
    as_given,
    attempts,
    boolean,
    default_filters,
    destination,
    duration,
    group_name,
    limit_of_bytes,
    limit_of_messages,
    limit_or_none,
    name_of_header,
    number,
    one_of,
    part_of,
    policy,
    switch,
    whole_number,
    word,
    word_in_small_letters,
)
from lvq_kafka.core.queue.ranking import QueueOrder
from lvq_kafka.core.text.nearest import folded, nearest
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.errors import ConfigError

__all__ = [
    "ARTEMIS_KEY_HEADER",
    "CHOICES",
    "FIELDS",
    "OPTION_NAMES",
    "QPID_KEY_HEADER",
    "SYSTEMS",
    "Fixed",
    "KeylessPolicy",
    "Mapped",
    "OptionName",
    "OptionSystem",
    "explanation",
    "option_named",
    "spellings",
    "unknown_option",
]

ARTEMIS_KEY_HEADER = "_AMQ_LVQ_NAME"
"""The key header of Artemis where a queue names none: its ``Message.HDR_LAST_VALUE_NAME``."""

QPID_KEY_HEADER = "qpid.LVQ_key"
"""The key header of Qpid and Broker-J where a queue names none."""

KeylessPolicy = Literal["pass", "refuse"]

_NEGATIVE = re.compile("-[0-9]+")

CHOICES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "keyless": ("keyless", get_args(KeylessPolicy)),
    "order": ("order", get_args(QueueOrder)),
    "key-mismatch": ("key_mismatch", get_args(KeyMismatchPolicy)),
    "format": ("format", get_args(Format)),
}
"""Options that are one of several words, with the field that each sets."""

OptionSystem = Literal["lvq", "qpid-cpp", "qpid-m4", "artemis", "broker-j", "ftl"]

SYSTEMS: Mapping[OptionSystem, str] = {
    "lvq": "lvq-kafka",
    "qpid-cpp": "Qpid C++",
    "qpid-m4": "Qpid M4",
    "artemis": "ActiveMQ Artemis",
    "broker-j": "Qpid Broker-J",
    "ftl": "TIBCO FTL",
}
"""The systems with options, and their names for people."""


@dataclass(frozen=True, slots=True, eq=False)
class Mapped:
    """An option that sets something here.

    Args:
        sets: the field of `QueueDefinition`, or of one of its parts: ``"limits.messages"``. A word that is no field is
            one that several fields depend on.
        read: converts the value to that of the field.
        values: the values and their unit, in words.
        example: a value, as it is typed.
        brings: other fields, with the values that the option asks for, too.
        implies: other fields, with the values that hold unless another option asks for something.
        needs: the option without which it has no meaning.
    """

    sets: str
    read: OptionReader
    values: str
    example: str
    brings: Mapping[str, object] = field(default_factory=dict)
    implies: Mapping[str, object] = field(default_factory=dict)
    needs: str = ""


@dataclass(frozen=True, slots=True, eq=False)
class Fixed:
    """An option that sets nothing here: what it may ask for is always so, or never.

    Args:
        reason: why, to follow a colon.
        accepts: the values that agree with it, in small letters, where -1 stands for all negative numbers; None if any
            value is ignored.
        instead: what to do instead, as a sentence.
    """

    reason: str
    accepts: tuple[str, ...] | None = ()
    instead: str = ""

    @property
    def described(self) -> str:
        """The fate of the option, in sentences."""
        if self.accepts is None:
            said = f"Ignored: {self.reason}."
        elif self.accepts:
            synonyms = {word for first, *others in (YES, NO) if first in self.accepts for word in others}
            *words, last = [word for word in self.accepts if word not in synonyms]
            said = f"Only {', '.join(words)}{' or ' if words else ''}{last}: {self.reason}."
        else:
            said = f"Refused: {self.reason}."
        return f"{said} {self.instead}".rstrip()

    def check(self, option: str, value: object) -> None:
        """Check that the value agrees with what always holds.

        Raises:
            ConfigError: it asks for something else.
        """
        said = word(value).lower()
        if self.accepts is None or said in self.accepts or ("-1" in self.accepts and _NEGATIVE.fullmatch(said)):
            return
        raise ConfigError(
            f"`{option}` is not possible here: {self.reason}.",
            options={option: value},
            hint=self.instead or f"Leave `{option}` out.",
        )


@dataclass(frozen=True, slots=True)
class OptionName:
    """A name of an option."""

    name: str
    systems: tuple[OptionSystem, ...]
    """The systems that have it, in the order of `SYSTEMS`."""
    meaning: Mapped | Fixed

    @property
    def here(self) -> Literal["mapped", "always", "refused"]:
        """Its fate: it sets something, asks for what always holds, or is refused.

        One that asks for what always holds may have other values, which are refused.
        """
        if isinstance(self.meaning, Mapped):
            return "mapped"
        return "refused" if self.meaning.accepts == () else "always"

    @property
    def as_argument(self) -> str:
        """A hint for callers who pass it to `declare` as an argument."""
        if isinstance(self.meaning, Mapped):
            return f"Pass it in options: options={{{self.name!r}: ...}}."
        return f"It sets nothing: {self.meaning.reason}. {self.meaning.instead}".rstrip()


FIELDS: Mapping[str, str] = {
    "key_header": "the header that holds the key",
    "conflate": "whether a newer value replaces the older one of its key",
    "keyless": "what becomes of messages without the key header",
    "key_mismatch": "the winner when header and record key disagree",
    "format": "the format of values, for readers that name none",
    "order": "where a new value goes, or what is handed out first",
    "type": "the type of queue",
    "priorities": "the levels of priority",
    "sort_header": "the header to sort by",
    "ttl": "whether messages may carry a TTL of their own",
    "ttl.default": "the TTL of messages without their own",
    "ttl.minimum": "the least TTL that a message may have",
    "ttl.maximum": "the greatest TTL, also of messages without one",
    "ttl.never": "whether nothing expires, whatever TTL it has",
    "expiry_topic": "where consumers write what has expired",
    "expiry_policy": "what becomes of what has expired",
    "max_delay": "how far ahead messages may be scheduled",
    "hold": "whether messages may be scheduled",
    "max_deliveries": "how often a message may be delivered before it is rejected",
    "dead_letters": "where consumers write what they reject",
    "non_destructive": "whether the queue is browsed and viewed, never consumed",
    "selector": "the condition on which a message is in the queue",
    "default_filters": "how browsers read that say nothing else",
    "default_filters.selector": "the condition of browsers that name none",
    "default_filters.replay_period": "the replay period of browsers that name none",
    "groups.mode": "how the messages of a group stay with one consumer",
    "groups.header": "the header that names the group",
    "groups.default": "the group of messages without one, in shared groups",
    "groups.placement": "what chooses the partition of a message",
    "limits.policy": "what happens beyond the limits",
    "limits.messages": "the most messages that the queue may hold",
    "limits.bytes": "the most bytes that the queue may hold",
    "limits.resume": "how far a full queue must shrink before blocked producers go on",
    "limits.resume_messages": "how far a full queue must shrink before blocked producers go on",
    "limits.resume_bytes": "how far a full queue must shrink before blocked producers go on",
}
"""The fields that options set, in words."""

# The rows, by meaning, with the names that each system has for it. Options are read, and named in errors, in the order
# of the rows. So ours come first, and policies before limits.

_MESSAGES, _BYTES = "a number; -1 for no limit", "bytes, or 500K, 10M, 1G; -1 for no limit"
_STAYS, _DROP = "a queue stays until it is dropped", "Call queue.drop(), or lvq drop, when it has had its day."
_UNLIMITED: Mapping[str, object] = {"limits.messages": None, "limits.bytes": None}
_REPORTS, _RINGS, _REJECTS, _BLOCKS, _PAGES = (
    {"limits.policy": policy} for policy in ("none", "ring", "reject", "block", "disk")
)
_LETTERS = "Name a topic that exists in dead-letters."
_OFF = ("-1", "0")
_POLICIES_OF_BROKER_J = {
    "NONE": "none", "RING": "ring", "REJECT": "reject", "PRODUCER_FLOW_CONTROL": "block", "FLOW_TO_DISK": "disk"
}  # fmt: skip


def _row(meaning: Mapped | Fixed, **names: str) -> Iterator[OptionName]:
    """Yield the options of one meaning.

    Args:
        meaning: what each of them does here.
        names: the names by system, separated by blanks.
    """
    systems: dict[str, list[OptionSystem]] = {}
    for system in SYSTEMS:
        for name in names.get(system.replace("-", "_"), "").split():
            systems.setdefault(name, []).append(system)
    for name, said_by in systems.items():
        yield OptionName(name, tuple(said_by), meaning)


def _messages(**more: Any) -> Mapped:
    return Mapped("limits.messages", limit_of_messages, _MESSAGES, "1000", **more)


def _bytes(**more: Any) -> Mapped:
    return Mapped("limits.bytes", limit_of_bytes, _BYTES, "10M", **more)


def _ttl(limit: str, unit: float, off: float | None = None) -> Mapped:
    none = "" if off is None else f"; {off:g} for none"
    what, example = ("milliseconds", "60000") if unit == 1 else ("seconds", "60")
    return Mapped(f"ttl.{limit}", duration(unit, off), f"{what}{none}", example)


# fmt: off
_TABLE: tuple[Iterator[OptionName], ...] = (
    # ---- The key, and whether newer values replace older ones
    _row(Mapped("key_header", name_of_header, "the name of a header", "ticker"),
         lvq="key-header", artemis="last-value-key default-last-value-key", qpid_cpp="qpid.last_value_queue_key",
         broker_j="lvqKey qpid.last_value_queue_key queue.lvqKey"),
    _row(Mapped("conflate", boolean, "true or false", "false"), lvq="conflate"),
    _row(Mapped("conflate", boolean, "true or false", "true", implies={"key_header": ARTEMIS_KEY_HEADER}),
         artemis="last-value default-last-value-queue last-value-queue"),
    _row(Mapped("conflate", boolean, "true or false", "1",
                implies={"key_header": QPID_KEY_HEADER, "order": "in-place"}),
         qpid_cpp="qpid.last_value_queue qpid.last_value_queue_no_browse",
         qpid_m4="qpid.last_value_queue qpid.last_value_queue_no_browse", broker_j="qpid.last_value_queue"),
    _row(Mapped("keyless", word_in_small_letters, "pass or refuse", "refuse"), lvq="keyless"),
    _row(Mapped("key_mismatch", word_in_small_letters, "record, header or fail", "header"), lvq="key-mismatch"),
    _row(Mapped("format", word_in_small_letters, "bytes, text or json", "json"), lvq="format"),

    # ---- The order
    _row(Mapped("order", word_in_small_letters, "tail, in-place, priority or sorted", "in-place"), lvq="order"),
    _row(Mapped("type",
                one_of({**{kind: kind for kind in ("lvq", "standard", "priority", "sorted")}, "queue": None},
                       "a type of queue in this version"),
                "lvq, standard, priority or sorted", "lvq", implies={"key_header": QPID_KEY_HEADER}),
         broker_j="type"),
    _row(Mapped("conflate",
                one_of({"LVQ": True, "LVQ_NO_BROWSE": True, "FIFO": False}, "an ordering"),
                "LVQ, LVQ_NO_BROWSE or FIFO", "LVQ_NO_BROWSE",
                implies={"key_header": QPID_KEY_HEADER, "order": "in-place"}),
         qpid_m4="ordering"),
    _row(Mapped("priorities", whole_number, "from 2 to 10", "3", brings={"order": "priority"}),
         lvq="priorities", qpid_cpp="qpid.priorities x-qpid-priorities",
         broker_j="priorities x-qpid-priorities queue.priorities"),
    _row(Mapped("sort_header", name_of_header, "the name of a header", "due", brings={"order": "sorted"}),
         lvq="sort-header", broker_j="sortKey qpid.queue_sort_key"),

    # ---- Times
    _row(Mapped("ttl", boolean, "true or false", "true"), lvq="ttl"),
    _row(_ttl("default", 1000), lvq="default-ttl"),
    _row(_ttl("minimum", 1000), lvq="min-ttl"),
    _row(_ttl("maximum", 1000), lvq="max-ttl"),
    _row(_ttl("maximum", 1000, 0), ftl="message-time-to-live"),
    _row(_ttl("default", 1, -1), artemis="expiry-delay"),
    _row(_ttl("minimum", 1, -1), artemis="min-expiry-delay"),
    _row(_ttl("maximum", 1, -1), artemis="max-expiry-delay"),
    _row(_ttl("minimum", 1, 0), broker_j="minimumMessageTtl x-qpid-minimum-message-ttl queue.minimumMessageTtl"),
    _row(_ttl("maximum", 1, 0), broker_j="maximumMessageTtl x-qpid-maximum-message-ttl queue.maximumMessageTtl"),
    _row(Mapped("ttl.never", switch(on=True), "true or false", "true"), lvq="no-expiry", artemis="no-expiry"),
    _row(Mapped("expiry_topic", name_of_header, "the name of a topic", "expired"),
         lvq="expiry-topic", artemis="expiry-address"),
    _row(Mapped("expiry_policy", one_of({"DELETE": False, "ROUTE_TO_ALTERNATE": True}, "a policy"),
                "DELETE, or ROUTE_TO_ALTERNATE beside expiry-topic", "DELETE"),
         broker_j="expiryPolicy queue.defaultExpiryPolicy"),
    _row(Mapped("max_delay", number, "seconds", "3600"), lvq="max-delay"),
    _row(Mapped("hold", boolean, "true beside max-delay, or false", "false"),
         broker_j="holdOnPublishEnabled queue.holdOnPublishEnabled"),

    # ---- Readers
    _row(Mapped("non_destructive", boolean, "true or false", "true"),
         lvq="non-destructive", qpid_cpp="qpid.browse-only", artemis="non-destructive default-non-destructive",
         broker_j="ensureNondestructiveConsumers qpid.ensure_nondestructive_consumers "
                  "queue.defaultEnsureNonDestructiveConsumers"),
    _row(Mapped("selector", as_given, "a condition, as in JMS", "exchange = 'NYSE'"),
         lvq="selector", qpid_cpp="qpid.filter", artemis="filter filter-string"),
    _row(Mapped("default_filters.selector", as_given, "a condition, as in JMS", "bid > 100"), lvq="default-selector"),
    _row(Mapped("default_filters.replay_period", number, "seconds", "3600"), lvq="default-replay-period"),
    _row(Mapped("default_filters", default_filters, "a map of filters, or its JSON",
                '{"x-qpid-replay-period": {"x-qpid-replay-period": ["60"]}}'),
         lvq="default-filters", broker_j="defaultFilters qpid.default_filters"),

    # ---- Groups
    _row(Mapped("groups.mode", one_of({mode: mode for mode in get_args(GroupMode)}, "a kind of groups"),
                "sticky or shared", "sticky"),
         lvq="groups"),
    _row(Mapped("groups.mode", one_of({"NONE": None, "STANDARD": "sticky", "SHARED_GROUPS": "shared"},
                                      "a kind of groups"),
                "NONE, STANDARD or SHARED_GROUPS", "STANDARD", implies={"groups.header": JMS_GROUP_HEADER}),
         broker_j="messageGroupType queue.messageGroupType"),
    _row(Mapped("groups.mode", switch(on="shared", off="sticky"), "true or false", "1"),
         qpid_cpp="qpid.shared_msg_group", broker_j="messageGroupSharedGroups qpid.shared_msg_group"),
    _row(Mapped("groups.header", group_name, "the name of a header", "customer"),
         lvq="group-header", qpid_cpp="qpid.group_header_key",
         broker_j="messageGroupKeyOverride messageGroupKey qpid.group_header_key"),
    _row(Mapped("groups.default", group_name, "the name of a group", "others"),
         lvq="default-group", qpid_cpp="qpid.default-message-group",
         broker_j="messageGroupDefaultGroup qpid.default-message-group"),
    _row(Mapped("groups.placement", one_of({by: by for by in get_args(Placement)}, "what a message is placed by"),
                "key or group", "group"),
         lvq="place-by"),

    # ---- Limits
    _row(Mapped("limits.policy", policy({name: name for name in get_args(OverflowPolicy)}),
                "none, ring, reject, block or disk", "reject"),
         lvq="overflow"),
    _row(Mapped("limits.policy", policy(_POLICIES_OF_BROKER_J),
                "NONE, RING, REJECT, PRODUCER_FLOW_CONTROL (block) or FLOW_TO_DISK (disk)", "RING", implies=_UNLIMITED),
         broker_j="overflowPolicy queue.defaultOverflowPolicy"),
    _row(Mapped("limits.policy",
                policy({"reject": "reject", "ring": "ring", "ring_strict": "ring", "flow_to_disk": "disk"},
                       {"self-destruct": "people drop queues, messages do not"}),
                "reject, ring, ring_strict (ring) or flow_to_disk (disk)", "ring"),
         qpid_cpp="qpid.policy_type", qpid_m4="qpid.policy_type", broker_j="qpid.policy_type"),
    _row(Mapped("limits.policy",
                policy({"FAIL": "reject", "BLOCK": "block", "PAGE": "disk"},
                       {"DROP": "producers would learn nothing of messages that are dropped"}),
                "FAIL (reject), BLOCK or PAGE (disk)", "FAIL", implies=_UNLIMITED),
         artemis="address-full-policy addressFullMessagePolicy"),
    _row(_messages(implies=_REPORTS), lvq="max-messages"),
    _row(_messages(implies=_REPORTS),
         broker_j="maximumQueueDepthMessages queue.defaultMaximumQueueDepthMessages"),
    _row(_messages(implies=_REJECTS),
         qpid_cpp="qpid.max_count", qpid_m4="qpid.max_count", broker_j="qpid.max_count"),
    _row(_messages(implies=_PAGES), artemis="max-size-messages"),
    _row(_messages(brings=_RINGS), artemis="ring-size default-ring-size"),
    _row(_messages(brings=_BLOCKS), qpid_cpp="qpid.flow_stop_count"),
    _row(_bytes(implies=_REPORTS), lvq="max-bytes"),
    _row(_bytes(implies=_REPORTS),
         broker_j="maximumQueueDepthBytes queue.defaultMaximumQueueDepthBytes x-qpid-capacity"),
    _row(_bytes(implies=_REJECTS),
         qpid_cpp="qpid.max_size", qpid_m4="qpid.max_size", broker_j="qpid.max_size"),
    _row(Mapped("limits.bytes", limit_or_none(limit_of_bytes), "bytes; 0 for no limit", "1000000",
                implies=_REJECTS),
         ftl="bytelimit store-size-limit"),
    _row(_bytes(implies=_PAGES), artemis="max-size-bytes"),
    _row(_bytes(brings=_BLOCKS), qpid_cpp="qpid.flow_stop_size"),
    _row(Mapped("limits.bytes", limit_or_none(limit_of_bytes), "bytes; 0 for no limit", "1000000", brings=_BLOCKS),
         broker_j="queueFlowControlSizeBytes"),
    _row(Mapped("limits.resume", part_of(1), "a part of the limits, up to 1", "0.8"), lvq="resume"),
    _row(Mapped("limits.resume", part_of(100), "percent of the limits", "80"),
         broker_j="queueFlowResumeLimit queue.queueFlowResumeLimit"),
    _row(Mapped("limits.resume_messages", limit_of_messages, "messages, up to qpid.flow_stop_count", "800",
                needs="qpid.flow_stop_count"),
         qpid_cpp="qpid.flow_resume_count"),
    _row(Mapped("limits.resume_bytes", limit_of_bytes, "bytes, up to qpid.flow_stop_size", "800",
                needs="qpid.flow_stop_size"),
         qpid_cpp="qpid.flow_resume_size"),
    _row(Mapped("limits.resume_bytes", limit_of_bytes, "bytes, up to x-qpid-capacity", "800",
                needs="x-qpid-capacity", brings=_BLOCKS),
         broker_j="x-qpid-flow-resume-capacity"),
    _row(Mapped("limits.resume_bytes", limit_or_none(limit_of_bytes), "bytes, up to queueFlowControlSizeBytes", "800",
                needs="queueFlowControlSizeBytes"),
         broker_j="queueFlowResumeSizeBytes"),

    # ---- Messages that consumers reject
    _row(Mapped("max_deliveries", whole_number, "a number, from 1 on", "5"), lvq="max-deliveries"),
    _row(Mapped("max_deliveries", attempts, "a number; 0 or -1 for no limit", "5"),
         artemis="max-delivery-attempts",
         broker_j="maximumDeliveryAttempts x-qpid-maximum-delivery-count queue.maximumDeliveryAttempts",
         ftl="maximum-delivery-attempts"),
    _row(Mapped("dead_letters", name_of_header, "a topic that exists", "orders.dlq"),
         lvq="dead-letters", artemis="dead-letter-address"),
    _row(Mapped("dead_letters", destination, "a topic that exists, or a binding to it",
                '{"destination": "orders.dlq"}'),
         broker_j="alternateBinding"),

    # ---- Given elsewhere: what is no option of a queue
    _row(Fixed("the name of a queue is the first argument of declare", (), "Pass it there."),
         artemis="name", broker_j="name", ftl="name durable-name subscriber-name"),
    _row(Fixed("the address of a queue is its topic", (), "Pass topic= to declare, or --topic to lvq declare."),
         artemis="address fqqn", ftl="endpoint"),
    _row(Fixed("it is an argument of declare", (), "Pass topic=, start= or on_mismatch=; or --topic, --start."),
         lvq="topic start on-mismatch"),
    _row(Fixed("it belongs to the topic", (),
               "Pass spec=TopicSpec(...) to declare; or --partitions, --replication-factor, --topic-config."),
         lvq="partitions replication-factor topic-config spec"),
    _row(Fixed("limits have options of their own", (), "Give max-messages, max-bytes, overflow and resume."),
         lvq="limits"),
    _row(Fixed("it is a part of an address, not an option of a queue", (), "Give what stands in its x-declare."),
         qpid_cpp="create assert delete node link x-declare x-subscribe x-bindings arguments mode", qpid_m4="mode"),
    _row(Fixed("it is a matter of the connection", (),
               "Pass bootstrap_servers= or config=; in the shell, -b HOST:PORT or --config FILE."),
         qpid_m4="broker host port username password mechanism tcp-nodelay"),
    _row(Fixed("it is the pattern of an address setting", (), "Call lvq settings set PATTERN -o NAME=VALUE."),
         artemis="match"),
    _row(Fixed("its variables are options", (), "Give each by itself, such as queue.queueFlowResumeLimit."),
         broker_j="context"),
    _row(Fixed("Kafka's ACLs say who may use a queue", (), "docs/how-to/access.md says which rights it needs."),
         artemis="user", broker_j="owner"),

    # ---- What is always so: queues and messages are stored
    _row(Fixed("Kafka stores queues and messages, whatever is asked for", (*YES, *NO)),
         qpid_cpp="durable", qpid_m4="durable", artemis="durable", broker_j="durable"),
    _row(Fixed("Kafka stores every message, whatever is asked for", ("default", "always", "never")),
         broker_j="messageDurability qpid.message_durability queue.defaultMessageDurability"),
    _row(Fixed("Kafka stores every message", NO), artemis="temporary transient internal"),
    _row(Fixed("Kafka replicates topics", YES, "Pass spec=TopicSpec(replication_factor=1), or --replication-factor 1."),
         ftl="replicated"),
    _row(Fixed("a send succeeds once all in-sync replicas have the message", None),
         ftl="publisher-settings publisher-mode"),
    _row(Fixed(_STAYS, NO, _DROP),
         qpid_cpp="auto-delete", qpid_m4="auto-delete", broker_j="auto-delete",
         artemis="auto-delete auto-delete-queues auto-delete-created-queues auto-delete-addresses "
                 "auto-delete-jms-queues auto-delete-jms-topics"),
    _row(Fixed(_STAYS, ("0",), _DROP), qpid_cpp="qpid.auto_delete_timeout", ftl="durable-time-to-live"),
    _row(Fixed(_STAYS, ("permanent", "manual"), _DROP),
         qpid_cpp="qpid.lifetime-policy", broker_j="lifetimePolicy qpid.lifetime-policy"),
    _row(Fixed(_STAYS, None),
         artemis="auto-delete-delay auto-delete-message-count auto-delete-queues-delay "
                 "auto-delete-queues-message-count auto-delete-queues-skip-usage-check auto-delete-addresses-delay "
                 "auto-delete-addresses-skip-usage-check"),
    _row(Fixed("declare creates the queue and its topic", None),
         artemis="auto-create-queues auto-create-addresses auto-create-address auto-created auto-create-jms-queues "
                 "auto-create-jms-topics configuration-managed config-delete-queues config-delete-addresses "
                 "config-delete-diverts"),
    _row(Fixed("a queue cannot be switched off", (*YES, "active"), "Close its producers and consumers."),
         artemis="enabled", broker_j="desiredState"),
    _row(Fixed("it tells how a queue is, and sets nothing", None),
         broker_j="state statistics createdBy createdTime lastUpdatedBy lastUpdatedTime"),
    _row(Fixed("every queue on a topic has all of its messages", YES, "Declare one queue, and share it."),
         artemis="multicast"),
    _row(Fixed("the consumers of a queue share its messages, and other queues on its topic have all of them", None),
         artemis="anycast routing-type default-queue-routing-type default-address-routing-type"),
    _row(Fixed("a definition has no notes", None), artemis="id", broker_j="id description x-qpid-description"),

    # ---- Durables of FTL
    _row(Fixed("it is an argument of durables.subscribe", (),
               "Pass it there as key_field=; or name a header of messages with key-header."),
         ftl="keyField key-field-name"),
    _row(Fixed("it is an argument of durables.subscribe", (),
               "Pass it there as matcher=; or give selector to the queue, and keys= to a browser."),
         ftl="matcher content-matcher"),
    _row(Fixed("durables.subscribe declares what is missing, where a setting allows that", NO,
               "Call it, and set dynamic-durables=true for the endpoint with lvq settings."),
         ftl="dynamic"),
    _row(Fixed("every queue is declared", YES), ftl="static"),
    _row(Fixed("a message is not discarded on its way in", ("0",), "Give max-messages, and overflow=ring."),
         ftl="message-limit discard"),

    # ---- Consumers
    _row(Fixed("any number of consumers share a queue", (*NO, "none"),
               "Leave it out: of each partition, one process consumes, and the others stand by."),
         qpid_cpp="exclusive", qpid_m4="exclusive", artemis="exclusive default-exclusive-queue",
         broker_j="exclusive qpid.exclusivity_policy queue.defaultExclusivityPolicy x-single-active-consumer"),
    _row(Fixed("any number of consumers share a queue", _OFF,
               "Leave it out: as many processes consume at a time as the topic has partitions."),
         artemis="max-consumers default-max-consumers",
         broker_j="maximumLiveConsumers queue.defaultMaximumLiveConsumers"),
    _row(Fixed("a consumer gets messages as soon as it asks", _OFF),
         artemis="consumers-before-dispatch default-consumers-before-dispatch delay-before-dispatch "
                 "default-delay-before-dispatch"),
    _row(Fixed("all consumers of a queue are alike", ("0",)), artemis="consumer-priority"),
    _row(Fixed("messages wait for consumers", NO, "Let them expire with max-ttl, or keep few of them with ring-size."),
         artemis="purge-on-no-consumers default-purge-on-no-consumers"),
    _row(Fixed("each consumer has its own", (), "Give prefetch= to consumer(); it is 1 unless another is given."),
         lvq="prefetch", artemis="queuePrefetch default-consumer-window-size", broker_j="prefetch",
         ftl="prefetch prefetch-count"),
    _row(Fixed("dead-letters names a topic that exists", NO, _LETTERS),
         qpid_cpp="alternate-exchange",
         artemis="auto-create-dead-letter-resources send-to-dla-on-no-route",
         broker_j="alternateExchange x-qpid-dlq-enabled queue.defaultAlternateBinding"),
    _row(Fixed("dead-letters names a topic that exists", None),
         artemis="dead-letter-queue-prefix dead-letter-queue-suffix"),
    _row(Fixed("expiry-topic names a topic that exists", NO, "Create it, and name it in expiry-topic."),
         artemis="auto-create-expiry-resources"),
    _row(Fixed("expiry-topic names a topic that exists", None), artemis="expiry-queue-prefix expiry-queue-suffix"),
    _row(Fixed("it is an option of each consumer", (), "Pass it to consumer()."),
         lvq="max-in-work lock-timeout durable-counts commit-interval revoke-grace auto-reclaim page-directory "
             "on-foreign-commits undecodable"),
    _row(Fixed("the caller that releases a message says when it comes again", ("0",),
               "Call delivery.release(delay=...), or run(retry_delay=...)."),
         artemis="redelivery-delay max-redelivery-delay"),
    _row(Fixed("the caller that releases a message says when it comes again", None),
         artemis="redelivery-delay-multiplier redelivery-multiplier redelivery-collision-avoidance-factor"),
    _row(Fixed("no consumer is closed for being slow", _OFF, "Give lock_timeout= to consumer()."),
         artemis="slow-consumer-threshold"),
    _row(Fixed("no consumer is closed for being slow", None),
         artemis="slow-consumer-policy slow-consumer-check-period slow-consumer-threshold-measurement-unit"),
    _row(Fixed("Kafka moves partitions between consumers by itself", None), artemis="redistribution-delay"),
    _row(Fixed("a consumer gets the messages of all producers", NO),
         qpid_cpp="no-local", broker_j="noLocal no-local"),
    _row(Fixed("a reader browses, a consumer acquires", (), "Call browser() or consumer(); or give non-destructive."),
         qpid_m4="accept-mode acquire-mode"),
    _row(Fixed("each browser has its own", (), "Give replay_period= to browser(), or default-replay-period here."),
         broker_j="x-qpid-replay-period"),
    _row(Fixed("a browser opened later gets what the topic still has", ("0",), "Declare the queue before, or earlier."),
         artemis="retroactive-message-count"),

    # ---- Messages
    _row(Fixed("it is a header of messages", (), "Give max-delay, and set the header in messages."),
         broker_j="x-qpid-not-valid-before"),
    _row(Fixed("it belongs to messages", (), "Set ttl= in messages; or give default-ttl, min-ttl or max-ttl."),
         qpid_cpp="qpid.ttl message.ttl"),
    _row(Fixed("it is a header of messages", (), "Name it in key-header or group-header, and have producers set it."),
         qpid_cpp="qpid.LVQ_key", qpid_m4="qpid.LVQ_key", artemis="_AMQ_LVQ_NAME HDR_LAST_VALUE_NAME JMSXGroupID",
         broker_j="qpid.LVQ_key JMSXGroupID"),
    _row(Fixed("Kafka numbers and dates all messages", None), artemis="enable-ingress-timestamp"),
    _row(Fixed("Kafka numbers and dates all messages", NO, "Read the position and the timestamp of a message."),
         qpid_cpp="qpid.queue_msg_sequence qpid.group_timestamp"),
    _row(Fixed("messages are not marked on their way"), qpid_cpp="qpid.trace.id qpid.trace.exclude"),

    # ---- Groups that are handed out otherwise
    _row(Fixed("a group stays with its consumer: until that is closed, or if it is shared, while any of it is in work",
               NO),
         artemis="group-rebalance default-group-rebalance group-rebalance-pause-dispatch "
                 "default-group-rebalance-pause-dispatch"),
    _row(Fixed("each group has a consumer of its own choice, and none shares one with others by its hash", ("-1",)),
         artemis="group-buckets default-group-buckets"),
    _row(Fixed("consumers do not mark the first message of a group"),
         artemis="group-first-key default-group-first-key"),
    _row(Fixed("there may be any number of groups", None),
         broker_j="maximumDistinctGroups queue.maximumDistinctGroups"),

    # ---- Order, limits, alerts and tuning of other kinds
    _row(Fixed("the highest priority is always first", ("0",)), qpid_cpp="qpid.fairshare x-qpid-fairshare"),
    _row(Fixed("there is no paging of whole queues, but consumers keep values beyond a limit on disk", NO,
               "Give overflow=disk with max-bytes or max-messages."),
         qpid_cpp="qpid.paging"),
    _row(Fixed("there is no paging of whole queues, but consumers keep values beyond a limit on disk", None),
         qpid_cpp="qpid.max_pages_loaded qpid.page_factor"),
    _row(Fixed("a queue has one limit, and Kafka minds the disk", ("-1",), "Give max-bytes or max-messages."),
         artemis="page-limit-bytes page-limit-messages max-size-bytes-reject-threshold"),
    _row(Fixed("a queue has one limit, and Kafka minds the disk", None),
         artemis="page-full-policy pageFullMessagePolicy disk-full-policy diskFullMessagePolicy"),
    _row(Fixed("no alert is sent", _OFF, "lvq stats says what waits; max-messages with overflow=none warns."),
         qpid_cpp="qpid.alert_count qpid.alert_size qpid.alert_count_up qpid.alert_size_up qpid.alert_count_down "
                  "qpid.alert_size_down x-qpid-maximum-message-count x-qpid-maximum-message-size",
         broker_j="alertThresholdMessageAge alertThresholdMessageSize alertThresholdQueueDepthBytes "
                  "alertThresholdQueueDepthMessages queue.alertThresholdMessageAge queue.alertThresholdMessageSize "
                  "queue.alertThresholdQueueDepthBytes queue.alertThresholdQueueDepthMessages qpid.alert_count "
                  "qpid.alert_size x-qpid-maximum-message-count x-qpid-maximum-message-size "
                  "x-qpid-maximum-message-age x-qpid-maximum-queue-depth"),
    _row(Fixed("no alert is sent", None),
         qpid_cpp="qpid.alert_repeat_gap x-qpid-minimum-alert-repeat-gap",
         broker_j="alertRepeatGap queue.alertRepeatGap qpid.alert_repeat_gap x-qpid-minimum-alert-repeat-gap"),
    _row(Fixed("Kafka stores messages in its own way", None),
         qpid_cpp="qpid.file_count qpid.file_size",
         artemis="page-size-bytes page-max-cache-size pageCacheMaxSize max-read-page-bytes max-read-page-messages "
                 "prefetch-page-bytes prefetch-page-messages id-cache-size initial-queue-buffer-size "
                 "message-counter-history-day-limit management-browse-page-size "
                 "management-message-attribute-size-limit enable-metrics",
         broker_j="qpid.queue.scavenge_count"),
)
# fmt: on


def _by_letters() -> dict[str, OptionName]:
    """Return the rows by folded name.

    Names that differ in nothing but case or separators share a row.
    """
    found: dict[str, OptionName] = {}
    for row in chain(*_TABLE):
        letters = folded(row.name)
        first = found.get(letters, row)
        assert first.meaning is row.meaning, f"{first.name} and {row.name}"
        said_by = tuple(system for system in SYSTEMS if system in (*first.systems, *row.systems))
        found[letters] = OptionName(first.name, said_by, row.meaning)
    return found


_BY_LETTERS = _by_letters()

OPTION_NAMES: tuple[OptionName, ...] = tuple(_BY_LETTERS.values())
"""The table."""


def option_named(name: object) -> OptionName | None:
    """Return the option of this name, in any case and with any separators.

    None if there is none.
    """
    return _BY_LETTERS.get(folded(str(name)))


def spellings(row: OptionName) -> list[OptionName]:
    """Return the options that set the same, or are fixed for the same reason.

    This one is among them.
    """
    meaning = row.meaning
    if isinstance(meaning, Fixed):
        return [each for each in OPTION_NAMES if each.meaning is meaning]
    return [each for each in OPTION_NAMES if isinstance(each.meaning, Mapped) and each.meaning.sets == meaning.sets]


def explanation(row: OptionName) -> str:
    """Return what an option does here, in sentences."""
    meaning = row.meaning
    if isinstance(meaning, Fixed):
        return meaning.described
    own, does = _own_name(meaning.sets), FIELDS[meaning.sets]
    said = f"{does[0].upper()}{does[1:]}" if own in ("", row.name) else f"As {own}, {does}"
    said += f": {meaning.values}."
    if meaning.brings:
        said += f" It also says {_asked(meaning.brings)}."
    if implied := _asked({field: value for field, value in meaning.implies.items() if value is not None}):
        said += f" Alone, it also says {implied}."
    return f"{said} It needs {meaning.needs}." if meaning.needs else said


def _asked(fields: Mapping[str, object]) -> str:
    return " and ".join(f"{_own_name(field)}={value}" for field, value in fields.items())


def _own_name(sets: str) -> str:
    """Return our option that sets a field; empty if there is none."""
    rows = (row for row in OPTION_NAMES if isinstance(row.meaning, Mapped) and row.meaning.sets == sets)
    return next((row.name for row in rows if "lvq" in row.systems), "")


def unknown_option(name: object) -> ConfigError:
    """Return the error for a name that is no option's; it says which one may be meant."""
    said = str(name)
    near = nearest(said, (row.name for row in OPTION_NAMES))
    meant = f"Did you mean {near[0]}? " if near else ""
    return ConfigError(
        f"{brief(said)} is not a queue option.", options=[said], hint=f"{meant}`lvq options` lists all of them."
    )
