"""A run: fill and consume a queue on its own broker while chaos rages, then judge it."""

from __future__ import annotations

import random
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.paging import LEAST_PAGED
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.testing.compaction import FORCED_COMPACTION
from tests.three_nodes import three_nodes
from tests.torture import contents
from tests.torture.chaos import CARDS, Chaos, Say
from tests.torture.feed import Feed
from tests.torture.habits import MAX_DELIVERIES, Habits, in_words
from tests.torture.history import Life
from tests.torture.journal import Kind, read_journal
from tests.torture.judge import Verdict, judge
from tests.torture.members import Members
from tests.torture.observers import Observers
from tests.torture.outages import Outage, of_one_node, of_three_nodes
from tests.torture.tape import Rule
from tests.torture.worker import QUEUE, Orders

__all__ = ["Ordeal", "Protocol", "Report", "undergo"]

Protocol = Literal["classic", "consumer"]

_SESSION = 6.0  # seconds; short, to have more events
_LOCK_TIMEOUT = 4.0
_TRANSACTION_TIMEOUT = 30.0  # longer than a restart of the only broker
_DELIVERY = 8.0  # for producers and transactions on three nodes, where outages are longer than any timeout
_PARTITIONS = 6
_JOIN = 60.0  # seconds until all consumers have started
_CALM = 180.0  # seconds until everything is consumed after the chaos
_WRITING = 5.0  # seconds for the processes to write their stacks
_WORDS = 6  # lines of each process's log that explain why it was not
_END = 60.0  # seconds until a process has ended after SIGTERM
_INPUT, _OUTPUT, _DEAD, _EXPIRED = "torture", "torture-output", "torture-dead", "torture-expired"
_PLAIN = QueueDefinition(name=QUEUE, topic=_INPUT, key_header=None)
_EXPIRING = replace(_PLAIN, ttl=Ttl(default=20.0), expiry_topic=_EXPIRED)
_SCHEDULED = replace(_EXPIRING, max_delay=4.0)
_ON_DISK = Limits(policy="disk", messages=_PARTITIONS)  # one of each partition in memory
_RING = Limits(policy="ring", messages=20 * _PARTITIONS)  # less than a consumer may have in work
_BLOCK = Limits(policy="block", messages=240)
_GROUP = _PLAIN.group
_MEMORY = 400 << 20  # bytes; a working process needs less than a third

_STAMPED = {"message.timestamp.type": "LogAppendTime"}
_ALWAYS_COMPACTING = {
    **FORCED_COMPACTION,
    "segment.ms": "300",
    # A delete stays until the judge has seen it, even on a slow machine.
    "delete.retention.ms": "1800000",
}


@dataclass(frozen=True)
class Ordeal:
    """The options of a run. The same seed deals the same cards, but what they hit depends on timing."""

    seconds: float
    seed: int
    transactional: bool = False
    expiring: bool = False
    """Whether messages have a TTL."""
    scheduled: bool = False
    """Whether messages have a TTL, and may be scheduled ahead."""
    grouped: bool = False
    """Whether messages have groups."""
    ranked: bool = False
    """Whether messages are handed out by priority."""
    paged: bool = False
    """Whether consumers keep most values on disk."""
    standard: bool = False
    """Whether no message replaces another."""
    ring: bool = False
    """Whether the lowest waiting messages are evicted."""
    block: bool = False
    """Whether producers wait for room."""
    protocol: Protocol = "classic"
    keys: int = 5000
    rate: float = 200.0
    """Messages a second, over all keys."""
    consumers: int = 4
    pause: tuple[float, float] = (0.5, 2.5)
    nodes: Literal[1, 3] = 1
    """Nodes of the cluster."""

    @property
    def title(self) -> str:
        """Return the options in words."""
        nodes = "one node" if self.nodes == 1 else "three nodes"
        names = ("standard", "scheduled", "expiring", "grouped", "ranked", "paged", "ring", "block")
        options = [name for name in names if getattr(self, name)]
        kind = ", ".join(["transactions" if self.transactional else "plain", *options])
        return f"{kind}, {self.protocol} protocol, {nodes}"

    @property
    def definition(self) -> QueueDefinition:
        """Return the queue's definition."""
        definition = _SCHEDULED if self.scheduled else _EXPIRING if self.expiring else _PLAIN
        return replace(
            definition,
            groups=Groups() if self.grouped else None,
            order="priority" if self.ranked else "tail",
            limits=_ON_DISK if self.paged else _RING if self.ring else _BLOCK if self.block else None,
            conflate=not self.standard,
        )


