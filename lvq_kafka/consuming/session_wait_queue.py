"""Callers that wait for messages in a queue with groups (R36).

Only those are woken that may get something.
"""

from __future__ import annotations

from collections.abc import Callable
from operator import attrgetter

from lvq_kafka.consuming.wait_queue import Waiter, WaitQueue
from lvq_kafka.core.consumer.hand_out import Wanted
from lvq_kafka.core.waiting.lazy_heap import PrecedenceHeap
from lvq_kafka.core.waiting.session_pins import SessionPins

__all__ = ["SessionWaitQueue"]

_Serves = Callable[[SessionPins | None], bool]
_SLOT = attrgetter("slot")


class SessionWaitQueue(WaitQueue):
    """The waiting callers of several sessions. Not thread-safe.

    A message may be for one session only. So a change wakes the first waiter whose session may get something. If that
    one finds nothing after all, the first of another session is woken, and so on, each session once.

    Args:
        serves: whether there may be something for a session.
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

    Most changes concern either all sessions or one, and the ledger notes which one that is (`SessionPins.offered`). So
    two are asked whether there may be something: a session that has nothing of its own, for all of them, and the first
    of those that were noted. Nobody looks at the others, however many wait.
    """

    def __init__(self, serves: _Serves) -> None:
        self.serves = serves
        self.wanted: dict[SessionPins | None, int] = {}
        self._lines: dict[SessionPins | None, PrecedenceHeap[Waiter]] = {}
        self._anyone = SessionPins()
        # Without those that are left out:
        self._all: PrecedenceHeap[Waiter] = PrecedenceHeap()
        self._of_noted: PrecedenceHeap[Waiter] = PrecedenceHeap()  # sessions that may have something of their own
        self._noted: set[SessionPins] = set()  # likewise, since somebody was last looked for
        self._left_out: set[SessionPins | None] = set()  # sessions whose waiters have looked since the last change

    def add(self, waiter: Waiter) -> None:
        session = waiter.session
        line = self._lines.get(session)
        if line is None:
            line = self._lines[session] = PrecedenceHeap()
            self.wanted[session] = 0
            if session is not None:
                session.offered = self._noted
        line.add(waiter.slot, waiter)
        self.wanted[session] += waiter.most
        if session not in self._left_out:
            self._all.add(waiter.slot, waiter)
        if session is not None and session.fronts:
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
                session.offered = None

    def of(self, session: SessionPins | None) -> list[Waiter]:
        """Return the waiters of a session."""
        return list(self._lines.get(session, ()))

    def leave_out(self, session: SessionPins | None) -> None:
        """Leave a session out, whose waiters have found nothing, until `ask_all_again`."""
        self._left_out.add(session)
        for waiter in self.of(session):
            self._all.remove(waiter.slot)
            self._of_noted.remove(waiter.slot)

    def ask_all_again(self) -> None:
        """Ask those sessions again that are left out."""
        for session in self._left_out:
            for waiter in self.of(session):
                self._all.add(waiter.slot, waiter)
            if session in self._lines and session is not None:
                session.note()
        self._left_out.clear()

    def pop(self) -> Waiter | None:
        """Pop the first waiter that may get something, or return None if there is none."""
        found: list[Waiter] = []
        if self._all and self.serves(self._anyone):  # which also notes whose the first messages are
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
        """Return the first waiter of a session that may get something of its own."""
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
            if waiter.session is not None and waiter.session.fronts:
                waiter.session.note()  # nobody gets anything at the moment
        return None
