"""Admin requests: await answers, retry transient errors, explain why no answer came."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Collection, Iterable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from threading import Lock
from typing import Any, TypeVar
from weakref import WeakValueDictionary

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient

from lvq_kafka.core.facts import Right
from lvq_kafka.errors import Closed, ConfigError
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_admin
from lvq_kafka.kafka.error_mapping import TRANSIENT, UNREACHABLE, kafka_error, no_broker_is_ready
from lvq_kafka.runtime.forking import LeftBehind, left_behind, notify_of_forks
from lvq_kafka.runtime.overriding import override

__all__ = ["AdminRequests"]

T = TypeVar("T")

_LOST_ITS_WAY = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.NOT_COORDINATOR})
"""Errors from asking the wrong broker: a former coordinator or a dead leader."""

_NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, "No answer in time")


class _Connection(LeftBehind):
    """An admin client, replaced when it asks the wrong broker or was refused."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._current = self._open()
        self._changing = Lock()
        notify_of_forks(self)  # a forked child keeps it without using it

    @override
    def left_behind(self) -> None:
        self._changing = Lock()

    def _open(self) -> tuple[AdminClient, Health]:
        health = Health(self._config.bootstrap_servers, self._config.properties)
        return open_admin(self._config, health), health

    def use(self) -> tuple[AdminClient, Health]:
        """Return the client for the next request, and its `Health`.

        A refused client is replaced. The refusal may be over, but the client notices that late, and until then the next
        request would count as refused, too.
        """
        client, health = self._current
        client.poll(0)  # collects what it has reported since the last request
        if health.refused:
            self.reconnect(client)
        return self._current

    def reconnect(self, client: AdminClient) -> None:
        """Send later requests over new connections.

        This client (2.16.0) would keep asking the same broker. Callers still waiting for its answers keep it alive.
        """
        with self._changing:
            if self._current[0] is client:
                self._current = self._open()