@dataclass
class Report:
    """The outcome of a run."""

    ordeal: Ordeal
    verdict: Verdict
    done: Counter[str]
    """Accidents that happened to consumers and brokers."""
    spared: frozenset[str]
    """Accidents that could have happened, but did not."""
    seconds: float = 0.0
    sent: int = 0
    compacted: int = 0
    """Messages that compaction removed after newer ones of their keys."""
    processes: int = 0
    assignments: int = 0
    losses: int = 0
    """Partitions that a process learned it had lost, without a revocation."""
    lost_locks: int = 0
    """Messages that processes lost before they settled them, or before their acks were durable."""
    output: int = 0
    refused: int = 0
    """Messages that producers reported as not stored in time."""
    unsure: int = 0
    """Messages that producers reported as maybe stored."""
    paged: int = 0
    """Times that a consumer was asked for messages and had values on disk."""
    memory: int = 0
    """Size of the largest process, in bytes."""
    calm: float = 0.0
    """Seconds from the end of chaos until everything was consumed."""
    habits: Counter[str] = field(default_factory=Counter)
    """The number of processes with each habit."""
    problems: Counter[str] = field(default_factory=Counter)
    """Errors that stopped consumers, which were then replaced."""


def undergo(ordeal: Ordeal, *, say: Say = lambda _: None, keep: Path | None = None) -> Report:
    """Do a run and judge it.

    Args:
        say: called with each accident.
        keep: a directory for the journals and the broker's log; without it they are deleted at the end.
    """
    with _directory(keep) as directory, _brokers(ordeal, directory) as (servers, deck):
        config = ClientConfig(servers, {} if ordeal.nodes == 1 else {"delivery.timeout.ms": int(_DELIVERY * 1000)})
        with closing(KafkaCluster(config)) as cluster:
            return _Run(ordeal, servers, deck, cluster, directory, say).go()


