"""Durable delivery counts: a message is handed out once the group holds its new count."""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Container
from dataclasses import dataclass
from typing import Any

from lvq_kafka.core.consumer.commits import Commits, Count
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.session_pins import SessionPins

__all__ = ["CountedReservations"]

_HELD = frozenset({MessageState.ACQUIRED, MessageState.STALE})
_REMEMBERED = 256  # skipped keys to remember
_PROMPT = 0.2  # seconds in which an unimpeded commit is answered


@dataclass(frozen=True, slots=True)
class _Reservation:
    """A message for a future holder."""

    item: Item
    count: Count
    since: float
    session: SessionPins | None


class CountedReservations:
    """Messages reserved for a future holder until their counts are stored.

    If no caller waits any longer when the count is stored, the message goes to the next caller. If there is none, it
    was not delivered (`lvq_kafka.core.ledger.ledger.Ledger.reserve`), and the last commit before its partition is
    revoked takes the count back.

    Args:
        commits: commits the counts.
    """

    def __init__(self, commits: Commits[Any]) -> None:
        self._commits = commits
        self._line: list[_Reservation] = []
        self._left: set[Item] = set()  # those that `note_left` has found
        self._awaited: list[Count] = []
        # Skipped keys, by partition and lane, until they are handed out.
        self._passed_over: OrderedDict[tuple[int, bytes | int], None] = OrderedDict()

    def __len__(self) -> int:
        return sum(one.item.state in _HELD for one in self._line)

    def number_for(self, session: SessionPins | None) -> int:
        """Return the number of messages that are reserved for a session."""
        return len(self.reserved_for(session))

    def reserved_for(self, session: SessionPins | None) -> list[Item]:
        """Return the messages that are reserved for a session."""
        return [one.item for one in self._line if one.session is session and one.item.state in _HELD]

    def has_counted(self, session: SessionPins | None) -> bool:
        """Return whether `pop_counted` returns something for a session."""
        return any(one.count.done and one.session is session and one.item.state in _HELD for one in self._line)

    def add_counted(self, taken: Collection[Item], now: float, session: SessionPins | None) -> None:
        """Reserve counted messages that another session gave back, and this one took, just now."""
        count = Count(0)
        count.done = True
        self._line += [_Reservation(item, count, now, session) for item in taken]

    def add(self, taken: Collection[Item], now: float, session: SessionPins | None) -> None:
        """Reserve these messages for a session, and count them all in one commit."""
        counts = {partition: self._commits.wait_stored(partition) for partition in {item.partition for item in taken}}
        self._awaited += counts.values()
        self._line += [_Reservation(item, counts[item.partition], now, session) for item in taken]

    def left_by(self, waiting: Container[SessionPins | None], session: SessionPins | None, now: float) -> list[Item]:
        """Return counted messages that callers of other sessions have not collected.

        Release these, so that this session can have them. A grouped message is left out if its session has other
        messages of the group, or received some before.

        Args:
            waiting: the sessions that have callers who wait.
        """
        left = [
            one.item
            for one in self._line
            if one.session is not session
            and one.session not in waiting
            and one.count.done
            and now - one.since > _PROMPT
            and one.item.state in _HELD
        ]
        numbers = Counter(item.group for item in left if item.group is not None)
        return [
            item
            for item in left
            if item.group is None or (not item.group.stays and numbers[item.group] == item.group.unsettled)
        ]

    def note_left(self, waiting: Container[SessionPins | None], now: float) -> bool:
        """Return whether `left_by` finds messages, for any session, that it did not find before."""
        left = set(self.left_by(waiting, SessionPins(), now))
        fresh = not left <= self._left
        self._left = left
        return fresh

    def pop_done(self) -> int:
        """Return how many counts were stored, or given up, since the last call.

        If there are any, callers may get messages.
        """
        before = len(self._awaited)
        self._awaited = [count for count in self._awaited if not count.done]
        number = before - len(self._awaited)
        for one in self._line if number else ():
            if one.session is not None and one.count.done:
                one.session.note()
        return number

    def overtaken(self, now: float, *, first_try: bool) -> list[Item]:
        """Return counted messages that were superseded before a caller collected them.

        A waiting caller asked before the messages were counted, so it may have them. But after a slow commit, as in a
        rebalance, they are old, and the caller that they were reserved for may have left.

        Release these so the next caller gets the newer value (or nothing, if the key was deleted). A key is skipped at
        most once; otherwise a hot key would starve callers that poll without waiting.
        """
        items = [
            one.item
            for one in self._line
            if one.item.state is MessageState.STALE
            and one.count.done
            and (first_try or now - one.since > _PROMPT)
            and (one.item.partition, one.item.lane) not in self._passed_over
        ]
        self._passed_over.update(dict.fromkeys((item.partition, item.lane) for item in items))
        while len(self._passed_over) > _REMEMBERED:  # deleted keys are never handed out
            self._passed_over.popitem(last=False)
        return items

    def pop_counted(self, most: int, session: SessionPins | None = None) -> list[Item]:
        """Take messages of a session that are counted and not lost meanwhile."""
        taken: list[Item] = []
        left: list[_Reservation] = []
        for reservation in self._line:
            item = reservation.item
            if item.state not in _HELD:
                continue
            if len(taken) < most and reservation.count.done and reservation.session is session:
                taken.append(item)
            else:
                left.append(reservation)
        self._line = left
        for item in taken:
            self._passed_over.pop((item.partition, item.lane), None)
        return taken
