"""The state of a queue: definition, topic, contents and consumption."""

from __future__ import annotations

import math
import time
from collections.abc import Iterator, Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.commands.queues import finding_row, grouped_by, in_words, order_in_words
from lvq_kafka.cli.commands.repair import damage_row
from lvq_kafka.cli.common_options import command, queue_argument, timeout_option, typed
from lvq_kafka.cli.exit_codes import WRONG_QUEUE, Complaint
from lvq_kafka.cli.output import count
from lvq_kafka.core.consumer.obstacles import FULL_TEXT_REMEDY, STANDBY_REMEDY, standby_report
from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.queue.topic_settings import Finding, TopicNeeds, judge, judge_definition
from lvq_kafka.core.text.quoting import brief, listed, printable
from lvq_kafka.errors import CatchUpTimeout, Unauthorized
from lvq_kafka.json_lines import blocked_rows, shown
from lvq_kafka.reading.entries import Entry

if TYPE_CHECKING:
    from rich.console import RenderableType

    from lvq_kafka.cli.invocation import Invocation, QueueChoice
    from lvq_kafka.cluster import TopicDescription
    from lvq_kafka.core.facts import Shortfall
    from lvq_kafka.core.queue.limits import Limits, OverflowPolicy
    from lvq_kafka.declared.damage import Damage
    from lvq_kafka.managing.queue_stats import PartitionStats, QueueStats
    from lvq_kafka.queue import LastValueQueue
    from lvq_kafka.reading.browser import Browser
    from lvq_kafka.reading.view import View

__all__ = ["stats"]


_REMEDIES: dict[OverflowPolicy, str] = {
    "none": "Its policy is none, so nothing is done about it.",
    "ring": "Its consumers evict the lowest messages that wait: start one. Messages in work stay.",
    "reject": "Producers of this library refuse new keys until there is room; others do not.",
    "block": "Producers of this library wait until there is room; others do not.",
}


@dataclass(frozen=True, slots=True)
class PartitionReport:
    """One partition: the bounds of its log and the queue's messages in it."""

    partition: int
    start: int
    end: int
    stable: int
    consumed: int | None
    """The offset below which all is done; None if the queue is not consumed, or it is unknown."""
    values: int
    waiting: int | None
    """Messages that no consumer is done with."""
    attempted: int | None
    """The number of these that may have been handed out before: in flight, or returned."""
    oldest: float | None
    """The time at which the oldest of them arrived."""
    lag: int | None
    """Offsets between ``consumed`` and ``end``."""


@dataclass(slots=True)
class QueueReport:
    """Everything known about a queue."""

    topic: TopicDescription
    state: str = ""
    values: int = 0
    partitions: list[PartitionReport] = field(default_factory=list)
    split_keys: list[str] = field(default_factory=list)
    homes: bool = True
    """Whether keys have a home partition (R14)."""
    mismatched: int = 0
    unkeyed: int = 0
    expired: int = 0
    scheduled: int = 0
    malformed: int = 0
    ignored: int = 0
    blocked: list[Shortfall] = field(default_factory=list)
    bytes: int | None = None
    """The size of what the queue holds; None if it has no limits, or that is unknown."""
    stats: QueueStats | None = None
    """None for a queue that is not consumed, and if its commits are damaged."""
    damage: tuple[Damage, ...] = ()
    findings: list[Finding] = field(default_factory=list)
    unchecked: list[str] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)


@command("stats", examples=["lvq stats prices", "lvq stats prices | jq '.partitions[].waiting'"])
@queue_argument
@timeout_option(60.0, "Time limit for reading the queue.")
def stats(invocation: Invocation, choice: QueueChoice, *, timeout: float) -> None:
    """Show what a queue holds and whether it is healthy.

    This covers its definition, its values and what is left to consume, by partition, and a check of its topic and its
    commits. Exits with 4 if something breaks the queue's guarantees.
    """
    queue = invocation.open(choice)
    group = None if choice.bare or queue.definition.non_destructive else queue.definition.group
    with invocation.out.waiting(lambda: f"reading {queue.name}"):
        found = _examine(queue, group, timeout)
    if invocation.out.person:
        partitions, left_out = _partitions(found.partitions, invocation.out.console.width, consumable=group is not None)
        invocation.out.say(_picture(queue, group, found, partitions))
        invocation.out.note_left_out(left_out)
    else:
        invocation.out.row(_row(queue, group, found))
    if found.problems:
        raise Complaint(
            f"{queue.name} has {count(len(found.problems), 'problem')}: {' '.join(found.problems)}", WRONG_QUEUE
        )