class _Run:
    def __init__(
        self, ordeal: Ordeal, servers: str, deck: Sequence[Outage], cluster: KafkaCluster, directory: Path, say: Say
    ) -> None:
        self._ordeal = ordeal
        self._servers = servers
        self._deck = deck
        self._cluster = cluster
        self._begun = time.monotonic()
        self._tell = say
        self._chance = random.Random(ordeal.seed)
        self._members = Members(
            f"tests.torture.{'transforming' if ordeal.transactional else 'consuming'}", directory, self._orders
        )
        self._seeds = random.Random(f"{ordeal.seed}/members")
        self._habits = Habits(
            random.Random(f"{ordeal.seed}/habits"), ordeal.transactional, _DEAD, _LOCK_TIMEOUT, ring=ordeal.ring
        )

    def go(self) -> Report:
        ordeal, cluster = self._ordeal, self._cluster
        cluster.topics.create(
            _INPUT,
            partitions=_PARTITIONS,
            config={"cleanup.policy": "delete", **_STAMPED}
            if ordeal.standard
            else {
                "cleanup.policy": "compact",
                **_STAMPED,
                **_ALWAYS_COMPACTING,
                "min.compaction.lag.ms": str(round(1000 * (ordeal.definition.max_delay or 0.0))),
            },
        )
        if ordeal.transactional:
            cluster.topics.create(_OUTPUT, partitions=_PARTITIONS, config={"cleanup.policy": "delete"})
        cluster.topics.create(_DEAD, partitions=_PARTITIONS, config={"cleanup.policy": "delete"})
        if ordeal.definition.expiry_topic is not None:
            cluster.topics.create(_EXPIRED, partitions=_PARTITIONS, config={"cleanup.policy": "delete", **_STAMPED})
        declare_group(cluster, _GROUP, _INPUT)
        feed = Feed(
            cluster,
            _INPUT,
            keys=ordeal.keys,
            rate=ordeal.rate,
            seed=ordeal.seed,
            ttl=ordeal.definition.ttl,
            max_delay=ordeal.definition.max_delay,
            groups=ordeal.definition.groups,
            order=ordeal.definition.order,
            width=LEAST_PAGED if ordeal.paged else 0,
            standard=ordeal.standard,
            limited=ordeal.definition if ordeal.block else None,
        )
        observers = self._observers()
        chaos = Chaos(
            self._servers,
            self._deck,
            self._members,
            self._chance,
            session=_SESSION,
            pause=ordeal.pause,
            transactional=ordeal.transactional,
            progress=self._members.progress,
            say=self._say,
        )
        try:
            feed.start()
            if observers is not None:
                observers.start()
            for slot in range(ordeal.consumers):
                self._members.add(slot)
            _until(lambda: all(member.journal.exists() for member in self._members.all), _JOIN)
            chaos.rage(ordeal.seconds)
            feed.stop()
            self._say("calm")
            calm = _until(self._all_consumed, _CALM)
            self._say(f"all consumed after {calm:.1f} s" if calm < _CALM else f"not all consumed after {calm:.1f} s")
            standing = self._standing() if calm >= _CALM else []
            left = self._leave()
            if observers is not None:
                observers.finish(cluster.logs.end_offsets(_INPUT))
        finally:
            if observers is not None:
                observers.stop()
            feed.stop()
            self._members.close()
        return self._report(feed, chaos, calm, standing + left, observers)

    def _observers(self) -> Observers | None:
        """Return observers of the input topic, if its messages expire."""
        definition = self._ordeal.definition
        if definition.ttl is None or definition.ttl.default is None:
            return None
        return Observers(
            self._cluster, definition, Rule(definition.ttl.default, definition.max_delay or 0.0), _PARTITIONS
        )

    def _orders(self, name: str, slot: int, journal: str) -> Orders:
        ordeal = self._ordeal
        transaction_timeout = _TRANSACTION_TIMEOUT if ordeal.nodes == 1 else _DELIVERY
        properties: dict[str, Any] = {"transaction.timeout.ms": int(transaction_timeout * 1000)}
        if ordeal.protocol == "classic":
            properties["session.timeout.ms"] = int(_SESSION * 1000)
        else:
            properties["group.protocol"] = "consumer"
        return Orders(
            name=name,
            servers=self._servers,
            definition=ordeal.definition.to_json().decode(),
            journal=journal,
            seed=self._seeds.randrange(1 << 32),
            options=self._habits.deal(),
            properties=properties,
            output=_OUTPUT if ordeal.transactional else "",
            transactional_id=_transactional_id(slot) if ordeal.transactional else "",
        )

    def _say(self, what: str) -> None:
        now = time.monotonic()
        self._tell(f"{now - self._begun:6.1f} s ({now:.2f})  {what}")

    # ---------------------------------------------------------------- the end

    def _all_consumed(self) -> bool:
        """Return whether the group has committed everything (G10) and no transaction is open, or a member failed."""
        if self._members.failed():
            return True
        try:
            commits = self._cluster.groups.committed(_GROUP, _INPUT)
            ends = self._cluster.logs.end_offsets(_INPUT)
            if self._ordeal.transactional and (
                contents.undecided(self._cluster, _OUTPUT) or contents.undecided(self._cluster, _DEAD)
            ):
                return False
        except TransportError:
            return False
        maps = {partition: CommitMap.decode(commit.offset, commit.metadata) for partition, commit in commits.items()}
        return {partition: said.base for partition, said in maps.items()} == ends and not any(
            said.runs for said in maps.values()
        )

    def _leave(self) -> list[str]:
        """Send all processes away, and return what went wrong with their ends."""
        for member in self._members.present():
            member.send_away()
        _until(lambda: not any(True for _ in self._members.present()), _END)
        stuck = [f"{member.name} did not end within {_END:g} s" for member in self._members.present()]
        return self._members.failed() + stuck

    def _report(self, feed: Feed, chaos: Chaos, calm: float, left: list[str], observers: Observers | None) -> Report:
        ordeal = self._ordeal
        lives = [
            Life(
                member.name,
                read_journal(member.journal),
                member.stops,
                member.killed,
                counts=member.orders.options["durable_counts"],
            )
            for member in self._members.all
        ]
        newest, kept = contents.newest(self._cluster, _INPUT)
        if ordeal.standard:
            newest = contents.everything(self._cluster, _INPUT)
        verdict = judge(
            lives,
            session=_SESSION,
            lock_timeout=None if ordeal.transactional else _LOCK_TIMEOUT,
            stored=feed.stored,
            unsure=feed.unsure,
            newest=newest,
            output=contents.output(self._cluster, _OUTPUT) if ordeal.transactional else None,
            outages=chaos.outages,
            letters=contents.letters(self._cluster, _DEAD),
            max_deliveries=MAX_DELIVERIES,
            sent_at=feed.sent_at,
            grouped=ordeal.grouped,
            ranks=feed.ranks if ordeal.ranked else None,
            standard=ordeal.standard,
            limits=ordeal.definition.limits,
            partitions=_PARTITIONS,
            calls=feed.calls,
            times=observers and observers.times(contents.expiry_letters(self._cluster, _EXPIRED)),
        )
        verdict.findings[:0] = left  # in front, as they may explain the rest
        verdict.findings += [f"a producer failed: {failure!r}" for failure in feed.failures]
        if observers is not None:
            verdict.findings += [f"the view failed: {failure!r}" for failure in observers.failures]
        if ordeal.nodes == 1 and (feed.refused or feed.unsure):
            verdict.findings.append(f"{len(feed.refused) + len(feed.unsure)} messages failed, and nothing took so long")
        if chaos.memory > _MEMORY:
            verdict.findings.append(f"a process has grown to {chaos.memory >> 20} MiB")
        if calm >= _CALM:
            topics = [_INPUT, _OUTPUT, _DEAD] if ordeal.transactional else [_INPUT]
            open_ones = {topic: contents.undecided(self._cluster, topic) for topic in topics}
            verdict.findings += [
                f"transactions are open in {topic}: {places}" for topic, places in open_ones.items() if places
            ]
        verdict.findings += [
            f"the broker lost {place}"
            for place in (feed.stored.keys() - newest if ordeal.standard else contents.lost(feed.stored, newest))
        ]
        events = [event for life in lives for event in life.events]
        return Report(
            ordeal=ordeal,
            verdict=verdict,
            done=chaos.counts,
            spared=(CARDS | {outage.name for outage in self._deck}) - chaos.counts.keys(),
            memory=chaos.memory,
            seconds=time.monotonic() - self._begun,
            sent=len(feed.stored),
            refused=len(feed.refused),
            unsure=len(feed.unsure),
            compacted=len(feed.stored) - kept,
            processes=len(lives),
            paged=sum(event.kind is Kind.PAGED for event in events),
            assignments=sum(len(event.facts["partitions"]) for event in events if event.kind is Kind.GOT),
            losses=sum(
                len(event.facts["partitions"])
                for event in events
                if event.kind is Kind.GONE and event.facts["how"] == "lost"
            ),
            lost_locks=sum(len(event.facts["n"]) for event in events if event.kind in (Kind.VAIN, Kind.ABORTED)),
            output=0 if not ordeal.transactional else len(contents.output(self._cluster, _OUTPUT)),
            calm=calm,
            habits=Counter(habit for member in self._members.all for habit in in_words(member.orders.options)),
            problems=Counter(
                f"{event.facts['error'].partition('(')[0]} {event.facts['code']}"
                for event in events
                if event.kind is Kind.FAILED
            ),
        )

    def _standing(self) -> list[str]:
        """Say which partitions stand still, and what each process knows, does and last said."""
        findings = [
            f"G10: not all was consumed within {_CALM:g} s: committed "
            f"{self._cluster.groups.committed(_GROUP, _INPUT)}, ends {self._cluster.logs.end_offsets(_INPUT)}"
        ]
        present = list(self._members.present())
        for member in present:
            member.say_where()
        _until(
            lambda: all("Current thread" in member.errors.read_text(errors="replace") for member in present), _WRITING
        )
        for member in present:
            events = read_journal(member.journal)
            held: set[int] = set()
            for event in events:
                if event.kind is Kind.GOT:
                    held |= set(event.facts["partitions"])
                elif event.kind is Kind.GONE:
                    held -= set(event.facts["partitions"])
            said = [f"{event.at:.1f} {event.facts['text']}" for event in events if event.kind is Kind.SAID]
            findings.append(
                f"at {time.monotonic():.1f}, {member.name} holds partitions {sorted(held)}, and last said: "
                + " | ".join(said[-_WORDS:])
            )
            findings.append(f"{member.name} is at {member.errors.read_text(errors='replace')}")
        return findings


