"""The client of a group member: who may call it, and what its errors mean."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from threading import Condition
from typing import Any

from confluent_kafka import Consumer, KafkaError, KafkaException

from lvq_kafka.cluster.rights import consuming
from lvq_kafka.errors import Closed, LVQError
from lvq_kafka.kafka.ages import milliseconds
from lvq_kafka.kafka.client import ClientConfig, PropertyValue
from lvq_kafka.kafka.connect import Health, open_consumer
from lvq_kafka.kafka.error_mapping import kafka_error
from lvq_kafka.kafka.reader import FETCH_DEFAULTS, READ_RULES
from lvq_kafka.runtime.forking import LeftBehind, left_behind, notify_of_forks
from lvq_kafka.runtime.overriding import override

__all__ = ["MemberClient"]

_DEFAULTS: Mapping[str, PropertyValue] = {
    **FETCH_DEFAULTS,
    "topic.metadata.refresh.interval.ms": 30_000,  # the longest delay before added partitions are consumed
}
_CLASSIC_DEFAULTS: Mapping[str, PropertyValue] = {
    # A dead member holds its messages until its session expires. If another member joins meanwhile, the live ones
    # cannot commit before that, either: a broker reads nothing after a JoinGroup that it has not answered. So this is
    # the shortest session that brokers allow by default. The client heartbeats on a thread of its own, so neither slow
    # work nor a busy interpreter can let it expire.
    "session.timeout.ms": 6_000,
    "heartbeat.interval.ms": 500,  # also the time after which a member learns that another one has joined
}
_BEYOND = 4_000  # milliseconds by which a request may outlast a session
_VISIT = 1.0  # seconds that a poll may be delayed so that another thread can call the client
_LEAVING_POLL = 0.002  # seconds; the client revokes assigned partitions at once
_JOINING_POLL = 0.02  # seconds; without partitions, it may be about to be assigned some
_LEAVING = 2.0  # seconds for the client to revoke its partitions; it asks no broker


class MemberClient(LeftBehind):
    """The client of one group member.

    Uses the classic protocol with the cooperative-sticky assignor, or the new one if the client property
    ``group.protocol`` is ``consumer``. In both, a member reads the partitions that it keeps without interruption.

    The member's thread polls; any other thread may `visit`.
    """

    def __init__(self, config: ClientConfig, group: str, topic: str, on_commit: Callable[..., None]) -> None:
        self.config = config
        self.group = group
        self.topic = topic
        self.needs = consuming(group, topic)
        self.health = Health(config.bootstrap_servers, config.properties)
        self._door = Condition()
        self._visitors = 0  # threads that want to call the client while it is polled
        owned: dict[str, Any] = {**READ_RULES, "group.id": group, "on_commit": on_commit}
        defaults = dict(_DEFAULTS)
        self.is_classic = config.for_consumer().get("group.protocol", "classic") == "classic"
        if self.is_classic:
            owned["partition.assignment.strategy"] = "cooperative-sticky"
            defaults |= _CLASSIC_DEFAULTS
            defaults["socket.timeout.ms"] = _longer_than_a_session(config)
        self._consumer: Consumer | None = open_consumer(config, self.health, owned, defaults)
        self._left: Consumer | None = None  # in a forked child: the parent's
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        self._door = Condition()
        self._left, self._consumer = self._consumer, None

    @property
    def is_open(self) -> bool:
        """True if the client can be called."""
        return self._consumer is not None

    def get(self) -> Consumer:
        """Return the client.

        Raises:
            Closed: `close` was called.
            BoundToProcess: this is a child process after a fork.
        """
        if self._left is not None:
            raise left_behind(f"This member of group {self.group!r}")
        if self._consumer is None:
            raise self._closed()
        return self._consumer

    def ask(self, doing: str, call: Callable[[Consumer], Any]) -> Any:
        """Return what a call of the client returns; raise its error as one of ours."""
        try:
            return call(self.get())
        except KafkaException as exception:
            error = kafka_error(exception)
            if error is None:
                raise
            raise self.explain(error, doing) from None

    def explain(self, error: KafkaError, doing: str) -> LVQError:
        """Return one of the client's errors as one of ours."""
        return self.health.explain(error, doing, topic=self.topic, needs=self.needs)

    @contextmanager
    def visit(self) -> Iterator[Consumer]:
        """Let this thread call the client while another one polls.

        The client admits one thread at a time, in no fair order: a thread that polls in a loop always wins. So that
        thread has to step back for a moment; see `admit`.
        """
        with self._door:
            self._visitors += 1
        try:
            yield self.get()
        except RuntimeError as error:  # the client's error once it is closed
            raise self._closed() from error
        finally:
            with self._door:
                self._visitors -= 1
                self._door.notify_all()

    def admit(self) -> None:
        """Let visitors in, before the next poll."""
        if self._visitors:
            with self._door:
                self._door.wait_for(lambda: not self._visitors, _VISIT)

    def leave(self, callbacks: Callable[[], int]) -> None:
        """Unsubscribe, and wait until the client has reported all resulting revocations.

        A client that is closed with more than one event pending can wait for itself forever, holding the GIL
        (librdkafka issue 4884, seen here with 2.16.0): the whole process hangs, with all its threads.

        Args:
            callbacks: returns the number of reports so far.
        """
        consumer = self.get()
        with suppress(KafkaException):
            pause = _LEAVING_POLL if consumer.assignment() else _JOINING_POLL
            consumer.unsubscribe()
            deadline = time.monotonic() + _LEAVING
            before = -1
            while (callbacks() != before or consumer.assignment()) and time.monotonic() < deadline:
                before = callbacks()
                consumer.poll(pause)

    def close(self) -> None:
        """Close the client."""
        consumer, self._consumer = self._consumer, None
        if consumer is not None:
            consumer.close()

    def _closed(self) -> Closed:
        return Closed(f"This member of group {self.group!r} is closed.")


def _longer_than_a_session(config: ClientConfig) -> int:
    """Return how many milliseconds a request may take in the classic protocol.

    Requests sent after a JoinGroup wait for the session of a dead member to expire.
    """
    session = milliseconds({**_CLASSIC_DEFAULTS, **config.for_consumer()}, "session.timeout.ms", 0)
    return max(milliseconds(FETCH_DEFAULTS, "socket.timeout.ms", 0), session + _BEYOND)
