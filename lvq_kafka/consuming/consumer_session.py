"""A session (R36): one consumer, as message groups count them, within a `Consumer`."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import TracebackType
from typing import Any, Generic, Self

from lvq_kafka.codecs import V
from lvq_kafka.consuming.acquiring import Acquiring, AsyncDeliveries
from lvq_kafka.consuming.delivery import Delivery, Settler
from lvq_kafka.consuming.sessions import OpenSession
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.producing.producer import Producer
from lvq_kafka.runtime.forking import Bound

__all__ = ["Session"]


class Session(Bound, Generic[V]):
    """A session of a consumer; see `Consumer.session`.

    Where messages are grouped, the messages of a group are in work for one session at a time (R36). A session that is
    dropped without being closed is closed when the last reference to it and to its iterations is gone.

    Thread-safe: several threads or tasks may share a session. Then they may have messages of one group at the same
    time.
    """

    def __init__(
        self,
        session: OpenSession,
        acquiring: Acquiring[V],
        settler: Settler,
        transact: Callable[[Producer[Any], float | None, OpenSession], Transaction[V]],
    ) -> None:
        self._session = session
        self._acquiring = acquiring
        self._settler = settler
        self._transact = transact

    def acquire(self, timeout: float | None = None) -> Delivery[V] | None:
        """Like `Consumer.acquire`, for this session.

        Raises:
            Closed: the session or its consumer was closed.
            StateError, LVQError: as in `Consumer.acquire`.
        """
        deliveries = self.acquire_many(1, timeout)
        return deliveries[0] if deliveries else None

    def acquire_many(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """Like `Consumer.acquire_many`, for this session."""
        return self._acquiring.acquire(most, timeout, self._settler, self._session)

    async def acquire_async(self, timeout: float | None = None) -> Delivery[V] | None:
        """Async version of `acquire`. Waits without a thread; holds nothing when cancelled."""
        deliveries = await self.acquire_many_async(1, timeout)
        return deliveries[0] if deliveries else None

    async def acquire_many_async(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """Async version of `acquire_many`. Waits without a thread; holds nothing when cancelled."""
        return await self._acquiring.acquire_async(most, timeout, self._settler, self._session)

    def __iter__(self) -> Iterator[Delivery[V]]:
        """Yield messages as they arrive, until the session or its consumer is closed.

        Raises:
            LVQError: as in `Consumer.acquire`.
        """
        return self._acquiring.iterate(self._settler, session=self._session)

    def __aiter__(self) -> AsyncDeliveries[V]:
        """Async version of `__iter__`."""
        return self._acquiring.iterate_async(self._settler, self._session)

    def transaction(self, producer: Producer[Any], *, timeout: float | None = None) -> Transaction[V]:
        """Like `Consumer.transaction`; messages acquired in it are for this session.

        A consumer has one transaction at a time, also if it has several sessions.
        """
        return self._transact(producer, timeout, self._session)

    @property
    def closed(self) -> bool:
        """True once it was closed. It gets no messages then."""
        return self._session.pins.ended

    def close(self) -> None:
        """End the session: it gets no more messages, and its groups are free for others.

        Messages that it holds are not released. Their groups are free once these messages are settled. Safe to call
        repeatedly and from any thread.
        """
        self._session.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<{'Closed session' if self.closed else 'Session'} of {self._settler.topic}>"