# ---------------------------------------------------------------- inside


@contextmanager
def _brokers(ordeal: Ordeal, directory: Path) -> Iterator[tuple[str, Sequence[Outage]]]:
    """Start a cluster, and yield its addresses and its outages."""
    properties = {
        "group.consumer.session.timeout.ms": str(int(_SESSION * 1000)),
        "log.segment.delete.delay.ms": "0",
        # This is Kafka's default. A lone broker that was frozen for longer fences itself, and its partitions have no
        # leader for a moment. `Chaos` says what that does to transactions.
        "broker.session.timeout.ms": "9000",
    }
    if ordeal.nodes == 1:
        log_path = directory / "broker.log"
        with EmbeddedBroker(properties=properties, log_path=log_path, startup_timeout=180) as broker:
            yield broker.bootstrap_servers, of_one_node(broker)
    else:
        with three_nodes(properties | {"broker.session.timeout.ms": "3000"}) as nodes:
            yield (
                nodes.bootstrap_servers,
                of_three_nodes(
                    nodes,
                    _INPUT,
                    _GROUP,
                    _transactional_id(0) if ordeal.transactional else "",
                    random.Random(f"{ordeal.seed}/nodes"),
                    timeouts=max(_SESSION, _DELIVERY) + 4,
                ),
            )


def _transactional_id(slot: int) -> str:
    return f"torture-{slot}"


@contextmanager
def _directory(keep: Path | None) -> Iterator[Path]:
    if keep is not None:
        keep.mkdir(parents=True)
        yield keep
    else:
        with tempfile.TemporaryDirectory(prefix="lvq-torture-") as name:
            yield Path(name)


def _until(condition: Callable[[], bool], timeout: float) -> float:
    """Wait for a condition. Return how long it took, or ``timeout``."""
    begun = time.monotonic()
    never = threading.Event()
    while not condition():
        if time.monotonic() - begun >= timeout:
            return timeout
        never.wait(0.2)
    return time.monotonic() - begun
