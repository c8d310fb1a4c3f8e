"""asyncio helpers: blocking calls in threads, lines of tasks, fair shares of the loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Callable, Hashable, Iterator
from contextlib import asynccontextmanager, contextmanager, suppress
from contextvars import ContextVar, copy_context
from threading import Lock, Thread
from typing import Generic, TypeVar

__all__ = ["Lines", "Share", "at_once", "in_background", "in_thread", "may_wait"]

T = TypeVar("T")

_SHARE = 0.001  # seconds


class Share:
    """The time that a stream may keep its event loop while events are ready.

    ::

        if share.spent():
            await share.renew()
    """

    __slots__ = ("_until",)

    def __init__(self) -> None:
        self._until = 0.0

    def spent(self) -> bool:
        """Return whether the share is used up.

        It starts with the first call, and again with the first call after a renewal.
        """
        now = time.monotonic()
        if not self._until:
            self._until = now + _SHARE
        return now > self._until

    async def renew(self) -> None:
        """Let other tasks run first."""
        self._until = 0.0
        await asyncio.sleep(0)


class Lines:
    """Lines of tasks, by name. The tasks of an event loop wait for each other only."""

    def __init__(self) -> None:
        self._locks: dict[tuple[asyncio.AbstractEventLoop, Hashable], tuple[asyncio.Lock, int]] = {}

    def has(self, name: Hashable) -> bool:
        """Return whether tasks of this event loop stand in a line."""
        return (asyncio.get_running_loop(), name) in self._locks

    @asynccontextmanager
    async def stand_in(self, name: Hashable) -> AsyncIterator[None]:
        """Stand in a line, and enter as the first of it. The next one follows at the end."""
        line = asyncio.get_running_loop(), name
        lock, number = self._locks.get(line, (asyncio.Lock(), 0))
        self._locks[line] = lock, number + 1
        try:
            async with lock:  # wakes waiters in the order in which they came
                yield
        finally:
            lock, number = self._locks.pop(line)
            if number > 1:
                self._locks[line] = lock, number - 1


_at_once: ContextVar[bool] = ContextVar("_at_once", default=False)


@contextmanager
def at_once() -> Iterator[None]:
    """Make calls fail that would have to wait for room: an event loop makes them."""
    token = _at_once.set(True)
    try:
        yield
    finally:
        _at_once.reset(token)


def may_wait() -> bool:
    """Return whether this call may wait for room; see `at_once`."""
    return not _at_once.get()


async def in_thread(
    call: Callable[[], T],
    *,
    abort: Callable[[], object] | None = None,
    undo: Callable[[T], object] | None = None,
    unheard: Callable[[BaseException], object] | None = None,
) -> T:
    """Run a blocking call in its own daemon thread.

    The loop's executor is not used, since a few such calls would fill it. If the task is cancelled, it continues at
    once, and the call runs on by itself.

    Args:
        abort: called if the task is cancelled before the call is over; must not block.
        undo: called with the call's result, also in a thread, if no one will receive that result.
        unheard: called likewise with its error.
    """
    running = _Call(call, undo, unheard)
    Thread(target=copy_context().run, args=(running.run,), name="lvq-async", daemon=True).start()
    try:
        return await running.future
    except asyncio.CancelledError:
        if running.abandon() and abort is not None:
            abort()
        raise


def in_background(call: Callable[[], object]) -> None:
    """Run a blocking call in a daemon thread that no one waits for."""
    Thread(target=call, name="lvq-async", daemon=True).start()


class _Call(Generic[T]):
    """A blocking call, shared by the thread that makes it and the task that awaits it."""

    def __init__(
        self,
        call: Callable[[], T],
        undo: Callable[[T], object] | None,
        unheard: Callable[[BaseException], object] | None,
    ) -> None:
        self._loop = asyncio.get_running_loop()
        self.future: asyncio.Future[T] = self._loop.create_future()
        self._call = call
        self._undo = undo
        self._unheard = unheard
        self._lock = Lock()
        self._abandoned = False
        self._done = False
        self._result: list[T] = []
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Make the call. Runs in the thread."""
        try:
            self._result.append(self._call())
        except BaseException as error:  # noqa: BLE001  # raised in the awaiting task
            self._failure = error
        with self._lock:
            self._done = True
            abandoned = self._abandoned
        if not abandoned:
            with suppress(RuntimeError):  # the loop is already closed: no one is waiting
                self._loop.call_soon_threadsafe(self._resolve)
                return
        self._dispose()

    def _resolve(self) -> None:
        if self.future.cancelled():  # `abandon` follows
            return
        if self._failure is None:
            self.future.set_result(self._result[0])
        else:
            self.future.set_exception(self._failure)

    def abandon(self) -> bool:
        """Note that no one awaits the call now. Return whether it is still running."""
        with self._lock:
            self._abandoned = True
            done = self._done
        if done:
            in_background(self._dispose)
        if self.future.done() and not self.future.cancelled():
            self.future.exception()  # or asyncio would log it as never retrieved
        return not done

    def _dispose(self) -> None:
        """Undo what no one receives."""
        if self._undo is not None and self._result:
            self._undo(self._result.pop())
        if self._unheard is not None and self._failure is not None:
            self._unheard(self._failure)
