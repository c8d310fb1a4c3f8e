"""A queue on the mock cluster, its consumers, and what passes between them and their group."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from threading import Event
from typing import Any

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_kafka.kafka.member import KafkaMember
from lvq_kafka.managing.groups import declare_group
from lvq_kafka.ports import Answered, Commit, GroupListener
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually

__all__ = ["GROUP", "SHORT_SESSION", "SOCIAL", "TOPIC", "Member", "MockQueue", "NewQueue", "Verdicts", "take"]

TOPIC = "prices"
GROUP = "lvq.q"

SHORT_SESSION = {"session.timeout.ms": 1500}
"""When a member joins again, the mock waits for others a second less than a session lasts (classic protocol)."""
SOCIAL: Mapping[str, Mapping[str, int]] = {"classic": {"session.timeout.ms": 3000}, "consumer": {}}
"""By protocol: for members that meet others. They learn of them by a heartbeat, and those go twice a second."""

PROTOCOLS: Mapping[str, Mapping[str, Any]] = {
    "classic": {"heartbeat.interval.ms": 100},
    "consumer": {"group.protocol": "consumer"},
}


class Member(KafkaMember):
    """A member whose commits and losses are noted, and whose thread can be stopped before its next poll."""

    def __init__(self, config: ClientConfig, group: str, topic: str, listener: GroupListener) -> None:
        self.said: list[Mapping[int, Commit]] = []
        self.gone: list[list[int]] = []
        self._going_on = Event()
        self._going_on.set()
        self._standing = Event()
        super().__init__(config, group, topic, listener)

    def poll(self, timeout: float) -> Any:
        if not self._going_on.is_set():
            self._standing.set()
            assert self._going_on.wait(60)
            self._standing.clear()
        return super().poll(timeout)

    def stand_still(self) -> None:
        """Stop the thread before its next poll, and wait until it stands."""
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

    def _revoke(self, partitions: Any) -> None:
        self.gone.append(sorted(self._owned.intersection(partitions)))
        super()._revoke(partitions)

    def _lose(self, partitions: Any) -> None:
        self.gone.append(sorted(self._owned.intersection(partitions)))
        super()._lose(partitions)


class _Log(KafkaLog):
    def __init__(self, config: ClientConfig) -> None:
        super().__init__(config)
        self.members: list[Member] = []

    def member(self, group: str, topic: str, listener: GroupListener) -> Member:
        self.members.append(Member(self.config, group, topic, listener))
        return self.members[-1]


class MockQueue:
    """A declared queue and its consumers."""

    def __init__(self, cluster: MockCluster, partitions: int = 1, *, declared: bool = True) -> None:
        self.cluster = cluster
        cluster.create_topic(TOPIC, partitions)
        self.log = KafkaLog(cluster.bootstrap_servers)
        self._writer = KafkaLog(ClientConfig(cluster.bootstrap_servers, {"linger.ms": 0})).writer()
        self._consumers: list[Consumer[str]] = []
        self._logs: list[_Log] = []
        if declared:
            declare_group(self.log, GROUP, TOPIC)

    def send(self, *values: str) -> None:
        """Values that are keys, too."""
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
        """A consumer; ``servers`` where it has its own way to the cluster."""
        servers = servers or self.cluster.bootstrap_servers
        log = _Log(ClientConfig(servers, {**PROTOCOLS[protocol], **(properties or {})}))
        self._logs.append(log)
        definition = QueueDefinition(name="q", topic=TOPIC, key_header=None)
        options = {"commit_interval": 60, "revoke_grace": 0.0, **options}
        self._consumers.append(Consumer(log, definition, TEXT, **options))
        return self._consumers[-1]

    def member(self, number: int = 0) -> Member:
        """The member of the consumer that was opened so many after the first."""
        return eventually(lambda: self._logs[number].members)[0]

    def stored(self) -> dict[int, CommitMap]:
        """What the group holds."""
        commits = self.log.committed(GROUP, TOPIC, timeout=20)
        return {partition: CommitMap.decode(one.offset, one.metadata) for partition, one in commits.items()}

    def holds(self, delivery: Delivery[str]) -> bool:
        """Whether the group holds that this one is done."""
        position = delivery.position
        return self.stored()[position.partition].done(position.offset)

    def close(self) -> None:
        for log in self._logs:
            for member in log.members:
                member.go_on()
        for consumer in self._consumers:
            consumer.close()
            consumer._consuming._thread.join(20)
            assert not consumer._consuming._thread.is_alive(), "a consumer's thread goes on for ever"
        for log in (*self._logs, self.log):
            log.close()
        self._writer.close(0)


NewQueue = Callable[..., MockQueue]


class Verdicts:
    """How an ack was decided, and what the group held at that moment."""

    def __init__(self, queue: MockQueue, delivery: Delivery[str], settlement: Settlement) -> None:
        self.told: list[tuple[BaseException | None, bool]] = []
        self._settlement = settlement
        settlement.add_done_callback(lambda future: self.told.append((future.exception(), queue.holds(delivery))))

    def durable_once(self) -> None:
        """It becomes durable, not before the group holds it."""
        eventually(lambda: self.told, 20)
        assert self.told == [(None, True)]


def take(consumer: Consumer[str], timeout: float = 20.0) -> Delivery[str]:
    delivery = consumer.acquire(timeout)
    assert delivery is not None, f"no message came: {consumer.stats}"
    return delivery
