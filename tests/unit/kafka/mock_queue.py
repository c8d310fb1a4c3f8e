"""A queue on the mock cluster, its consumers, and their exchanges with the group.

**The mock's mood.** The mock considers a classic group stable when its leader has synced. A follower that syncs later,
as on a busy machine, gets an "invalid request" error and joins again, and then the leader does, too. Until all have
synced in the order that the mock likes, it accepts no commit, and a commit of the previous generation costs its member
all its partitions.

So where two members meet, a test can only require that the group keeps what it has accepted (`MockQueue.consume_rest`).
A test about lasting partitions and locks is restarted (`whatever_its_mood`) if the mock has removed a member. The same
holds if it has given a member partitions that another is still giving up, as it sometimes does in the new protocol. No
broker does that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Collection, Iterable, Mapping
from contextlib import suppress
from functools import wraps
from threading import Event
from typing import Any, ParamSpec

import pytest

from lvq_kafka.cluster import Answered, Commit, GroupListener
from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.errors import LockLost, LVQError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.member import KafkaMember
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually

__all__ = [
    "GROUP",
    "SHORT_SESSION",
    "SOCIAL",
    "TOPIC",
    "Member",
    "MockQueue",
    "NewQueue",
    "Verdicts",
    "take",
    "whatever_its_mood",
]

TOPIC = "prices"
GROUP = "lvq.q"

SHORT_SESSION = {"session.timeout.ms": 1500}
"""When a member joins again, the mock waits for others one second less than a session (classic protocol)."""
SOCIAL: Mapping[str, Mapping[str, int]] = {"classic": {"session.timeout.ms": 3000}, "consumer": {}}
"""By protocol, for members that meet others. They learn of others by a heartbeat, which is sent twice a second."""

P = ParamSpec("P")

_TRIES = 4

PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "classic": {"heartbeat.interval.ms": 100},
    "consumer": {"group.protocol": "consumer"},
}


class Member(KafkaMember):
    """A member that records its commits and losses, and whose thread can be stopped before its next poll."""

    def __init__(self, config: ClientConfig, group: str, topic: str, listener: GroupListener) -> None:
        self.said: list[Mapping[int, Commit]] = []
        self.gone: list[list[int]] = []
        self.wronged = False
        """True if it has lost partitions without notice, or got some that another member still has."""
        self.rivals: Callable[[], Iterable[Member]] = tuple
        self._going_on = Event()
        self._going_on.set()
        self._standing = Event()
        self._is_new = config.for_consumer().get("group.protocol") == "consumer"
        super().__init__(config, group, topic, listener)
        mine = self._partitions
        self._revoke_really, mine.revoke = mine.revoke, self._revoke  # type: ignore[method-assign]
        self._lose_really, mine.lose = mine.lose, self._lose  # type: ignore[method-assign]

    def poll(self, timeout: float) -> Any:
        if not self._going_on.is_set():
            self._standing.set()
            assert self._going_on.wait(60)
            self._standing.clear()
        return super().poll(timeout)

    def stand_still(self) -> None:
        """Stop the thread before its next poll, and wait until it has stopped."""
        self._going_on.clear()
        assert self._standing.wait(20)

    def go_on(self) -> None:
        self._going_on.set()

    def commit(self, commits: Mapping[int, Commit]) -> None:
        self.said.append(commits)
        super().commit(commits)

    def commit_async(self, commits: Mapping[int, Commit], answered: Answered) -> None:
        self.said.append(commits)
        super().commit_async(commits, answered)

    def _assign(self, consumer: Any, partitions: list[int]) -> None:
        rivals = [rival for rival in self.rivals() if rival is not self]
        self.wronged |= any(rival.still_has(partitions) for rival in rivals)
        super()._assign(consumer, partitions)

    def _revoke(self, partitions: Collection[int]) -> None:
        self.gone.append(sorted(self._partitions.owned.intersection(partitions)))
        self._revoke_really(partitions)

    def still_has(self, partitions: list[int]) -> bool:
        """Return whether it is still giving up one of these partitions.

        In the classic protocol it joins again when its commits are answered, and only then another member gets the
        partitions. In the new protocol the mock does not wait, so a commit on its way at that time proves nothing.
        """
        commits = [commits for commits, _ in self._unanswered] if self._is_new else []
        return any(held.intersection(partitions) for held in (self._partitions.owned, *map(set, commits)))

    def _lose(self, partitions: Collection[int]) -> None:
        self.wronged = True
        self.gone.append(sorted(self._partitions.owned.intersection(partitions)))
        self._lose_really(partitions)


class _Cluster(KafkaCluster):
    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.members: list[Member] = []
        self.rivals: Callable[[], Iterable[Member]] = tuple

    def member(self, group: str, topic: str, listener: GroupListener, *, renews: bool = False) -> Member:
        member = Member(self.config, group, topic, listener)
        member.rivals = self.rivals
        self.members.append(member)
        return member


class MockQueue:
    """A declared queue and its consumers."""

    def __init__(self, mock: MockCluster, partitions: int = 1, *, declared: bool = True) -> None:
        self.mock = mock
        mock.create_topic(TOPIC, partitions)
        self.cluster = KafkaCluster(mock.bootstrap_servers)
        self._writer = KafkaCluster(ClientConfig(mock.bootstrap_servers, {"linger.ms": 0})).writer()
        self._consumers: list[Consumer[str]] = []
        self._logs: list[_Cluster] = []
        if declared:
            declare_group(self.cluster, GROUP, TOPIC)

    def send(self, *values: str) -> None:
        """Send these values, each of which is its own key."""
        for receipt in [self._writer.append(TOPIC, value.encode(), value.encode()) for value in values]:
            receipt.result(20)

    def send_value(self, key: str, value: str) -> None:
        self._writer.append(TOPIC, key.encode(), value.encode()).result(20)

    def open(
        self,
        protocol: str = "classic",
        properties: Mapping[str, Any] | None = None,
        *,
        servers: str | None = None,
        **options: Any,
    ) -> Consumer[str]:
        """Open a consumer, which connects to ``servers`` if given."""
        servers = servers or self.mock.bootstrap_servers
        cluster = _Cluster(ClientConfig(servers, {**PROTOCOLS[protocol], **(properties or {})}))
        cluster.rivals = self._members
        self._logs.append(cluster)
        definition = QueueDefinition(name="q", topic=TOPIC, key_header=None)
        options = {"commit_interval": 60, "revoke_grace": 0.0, **options}
        self._consumers.append(Consumer(cluster, definition, TEXT, **options))
        return self._consumers[-1]

    def member(self, number: int = 0) -> Member:
        """Return the member of a consumer, by the order of opening."""
        return eventually(lambda: self._logs[number].members)[0]

    @property
    def _fates(self) -> list[str]:
        """Return what the members have committed and lost."""
        return [
            f"{'wronged, ' if member.wronged else ''}lost {member.gone}, said {member.said}"
            for member in self._members()
        ]

    @property
    def moody(self) -> bool:
        """Return whether the mock has wronged a member."""
        return any(member.wronged for member in self._members())

    def _members(self) -> Iterable[Member]:
        return [member for cluster in self._logs for member in cluster.members]

    def stored(self) -> dict[int, CommitMap]:
        """Return the group's commits."""
        commits = self.cluster.groups.committed(GROUP, TOPIC, timeout=20)
        return {partition: CommitMap.decode(one.offset, one.metadata) for partition, one in commits.items()}

    def holds(self, delivery: Delivery[str]) -> bool:
        """Return whether this delivery is done in the group's commit."""
        position = delivery.position
        return self.stored()[position.partition].done(position.offset)

    def consume_rest(self, *consumers: Consumer[str], within: float = 90.0) -> list[Delivery[str]]:
        """Consume until nothing is left, and return the durable deliveries in order. The group must forget none.

        A lost message comes again, to any of them: that depends on the mock.
        """
        durable: list[Delivery[str]] = []
        ends = self.cluster.logs.end_offsets(TOPIC)
        deadline = time.monotonic() + within
        while True:
            stored = self.stored()
            forgotten = [one for one in durable if not stored[one.position.partition].done(one.position.offset)]
            assert not forgotten, f"these were durable, and the group holds {stored}; members: {self._fates}"
            if {partition: said.base for partition, said in stored.items()} == ends:
                break
            assert time.monotonic() < deadline, f"not all was consumed: {stored}, {[one.stats for one in consumers]}"
            for consumer in consumers:
                delivery = consumer.acquire(0.1)
                if delivery is not None:
                    with suppress(LockLost):
                        delivery.ack(wait=True, timeout=30)
                        durable.append(delivery)
        places = [delivery.position for delivery in durable]
        assert len(places) == len(set(places)), "something was durable, and came again"
        return durable

    def close(self) -> None:
        for cluster in self._logs:
            for member in cluster.members:
                member.go_on()
        for consumer in self._consumers:
            consumer.close()
            consumer._thread._thread.join(20)
            assert not consumer._thread._thread.is_alive(), "a consumer's thread goes on forever"
        for cluster in (*self._logs, self.cluster):
            cluster.close()
        self._writer.close(0)


