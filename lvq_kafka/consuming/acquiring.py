"""Acquire messages as deliveries, from threads or from asyncio tasks."""

from __future__ import annotations

import asyncio
import threading
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from functools import partial
from typing import Generic, Self, TypeVar

from lvq_kafka.codecs import Codec, Undecodable, V
from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.delivery import Delivery, Settler
from lvq_kafka.consuming.sessions import ImplicitSessions, OpenSession
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.consuming.wait_queue import Waiter
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.text.validation import HIGHEST, at_least_one, waiting
from lvq_kafka.core.waiting.session_pins import SessionPins
from lvq_kafka.errors import AlreadySettled, Closed, DecodeError, LockLost
from lvq_kafka.runtime.aio import Share
from lvq_kafka.runtime.forking import Bound

__all__ = ["Acquiring", "AsyncDeliveries"]

T = TypeVar("T")

_POLL = 0.2  # seconds; how often an idle iteration checks whether to stop


class Acquiring(Generic[V]):
    """Acquires messages from a consumer's shared state.

    See `lvq_kafka.consuming.consumer.Consumer` for the options.
    """

    def __init__(
        self,
        shared: SharedState,
        dead_letters: DeadLetters,
        codec: Codec[V],
        *,
        undecodable: Undecodable,
        prefetch: int,
    ) -> None:
        self.skipped = 0
        """Messages that were rejected because their values could not be decoded."""
        self._shared = shared
        self._dead_letters = dead_letters
        self._codec = codec
        self._raw_on_error = undecodable == "raw"
        self._skips = undecodable == "skip"
        self._prefetch = prefetch
        self._share = Share()
        self._sessions = ImplicitSessions(shared) if shared.is_grouped else None

    def acquire(
        self, most: int, timeout: float | None, settler: Settler, session: OpenSession | None = None
    ) -> list[Delivery[V]]:
        """See `Consumer.acquire_many`. The deliveries are settled through ``settler``.

        Args:
            session: the session that acquires; by default, that of the thread.
        """
        if type(most) is not int or not 1 <= most <= HIGHEST:  # as `at_least_one`, without a call
            at_least_one(most=most)
        timeout = waiting(timeout)
        if session is None and self._sessions is not None:
            session = self._sessions.of_thread()
        pins = None if session is None else session.pins
        return self._get(most, settler, pins, None) or self._wait(
            most, timeout, partial(self._get, most, settler, pins), pins
        )

    async def acquire_async(
        self, most: int, timeout: float | None, settler: Settler, session: OpenSession | None = None
    ) -> list[Delivery[V]]:
        """Async version of `acquire`.

        Nothing is awaited between taking messages and returning them, so cancellation cannot lose any.
        """
        at_least_one(most=most)
        timeout = waiting(timeout)
        if self._share.spent():
            await self._share.renew()
        if session is None and self._sessions is not None:
            session = self._sessions.of_tasks()
        pins = None if session is None else session.pins
        return self._get(most, settler, pins, None) or await self._wait_async(
            most, timeout, partial(self._get, most, settler, pins), pins
        )

    def iterate(
        self,
        settler: Settler,
        most: int | None = None,
        stop: threading.Event | None = None,
        *,
        session: OpenSession | None = None,
    ) -> Iterator[Delivery[V]]:
        """See `Consumer.__iter__`.

        Prefetched messages that had no turn are returned, as if they had never been acquired.

        Args:
            most: the number of messages to take at a time; ``prefetch`` by default.
            stop: ends the iteration within `_POLL` seconds once it is set.
            session: the session that acquires; by default, that of the thread that asks for the first message.
        """
        most = self._prefetch if most is None else most
        if session is None and self._sessions is not None:
            session = self._sessions.of_thread()
        pins = None if session is None else session.pins
        if most == 1 and stop is None:  # nothing is prefetched: half the work
            attempt, read, skips = partial(self._acquire_now, 1, pins), self._read, self._skips
            with suppress(Closed):
                while True:
                    for item in self._acquire_now(1, pins, None) or self._wait(1, None, attempt, pins):
                        delivery = Delivery(settler, item, read)
                        if not skips or self._is_readable(delivery):
                            yield delivery
            return
        ahead: deque[Item] = deque()
        attempt = partial(self._acquire_now, most, pins, ahead=True)
        try:
            while stop is None or not stop.is_set():
                timeout = None if stop is None else _POLL
                ahead.extend(attempt(None) or self._wait(most, timeout, attempt, pins))
                if stop is None or not stop.is_set():
                    yield from self._turns(ahead, settler)
        except Closed:
            return
        finally:  # which Python's garbage collector may run, on any thread and under any lock
            self._shared.give_back_dropped(ahead)

    def iterate_async(self, settler: Settler, session: OpenSession | None = None) -> AsyncDeliveries[V]:
        """Async version of `iterate`."""
        if session is None and self._sessions is not None:
            session = self._sessions.of_tasks()
        return AsyncDeliveries(self, settler, session)

    # ---------------------------------------------------------------- waiting

    def _wait(
        self,
        most: int,
        timeout: float | None,
        attempt: Callable[[Waiter | None], list[T]],
        session: SessionPins | None,
    ) -> list[T]:
        """Wait until an attempt finds something; return an empty list on timeout."""
        deadline = None if timeout is None else time.monotonic() + timeout
        if deadline is None:
            self._shared.check_may_wait()
        woken = threading.Event()
        waiter = Waiter(most, woken.set, session)
        try:
            while not (found := attempt(waiter)):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                woken.wait(left)
                woken.clear()
        finally:
            self._shared.step_out(waiter)
        return found

    async def _wait_async(
        self,
        most: int,
        timeout: float | None,
        attempt: Callable[[Waiter | None], list[T]],
        session: SessionPins | None,
        woken: asyncio.Event | None = None,
    ) -> list[T]:
        """Async version of `_wait`. Set ``woken`` to make it try again."""
        deadline = None if timeout is None else time.monotonic() + timeout
        loop, woken = asyncio.get_running_loop(), woken or asyncio.Event()
        waiter = Waiter(most, lambda: loop.call_soon_threadsafe(woken.set), session)
        try:
            while not (found := attempt(waiter)):
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    break
                with suppress(TimeoutError):
                    async with asyncio.timeout(left):
                        await woken.wait()
                woken.clear()
        finally:
            self._shared.step_out(waiter)
        return found

    # ---------------------------------------------------------------- taking

    def _acquire_now(
        self, most: int, session: SessionPins | None, waiter: Waiter | None, *, ahead: bool = False
    ) -> list[Item]:
        """Take the messages that are available now. If there are none, the waiter will be woken."""
        while True:
            taken, exhausted = self._shared.acquire(most, waiter, session, ahead=ahead)
            if exhausted:
                try:
                    self._dead_letters.reject_exhausted(exhausted)
                except BaseException:
                    self._give_back(taken)
                    raise
            if taken or not exhausted:
                return taken

    def _get(
        self, most: int, settler: Settler, session: SessionPins | None, waiter: Waiter | None
    ) -> list[Delivery[V]]:
        """Take the messages that are available now, without those to be skipped."""
        while taken := self._acquire_now(most, session, waiter):
            deliveries = [Delivery(settler, item, self._read) for item in taken]
            if self._skips:
                try:
                    deliveries = [delivery for delivery in deliveries if self._is_readable(delivery)]
                except BaseException:  # for example, the dead letter cannot be added to the transaction
                    self._give_back(taken)
                    raise
            if deliveries:
                return deliveries
        return []

    def _turns(self, ahead: deque[Item], settler: Settler) -> Iterator[Delivery[V]]:
        """Yield the messages that are still the newest of their keys at their turn.

        The first message is yielded regardless, so every round yields at least one; otherwise a hot key would never be
        delivered.
        """
        may_be_stale = True
        while ahead:
            delivery = self._turn(ahead.popleft(), settler, may_be_stale=may_be_stale)
            if delivery is not None:
                yield delivery
            may_be_stale = False

    def _turn(self, item: Item, settler: Settler, *, may_be_stale: bool) -> Delivery[V] | None:
        """Hand out a message that was set aside, or return None if it is not delivered.

        A superseded one is returned, so the newer value can be acquired.
        """
        if self._shared.hand_over(item, may_be_stale=may_be_stale):
            delivery = Delivery(settler, item, self._read)
            if not self._skips or self._is_readable(delivery):
                return delivery
        else:
            self._give_back([item])
        return None

    def _read(self, item: Item) -> V:
        """See `Delivery.value`."""
        at = (self._shared.topic, item.partition, item.offset)
        return self._codec.decode_at(item.value, at, headers=item.headers or (), raw_on_error=self._raw_on_error)

    def _is_readable(self, delivery: Delivery[V]) -> bool:
        try:
            try:
                delivery.value  # noqa: B018  # decodes
            except DecodeError as error:
                self.skipped += 1
                with suppress(LockLost):  # the partition's new owner skips it
                    delivery.reject(str(error))
                return False
        except BaseException:  # an interrupt, or a dead letter that cannot be added to the transaction: not delivered
            with suppress(LockLost, AlreadySettled):
                delivery.release()
            raise
        return True

    def _give_back(self, ahead: Iterable[Item]) -> None:
        """Return messages that were never handed out."""
        for item in ahead:
            with suppress(LockLost, AlreadySettled):
                self._shared.apply(Ledger.release, item)


