"""Callers that wait for messages in a queue with groups (R36).

Only those are woken that may get something.
"""

from __future__ import annotations

from collections.abc import Callable

from lvq_kafka.consuming.wait_queue import Waiter, WaitQueue
from lvq_kafka.core.fronts import SessionPins
from lvq_kafka.core.hand_out import Wanted
from lvq_kafka.core.precedence_heap import PrecedenceHeap

__all__ = ["SessionWaitQueue"]

_Serves = Callable[[SessionPins | None], bool]


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
            self._by_session.served_nothing.add(waiter.session)
            super().wake_next()

    def wake_next(self) -> None:
        """See `WaitQueue.wake_next`."""
        self._by_session.served_nothing.clear()
        super().wake_next()

    def forget(self) -> None:
        """See `WaitQueue.forget`."""
        super().forget()
        self._line = self._by_session = _SessionLine(self._by_session.serves)


class _SessionLine:
    """The waiters that were not woken, in order of arrival."""

    def __init__(self, serves: _Serves) -> None:
        self.serves = serves
        self.wanted: dict[SessionPins | None, int] = {}
        self.served_nothing: set[SessionPins | None] = set()
        """Sessions whose waiters have looked since the last change."""
        self._lines: dict[SessionPins | None, PrecedenceHeap[Waiter]] = {}

    def add(self, waiter: Waiter) -> None:
        session = waiter.session
        line = self._lines.get(session)
        if line is None:
            line = self._lines[session] = PrecedenceHeap()
            self.wanted[session] = 0
        line.add(waiter.slot, waiter)
        self.wanted[session] += waiter.most

    def remove(self, waiter: Waiter) -> None:
        line = self._lines.get(waiter.session)
        if line is not None and line.remove(waiter.slot) is not None:
            self._removed(waiter, line)

    def pop(self) -> Waiter | None:
        """Pop the first waiter that may get something, or return None if there is none."""
        served = [
            line for session, line in self._lines.items() if session not in self.served_nothing and self.serves(session)
        ]
        if not served:
            return None
        line = min(served, key=_lowest)
        waiter = line.pop()
        self._removed(waiter, line)
        return waiter

    def _removed(self, waiter: Waiter, line: PrecedenceHeap[Waiter]) -> None:
        session = waiter.session
        if line:
            self.wanted[session] -= waiter.most
        else:
            del self._lines[session], self.wanted[session]


def _lowest(line: PrecedenceHeap[Waiter]) -> int:
    slot: int = line.lowest
    return slot
