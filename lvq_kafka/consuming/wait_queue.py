"""Callers that wait for messages, threads and asyncio tasks alike, in order of arrival."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from typing import Protocol

from lvq_kafka.core.consumer.hand_out import Wanted
from lvq_kafka.core.waiting.ready_queue import BySlot
from lvq_kafka.core.waiting.session_pins import SessionPins

__all__ = ["WaitQueue", "Waiter"]


class Waiter:
    """A caller that waits for messages.

    Args:
        most: the number of messages it takes at a time.
        wake: called when it should look again, from any thread and under a lock, so it may only set something.
        session: whose messages it takes.
    """

    __slots__ = ("most", "session", "slot", "wake", "woken")

    def __init__(self, most: int, wake: Callable[[], object], session: SessionPins | None = None) -> None:
        self.most = most
        self.wake = wake
        self.session = session
        self.woken = False
        """True if it was woken and has not looked since."""
        self.slot = -1
        """Its place in the queue, which it keeps for as long as it waits."""


class _WaitLine(Protocol):
    """Waiters in the order in which they are woken."""

    def add(self, item: Waiter, /) -> None: ...

    def remove(self, item: Waiter, /) -> None: ...

    def pop(self) -> Waiter | None: ...


class WaitQueue:
    """The waiting callers. Not thread-safe.

    A change wakes only the first waiter, and a waiter that gets something wakes the next. So a message costs one or two
    wake-ups, not one per idle worker. A waiter that was woken and found nothing keeps its place. The next waiter is
    found in constant time, however many are waiting or have been woken and not looked yet.
    """

    def __init__(self) -> None:
        self.present: dict[Waiter, None] = {}
        """All that wait; empty if nobody does. An attribute, since every ack asks."""
        self.wanted = 0
        """The number of messages wanted by waiters that looked and found nothing."""
        self._line: _WaitLine = BySlot()  # waiters that were not woken
        self._slots = count()

    def wanted_by(self) -> Wanted:
        """Return `wanted`, by session, if that makes a difference; else all under None."""
        return {None: self.wanted}

    def wait(self, waiter: Waiter) -> None:
        """Add a waiter that found nothing, or let it wait on if it was woken."""
        if waiter not in self.present:
            self.present[waiter] = None
            waiter.slot = next(self._slots)
        elif not waiter.woken:
            return
        waiter.woken = False
        self.wanted += waiter.most
        self._line.add(waiter)

    def serve(self, waiter: Waiter | None) -> None:
        """Remove a waiter that got something, if any, and wake the next: there may be more."""
        if waiter is not None:
            self._remove(waiter)
            waiter.woken = False
        self.wake_next()

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter. If it was woken and did not look, wake the next one."""
        self._remove(waiter)
        if waiter.woken:
            waiter.woken = False
            self.wake_next()

    def wake_next(self) -> None:
        """Wake the next waiter, since there may be something for it."""
        while (waiter := self._line.pop()) is not None:
            if self._wake(waiter):
                return

    def wake_all(self) -> None:
        """Wake all waiters."""
        for waiter in list(self.present):
            if not waiter.woken:
                self._line.remove(waiter)
                self._wake(waiter)

    def wake_session(self, session: SessionPins) -> None:
        """Wake all waiters of a session, which has ended."""
        for waiter in list(self.present):
            if waiter.session is session and not waiter.woken:
                self._line.remove(waiter)
                self._wake(waiter)

    def forget(self) -> None:
        """Drop all waiters. In a forked child, they belong to the parent."""
        self.present.clear()
        self._line, self.wanted = BySlot(), 0

    def _remove(self, waiter: Waiter) -> None:
        if waiter in self.present:
            del self.present[waiter]
            if not waiter.woken:
                self._line.remove(waiter)
                self.wanted -= waiter.most

    def _wake(self, waiter: Waiter) -> bool:
        self.wanted -= waiter.most
        waiter.woken = True
        try:
            waiter.wake()
        except RuntimeError:  # its event loop was closed before it could leave
            del self.present[waiter]
            return False
        return True
