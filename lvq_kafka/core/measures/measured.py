"""The tables of all metrics: of a reader, a consumer, a producer, a server and a queue.

The facts of each are what its `read` functions find attributes of: `ReaderFacts`, `ProducerFacts`, a consumer's
`stats`, `ServerFacts`, and `QueueFacts`, in which the `stats` of a queue are.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple, get_args

from lvq_kafka.core.latest.catch_up import ReaderStatus, State
from lvq_kafka.core.latest.fold import ReaderStats
from lvq_kafka.core.measures.conventions import GROUP, OPERATION_NAME, SYSTEM, TOPIC
from lvq_kafka.core.measures.instruments import Instrument, Readings, parts, single

__all__ = [
    "CONSUMER",
    "PRODUCER",
    "QUEUE",
    "QUEUE_NAME",
    "READER",
    "SERVER",
    "SOURCES",
    "MetricSource",
    "ProducerFacts",
    "QueueFacts",
    "ReaderFacts",
    "ServerFacts",
]

QUEUE_NAME = "lvq.queue"
"""The attribute with the name of a queue."""

_STATES = tuple(state for state in get_args(State) if state != "closed")


class ReaderFacts(NamedTuple):
    """The facts of a reader."""

    status: ReaderStatus
    stats: ReaderStats


class ProducerFacts(NamedTuple):
    """The facts of a producer."""

    sent: int
    """Messages handed over since they are counted."""
    undecided: int
    """Messages that are not acknowledged yet."""
    failures: int
    """Messages that were not acknowledged."""


class ServerFacts(NamedTuple):
    """The facts of a server."""

    streams: int
    """Answers that wait or stream."""


class QueueFacts(NamedTuple):
    """The facts of a queue, measured from outside."""

    stats: Any
    """The `QueueStats` of a queue; None if they are unknown."""
    damage: Mapping[str, int]
    """The partitions with each kind of damage; empty if that is unknown."""
    dead_letters: int | None
    """The offsets in the topic of its dead letters; None if it has none, or that is unknown."""
    up: bool
    """Whether the last attempt to measure it succeeded."""
    age: float
    """Seconds since it was measured, or since the first attempt."""
    took: float
    """Seconds that the last attempt took."""
    now: float
    """The time of the measurement, in seconds since the epoch."""


@dataclass(frozen=True, slots=True)
class MetricSource:
    """A kind of thing that is measured: the attributes of each, and the metrics."""

    attributes: tuple[str, ...]
    instruments: tuple[Instrument, ...]


# -------------------------------------------------------------------- readers


def _states(facts: ReaderFacts) -> Readings:
    return {(state,): int(facts.status.state == state) for state in _STATES}


def _values(facts: ReaderFacts) -> Readings:
    stats = facts.stats
    return {(): stats.added - stats.replaced - stats.deleted - stats.expired - stats.returned}


def _of_checks(path: str) -> Any:
    """Return a function that reads what is unknown until the end of the log was seen."""
    read = single(path)
    return lambda facts: {own: number if facts.status.lag_by_partition else None for own, number in read(facts).items()}


READER = MetricSource(
    (QUEUE_NAME, TOPIC),
    (
        Instrument("lvq.reader.count", "sum", "{reader}", "Open readers, by state.", _states, ("lvq.state",)),
        Instrument(
            "lvq.reader.lag",
            "greatest",
            "{offset}",
            "Offsets to the end of the log that the slowest reader has not read.",
            _of_checks("status.lag"),
        ),
        Instrument(
            "lvq.reader.silence",
            "greatest",
            "s",
            "Time since the ends of all partitions were last known.",
            _of_checks("status.silence"),
        ),
        Instrument(
            "lvq.reader.blocked",
            "greatest",
            "{partition}",
            "Partitions in which an open transaction hides records.",
            _of_checks("status.blocked_by"),
        ),
        Instrument(
            "lvq.reader.clock.behind",
            "greatest",
            "s",
            "Time by which this machine's clock is behind the newest append time.",
            single("status.clock_behind"),
        ),
        Instrument("lvq.reader.values", "sum", "{key}", "Keys that have a value.", _values),
        Instrument("lvq.reader.read", "counter", "{message}", "Values read.", single("stats.added")),
        Instrument(
            "lvq.reader.removed",
            "counter",
            "{message}",
            "Values that no longer count, by reason.",
            parts(replaced="stats.replaced", deleted="stats.deleted", expired="stats.expired"),
            ("lvq.reason",),
        ),
        Instrument("lvq.reader.scheduled", "sum", "{message}", "Messages that are not due.", single("stats.scheduled")),
        Instrument("lvq.reader.split", "greatest", "{key}", "Keys in more than one partition.", single("stats.split")),
        Instrument(
            "lvq.reader.irregular",
            "counter",
            "{message}",
            "Records that are not as they should be, by what is wrong.",
            parts(mismatched="stats.mismatched", malformed="stats.malformed", unkeyed="stats.unkeyed"),
            ("lvq.reason",),
        ),
    ),
)

# -------------------------------------------------------------------- consumers

CONSUMER = MetricSource(
    (QUEUE_NAME, TOPIC, GROUP),
    (
        Instrument(
            "messaging.client.consumed.messages",
            "counter",
            "{message}",
            "Messages that were delivered to the application.",
            single("delivered"),
            constant={SYSTEM: "kafka", OPERATION_NAME: "acquire"},
        ),
        Instrument(
            "lvq.consumer.count",
            "sum",
            "{consumer}",
            "Open consumers, by role: those that have partitions, and those that stand by.",
            lambda stats: {("active",): int(bool(stats.partitions)), ("standby",): int(stats.standby)},
            ("lvq.role",),
        ),
        Instrument(
            "lvq.consumer.trouble",
            "sum",
            "{consumer}",
            "Consumers that report a trouble: `stats.trouble` and the log say which.",
            single("trouble"),
        ),
        Instrument(
            "lvq.consumer.suspended",
            "sum",
            "{consumer}",
            "Consumers that hand out nothing until the group accepts a commit.",
            single("suspended"),
        ),
        Instrument(
            "lvq.consumer.catching_up",
            "sum",
            "{partition}",
            "Partitions that are read to their end before anything is handed out from them.",
            single("catching_up"),
        ),
        Instrument(
            "lvq.consumer.available", "sum", "{message}", "Messages that wait to be acquired.", single("available")
        ),
        Instrument(
            "lvq.consumer.gated",
            "sum",
            "{message}",
            "Of these, messages that wait for room in the commit text.",
            single("gated"),
        ),
        Instrument("lvq.consumer.in_work", "sum", "{message}", "Messages that are held.", single("in_work")),
        Instrument("lvq.consumer.scheduled", "sum", "{message}", "Messages that are not due.", single("scheduled")),
        Instrument(
            "lvq.consumer.groups",
            "sum",
            "{group}",
            "Message groups: those of which messages wait, and those that are one session's.",
            parts(waiting="groups", pinned="pinned"),
            ("lvq.state",),
        ),
        Instrument("lvq.consumer.sessions", "sum", "{session}", "Open sessions.", single("sessions")),
        Instrument("lvq.consumer.read", "counter", "{message}", "Values read.", single("read")),
        Instrument(
            "lvq.consumer.removed",
            "counter",
            "{message}",
            "Waiting messages that nobody gets, by reason.",
            parts(replaced="replaced", deleted="deleted", expired="expired", evicted="evicted"),
            ("lvq.reason",),
        ),
        Instrument(
            "lvq.consumer.settled",
            "counter",
            "{message}",
            "Deliveries that have ended, by outcome.",
            parts(acked="acked", released="released", rejected="rejected", timed_out="timed_out", lost="lost"),
            ("lvq.outcome",),
        ),
        Instrument(
            "lvq.consumer.redelivered",
            "counter",
            "{message}",
            "Deliveries of messages that may have been delivered before.",
            single("redelivered"),
        ),
        Instrument(
            "lvq.consumer.out_of_order",
            "counter",
            "{message}",
            "Messages handed out although one of better rank waited for room in the commit text.",
            single("out_of_order"),
        ),
        Instrument(
            "lvq.consumer.irregular",
            "counter",
            "{message}",
            "Records that are not as they should be, by what is wrong.",
            parts(mismatched="mismatched", malformed="malformed", unjudged="unjudged", ignored="ignored"),
            ("lvq.reason",),
        ),
        Instrument("lvq.consumer.displaced", "counter", "{key}", "Keys whose places had no room.", single("displaced")),
        Instrument(
            "lvq.consumer.paged.messages", "sum", "{message}", "Waiting messages with values on disk.", single("paged")
        ),
        Instrument("lvq.consumer.paged.size", "sum", "By", "The size of these values.", single("paged_bytes")),
        Instrument(
            "lvq.consumer.not_paged",
            "counter",
            "{message}",
            "Values that stayed in memory, since the disk refused them.",
            single("not_paged"),
        ),
        Instrument("lvq.consumer.commits", "counter", "{commit}", "Commits sent.", single("commits")),
        Instrument(
            "lvq.consumer.commit_text.length",
            "greatest",
            "{character}",
            "Characters of the longest commit text.",
            single("commit_text"),
        ),
        Instrument(
            "lvq.consumer.commit_text.limit",
            "greatest",
            "{character}",
            "Characters of a commit text that the broker takes.",
            single("text_limit"),
        ),
        Instrument(
            "lvq.consumer.omitted",
            "sum",
            "{run}",
            "Runs of messages that are done and have no room in the commit text.",
            single("omitted"),
        ),
        Instrument(
            "lvq.consumer.clock.behind",
            "greatest",
            "s",
            "Time by which this machine's clock is behind the newest message.",
            single("clock_behind"),
        ),
    ),
)

# -------------------------------------------------------------------- producers and servers

PRODUCER = MetricSource(
    (TOPIC,),
    (
        Instrument(
            "messaging.client.sent.messages",
            "counter",
            "{message}",
            "Messages handed over to be sent.",
            single("sent"),
            constant={SYSTEM: "kafka", OPERATION_NAME: "send"},
        ),
        Instrument(
            "lvq.producer.undecided", "sum", "{message}", "Messages that are not acknowledged yet.", single("undecided")
        ),
        Instrument(
            "lvq.producer.failures", "counter", "{message}", "Messages that were not acknowledged.", single("failures")
        ),
    ),
)

SERVER = MetricSource(
    (),
    (Instrument("lvq.serve.streams", "sum", "{stream}", "Answers that wait or stream.", single("streams")),),
)

# -------------------------------------------------------------------- queues, from outside


def _age(facts: QueueFacts, since: float | None) -> float | None:
    return None if since is None else max(0.0, facts.now - since)


def _depths(facts: QueueFacts) -> Readings:
    if facts.stats is None:
        return {}
    if not facts.stats.priorities:
        return {("",): facts.stats.depth}
    return {(str(priority),): waiting.depth for priority, waiting in facts.stats.priorities.items()}


def _ages(facts: QueueFacts) -> Readings:
    if facts.stats is None or facts.stats.lag is None:  # nothing waits for anybody in a queue that is not consumed
        return {}
    if not facts.stats.priorities:
        return {("",): _age(facts, facts.stats.oldest)}
    return {(str(priority),): _age(facts, waiting.oldest) for priority, waiting in facts.stats.priorities.items()}


def _of_stats(path: str) -> Any:
    read = single(path)
    return lambda facts: {} if facts.stats is None else read(facts)


def _limit(name: str) -> Any:
    read = single(f"stats.limits.{name}")
    return lambda facts: {} if facts.stats is None or facts.stats.limits is None else read(facts)


def _blocked(facts: QueueFacts) -> Readings:
    return {} if facts.stats is None else {(): sum(one.stable < one.end for one in facts.stats.partitions)}


def _group_age(facts: QueueFacts) -> Readings:
    return {} if facts.stats is None else {(): _age(facts, facts.stats.oldest_in_group)}


def _damage(facts: QueueFacts) -> Readings:
    return {(kind,): number for kind, number in facts.damage.items()}


QUEUE = MetricSource(
    (QUEUE_NAME, TOPIC),
    (
        Instrument(
            "lvq.queue.up", "greatest", "{queue}", "1 if the last attempt to measure it succeeded.", single("up")
        ),
        Instrument("lvq.queue.measured.age", "greatest", "s", "Time since the other numbers were true.", single("age")),
        Instrument("lvq.queue.measured.took", "greatest", "s", "Time that measuring took.", single("took")),
        Instrument(
            "lvq.queue.depth",
            "sum",
            "{message}",
            "Messages that are not done, including those in work; by priority, where the queue has priorities.",
            _depths,
            ("lvq.priority",),
        ),
        Instrument(
            "lvq.queue.oldest.age",
            "greatest",
            "s",
            "Age of the oldest of these messages; by priority, where the queue has priorities.",
            _ages,
            ("lvq.priority",),
        ),
        Instrument(
            "lvq.queue.attempted",
            "sum",
            "{message}",
            "Of these, messages that may have been delivered before: in work, or returned.",
            _of_stats("stats.attempted"),
        ),
        Instrument(
            "lvq.queue.redelivered",
            "sum",
            "{message}",
            "Deliveries of these messages beyond the first; 0 without durable counts.",
            _of_stats("stats.redelivered"),
        ),
        Instrument(
            "lvq.queue.scheduled", "sum", "{message}", "Messages that are not due.", _of_stats("stats.tally.scheduled")
        ),
        Instrument(
            "lvq.queue.group.count",
            "sum",
            "{group}",
            "Message groups of which messages wait.",
            _of_stats("stats.groups"),
        ),
        Instrument(
            "lvq.queue.group.oldest.age",
            "greatest",
            "s",
            "Age of the oldest message that waits in a group.",
            _group_age,
        ),
        Instrument(
            "lvq.queue.lag",
            "sum",
            "{offset}",
            "Offsets from the lowest message that is not done to the end of the log; gaps and replaced values count.",
            _of_stats("stats.lag"),
        ),
        Instrument(
            "lvq.queue.consumers", "sum", "{consumer}", "Active consumers of all processes.", _of_stats("stats.members")
        ),
        Instrument(
            "lvq.queue.standby",
            "sum",
            "{consumer}",
            "Of these, consumers without a partition.",
            _of_stats("stats.standby"),
        ),
        Instrument(
            "lvq.queue.blocked",
            "sum",
            "{partition}",
            "Partitions in which an open transaction hides records.",
            _blocked,
        ),
        Instrument(
            "lvq.queue.pending",
            "greatest",
            "{queue}",
            "1 while an open transaction holds acks of the queue.",
            _of_stats("stats.pending"),
        ),
        Instrument(
            "lvq.queue.crowded",
            "sum",
            "{partition}",
            "Partitions whose commit text is nearly full.",
            _of_stats("stats.crowded"),
        ),
        Instrument(
            "lvq.queue.size",
            "sum",
            "By",
            "The size of the messages that are not done, if the queue has limits.",
            _of_stats("stats.bytes"),
        ),
        Instrument(
            "lvq.queue.limit.messages",
            "greatest",
            "{message}",
            "The most messages that it may hold.",
            _limit("messages"),
        ),
        Instrument("lvq.queue.limit.size", "greatest", "By", "The most bytes that it may hold.", _limit("bytes")),
        Instrument(
            "lvq.queue.dead_letters",
            "greatest",
            "{offset}",
            "Offsets in the topic to which its consumers write what they reject; shared by queues that name the same.",
            single("dead_letters"),
        ),
        Instrument(
            "lvq.queue.damage",
            "sum",
            "{partition}",
            "Partitions whose record of what was consumed is damaged, by kind.",
            _damage,
            ("lvq.damage",),
        ),
    ),
)

SOURCES: Mapping[str, MetricSource] = {
    "reader": READER,
    "consumer": CONSUMER,
    "producer": PRODUCER,
    "server": SERVER,
    "queue": QUEUE,
}
"""All that is measured."""