class _Shared(LeftBehind):
    """Connections shared in this process by all users of an equal configuration.

    Each lives as long as one of its users does.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._connections: WeakValueDictionary[ClientConfig, _Connection] = WeakValueDictionary()
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        # Users of the parent's connections keep them.
        self._lock = Lock()
        self._connections = WeakValueDictionary()

    def connect(self, config: ClientConfig) -> _Connection:
        """Return the connection for a configuration, opening it if necessary."""
        with self._lock:
            there = self._connections.get(config)
        if there is not None:
            return there
        opened = _Connection(config)  # outside the lock: a user's oauth_cb may be slow
        with self._lock:
            return self._connections.setdefault(config, opened)


_shared = _Shared()


class AdminRequests(LeftBehind):
    """Admin clients behind one method. Thread-safe.

    Queries go over a connection that all users of an equal configuration in this process share: no broker keeps queries
    waiting. A change may wait at a broker, which answers the requests of a connection one after the other. So each
    change has a connection of its own and holds up nothing else.

    The futures of an admin client resolve only while it is alive, so it lives as long as this object. It must not be
    destroyed before they have resolved: they do so on a thread of the client, where garbage collection may run, and a
    client (2.16.0) that is destroyed on its own thread aborts the process. So a client with abandoned requests is kept.

    Args:
        config: how to reach the cluster.
        shared: False for a private connection, which changes use, too.
    """

    _WATCH = 0.05
    _PAUSES = (0.01, 0.2)
    _ATTEMPT = 3.0

    def __init__(self, config: ClientConfig, *, shared: bool = True) -> None:
        self._config = config
        self._is_shared = shared
        self._connection: _Connection | None = _shared.connect(config) if shared else _Connection(config)
        self._left: _Connection | None = None  # in a forked child: the parent's, which must not be released there
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        self._left, self._connection = self._connection, None

    def close(self) -> None:
        """Let go of the connection; other users keep it."""
        self._connection = None

    def reconnect(self) -> None:
        """Send later requests over new connections, perhaps to other brokers."""
        connection = self._open()
        connection.reconnect(connection.use()[0])

    def check_open(self) -> None:
        """Check that requests can be made.

        Raises:
            Closed: `close` was called.
            BoundToProcess: this is a child process after a fork.
        """
        self._open()

    def _open(self) -> _Connection:
        connection = self._connection
        if self._left is not None:
            raise left_behind("This connection")
        if connection is None:
            raise Closed("The cluster is closed.")
        return connection

    def ask(
        self,
        request: Callable[[AdminClient, float], Iterable[Future[T]]],
        doing: str,
        deadline: float,
        *,
        topic: str | None = None,
        needs: Sequence[Right] = (),
        passing: frozenset[int] = TRANSIENT,
        answered: Callable[[T], bool] = lambda answer: True,
        unanswered: KafkaError = _NO_ANSWER,
        harmless: bool = False,
    ) -> list[T]:
        """Return the answers to a request, retrying until the deadline on a ``passing`` code.

        ``topic`` and ``needs``, the rights that the request takes, are for errors; see
        `lvq_kafka.kafka.error_mapping.translate`. ``answered`` returns False for an answer that the client makes up
        when none comes, and for one without content; both count as the error ``unanswered``. A ``harmless`` request
        changes nothing, so it is also retried when no answer came: the broker that was asked may have died, and others
        are alive.
        """
        pause, longest = self._PAUSES
        connection = self._open() if harmless or not self._is_shared else _Connection(self._config)
        while True:
            self.check_open()
            client, health = connection.use()
            limit = min(deadline, time.monotonic() + self._ATTEMPT) if harmless else deadline
            try:
                answers = self._send(request, client, health, limit)
                if all(map(answered, answers)):
                    health.recovered()
                    return answers
                raise KafkaException(unanswered)
            except KafkaException as exception:
                error = kafka_error(exception)
                if error is None:
                    raise
                client.poll(0)  # a refusal is reported only here
                if error.code() in _LOST_ITS_WAY:
                    connection.reconnect(client)
                again = error.code() in passing or no_broker_is_ready(error)
                again = again or (harmless and error.code() in UNREACHABLE and not health.refused)
                if not again or time.monotonic() + pause > deadline:
                    raise health.explain(error, doing, topic=topic, needs=needs) from None
            except (TypeError, ValueError) as exception:
                raise ConfigError(f"Cannot {doing}: {exception}.") from None
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _send(
        self,
        request: Callable[[AdminClient, float], Iterable[Future[T]]],
        client: AdminClient,
        health: Health,
        limit: float,
    ) -> list[T]:
        """Send a request once and wait for its answers.

        If some do not come in time, the client is kept alive for them.
        """
        futures: list[Future[T]] = []
        _keeper.let_go()
        try:
            futures = list(request(client, max(0.1, limit - time.monotonic())))
            return [self._wait(client, health, future, limit) for future in futures]
        finally:
            if not all(future.done() for future in futures):
                _keeper.keep(client, futures)

    def _wait(self, client: AdminClient, health: Health, future: Future[T], deadline: float) -> T:
        while not future.done():
            try:
                return future.result(self._WATCH)
            except TimeoutError:
                client.poll(0)  # lets the client report errors: after a refusal, waiting is pointless
                if health.refused or time.monotonic() > deadline + 1:
                    raise KafkaException(_NO_ANSWER) from None
        return future.result()


@dataclass(eq=False, slots=True)
class _Abandoned:
    client: AdminClient
    futures: Collection[Future[Any]]
    done_at: float = math.inf


_GRACE = 1.0  # seconds from the last answer until the client's thread has certainly left our code


class _Keeper(LeftBehind):
    """Clients kept alive for requests that were abandoned."""

    def __init__(self) -> None:
        self._kept: list[_Abandoned] = []
        self._lock = Lock()
        notify_of_forks(self)

    @override
    def left_behind(self) -> None:
        self._lock = Lock()
        self._left, self._kept = self._kept, []  # the parent's, kept permanently

    def keep(self, client: AdminClient, futures: Collection[Future[Any]]) -> None:
        with self._lock:
            self._kept.append(_Abandoned(client, futures))

    def let_go(self) -> None:
        """Drop the clients whose requests were all answered a while ago."""
        if not self._kept:
            return
        now = time.monotonic()
        with self._lock:
            for one in self._kept:
                if all(future.done() for future in one.futures):
                    one.done_at = min(one.done_at, now)
            over = [one for one in self._kept if now - one.done_at > _GRACE]
            self._kept = [one for one in self._kept if one not in over]
        del over  # destroys the clients, outside the lock


_keeper = _Keeper()
