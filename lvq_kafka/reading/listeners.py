"""Who is to be told of what a follower reads: listeners of keys, and threads that wait for something."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition

from lvq_kafka.core.conflation import ConflatedKeys

__all__ = ["Listeners", "Subscription"]


class Subscription:
    """Keys that changed, conflated, for one listener of a follower."""

    def __init__(self, listeners: Listeners, pending: ConflatedKeys) -> None:
        self._listeners = listeners
        self.pending = pending
        self.wakers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Be told nothing more."""
        self._listeners.drop(self)


class Listeners:
    """The lock of a follower, and everybody who waits for a change of what it guards.

    Threads wait for ``changed``, which is the lock; event loops cannot, so a subscription has wakers as well.
    """

    def __init__(self) -> None:
        self.changed = Condition()
        self._subscriptions: list[Subscription] = []
        self._goals: list[Callable[[], bool]] = []

    def left_behind(self) -> None:
        """In a forked child: whoever held the lock is not there to release it."""
        self.changed = Condition()

    @contextmanager
    def changing(self, *, everybody: bool = False) -> Iterator[None]:
        """Hold the lock for a change, then wake whom it concerns: who listens, and who has reached a goal.

        Nobody else, since a wake-up takes the interpreter from the reading thread; unless it is for ``everybody``.
        """
        with self.changed:
            yield
            if everybody or self._subscriptions or any(reached() for reached in self._goals):
                self.changed.notify_all()
            wakers = [wake for subscription in self._subscriptions for wake in subscription.wakers]
        for wake in wakers:
            wake()

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

    @property
    def any(self) -> bool:
        """Whether anybody listens to keys."""
        return bool(self._subscriptions)

    def tell(self, keys: Iterable[bytes]) -> None:
        """These keys have changed."""
        for subscription in self._subscriptions:
            subscription.pending.changed(keys)

    def subscribe(self, dump: Sequence[bytes]) -> Subscription:
        """Tell of every key that changes from now on, after these."""
        subscription = Subscription(self, ConflatedKeys(dump))
        self._subscriptions.append(subscription)
        return subscription

    def drop(self, subscription: Subscription) -> None:
        """Tell it nothing more. Takes the lock."""
        with self.changed:
            if subscription in self._subscriptions:
                self._subscriptions.remove(subscription)
            self.changed.notify_all()
