"""Those who wait for messages, threads and tasks of event loops alike, in the order in which they came."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable

__all__ = ["Taker", "Takers"]


class Taker:
    """Someone who waits for messages.

    Args:
        most: how many they take at a time.
        wake: called when it is worth looking again; on any thread and inside a lock, so it may only set something.
    """

    __slots__ = ("most", "wake", "woken")

    def __init__(self, most: int, wake: Callable[[], object]) -> None:
        self.most = most
        self.wake = wake
        self.woken = False
        """Whether they were woken, and have not looked since."""


class Takers:
    """The line of those who wait. It has no lock of its own.

    A change wakes the first one only, and who gets something wakes the next: a message costs one wake-up or two, and
    not as many as there are workers without work.
    """

    def __init__(self) -> None:
        self._line: OrderedDict[Taker, None] = OrderedDict()

    @property
    def wanted(self) -> int:
        """How many messages those in the line could take."""
        return sum(taker.most for taker in self._line)

    def wait(self, taker: Taker) -> None:
        """They have looked in vain."""
        taker.woken = False
        self._line[taker] = None

    def leave(self, taker: Taker) -> None:
        """They wait no longer, having looked or not: in that case it is the next one's turn."""
        self._line.pop(taker, None)
        if taker.woken:
            taker.woken = False
            self.wake_next()

    def wake_next(self) -> None:
        """There may be something for one of them."""
        while self._line:
            taker, _ = self._line.popitem(last=False)
            taker.woken = True
            try:
                taker.wake()
            except RuntimeError:  # the event loop of the first one was closed before it could leave
                continue
            return

    def wake_all(self) -> None:
        """There is news for all."""
        while self._line:
            self.wake_next()

    def clear(self) -> None:
        """Nobody waits any more, and nobody is to be told."""
        self._line.clear()
