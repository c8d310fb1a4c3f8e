"""Those who wait for messages, threads and tasks of event loops alike, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from lvq_kafka.core.ready_queue import BySlot

__all__ = ["WaitQueue", "Waiter"]


class Waiter:
    """Someone who waits for messages.

    Args:
        most: how many they take at a time.
        wake: called when it is worth looking again; on any thread and inside a lock, so it may only set something.
    """

    __slots__ = ("most", "slot", "wake", "woken")

    def __init__(self, most: int, wake: Callable[[], object]) -> None:
        self.most = most
        self.wake = wake
        self.woken = False
        """Whether they were woken, and have not looked since."""
        self.slot = -1
        """Their place in the line, which they keep as long as they are in it."""


class WaitQueue(dict[Waiter, None]):
    """Those who wait: a dict, to be asked at no cost whether it is empty. It has no lock of its own.

    A change wakes the first one only, and who gets something wakes the next: a message costs one wake-up or two, and
    not as many as there are workers without work. Who was woken in vain keeps their place. However many wait, and
    however many of them were woken and have not looked yet, the next one is found in constant time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 0
        """How many messages those could take who have looked in vain."""
        self._line: BySlot[Waiter] = BySlot()  # those who were not woken
        self._slots = count()

    def wait(self, waiter: Waiter) -> None:
        """They have looked in vain."""
        if waiter not in self:
            self[waiter] = None
            waiter.slot = next(self._slots)
        elif not waiter.woken:
            return
        waiter.woken = False
        self.wanted += waiter.most
        self._line.add(waiter)

    def serve(self, waiter: Waiter | None) -> None:
        """Someone has got something, whether they had to wait or not; there may be more."""
        if waiter is not None:
            self._remove(waiter)
            waiter.woken = False
        self.wake_next()

    def leave(self, waiter: Waiter) -> None:
        """They wait no longer, having looked or not: in that case it is the next one's turn."""
        self._remove(waiter)
        if waiter.woken:
            waiter.woken = False
            self.wake_next()

    def wake_next(self) -> None:
        """There may be something for one of them."""
        while (waiter := self._line.pop()) is not None:
            if self._wake(waiter):
                return

    def wake_all(self) -> None:
        """There is news for all."""
        while (waiter := self._line.pop()) is not None:
            self._wake(waiter)

    def forget(self) -> None:
        """Nobody waits any more: in a forked child, they are the parent's."""
        self.clear()
        self._line, self.wanted = BySlot(), 0

    def _remove(self, waiter: Waiter) -> None:
        if waiter in self:
            del self[waiter]
            if not waiter.woken:
                self._line.remove(waiter)
                self.wanted -= waiter.most

    def _wake(self, waiter: Waiter) -> bool:
        self.wanted -= waiter.most
        waiter.woken = True
        try:
            waiter.wake()
        except RuntimeError:  # their event loop was closed before they could leave
            del self[waiter]
            return False
        return True
