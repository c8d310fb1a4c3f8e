"""Handing messages out: how many, to whom, and whether they are counted first."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from lvq_kafka.core.consumer.commits import Commits
from lvq_kafka.core.consumer.counted_reservations import CountedReservations
from lvq_kafka.core.consumer.lease import Lease
from lvq_kafka.core.consumer.yielding import Yielding
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.waiting.session_pins import SessionPins
from lvq_kafka.errors import AlreadySettled, LockLost

__all__ = ["Acquisition", "ConsumerLimits", "HandOut", "Wanted"]

Wanted = Mapping[SessionPins | None, int]
"""The number of messages that waiting callers want, by session; where messages are not grouped, all under None."""


def _nothing() -> Wanted:
    return {}


@dataclass(frozen=True, slots=True)
class ConsumerLimits:
    """Limits for handing out messages, in messages and seconds.

    See `lvq_kafka.consuming.consumer.Consumer`.
    """

    max_in_work: int = 1000
    lock_timeout: float | None = None
    max_deliveries: int | None = None
    durable_counts: bool = False

    def of_queue(self, max_deliveries: int | None) -> ConsumerLimits:
        """Return the limits for a queue that has a limit of deliveries of its own.

        Its consumers count durably for that. A consumer's own limit comes first.
        """
        if max_deliveries is None or self.max_deliveries is not None:
            return self
        return replace(self, max_deliveries=max_deliveries, durable_counts=True)


Acquisition = tuple[list[Item], list[Item]]
"""The messages acquired, and messages already delivered ``max_deliveries`` times.

