"""Threads that do the same work side by side and end together."""

from __future__ import annotations

from collections.abc import Callable
from threading import Condition, Event, Thread

__all__ = ["ThreadGroup"]

# Seconds. If a signal arrives just as a thread goes to sleep, Python sees it only when that thread wakes up.
_NAP = 0.2


class ThreadGroup:
    """Runs a function in several threads.

    Args:
        name: the prefix of the threads' names.
        size: the number of threads.
        work: the function. It returns when there is no more to do, or soon after ``stop`` is set.
    """

    def __init__(self, name: str, size: int, work: Callable[[], object]) -> None:
        self.stop = Event()
        """Set when a thread has failed, or when the thread that waits for them was interrupted."""
        self._work = work
        self._threads = [Thread(target=self._run, name=f"{name}-{number}", daemon=True) for number in range(size)]
        self._changed = Condition()
        self._at_work = 0
        self._failure: BaseException | None = None

    def run(self) -> None:
        """Start the threads and wait until all have ended.

        On an interrupt, each thread finishes what it is doing.

        Raises:
            BaseException: a thread raised it, or it interrupted this one.
        """
        try:
            for thread in self._threads:
                thread.start()
            for thread in self._threads:
                while thread.is_alive():
                    thread.join(_NAP)
        finally:
            self.stop.set()
            # Do not join: Python considers a thread ended once a join of it was interrupted.
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
        except BaseException as error:  # noqa: BLE001  # raised again by run()
            self._failure = self._failure or error
            self.stop.set()
        finally:
            with self._changed:
                self._at_work -= 1
                self._changed.notify_all()