def _examine(queue: LastValueQueue[Any], group: str | None, timeout: float) -> QueueReport:
    from lvq_kafka.declared.registry import Registry

    cluster, topic = queue.cluster, queue.topic
    found = QueueReport(cluster.topics.describe(topic), homes=QueueRules.of(queue.definition).placement == "key")
    try:
        needs = TopicNeeds.of(queue.definition, Registry(cluster).all())
    except Unauthorized:  # a bare topic needs no registry
        needs = TopicNeeds.of(queue.definition, ())
    try:
        config = cluster.topics.config(topic)
    except Unauthorized:
        found.unchecked.append(f"the settings of {topic}: this user may not read them")
    else:
        found.findings = judge(config, replication_factor=found.topic.replication_factor, needs=needs)
        found.problems = [f"{finding.fact}." for finding in found.findings if finding.severity == "error"]
    found.findings += judge_definition(queue.definition, needs, lambda: found.topic.partitions)
    if group is not None:
        found.damage = queue.repair(dry_run=True).found
        found.problems += [str(damage.error) for damage in found.damage]
        if not found.damage:
            found.stats = queue.stats(timeout=timeout)
            _judge_depth(found, found.stats)
    elif queue.definition.limits is not None:
        _judge_depth(found, queue.stats(timeout=timeout))
    _count(queue, found, timeout)
    return found


def _judge_depth(found: QueueReport, stats: QueueStats) -> None:
    found.bytes = stats.bytes
    if stats.breach and stats.limits is not None:
        found.problems.append(f"It holds more than its limits allow: {stats.breach}. {_REMEDIES[stats.limits.policy]}")


def _count(queue: LastValueQueue[Any], found: QueueReport, timeout: float) -> None:
    """Read the queue and count its values, consumed or not."""
    cluster, topic = queue.cluster, queue.topic
    values = dict.fromkeys(range(found.topic.partitions), 0)
    reader = queue.view() if queue.definition.conflate else queue.browser(hide_consumed=False, default_filters=False)
    try:
        for partition in _places(reader.start(), time.monotonic() + timeout):
            values[partition] = values.get(partition, 0) + 1
        found.state, found.blocked, found.split_keys = reader.state, reader.blocked_by, reader.split_keys
        found.mismatched, found.unkeyed, found.ignored = reader.stats.mismatched, reader.stats.unkeyed, reader.ignored
        found.expired, found.scheduled = reader.stats.expired, reader.stats.scheduled
        found.malformed = reader.stats.malformed
    finally:
        reader.close()
    if found.state not in ("caught-up", "blocked"):
        found.problems.append(f"Reading it did not finish within {timeout:g} s ({found.state}).")
    starts, ends, stable = (
        cluster.logs.start_offsets(topic),
        cluster.logs.end_offsets(topic),
        cluster.logs.end_offsets(topic, stable=True),
    )
    found.values = sum(values.values())
    counted = {} if found.stats is None else {one.partition: one for one in found.stats.partitions}
    found.partitions = [
        _partition(partition, starts[partition], stable.get(partition, end), end, values.get(partition, 0), counted)
        for partition, end in sorted(ends.items())
    ]


def _places(reader: View[Any] | Browser[Any], deadline: float) -> Iterator[int]:
    """Yield the partition of each value in the topic, as far as it is read by the deadline."""
    from lvq_kafka.reading.view import View

    if isinstance(reader, View):
        while reader.state in ("catching-up", "stale", "disconnected") and time.monotonic() < deadline:
            with suppress(CatchUpTimeout):
                reader.wait_caught_up(0.2)
        yield from (entry.position.partition for entry in reader.entries())
        return
    while (left := deadline - time.monotonic()) > 0:
        event = reader.poll(left)
        if not isinstance(event, Entry):  # it is the end of the dump, or time is up
            return
        yield event.position.partition


def _partition(
    partition: int, start: int, stable: int, end: int, values: int, counted: Mapping[int, PartitionStats]
) -> PartitionReport:
    stats = counted.get(partition)
    if stats is None:
        return PartitionReport(partition, start, end, stable, None, values, None, None, None, None)
    return PartitionReport(
        partition, start, end, stable, stats.base, values, stats.depth, stats.attempted, stats.oldest, stats.lag
    )


