"""Those who wait for messages, threads and tasks of event loops alike, in the order in which they came."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

from lvq_kafka.core.handout import BySlot

__all__ = ["Taker", "Takers"]


class Taker:
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


class Takers(dict[Taker, None]):
    """Those who wait: a dict, to be asked at no cost whether it is empty. It has no lock of its own.

    A change wakes the first one only, and who gets something wakes the next: a message costs one wake-up or two, and
    not as many as there are workers without work. Who was woken in vain keeps their place. However many wait, and
    however many of them were woken and have not looked yet, the next one is found in constant time.
    """

    def __init__(self) -> None:
        super().__init__()
        self.wanted = 0
        """How many messages those could take who have looked in vain."""
        self._line: BySlot[Taker] = BySlot()  # those who were not woken
        self._slots = count()

    def wait(self, taker: Taker) -> None:
        """They have looked in vain."""
        if taker not in self:
            self[taker] = None
            taker.slot = next(self._slots)
        elif not taker.woken:
            return
        taker.woken = False
        self.wanted += taker.most
        self._line.add(taker)

    def serve(self, taker: Taker | None) -> None:
        """Someone has got something, whether they had to wait or not; there may be more."""
        if taker is not None:
            self._take_out(taker)
            taker.woken = False
        self.wake_next()

    def leave(self, taker: Taker) -> None:
        """They wait no longer, having looked or not: in that case it is the next one's turn."""
        self._take_out(taker)
        if taker.woken:
            taker.woken = False
            self.wake_next()

    def wake_next(self) -> None:
        """There may be something for one of them."""
        while (taker := self._line.take()) is not None:
            if self._wake(taker):
                return

    def wake_all(self) -> None:
        """There is news for all."""
        while (taker := self._line.take()) is not None:
            self._wake(taker)

    def forget(self) -> None:
        """Nobody waits any more: in a forked child, they are the parent's."""
        self.clear()
        self._line, self.wanted = BySlot(), 0

    def _take_out(self, taker: Taker) -> None:
        if taker in self:
            del self[taker]
            if not taker.woken:
                self._line.remove(taker)
                self.wanted -= taker.most

    def _wake(self, taker: Taker) -> bool:
        self.wanted -= taker.most
        taker.woken = True
        try:
            taker.wake()
        except RuntimeError:  # their event loop was closed before they could leave
            del self[taker]
            return False
        return True