class NewQueue:
    """A factory of queues, each on a mock cluster of its own."""

    def __init__(self) -> None:
        self._opened: list[tuple[MockCluster, MockQueue]] = []

    def __call__(self, partitions: int = 1, *, brokers: int = 1, declared: bool = True) -> MockQueue:
        mock = MockCluster(brokers)
        self._opened.append((mock, MockQueue(mock, partitions, declared=declared)))
        return self._opened[-1][1]

    @property
    def moody(self) -> bool:
        """Return whether the mock has wronged a member of the last queue."""
        return self._opened[-1][1].moody

    def close(self) -> None:
        while self._opened:
            mock, queue = self._opened.pop()
            queue.close()
            mock.close()


def whatever_its_mood(test: Callable[P, None]) -> Callable[P, None]:
    """Restart a test, a few times, if it fails after the mock has wronged a member, as no broker does."""

    @wraps(test)
    def patient(*args: P.args, **kwargs: P.kwargs) -> None:
        new_queue = kwargs["new_queue"]
        assert isinstance(new_queue, NewQueue)
        for _ in range(_TRIES):
            try:
                return test(*args, **kwargs)
            except (AssertionError, ValueError, LVQError):  # ValueError: nothing to unpack
                if not new_queue.moody:
                    raise
                new_queue.close()
                if isinstance(patch := kwargs.get("monkeypatch"), pytest.MonkeyPatch):
                    patch.undo()
        return test(*args, **kwargs)

    return patient


class Verdicts:
    """The outcomes of an ack, each with whether the group held it at that moment."""

    def __init__(self, queue: MockQueue, delivery: Delivery[str], settlement: Settlement) -> None:
        self.told: list[tuple[BaseException | None, bool]] = []
        self._settlement = settlement
        settlement.add_done_callback(lambda future: self.told.append((future.exception(), queue.holds(delivery))))

    def durable_once(self) -> None:
        """Check that it becomes durable, once, and not before the group holds it."""
        eventually(lambda: self.told, 20)
        assert self.told == [(None, True)]


def take(consumer: Consumer[str], timeout: float = 20.0) -> Delivery[str]:
    delivery = consumer.acquire(timeout)
    assert delivery is not None, f"no message came: {consumer.stats}"
    return delivery