def _row(queue: LastValueQueue[Any], group: str | None, found: QueueReport) -> dict[str, Any]:
    stats = found.stats
    return {
        **queue.definition.as_row(),
        "topic_id": found.topic.id,
        "replication_factor": found.topic.replication_factor,
        "group": group,
        "state": found.state,
        "values": found.values,
        "bytes": found.bytes,
        "waiting": None if stats is None else stats.depth,
        "attempted": None if stats is None else stats.attempted,
        "oldest": None if stats is None else stats.oldest,
        "waiting_by_priority": {} if stats is None else {said: asdict(one) for said, one in stats.priorities.items()},
        "waiting_groups": None if stats is None else stats.groups,
        "oldest_in_group": None if stats is None else stats.oldest_in_group,
        "lag": None if stats is None else stats.lag,
        "tally": None if stats is None else asdict(stats.tally),
        "redelivered": None if stats is None else stats.redelivered,
        "consumers": None if stats is None else stats.members,
        "retention": None if stats is None else _finite(stats.retention),
        "at_risk": "" if stats is None else stats.at_risk,
        "standby": None if stats is None else stats.standby,
        "crowded": [] if stats is None else [one.partition for one in stats.crowded],
        "partitions": [asdict(partition) for partition in found.partitions],
        "split_keys": [shown(encode_key(key)) for key in found.split_keys],
        "mismatched": found.mismatched,
        "unkeyed": found.unkeyed,
        "expired": found.expired,
        "scheduled": found.scheduled,
        "malformed": found.malformed,
        "ignored": found.ignored,
        "blocked": blocked_rows(found.blocked),
        "damage": [damage_row(damage) for damage in found.damage],
        "findings": [finding_row(finding) for finding in found.findings],
        "unchecked": found.unchecked,
        "problems": found.problems,
    }


def _finite(seconds: float | None) -> float | None:
    return None if seconds is None or math.isinf(seconds) else seconds


def _picture(
    queue: LastValueQueue[Any], group: str | None, found: QueueReport, partitions: RenderableType
) -> RenderableType:
    from rich.console import Group
    from rich.text import Text

    definition = queue.definition
    key = "the record key" if definition.key_header is None else f"the header {brief(definition.key_header)}"
    kind = f"key is {key}; order {order_in_words(definition)}; without key: {definition.keyless}"
    if not definition.conflate:
        order = "" if definition.order == "tail" else f"; order {order_in_words(definition)}"
        kind = f"a standard queue: no message replaces another{order}"
    holds = count(found.values, "value" if definition.conflate else "message")
    if found.expired:
        holds += f" ({found.expired:,} in the log have expired)"
    if found.scheduled:
        holds += f", {found.scheduled:,} scheduled"
    if found.stats is not None:
        holds += f", {found.stats.depth:,} left to consume"
    told = Text.assemble(
        (definition.name, "bold cyan"),
        ("  holds ", ""),
        (holds, "bold"),
        "\n",
        (kind, "dim"),
        ("" if definition.ttl is None else f"; TTL: {in_words(definition.ttl)}", "dim"),
        ("" if definition.groups is None else f"; groups: {grouped_by(definition.groups)}", "dim"),
        ("" if definition.max_delay is None else f"; scheduled up to {definition.max_delay:,g} s ahead", "dim"),
        ("" if definition.limits is None else f"; {_limits(definition.limits, found)}", "dim"),
        "\n",
        (f"topic {found.topic.name}, id {found.topic.id}, {count(found.topic.replication_factor, 'replica')}; ", "dim"),
        (f"group {group}" if group else "not consumed", "dim"),
        "\n",
    )
    if found.stats is not None:
        told.append(f"{_waiting(found.stats)}\n", "dim")
        if found.stats.tally.added:
            told.append(f"{_tally(found.stats)}\n", "dim")
    remarks = Text()
    for mark, style, texts in (("✗", "bold red", found.problems), ("!", "bold yellow", _remarks(found))):
        for text in texts:
            remarks.append(f"{mark} ", style).append(f"{printable(text)}\n")
    if not remarks:
        remarks = Text.assemble(
            ("✓ ", "bold green"),
            f"its topic's settings suit a {'last value' if definition.conflate else 'standard'} queue",
        )
    remarks.rstrip()
    return Group(told, *_priorities(found.stats), partitions, remarks)


def _limits(limits: Limits, found: QueueReport) -> str:
    size = "" if found.bytes is None else f", has {found.bytes:,} bytes"
    return f"limits: {limits.described} ({limits.policy}){size}"


def _waiting(stats: QueueStats) -> str:
    """Describe the state of consumption."""
    from lvq_kafka.cli.table import clock

    if stats.members is None:
        told = ["active consumers cannot be seen"]
    else:
        told = [f"{count(stats.members, 'active consumer')}" if stats.members else "no active consumer"]
    if stats.oldest is not None:
        told.append(f"the oldest message is from {clock(stats.oldest)}")
    if stats.groups is not None:
        told.append(f"{count(stats.groups, 'message group')} to consume from")
    if stats.oldest_in_group is not None:
        told.append(f"the oldest message of a group is from {clock(stats.oldest_in_group)}")
    if stats.attempted:
        told.append(f"{stats.attempted:,} may have been handed out before: in work or returned")
    if stats.redelivered:
        told.append(f"redelivered {stats.redelivered:,} times")
    return "; ".join(told)


