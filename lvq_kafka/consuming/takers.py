"""Those who wait for messages, threads and tasks of event loops alike, in the order in which they came."""

from __future__ import annotations

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


class Takers(dict[Taker, None]):
    """The line of those who wait: a dict, to be asked at no cost whether it is empty. It has no lock of its own.

    A change wakes the first one only, and who gets something wakes the next: a message costs one wake-up or two, and
    not as many as there are workers without work. Who was woken in vain keeps their place.
    """

    @property
    def wanted(self) -> int:
        """How many messages those in the line could take who have looked in vain."""
        return sum(taker.most for taker in self if not taker.woken)

    def wait(self, taker: Taker) -> None:
        """They have looked in vain."""
        taker.woken = False
        self[taker] = None

    def serve(self, taker: Taker | None) -> None:
        """Someone has got something, whether they had to wait or not; there may be more."""
        if taker is not None:
            taker.woken = False
            self.pop(taker, None)
        self.wake_next()

    def leave(self, taker: Taker) -> None:
        """They wait no longer, having looked or not: in that case it is the next one's turn."""
        self.pop(taker, None)
        if taker.woken:
            taker.woken = False
            self.wake_next()

    def wake_next(self) -> None:
        """There may be something for one of them."""
        while (taker := next((one for one in self if not one.woken), None)) is not None:
            if self._wake(taker):
                return

    def wake_all(self) -> None:
        """There is news for all."""
        for taker in list(self):
            if not taker.woken:
                self._wake(taker)

    def _wake(self, taker: Taker) -> bool:
        taker.woken = True
        try:
            taker.wake()
        except RuntimeError:  # their event loop was closed before they could leave
            del self[taker]
            return False
        return True
