"""Who is to be told of what a follower reads: listeners of keys, and threads that wait for something."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, RLock
from weakref import ref

from lvq_kafka.core.conflation import ConflatedKeys

__all__ = ["ChangeNotifier", "Subscription"]


class Subscription:
    """Keys that changed, conflated, for one listener of a follower, who is told for as long as they keep this.

    A listener who was left behind, by ``break`` out of a loop or a request that was cancelled, costs nothing more.
    """

    __slots__ = ("__weakref__", "_notifier", "pending", "wakers")

    def __init__(self, notifier: ChangeNotifier, pending: ConflatedKeys) -> None:
        self._notifier = notifier
        self.pending = pending
        self.wakers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Be told nothing more, and wake who waits."""
        self._notifier.unsubscribe(self)
        self.pending = ConflatedKeys()
        self.wake()

    def wake(self) -> None:
        """Wake the event loops in which somebody waits for this."""
        for wake in list(self.wakers):
            wake()


class ChangeNotifier:
    """The lock of a follower, and everybody who waits for a change of what it guards.

    Threads wait for ``changed``, which is the lock; event loops cannot, so a subscription has wakers as well.
    """

    def __init__(self) -> None:
        self._set_lock()
        self._subscriptions: dict[int, ref[Subscription]] = {}  # by id, which another one may have after their end
        self._goals: list[Callable[[], bool]] = []

    def left_behind(self) -> None:
        """In a forked child: whoever held the lock is not there to release it."""
        self._set_lock()

    def _set_lock(self) -> None:
        self.lock = RLock()
        """The lock by itself: a condition takes it by a function of Python's."""
        self.changed = Condition(self.lock)

    @contextmanager
    def changing(self, *, everybody: bool = False) -> Iterator[None]:
        """Hold the lock for a change, then wake whom it concerns: who listens, and who has reached a goal.

        Nobody else, since a wake-up takes the interpreter from the reading thread; unless it is for ``everybody``.
        """
        with self.changed:
            yield
            listening = self._listening()
            if everybody or listening or any(reached() for reached in self._goals):
                self.changed.notify_all()
        for subscription in listening:
            subscription.wake()

    @contextmanager
    def waiting_for(self, goal: Callable[[], bool]) -> Iterator[Condition]:
        """Hold the lock, and be woken by a change with which the goal is reached. It is asked under the lock."""
        with self.changed:
            self._goals.append(goal)
            try:
                yield self.changed
            finally:
                self._goals.remove(goal)

    # ---------------------------------------------------------------- keys; the lock is held

    def __len__(self) -> int:
        """How many listen to keys."""
        return len(self._listening())

    def notify(self, keys: Sequence[bytes]) -> None:
        """These keys have changed."""
        for subscription in self._listening():
            subscription.pending.changed(keys)

    def subscribe(self, dump: Sequence[bytes]) -> Subscription:
        """Tell of every key that changes from now on, after these."""
        subscription = Subscription(self, ConflatedKeys(dump))
        self._subscriptions[id(subscription)] = ref(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Tell it nothing more. Takes the lock."""
        with self.changed:
            self._subscriptions.pop(id(subscription), None)
            self.changed.notify_all()

    def _listening(self) -> list[Subscription]:
        """Those who still listen. Who was left behind is forgotten here, not by a finalizer, which knows no lock."""
        found = [(number, known()) for number, known in list(self._subscriptions.items())]
        for number, subscription in found:
            if subscription is None:
                self._subscriptions.pop(number, None)
        return [subscription for _, subscription in found if subscription is not None]
