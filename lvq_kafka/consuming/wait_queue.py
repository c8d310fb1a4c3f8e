"""Callers that wait for messages, threads and asyncio tasks alike, in order of arrival.

In a queue with groups (R36), only callers that may get a message are woken.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import count
from operator import attrgetter
from typing import Protocol

from lvq_kafka.core.consumer.hand_out import Wanted
from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap
from lvq_kafka.core.waiting.ready_queue import BySlot
from lvq_kafka.core.waiting.session_pins import SessionPins

__all__ = ["SessionWaitQueue", "WaitQueue", "Waiter"]


class Waiter:
    """A caller that waits for messages.

    Args:
        most: the number of messages it takes at a time.
        wake: called when it should try again, from any thread and under a lock, so it may only set an event.
        session: the session that it acquires for.
    """

    __slots__ = ("most", "session", "slot", "wake", "woken")

    def __init__(self, most: int, wake: Callable[[], object], session: SessionPins | None = None) -> None:
        self.most = most
        self.wake = wake
        self.session = session
        self.woken = False
        """True if it was woken and has not tried since."""
        self.slot = -1
        """Its place in the queue, which it keeps for as long as it waits."""


class _WaitLine(Protocol):
    """Waiters in the order in which they are woken."""

    def add(self, item: Waiter, /) -> None: ...

    def remove(self, item: Waiter, /) -> None: ...

    def pop(self) -> Waiter | None: ...


class WaitQueue:
    """The waiting callers. Not thread-safe.

    A change wakes only the first waiter, and a waiter that gets a message wakes the next. So a message costs one or two
    wake-ups, not one per idle worker. A waiter that was woken and got no message keeps its place. The next waiter is
    found in constant time, however many wait, or were woken and have not tried yet.
    """

    def __init__(self) -> None:
        self.present: dict[Waiter, None] = {}
        """All waiters; empty if there are none. An attribute, since every ack reads it."""
        self.wanted = 0
        """The number of messages wanted by waiters that tried and got none."""
        self._line: _WaitLine = BySlot()  # waiters that were not woken
        self._slots = count()

    def wanted_by(self) -> Wanted:
        """Return `wanted`, by session, if that makes a difference; else all under None."""
        return {None: self.wanted}

    def wait(self, waiter: Waiter) -> None:
        """Add a waiter that got no message, or let it keep waiting if it was woken."""
        if waiter not in self.present:
            self.present[waiter] = None
            waiter.slot = next(self._slots)
        elif not waiter.woken:
            return
        waiter.woken = False
        self.wanted += waiter.most
        self._line.add(waiter)

    def serve(self, waiter: Waiter | None) -> None:
        """Remove the waiter that got messages, if any, and wake the next: there may be more."""
        if waiter is not None:
            self._remove(waiter)
            waiter.woken = False
        self.wake_next()

    def leave(self, waiter: Waiter) -> None:
        """Remove a waiter. If it was woken and did not try, wake the next one."""
        self._remove(waiter)
        if waiter.woken:
            waiter.woken = False
            self.wake_next()

    def wake_next(self) -> None:
        """Wake the next waiter, since there may be a message for it."""
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


_Serves = Callable[[SessionPins | None], bool]
_SLOT = attrgetter("slot")


class SessionWaitQueue(WaitQueue):
    """The waiting callers of several sessions. Not thread-safe.

    A message may be for one session only. So a change wakes the first waiter whose session may get a message. If that
    waiter gets none after all, the first of another session is woken, and so on, each session once.

    Args:
        serves: returns whether there may be a message for a session.
    """

    def __init__(self, serves: _Serves) -> None:
        super().__init__()
        self._by_session = _SessionLine(serves)
        self._line = self._by_session

    @property
    def sessions(self) -> list[SessionPins | None]:
        """The sessions that have waiters, woken or not."""
        return list(dict.fromkeys(waiter.session for waiter in self.present))

    def wanted_by(self) -> Wanted:
        """See `WaitQueue.wanted_by`."""
        return self._by_session.wanted

    def wait(self, waiter: Waiter) -> None:
        """See `WaitQueue.wait`."""
        was_woken = waiter.woken
        super().wait(waiter)
        if was_woken:
            self._by_session.leave_out(waiter.session)
            super().wake_next()

    def wake_next(self) -> None:
        """See `WaitQueue.wake_next`."""
        self._by_session.ask_all_again()
        super().wake_next()

    def wake_session(self, session: SessionPins) -> None:
        """See `WaitQueue.wake_session`."""
        for waiter in self._by_session.of(session):
            self._line.remove(waiter)
            self._wake(waiter)

    def forget(self) -> None:
        """See `WaitQueue.forget`."""
        super().forget()
        self._line = self._by_session = _SessionLine(self._by_session.serves)


class _SessionLine:
    """The waiters that were not woken, in order of arrival.

    Most changes concern either all sessions or one, and the ledger notes which one that is (`SessionPins.noted_in`). So
    only two sessions are checked for messages: one without messages of its own, on behalf of all, and the first of the
    noted ones. The others are not examined, however many wait.
    """

    def __init__(self, serves: _Serves) -> None:
        self.serves = serves
        self.wanted: dict[SessionPins | None, int] = {}
        self._lines: dict[SessionPins | None, PrecedenceHeap[Waiter]] = {}
        self._anyone = SessionPins()
        # Without the sessions that are left out:
        self._all: PrecedenceHeap[Waiter] = PrecedenceHeap()
        self._of_noted: PrecedenceHeap[Waiter] = PrecedenceHeap()  # of sessions that may have messages of their own
        self._noted: set[SessionPins] = set()  # such sessions, noted since the last `pop`
        self._left_out: set[SessionPins | None] = set()  # sessions whose waiters have tried since the last change

    def add(self, waiter: Waiter) -> None:
        session = waiter.session
        line = self._lines.get(session)
        if line is None:
            line = self._lines[session] = PrecedenceHeap()
            self.wanted[session] = 0
            if session is not None:
                session.noted_in = self._noted
        line.add(waiter.slot, waiter)
        self.wanted[session] += waiter.most
        if session not in self._left_out:
            self._all.add(waiter.slot, waiter)
        if session is not None and session.offers:
            session.note()

    def remove(self, waiter: Waiter) -> None:
        session = waiter.session
        line = self._lines.get(session)
        if line is None or line.remove(waiter.slot) is None:
            return
        self._all.remove(waiter.slot)
        self._of_noted.remove(waiter.slot)
        if line:
            self.wanted[session] -= waiter.most
        else:
            del self._lines[session], self.wanted[session]
            if session is not None:
                session.noted_in = None

    def of(self, session: SessionPins | None) -> list[Waiter]:
        """Return the waiters of a session."""
        return list(self._lines.get(session, ()))

    def leave_out(self, session: SessionPins | None) -> None:
        """Leave out a session whose waiters got no message, until `ask_all_again`."""
        self._left_out.add(session)
        for waiter in self.of(session):
            self._all.remove(waiter.slot)
            self._of_noted.remove(waiter.slot)

    def ask_all_again(self) -> None:
        """Include the sessions again that were left out."""
        for session in self._left_out:
            for waiter in self.of(session):
                self._all.add(waiter.slot, waiter)
            if session in self._lines and session is not None:
                session.note()
        self._left_out.clear()

    def pop(self) -> Waiter | None:
        """Pop the first waiter that may get a message, or return None if there is none."""
        found: list[Waiter] = []
        if self._all and self.serves(self._anyone):  # this also notes the sessions of the first messages
            found.append(self._all.first)
        if (one := self._first_of_noted()) is not None:
            found.append(one)
        if None in self._lines and None not in self._left_out and self.serves(None):  # callers of no session
            found.append(self._lines[None].first)
        if not found:
            return None
        waiter = min(found, key=_SLOT)
        self.remove(waiter)
        return waiter

    def _first_of_noted(self) -> Waiter | None:
        """Return the first waiter of a session that may get messages of its own."""
        for session in self._noted - self._left_out:
            for waiter in self.of(session):
                self._of_noted.add(waiter.slot, waiter)
        self._noted.clear()
        while self._of_noted:
            waiter = self._of_noted.first
            if self.serves(waiter.session):
                return waiter
            for other in self.of(waiter.session):
                self._of_noted.remove(other.slot)
            if waiter.session is not None and waiter.session.offers:
                waiter.session.note()  # no caller gets messages at the moment
        return None
