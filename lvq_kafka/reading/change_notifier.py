"""Change notification for a follower: listeners for keys, and waiting threads and tasks."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager, suppress
from threading import Condition, RLock
from weakref import WeakKeyDictionary, ref

from lvq_kafka.core.latest.pending_keys import Cause, ConflatedKeys

__all__ = ["Alarm", "ChangeNotifier"]


class Alarm(asyncio.Event):
    """An event of an event loop that changes set.

    Its task clears it with `rearm`, with the lock held, before it looks what there is. Until then it is not set again:
    a thousand tasks that are still to run are woken once, however much changes meanwhile.
    """

    def __init__(self) -> None:
        super().__init__()
        self.patient = False
        """Whether only what concerns everybody sets it: its task has something, and waits for the time to return it."""
        self._rung = False

    def rearm(self) -> None:
        """Be set by the next change. The lock is held."""
        self.clear()
        self._rung = False

    async def wait_for(self, seconds: float | None) -> None:
        """Wait until it is set, for some seconds at most; None for no limit."""
        timer = None if seconds is None else asyncio.get_running_loop().call_later(seconds, self.set)
        try:
            await self.wait()
        finally:
            if timer is not None:
                timer.cancel()

    def rings(self, *, everybody: bool) -> bool:
        """Return whether to set it now. The lock is held."""
        if self._rung or (self.patient and not everybody):
            return False
        self._rung = True
        return True


def _ring(alarms: Iterable[Alarm]) -> None:
    for alarm in alarms:
        alarm.set()


class ChangeNotifier:
    """Passes changes on to listeners and waiters. Call all but `woken` with the lock held.

    Threads wait for ``changed``, which uses the lock. Tasks of an event loop cannot; they use `woken`.

    A listener owns its pending keys, and gets changes as long as it keeps a reference to them. An abandoned one, after
    ``break`` out of a loop or a cancelled request, costs nothing more.

    Args:
        lock: guards the state whose changes are passed on.
    """

    def __init__(self, lock: RLock) -> None:
        self.changed = Condition(lock)
        self._listeners: dict[int, ref[ConflatedKeys]] = {}  # by id, which may be reused after the end
        self._goals: list[Callable[[], bool]] = []
        self._woken: WeakKeyDictionary[Alarm, asyncio.AbstractEventLoop] = WeakKeyDictionary()

    def left_behind(self, lock: RLock) -> None:
        """Use another lock in a forked child: the holder of the old one does not exist there."""
        self.changed = Condition(lock)

    # ---------------------------------------------------------------- listening

    def subscribe(self, pending: ConflatedKeys) -> None:
        """Add every key that changes from now on to ``pending``."""
        self._listeners[id(pending)] = ref(pending)

    def unsubscribe(self, pending: ConflatedKeys) -> None:
        """Stop adding to ``pending``."""
        self._listeners.pop(id(pending), None)

    def __len__(self) -> int:
        """Return the number of listeners for keys."""
        return len(self._listening())

    def _listening(self) -> list[ConflatedKeys]:
        """Return the pending keys of the live listeners, and drop the abandoned ones.

        A finalizer could not drop them, since it must not take the lock.
        """
        found = [(number, known()) for number, known in list(self._listeners.items())]
        for number, pending in found:
            if pending is None:
                self._listeners.pop(number, None)
        return [pending for _, pending in found if pending is not None]

    # ---------------------------------------------------------------- waiting

    @contextmanager
    def waiting_for(self, goal: Callable[[], bool]) -> Iterator[None]:
        """Notify ``changed`` of a change that reaches the goal.

        The goal is evaluated under the lock.
        """
        self._goals.append(goal)
        try:
            yield
        finally:
            self._goals.remove(goal)

    @contextmanager
    def woken(self) -> Iterator[Alarm]:
        """Yield an event of the running loop that changes set.

        The notifier holds only a weak reference to it: a task that waits for it and is dropped is collected with its
        watch.
        """
        alarm = Alarm()
        with self.changed:
            self._woken[alarm] = asyncio.get_running_loop()
        try:
            yield alarm
        finally:
            with self.changed:
                self._woken.pop(alarm, None)

    # ---------------------------------------------------------------- changes

    def notify(self, keys: Iterable[bytes] = (), *, cause: Cause | None = None, everybody: bool = False) -> None:
        """Pass on the keys that have changed, and wake those concerned.

        With a cause, the keys have lost their value.

        Waiters are woken if there are listeners, or if a goal is reached. Otherwise no one is woken, since a wake-up
        takes the interpreter from the reading thread; ``everybody`` overrides that.
        """
        listening = self._listening()
        if listening:
            keys = list(keys)
            for pending in listening:
                pending.changed(keys, cause)
        if everybody or listening or any(reached() for reached in self._goals):
            self.changed.notify_all()
            self._wake_tasks(everybody=everybody)

    def _wake_tasks(self, *, everybody: bool) -> None:
        woken: dict[asyncio.AbstractEventLoop, list[Alarm]] = defaultdict(list)
        for alarm, loop in list(self._woken.items()):
            if alarm.rings(everybody=everybody):
                woken[loop].append(alarm)
        for loop, alarms in woken.items():
            with suppress(RuntimeError):  # the loop is already closed: no one is waiting
                loop.call_soon_threadsafe(_ring, alarms)
