"""A declared queue on the in-memory cluster, its consumers, and common steps of tests."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from lvq_kafka.cluster import Answered, Commit, GroupListener, GroupMember
from lvq_kafka.codecs import TEXT, Codec
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.producing.producer import Producer
from lvq_kafka.testing import MemoryCluster
from tests.rules import rules
from tests.waiting import eventually

__all__ = [
    "GROUP",
    "NOON",
    "TOPIC",
    "Clock",
    "Day",
    "World",
    "answered_late",
    "consuming",
    "drain",
    "has_read",
    "has_read_all",
    "in_thread",
    "make_world",
    "nothing_comes",
    "settled_up",
    "take",
    "values_of",
]

TOPIC = "prices"
GROUP = "lvq.q"


NOON = 1_000_000_000.0


class Day:
    """The time of the cluster, in seconds since the epoch."""

    def __init__(self) -> None:
        self.now = NOON

    def __call__(self) -> float:
        return self.now


class World(MemoryCluster):
    """An in-memory cluster that remembers its group members."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.members: list[GroupMember] = []

    def member(self, group: str, topic: str, listener: GroupListener, *, renews: bool = False) -> GroupMember:
        member = super().member(group, topic, listener, renews=renews)
        self.members.append(member)
        return member

    def send(self, *records: tuple[str, str | None], partition: int | None = None) -> None:
        for key, value in records:
            self.write(TOPIC, key.encode(), None if value is None else value.encode(), partition=partition)

    def committed_map(self, partition: int = 0) -> CommitMap:
        commit = self.groups.committed(GROUP, TOPIC)[partition]
        return CommitMap.decode(commit.offset, commit.metadata)

    def committed_offsets(self) -> dict[int, int]:
        return {partition: commit.offset for partition, commit in self.groups.committed(GROUP, TOPIC).items()}

    def texts(self, topic: str) -> list[str]:
        """Return the values in a topic."""
        return [(record.value or b"").decode() for record in self.records(topic)]

    def producer(self, topic: str = "out", transactional_id: str | None = "t") -> Producer[Any]:
        """Return a producer for another topic, which is created if it is missing."""
        self.topics.create(topic, partitions=1, config={})
        return Producer(self, rules(topic=topic, key_header=None), value=TEXT, transactional_id=transactional_id)


@contextmanager
def answered_late(member: GroupMember) -> Iterator[list[Callable[[], None]]]:
    """Hold back the answers to a member's commits; call one to deliver it."""
    commit_async = member.commit_async
    late: list[Callable[[], None]] = []

    def commit(commits: Mapping[int, Commit], answered: Answered) -> None:
        commit_async(commits, lambda outcome: late.append(lambda: answered(outcome)))

    member.commit_async = commit  # type: ignore[method-assign]
    try:
        yield late
    finally:
        member.commit_async = commit_async  # type: ignore[method-assign]


def make_world(partitions: int = 1, *, declared: bool = True, **options: Any) -> World:
    world = World(**options)
    world.topics.create(TOPIC, partitions=partitions, config={"cleanup.policy": "compact"})
    if declared:
        declare_group(world, GROUP, TOPIC)
    return world


@contextmanager
def consuming(
    world: MemoryCluster,
    codec: Codec[Any] = TEXT,
    definition: QueueDefinition | None = None,
    **options: Any,
) -> Iterator[Consumer[Any]]:
    definition = definition or QueueDefinition(name="q", topic=TOPIC, key_header=None)
    options.setdefault("commit_interval", 0.01)
    options.setdefault("revoke_grace", 0.0)
    with Consumer(world, definition, codec, **options) as consumer:
        yield consumer


def take(consumer: Consumer[Any], timeout: float = 10.0) -> Delivery[Any]:
    delivery = consumer.acquire(timeout)
    assert delivery is not None, f"no message came: {consumer.stats}"
    return delivery


def nothing_comes(consumer: Consumer[Any]) -> bool:
    return consumer.acquire(0.05) is None


def drain(consumer: Consumer[Any], count: int) -> list[str]:
    values = []
    for _ in range(count):
        with take(consumer) as delivery:
            values.append(delivery.value)
    assert nothing_comes(consumer)
    return values


def values_of(deliveries: list[Delivery[Any]]) -> list[str]:
    return [delivery.value for delivery in deliveries]


def has_read_all(world: World, consumer: Consumer[Any]) -> None:
    """Wait until the consumer has read to the end of the log and may hand messages out."""
    has_read(consumer, world.logs.end_offsets(TOPIC, stable=True))


def has_read(consumer: Consumer[Any], positions: Mapping[int, int]) -> None:
    """Wait until the consumer is at these positions and the group has confirmed that it counts on it."""
    shared = consumer._shared

    def begun() -> bool:
        with shared as core:
            return core.ledger.assignment.positions == positions and not core.hand_out.is_suspended(shared.clock())

    eventually(begun)


def settled_up(world: World, consumer: Consumer[Any]) -> None:
    """Wait until the consumer has read and settled everything, and knows that the commit is stored."""

    def known() -> dict[int, int]:
        return {partition: stored.base for partition, stored in consumer._shared.core.durable.items()}

    eventually(lambda: world.committed_offsets() == known() == world.logs.end_offsets(TOPIC, stable=True))


class Clock:
    """A stopped clock for locks, delays and leases: nothing depends on the speed of a test."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self._shared = consumer._shared
        with self._shared._changed:
            self._now = self._shared.clock()
            self._shared.clock = lambda: self._now

    def go_on(self, seconds: float) -> None:
        """Let this many seconds pass, fewer than a lease lasts, and wait until the consumer has done what was due."""
        now = self._now = self._now + seconds
        eventually(lambda: self._shared.core._turned_at == now)


@contextmanager
def in_thread(act: Callable[[], object]) -> Iterator[list[object]]:
    """Run ``act`` in a thread during the block; afterwards the list holds its result or exception."""
    outcome: list[object] = []

    def run() -> None:
        try:
            outcome.append(act())
        except BaseException as error:  # noqa: BLE001  # the test checks it
            outcome.append(error)

    thread = threading.Thread(target=run)
    thread.start()
    try:
        yield outcome
    finally:
        thread.join(20)
        assert not thread.is_alive(), "it goes on forever"
