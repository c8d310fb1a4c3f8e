"""Threads that do the same work side by side, and end together."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Event, Thread

__all__ = ["ThreadGroup"]

# Seconds. Python sees a signal that comes just as a thread goes to sleep only when that thread wakes up again.
_NAP = 0.2


class ThreadGroup:
    """Runs a function in several threads.

    Args:
        name: of the threads.
        size: how many.
        work: what each of them does. It ends when there is no more to do, or soon after ``stop`` is set.
    """

    def __init__(self, name: str, size: int, work: Callable[[], object]) -> None:
        self.stop = Event()
        """Set when one has failed, or the thread that waits for them was interrupted."""
        self._work = work
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(size)]
        self._changed = Condition()
        self._at_work = 0
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Start them, and wait until all have ended. An interrupt lets each finish what it is at.

        Raises:
            BaseException: what one of them has raised, or what interrupted this thread.
        """
        try:
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(_NAP)
        finally:
            self.stop.set()
            # Not by joining: a join that was interrupted takes the thread for one that has ended.
            with self._changed:
                self._changed.wait_for(lambda: not self._at_work)
        if self._failure is not None:
            raise self._failure

    def _run(self) -> None:
        with self._changed:
            self._at_work += 1
        try:
            if not self.stop.is_set():
                self._work()
        except BaseException as error:  # noqa: BLE001  # it goes to whoever waits
            self._failure = self._failure or error
            self.stop.set()
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()