def _priorities(stats: QueueStats | None) -> list[RenderableType]:
    """Return a table of the priorities of which messages are left to consume."""
    from rich.text import Text

    from lvq_kafka.cli.table import clock, fitted_table

    rows = [
        {"PRIORITY": f"{priority}", "TO CONSUME": f"{one.depth:,}", "OLDEST": clock(one.oldest)}
        for priority, one in ({} if stats is None else stats.priorities).items()
        if one.oldest is not None
    ]
    return [fitted_table(_NARROWEST, rows, gives_way=(), numbers=True)[0], Text()] if rows else []


def _tally(stats: QueueStats) -> str:
    """Describe what became of the values past the offset below which all is done."""
    tally = stats.tally
    told = [("replaced", tally.replaced), ("deleted", tally.deleted), ("consumed", tally.consumed)]
    became = [f"{number:,} {'was' if number == 1 else 'were'} {what}" for what, number in told if number]
    if tally.expired:
        became.append(f"{tally.expired:,} {'has' if tally.expired == 1 else 'have'} expired")
    if tally.scheduled:
        became.append(f"{tally.scheduled:,} {'is' if tally.scheduled == 1 else 'are'} scheduled")
    became.append(f"{stats.depth:,} {'is' if stats.depth == 1 else 'are'} left to consume")
    return f"of the newest {count(tally.added, 'value')} {', '.join(became)}"


def _remarks(found: QueueReport) -> list[str]:
    spell = typed(click.get_current_context())
    told = [finding.worded(spell).rstrip(".") for finding in found.findings if finding.severity == "warning"]
    told += [f"some records are not visible: {shortfall}" for shortfall in found.blocked]
    told += [f"not checked: {what}" for what in found.unchecked]
    if found.stats is not None and found.stats.pending:
        told.append("an open transaction is consuming: messages that it settles still count as left to consume")
    if found.stats is not None:
        if found.stats.at_risk:
            told.append(f"{found.stats.at_risk}. lvq keep-alive {found.stats.queue} keeps it as if one had just left")
        told += [_crowded(one, found.stats.text_limit) for one in found.stats.crowded]
        if found.stats.members is not None and found.stats.standby:
            told.append(f"{standby_report(found.stats.members, len(found.partitions))}. {STANDBY_REMEDY}")
    if found.split_keys:
        told.append(
            f"{count(len(found.split_keys), 'key')} in several partitions ({listed(found.split_keys)}): "
            + ("writers disagree on the home partition" if found.homes else "their group has changed")
        )
    if found.mismatched:
        told.append(
            f"{count(found.mismatched, 'record')} whose key header differs from the record key or cannot be read"
        )
    if found.malformed:
        told.append(
            f"{count(found.malformed, 'value')} whose TTL is 0, or whose TTL or time cannot be read, "
            "which count as having none"
        )
    if found.ignored:
        told.append(f"{count(found.ignored, 'delete')}, which mean nothing in a standard queue")
    if found.unkeyed:
        told.append(f"{count(found.unkeyed, 'record')} without a record key, which are ignored")
    return told


def _crowded(one: PartitionStats, limit: int) -> str:
    return (
        f"the commit text of partition {one.partition} is full ({one.text:,} of {limit:,} characters): until lower "
        f"messages are settled, acks are not stored, and their messages come again after a crash. {one.attempted:,} "
        f"that may have been handed out before are not settled. {FULL_TEXT_REMEDY}"
    )


_NARROWEST = 40  # columns, in which this table fits
_GIVES_WAY = ("START", "LAG", "END", "CONSUMED", "VALUES")
_LAG = "LAG counts offsets from CONSUMED to END, including replaced values; TO CONSUME counts messages.\n"


def _partitions(partitions: list[PartitionReport], width: int, *, consumable: bool) -> tuple[RenderableType, list[str]]:
    """Return the partitions as a table, and the columns that did not fit."""
    from rich.console import Group
    from rich.text import Text

    from lvq_kafka.cli.table import fitted_table

    rows = [_cells(one, consumable=consumable) for one in partitions]
    table, left_out = fitted_table(width, rows, gives_way=[one for one in _GIVES_WAY if one in rows[0]], numbers=True)
    explained = consumable and "LAG" not in left_out
    return Group(table, Text(_LAG if explained else "", "dim")), left_out


def _cells(one: PartitionReport, *, consumable: bool) -> dict[str, str]:
    """Return a partition as a row."""
    cells = {
        "PARTITION": f"{one.partition}",
        "START": f"{one.start:,}",
        "END": f"{one.end:,}",
        "VALUES": f"{one.values:,}",
    }
    if consumable:
        for head, number in (("CONSUMED", one.consumed), ("TO CONSUME", one.waiting), ("LAG", one.lag)):
            cells[head] = "?" if number is None else f"{number:,}"
    return cells
