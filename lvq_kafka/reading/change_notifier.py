"""Change notification for a follower: listeners for keys, and waiting threads."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from threading import Condition, RLock
from weakref import ref

from lvq_kafka.core.conflation import ConflatedKeys

__all__ = ["ChangeNotifier", "Subscription"]


class Subscription:
    """The changed keys, conflated, for one listener of a follower.

    The listener is notified as long as it keeps a reference to this object. An abandoned one, after ``break`` out of a
    loop or a cancelled request, costs nothing more.
    """

    __slots__ = ("__weakref__", "_notifier", "pending", "wakers")

    def __init__(self, notifier: ChangeNotifier, pending: ConflatedKeys) -> None:
        self._notifier = notifier
        self.pending = pending
        self.wakers: list[Callable[[], None]] = []

    def close(self) -> None:
        """Stop notifications, and wake the waiters."""
        self._notifier.unsubscribe(self)
        self.pending = ConflatedKeys()
        self.wake()

    def wake(self) -> None:
        """Wake the event loops that wait for this subscription."""
        for wake in list(self.wakers):
            wake()


class ChangeNotifier:
    """The lock of a follower, and everything that waits for a change of the state it guards.

    Threads wait for ``changed``, which uses the lock; event loops cannot, so a subscription has wakers as well.
    """

    def __init__(self) -> None:
        self._set_lock()
        self._subscriptions: dict[int, ref[Subscription]] = {}  # by id, which may be reused after the end
        self._goals: list[Callable[[], bool]] = []

    def left_behind(self) -> None:
        """Replace the lock in a forked child: its holder is not there to release it."""
        self._set_lock()

    def _set_lock(self) -> None:
        self.lock = RLock()
        """The bare lock: a `Condition` would acquire it through a Python function."""
        self.changed = Condition(self.lock)

    @contextmanager
    def changing(self, *, everybody: bool = False) -> Iterator[None]:
        """Hold the lock for a change, then wake listeners and waiters if it concerns them.

        It does if there are listeners, or if a goal is reached. Otherwise no one is woken, since a wake-up takes the
        interpreter from the reading thread; ``everybody`` overrides that.
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
        """Hold the lock, and get woken by a change that reaches the goal.

        The goal is evaluated under the lock.
        """
        with self.changed:
            self._goals.append(goal)
            try:
                yield self.changed
            finally:
                self._goals.remove(goal)

    # ---------------------------------------------------------------- keys (call with the lock held)

    def __len__(self) -> int:
        """Return the number of listeners for keys."""
        return len(self._listening())

    def notify(self, keys: Sequence[bytes]) -> None:
        """Notify the listeners that these keys have changed."""
        for subscription in self._listening():
            subscription.pending.changed(keys)

    def subscribe(self, dump: Sequence[bytes]) -> Subscription:
        """Report these keys, then every key that changes from now on."""
        subscription = Subscription(self, ConflatedKeys(dump))
        self._subscriptions[id(subscription)] = ref(subscription)
        return subscription

    def unsubscribe(self, subscription: Subscription) -> None:
        """Stop notifying a subscription. Takes the lock."""
        with self.changed:
            self._subscriptions.pop(id(subscription), None)
            self.changed.notify_all()

    def _listening(self) -> list[Subscription]:
        """Return the live subscriptions, and drop the abandoned ones.

        A finalizer could not drop them, since it must not take the lock.
        """
        found = [(number, known()) for number, known in list(self._subscriptions.items())]
        for number, subscription in found:
            if subscription is None:
                self._subscriptions.pop(number, None)
        return [subscription for _, subscription in found if subscription is not None]
