"""Asking an admin client: waiting for answers, trying again what passes by itself, saying why nothing came."""

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

from lvq_kafka.core.rights import Right
from lvq_kafka.errors import Closed, ConfigError
from lvq_kafka.forking import left_behind, notify_of_forks
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.connect import Health, open_admin
from lvq_kafka.kafka.error_mapping import TRANSIENT, UNREACHABLE, kafka_error

__all__ = ["AdminRequests"]

T = TypeVar("T")

_LOST_ITS_WAY = frozenset({KafkaError._TIMED_OUT, KafkaError._TIMED_OUT_QUEUE, KafkaError.NOT_COORDINATOR})
"""What comes of asking a broker that is no longer the one to ask: a coordinator of before, a leader that died."""

_NO_ANSWER = KafkaError(KafkaError._TIMED_OUT, "No answer in time")


class _Connection:
    """An admin client, and the next one when it has lost its way, or was refused."""

    def __init__(self, config: ClientConfig) -> None:
        self._config = config
        self._current = self._open()
        self._changing = Lock()
        notify_of_forks(self)  # a child keeps it, and does not use it

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self._changing = Lock()

    def _open(self) -> tuple[AdminClient, Health]:
        health = Health(self._config.bootstrap_servers, self._config.properties)
        return open_admin(self._config, health), health

    def use(self) -> tuple[AdminClient, Health]:
        """The client for the next question, and what it tells of its connections.

        What a client was refused for may be over, which it finds out late. A question that waits for its answer would
        be taken for one that is refused again. So that one is not asked any more.
        """
        client, health = self._current
        client.poll(0)  # what it has had to tell since the last question
        if health.refused:
            self.reconnect(client)
        return self._current

    def reconnect(self, client: AdminClient) -> None:
        """Let the next question go over new connections: this client (2.16.0) would go on asking the same broker.

        Others may be waiting for answers of the old one, and keep it alive.
        """
        with self._changing:
            if self._current[0] is client:
                self._current = self._open()


class _Shared:
    """The connection of all who ask the same cluster in the same way; it lives as long as one of them does."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._connections: WeakValueDictionary[ClientConfig, _Connection] = WeakValueDictionary()
        notify_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`. Those who have the parent's connections keep them."""
        self._lock = Lock()
        self._connections = WeakValueDictionary()

    def connect(self, config: ClientConfig) -> _Connection:
        """The connection, opened if there is none."""
        with self._lock:
            there = self._connections.get(config)
        if there is not None:
            return there
        opened = _Connection(config)  # without the lock: somebody's oauth_cb may take its time
        with self._lock:
            return self._connections.setdefault(config, opened)


_shared = _Shared()


class AdminRequests:
    """Admin clients behind one method. Thread-safe.

    Questions go over a connection that all in this process share who ask with the same configuration: they wait at no
    broker. Changes do, and a broker answers the requests of a connection one after the other. So each change has a
    connection of its own, and holds up nobody.

    The futures of an admin client resolve only while it is alive, so it lives as long as this. It must not die before
    they have: they resolve in a thread of the client, which may collect garbage there, and a client (2.16.0) that is
    destroyed by its own thread aborts the process. So one with questions that nobody waits for any more is kept.

    Args:
        config: how to reach the cluster.
        shared: False for a connection that nobody else has, for changes, too.
    """

    _WATCH = 0.05
    _PAUSES = (0.01, 0.2)
    _ATTEMPT = 3.0

    def __init__(self, config: ClientConfig, *, shared: bool = True) -> None:
        self._config = config
        self._is_shared = shared
        self._connection: _Connection | None = _shared.connect(config) if shared else _Connection(config)
        self._left: _Connection | None = None  # in a forked child: the parent's, which must not be let go there
        notify_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self._left, self._connection = self._connection, None

    def close(self) -> None:
        """Let go of the connection; who shares it keeps it."""
        self._connection = None

    def check_open(self) -> None:
        """See that this can be asked.

        Raises:
            Closed: after `close`.
            BoundToProcess: in a child process after a fork.
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
        """The answers to a request, which is made again while it fails with a ``passing`` code and there is time.

        ``topic`` and ``needs``, the rights that it takes, are for errors; see
        `lvq_kafka.kafka.error_mapping.translate`. ``answered`` tells an answer from what the client makes up when none
        comes, or from one that says nothing; that counts as the error ``unanswered``. A ``harmless`` request changes
        nothing, and is made again when no answer
        came, too: the broker that was asked may have died, and others live.
        """
        pause, longest = self._PAUSES
        connection = self._open()
        if self._is_shared and not harmless:
            connection = _Connection(self._config)
        while True:
            self.check_open()
            client, health = connection.use()
            now = time.monotonic()
            limit = min(deadline, now + self._ATTEMPT) if harmless else deadline
            futures: list[Future[T]] = []
            _keeper.let_go()
            try:
                futures = list(request(client, max(0.1, limit - now)))
                answers = [self._wait(client, health, future, limit) for future in futures]
                if not all(map(answered, answers)):
                    raise KafkaException(unanswered)
            except KafkaException as exception:
                error = kafka_error(exception)
                if error is None:
                    raise
                client.poll(0)
                if error.code() in _LOST_ITS_WAY:
                    connection.reconnect(client)
                again = error.code() in passing or (harmless and error.code() in UNREACHABLE and not health.refused)
                if not again or time.monotonic() + pause > deadline:
                    raise health.explain(error, doing, topic=topic, needs=needs) from exception
            except (TypeError, ValueError) as exception:
                raise ConfigError(f"Cannot {doing}: {exception}.") from exception
            else:
                health.recovered()
                return answers
            finally:
                if not all(future.done() for future in futures):
                    _keeper.keep(client, futures)
            time.sleep(pause)
            pause = min(2 * pause, longest)

    def _wait(self, client: AdminClient, health: Health, future: Future[T], deadline: float) -> T:
        while not future.done():
            try:
                return future.result(self._WATCH)
            except TimeoutError:
                client.poll(0)  # lets the client tell what it sees: a refusal makes waiting pointless
                if health.refused or time.monotonic() > deadline + 1:
                    raise KafkaException(_NO_ANSWER) from None
        return future.result()


@dataclass(eq=False, slots=True)
class _Abandoned:
    client: AdminClient
    futures: Collection[Future[Any]]
    done_at: float = math.inf


_GRACE = 1.0  # seconds from the last answer until the client's thread has certainly left our code


class _Keeper:
    """Keeps the clients with questions that nobody waits for any more."""

    def __init__(self) -> None:
        self._kept: list[_Abandoned] = []
        self._lock = Lock()
        notify_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self._lock = Lock()
        self._left, self._kept = self._kept, []  # the parent's, for good

    def keep(self, client: AdminClient, futures: Collection[Future[Any]]) -> None:
        with self._lock:
            self._kept.append(_Abandoned(client, futures))

    def let_go(self) -> None:
        """Forget the clients whose questions were all answered a while ago."""
        if not self._kept:
            return
        now = time.monotonic()
        with self._lock:
            for one in self._kept:
                if all(future.done() for future in one.futures):
                    one.done_at = min(one.done_at, now)
            over = [one for one in self._kept if now - one.done_at > _GRACE]
            self._kept = [one for one in self._kept if one not in over]
        del over  # the clients end here, without the lock


_keeper = _Keeper()
