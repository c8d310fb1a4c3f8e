"""The sessions that have message groups, kept apart from the code under test."""

from __future__ import annotations

from collections.abc import Container

from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.waiting.session_pins import SessionPins
from tests.simulator.proof import Life, Violation

__all__ = ["Grouping"]


class Grouping:
    """The groups of a process's messages, and the sessions that have them.

    Args:
        groups: how messages are grouped; None if they are not.
    """

    def __init__(self, groups: Groups | None) -> None:
        self._groups = groups
        self._sticky = groups is not None and groups.mode == "sticky"
        self._of: dict[Item, tuple[bytes, SessionPins | None]] = {}  # messages that are in work, or were
        self._owners: dict[bytes, SessionPins | None] = {}  # of sticky groups: who received a message last

    def name(self, item: Item) -> bytes | None:
        return None if self._groups is None else self._groups.group(item.headers)

    def handed_out(self, item: Item, session: SessionPins | None, working: Container[Item]) -> None:
        """Check I21 for a message that was handed out, or set aside."""
        name = self.name(item)
        if name is None:
            return
        self._of = {other: one for other, one in self._of.items() if other in working}
        if self.is_elsewhere(name, session, working):
            raise Violation("I21", f"{item} of group {name!r} is handed out, which is another session's")
        self._of[item] = name, session

    def is_elsewhere(self, name: bytes, session: SessionPins | None, working: Container[Item]) -> bool:
        """Return whether another session has the group."""
        if self._sticky and name in self._owners and self._owners[name] is not session:
            return True
        return any(one == name and who is not session for other, (one, who) in self._of.items() if other in working)

    def are_apart(self, working: Container[Item]) -> bool:
        """Return whether several sessions have messages of groups in work."""
        return len({session for item, (_, session) in self._of.items() if item in working}) > 1

    def delivered(self, item: Item) -> None:
        """Note that a holder has received a message."""
        if item in self._of and self._sticky:
            name, session = self._of[item]
            if session is None or not session.ended:
                self._owners[name] = session

    def ended(self, session: SessionPins | None) -> None:
        """Note that a session has ended."""
        self._owners = {name: who for name, who in self._owners.items() if who is not session}

    def forget(self) -> None:
        """Note that all partitions have gone."""
        self._owners.clear()

    def in_order(self, item: Item, life: Life, time: int, *, in_place: bool) -> None:
        """Check I22 and I25 for a message that was handed out: none with a better place waits in its partition.

        Where it has a group, only its own counts.
        """
        name, place = self.name(item), life.place if in_place else {}
        at = place.get(item.lane, item.offset)
        for lane, offset in life.out.items():
            other = place.get(lane, offset)
            if (
                (life.due[other], other) >= (life.due[at], at)
                or life.holding.get(lane) is not None
                or life.expires[offset] < time
                or (self._groups and self._groups.group(life.headers[offset])) != name
            ):
                continue
            if name is not None:
                raise Violation("I22", f"{item} of group {name!r} is handed out before {offset}, which waits")
            if not life.delivered(offset):
                raise Violation("I25", f"{item} is handed out before {offset}, which waits")
