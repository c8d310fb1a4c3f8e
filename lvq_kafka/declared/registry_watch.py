"""The watch on a queue's definition: alterations are known before they hold (R39)."""

from __future__ import annotations

import logging
from collections.abc import Callable
from math import inf
from threading import Event, Lock, Thread
from typing import Protocol
from weakref import WeakSet

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.history import NOTICE, QueueHistory
from lvq_kafka.declared.registry import Registry
from lvq_kafka.errors import BrokerUnavailable, LVQError, QueueMismatch, QueueNotDeclared
from lvq_kafka.runtime.clocks import uptime

__all__ = ["TRUSTED", "Follows", "RegistryWatch"]

logger = logging.getLogger("lvq_kafka.registry")

_LOOK = 5.0  # seconds from one look to the next, and for which a look may take
_AGAIN = 1.0  # second until the next look after one that failed
_MOMENT = 0.05  # seconds: the least pause
TRUSTED = NOTICE - 2 * _LOOK
"""Seconds after a look within which no alteration can hold that it did not show.

That leaves time for brokers whose clocks differ, and for messages on their way.
"""


class Follows(Protocol):
    """The follower of a watch, which lives as long as somebody refers to it elsewhere."""

    def altered(self) -> None:
        """Note that the definition changes, or will; called on the thread of the watch."""


class RegistryWatch:
    """Looks at the definition of one queue, while anybody follows it.

    A look asks for the end of the registry's log, and reads the registry if that has moved.

    Args:
        cluster: the cluster that holds the queue.
        name: the queue's name.
        history: its definitions.
        looked_at: when they were asked for, on the clock.
        clock: returns seconds; it includes the time for which a machine sleeps.
    """

    def __init__(
        self,
        cluster: Cluster,
        name: str,
        history: QueueHistory,
        looked_at: float,
        clock: Callable[[], float] = uptime,
    ) -> None:
        self.history = history
        """The queue's definitions, as far as they are known."""
        self.lapses = 0
        """How often an alteration may have held before this watch knew of it."""
        self.ended: QueueMismatch | None = None
        """The error that the queue was dropped, and another one has its name; None if that is not so."""
        self._cluster = cluster
        self._name = name
        self._clock = clock
        self._looked_at = looked_at
        self._end = -1
        self._trouble: LVQError | None = None
        self._followers: WeakSet[Follows] = WeakSet()
        self._due = Event()
        self._lock = Lock()
        self._looking = Lock()
        self._thread: Thread | None = None

    # ---------------------------------------------------------------- what is known

    @property
    def in_force(self) -> QueueDefinition:
        """The options that hold now for the queue as a whole, as far as they are known."""
        return self.history.in_force(self._cluster.now())

    @property
    def known(self) -> QueueDefinition:
        """The same, with the terms of time for messages of any append time."""
        return self.history.known(self._cluster.now())

    @property
    def sure_until(self) -> float:
        """The time, on the clock, until which this watch knows of all that can hold.

        It is over once another queue has the name.
        """
        return self._looked_at + TRUSTED if self.ended is None else -inf

    @property
    def is_sure(self) -> bool:
        """True until then."""
        return self._clock() < self.sure_until

    @property
    def trouble(self) -> LVQError:
        """The reason why it may not know of an alteration."""
        if self.ended is not None:
            return self.ended
        seconds = self._clock() - self._looked_at
        why = "" if self._trouble is None else f": {str(self._trouble).rstrip('.')}"
        return BrokerUnavailable(
            f"For {seconds:,.0f} s, nobody could look whether the queue {self._name} was altered{why}.",
            code="_TIMED_OUT",
            retriable=True,
            hint="It goes on once the registry of queues can be read again.",
        )

    def refresh(self) -> None:
        """Look now.

        Raises:
            QueueNotDeclared: the queue was dropped.
            QueueMismatch: it was then declared otherwise, so this is another queue.
            ConfigError: its definition was altered by a newer library.
            TransportError: the cluster cannot be reached or refuses.
        """
        with self._looking:
            registry, then = Registry(self._cluster, timeout=_LOOK), self._clock()
            end = registry.end(_LOOK)
            before, lapsed = (self.history, self.ended is None), then >= self.sure_until
            if end != self._end:
                history = registry.history(self._name)
                self.ended = self._other_queue(history)
                if self.ended is None:
                    self.history = history
                self._end = end
            if self.ended is None:
                self.lapses += lapsed
                self._looked_at, self._trouble = then, None
        if before != (self.history, self.ended is None):
            if self.ended is not None:
                logger.warning("%s", self.ended)
            self._notify()
        if self.ended is not None:
            raise self.ended.with_traceback(None)

    def _other_queue(self, history: QueueHistory) -> QueueMismatch | None:
        """Return the error that these are the definitions of another queue; None if they are not."""
        was, now = self.history.revisions[0], history.revisions[0]
        if was == now:
            return None
        return QueueMismatch(
            f"The queue {self._name} was dropped, and declared otherwise.",
            queue=self._name,
            differences=was.definition.differences(now.definition),
            hint="Open it again.",
        )

    def refresh_if_due(self) -> None:
        """Look now if the last look is an interval ago. Raises what `refresh` raises."""
        if self._clock() >= self._looked_at + _LOOK:
            self.refresh()

    # ---------------------------------------------------------------- following

    def follow(self, who: Follows) -> None:
        """Tell a follower of each alteration, when it is noticed and when it holds.

        That is until it leaves, or is dropped.
        """
        with self._lock:
            self._followers.add(who)
            if self._thread is None:
                self._due.clear()
                name = f"lvq-registry-{self._name}"
                self._thread = Thread(target=self._run, args=(self.in_force,), name=name, daemon=True)
                self._thread.start()

    def leave(self, who: Follows) -> None:
        """Stop telling. The thread ends after the last one."""
        with self._lock:
            self._followers.discard(who)
            if not self._followers:
                self._due.set()

    def _run(self, in_force: QueueDefinition) -> None:
        """Look until nobody follows.

        Args:
            in_force: the options that the first follower may have begun with.
        """
        pause = max(0.0, self._looked_at + _LOOK - self._clock())
        while True:
            self._due.wait(pause)
            with self._lock:
                if not self._followers:
                    self._thread = None
                    return
                self._due.clear()
            if self._trouble is not None or self._clock() >= self._looked_at + _LOOK:
                self._try_refresh()
            if (now := self.in_force) != in_force:
                in_force = now
                self._notify()
            pause = self._pause()

    def _pause(self) -> float:
        """Return the seconds until the next look, or until an alteration holds."""
        look = _LOOK if self._trouble is None else _AGAIN
        change = self.history.next_change(self._cluster.now())
        return look if change is None else max(_MOMENT, min(look, change - self._cluster.now()))

    def _try_refresh(self) -> None:
        sure = self.is_sure
        try:
            self.refresh()
        except QueueNotDeclared:  # what used to hold for its messages still does
            self._looked_at, self._trouble = self._clock(), None
        except LVQError as error:
            self._trouble = error
            if sure and not self.is_sure and self.ended is None:
                logger.warning("nobody could look whether the queue %s was altered: %s", self._name, error)

    def _notify(self) -> None:
        for who in list(self._followers):
            who.altered()
