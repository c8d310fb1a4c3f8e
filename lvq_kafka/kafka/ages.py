"""The age of undecided appends (G14), tracked at the cost of one reference each."""

from __future__ import annotations

import time
import weakref
from collections import deque
from collections.abc import Callable, Mapping

from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka.client import PropertyValue

__all__ = ["Ages", "Cohort", "limit_of", "milliseconds", "without_deadline"]

_FINEST = 0.02  # seconds
_COARSEST = 1.0
_DELIVERY_TIMEOUT = 120_000  # ms; the Java client's default
_SOCKET_TIMEOUT = 60_000  # ms; the client's own default


class Cohort:
    """The appends of one short period: they have the same age.

    A receipt refers to its cohort until it is decided.
    """

    __slots__ = ("__weakref__", "end", "losses")

    def __init__(self, losses: int = 0) -> None:
        self.end = float("inf")
        """The end of the period; infinity while it lasts."""
        self.losses = losses
        """The number of connections lost before these appends. If more are lost since, so may be an answer to these."""


class Ages:
    """The age limit of undecided appends. The methods are for one thread.

    No append is counted or listed: a past cohort stays alive as long as one of its receipts is undecided.

    Args:
        limit: how long an append may be undecided, in seconds; None for no limit.
        losses: returns how many connections have been lost.
    """

    def __init__(self, limit: float | None, losses: Callable[[], int] = lambda: 0) -> None:
        self.limit = limit
        self._losses = losses
        self.step = _COARSEST if limit is None else min(_COARSEST, max(_FINEST, limit / 10))
        """The period of a cohort, in seconds. An append may be given up late by as much, but never early."""
        self.current = Cohort(losses())
        """The cohort of receipts made now."""
        self._began = time.monotonic()
        self._past: deque[weakref.ref[Cohort]] = deque()

    def overdue(self) -> bool:
        """Return whether an append has been undecided for too long."""
        if self.limit is None:
            return False
        time_now, losses = time.monotonic(), self._losses()
        if time_now - self._began >= self.step or losses != self.current.losses:
            self.current.end = self._began = time_now
            self._past.append(weakref.ref(self.current))
            self.current = Cohort(losses)
        oldest = self._oldest()
        return oldest is not None and time_now - oldest.end >= self.limit

    def forget(self) -> None:
        """Discard overdue cohorts: no append that old is undecided, even if it looks so.

        An interrupt may have hit the report of a receipt.
        """
        while self.overdue():
            self._past.popleft()

    def _oldest(self) -> Cohort | None:
        while self._past:
            if (oldest := self._past[0]()) is not None:
                return oldest
            self._past.popleft()
        return None


def limit_of(properties: Mapping[str, PropertyValue]) -> float | None:
    """Return how many seconds an append may be undecided; None for no limit.

    Accepts both of the client's names for the property; 0 means no limit.
    """
    names = ("delivery.timeout.ms", "message.timeout.ms")
    name = next((name for name in names if name in properties), names[0])
    return milliseconds(properties, name, _DELIVERY_TIMEOUT) / 1000 or None


def without_deadline(limit: float | None, properties: Mapping[str, PropertyValue]) -> dict[str, int]:
    """Return properties with which the client gives up no message: the deadline is ours (G14).

    After giving up a message, the client continues under a new epoch while requests of the old one are in flight: older
    messages then land after newer ones, and some land twice. A request that times out still costs its connection, early
    enough to try another one.
    """
    socket = milliseconds(properties, "socket.timeout.ms", _SOCKET_TIMEOUT)
    if limit is not None:
        socket = min(socket, max(10, int(limit * 500)))
    return {"delivery.timeout.ms": 0, "message.timeout.ms": 0, "socket.timeout.ms": socket}


def milliseconds(properties: Mapping[str, PropertyValue], name: str, default: int) -> int:
    """Return a property that is a time in milliseconds.

    Raises:
        ConfigError: the value is not a whole number.
    """
    given = properties.get(name, default)
    if not str(given).strip().isdecimal():
        raise ConfigError(f"{name} is not a number of milliseconds: {given!r}.", options=[name])
    return int(str(given))