class AsyncDeliveries(Bound, Generic[V]):
    """A consumer's messages as they arrive: ``async for delivery in consumer``.

    It ends when the consumer or the session is closed. A step that is cancelled takes no message, and the next one
    continues. Prefetched messages that had no turn are back in their places once the iteration is dropped, as after
    ``break``, or ended with `aclose`. Several tasks may share it: each message goes to one of them.
    """

    elsewhere = "Send what is needed to open the queue, and consume it there."

    def __init__(self, acquiring: Acquiring[V], settler: Settler, session: OpenSession | None) -> None:
        self._acquiring = acquiring
        self._settler = settler
        self._session = session  # it stays open as long as something refers to it
        self._pins = None if session is None else session.pins
        self._ahead: deque[Item] = deque()
        self._may_be_stale = True
        self._closed = False
        self._share = Share()
        self._first_in_line = asyncio.Lock()
        self._woken = asyncio.Event()

    def __aiter__(self) -> Self:
        return self

    async def __anext__(self) -> Delivery[V]:
        """Return the next message once there is one.

        Nothing is awaited between taking messages and returning one, so cancellation cannot lose any.
        """
        if self._share.spent():
            await self._share.renew()
        acquiring, ahead = self._acquiring, self._ahead
        try:
            while True:
                while ahead:
                    may_be_stale, self._may_be_stale = self._may_be_stale, False
                    delivery = acquiring._turn(ahead.popleft(), self._settler, may_be_stale=may_be_stale)
                    if delivery is not None:
                        if ahead:
                            self._woken.set()  # a task that waits may have the next one
                        return delivery
                if not self._set_aside(None):
                    await self._wait()
        except Closed:
            raise StopAsyncIteration from None

    def _set_aside(self, waiter: Waiter | None) -> list[Item]:
        """Set aside the messages available now. If there are none, the waiter will be woken.

        One that waits needs no others while some are set aside.
        """
        if self._closed:
            raise Closed("The iteration is closed.")
        if waiter is not None and self._ahead:
            return list(self._ahead)
        acquiring = self._acquiring
        taken = acquiring._acquire_now(acquiring._prefetch, self._pins, waiter, ahead=True)
        if taken:
            self._ahead += taken
            self._may_be_stale = True
        return taken

    async def _wait(self) -> None:
        """Wait until messages are set aside, after the tasks that waited before."""
        async with self._first_in_line:
            if not self._ahead:
                self._woken, most = asyncio.Event(), self._acquiring._prefetch
                await self._acquiring._wait_async(most, None, self._set_aside, self._pins, self._woken)

    async def aclose(self) -> None:
        """End the iteration, as `contextlib.aclosing` does, and give back prefetched messages.

        Does not block.
        """
        self._closed = True
        self._woken.set()
        ahead = list(self._ahead)
        self._ahead.clear()
        self._acquiring._give_back(ahead)

    def __del__(self) -> None:
        if self._ahead:
            self._acquiring._shared.give_back_dropped(self._ahead)