The latter are leaving, for the caller to reject.
"""


class HandOut:
    """Hands out a ledger's messages, within limits, and only while the lease lasts."""

    def __init__(
        self, limits: ConsumerLimits, ledger: Ledger, commits: Commits[Any], lease: Lease, yielding: Yielding
    ) -> None:
        self._commits = commits
        self.adopt(limits)
        self.paused = False
        """True while the application wants no messages. Newer values still replace waiting ones."""
        self._ledger = ledger
        self._lease = lease
        self._yielding = yielding

    def adopt(self, limits: ConsumerLimits) -> None:
        """Keep to other limits from now on. Nothing is reserved meanwhile."""
        self.limits = limits
        self._reservations = CountedReservations(self._commits) if limits.durable_counts else None

    @property
    def is_full(self) -> bool:
        """True if the maximum number of messages is held."""
        return self._ledger.in_work >= self.limits.max_in_work

    @property
    def counting(self) -> int:
        """The number of messages that are reserved until they are counted."""
        return 0 if self._reservations is None else len(self._reservations)

    def is_suspended(self, now: float) -> bool:
        """Return whether messages wait for the group to accept a commit.

        The lease has lapsed, so other consumers may have them by now.
        """
        waits = self._ledger.assignment.available > 0 or self.counting > 0 or self._ledger.has_expired
        return self._lease.lapsed(now) and waits

    def has_left(self, wanted: Wanted, now: float) -> bool:
        """Return whether a session without callers has left messages since the last call.

        Args:
            wanted: the sessions that have callers who wait.
        """
        grouped = self._ledger.groups is not None
        return grouped and self._reservations is not None and self._reservations.note_left(wanted, now)

    def pop_counted(self) -> int:
        """See `CountedReservations.pop_done`."""
        return 0 if self._reservations is None else self._reservations.pop_done()

    def serves(self, session: SessionPins | None) -> bool:
        """Return whether a caller may get a message, as far as can be known without trying."""
        if self.paused:
            return False
        if self._reservations is not None and self._reservations.has_counted(session):
            return True
        return not self.is_full and self._ledger.serves(session)

    def give_back_reserved(self, session: SessionPins) -> None:
        """Return the messages that are reserved for a session, which has ended."""
        if self._reservations is not None:
            for item in self._reservations.reserved_for(session):
                self._ledger.release(item)

    def acquire(
        self,
        most: int,
        now: float,
        session: SessionPins | None = None,
        *,
        wanted: Callable[[], Wanted] = _nothing,
        first_try: bool = True,
        ahead: bool = False,
    ) -> Acquisition:
        """Take up to ``most`` available messages.

        Args:
            session: who takes them; see `Ledger.reserve`.
            wanted: returns the number of messages that others wait for, by session.
            first_try: whether this is the first try of the caller, before any wait.
            ahead: only set the messages aside. `hand_over` hands them out later, one by one, or never.
        """
        taken: list[Item] = []
        exhausted: list[Item] = []
        if not (self.paused or self._lease.lapsed(now)):
            ledger, timeout = self._ledger, self.limits.lock_timeout
            if self._reservations is None:
                taken = self._reserve(most, exhausted, session)
            else:
                taken = self._count(
                    self._reservations, most, exhausted, now, session, wanted=wanted(), first_try=first_try
                )
            # Locks begin now: the wait for the counts to be stored does not count against the time to settle.
            locked_until = None if timeout is None else now + timeout
            if not ahead:
                for item in taken:
                    ledger.hand_over(item, locked_until)
            elif locked_until is not None:
                for item in taken:
                    ledger.extend(item, locked_until)
        if not (taken or exhausted):
            self._yielding.asked(now)
        return taken, exhausted

    def _count(
        self,
        reservations: CountedReservations,
        most: int,
        exhausted: list[Item],
        now: float,
        session: SessionPins | None,
        *,
        wanted: Wanted,
        first_try: bool,
    ) -> list[Item]:
        """Take counted messages, and count others for callers that wait."""
        if self._ledger.groups is None:
            session = None  # as in `wanted`: any caller may have the reserved messages
        for item in reservations.overtaken(now, first_try=first_try):
            self._ledger.release(item)
        taken = reservations.pop_counted(most, session)
        if not taken and (left := reservations.left_by(wanted, session, now)):
            taken = self._reserve_left(reservations, left, most, exhausted, now, session)
        here = wanted.get(session, 0) + (0 if taken else most)
        for who, number in wanted.items():
            if not self._count_for(who, here if who is session else number, reservations, exhausted, now):
                break  # The rest is for single sessions: their callers are woken, and count it themselves.
        self._count_for(session, here, reservations, exhausted, now)
        return taken

    def _count_for(
        self,
        session: SessionPins | None,
        wants: int,
        reservations: CountedReservations,
        exhausted: list[Item],
        now: float,
    ) -> bool:
        """Reserve as many messages as a session wants. Return whether there were as many."""
        missing = wants - reservations.number_for(session)
        reserved = self._reserve(missing, exhausted, session)
        reservations.add(reserved, now, session)
        return len(reserved) >= missing

    def _reserve_left(
        self,
        reservations: CountedReservations,
        left: list[Item],
        most: int,
        exhausted: list[Item],
        now: float,
        session: SessionPins | None,
    ) -> list[Item]:
        """Reserve for a session the messages that other sessions have not collected.

        Returns the messages that it may have now.
        """
        counted = {(item.partition, item.offset) for item in left}
        for item in left:
            self._ledger.release(item)
        reserved = self._reserve(most, exhausted, session)
        again = [item for item in reserved if (item.partition, item.offset) in counted]
        reservations.add_counted(again, now, session)
        reservations.add([item for item in reserved if item not in again], now, session)
        return reservations.pop_counted(most, session)

    def _reserve(self, most: int, exhausted: list[Item], session: SessionPins | None) -> list[Item]:
        ledger, limits = self._ledger, self.limits
        max_deliveries, most_in_work = limits.max_deliveries, limits.max_in_work
        taken: list[Item] = []
        while len(taken) < most and ledger.in_work < most_in_work:
            item = ledger.reserve(session)
            if item is None:
                break
            if max_deliveries is not None and item.deliveries > max_deliveries:
                ledger.leave(item)
                exhausted.append(item)
            else:
                taken.append(item)
        return taken

    def hand_over(self, item: Item, now: float) -> bool:
        """Hand out a message that was set aside.

        Returns False if it is no longer held, or may belong to another consumer by now.
        """
        if self._lease.lapsed(now):
            return False
        timeout = self.limits.lock_timeout
        try:
            self._ledger.hand_over(item, None if timeout is None else now + timeout)
        except (AlreadySettled, LockLost):
            return False
        return True
