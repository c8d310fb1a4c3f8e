"""The room in one partition's commit map, and the messages that wait for room.

A transaction cannot commit acks that have no room, and a ranked queue keeps its acks durable. So both hand out a
message only if the acks of everything in work would still fit. `lvq_kafka.core.waiting.bounded_hand_out` asks this
module.

Outside of transactions, a ranked queue never stands still: if no message has room, and no message is in work whose ack
may make room, the best message is handed out without room, and its ack waits.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Protocol

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.map_capacity import MOST_COUNTED, MapCapacity, Measured
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item, PendingList
from lvq_kafka.core.waiting.rank_window import RankWindow
from lvq_kafka.core.waiting.ranked_queue import precedence
from lvq_kafka.core.waiting.ready_queue import InTurns, ReadyQueue

__all__ = ["PartitionRoom"]

_FEW = 64  # changes that are not worth another measurement
_MEASURED = 64  # pairs of runs that each change pays for, since a measurement goes over all of them
_MEASURED_IN_VAIN = 4  # likewise, as long as the claim is most likely still too long


class _Claimant(Protocol):
    """The partition, as far as its claim depends on it; see `PartitionLedger`."""

    pending: PendingList
    attempted: dict[int, Item]
    changes: int
    most_deliveries: int
    reach: int

    @property
    def held(self) -> Mapping[bytes | int, Item]: ...

    def claim(self, leaving: Collection[Item]) -> CommitMap: ...


class PartitionRoom:
    """The room in the commit map of one partition.

    Args:
        part: the partition.
        capacity: the room in a commit map.
        gated: an empty queue, for messages whose turn arrives while there is no room.
        window: keeps messages from the ready queue of a ranked queue; None in others.
        counted: whether delivery counts take room, too.
    """

    __slots__ = (
        "_capacity",
        "_counted",
        "_in_work",
        "_let_go",
        "_measured",
        "_measured_at",
        "_overflowed",
        "_part",
        "_since",
        "_takes_with_room",
        "_without_room",
        "gated",
        "stands_still",
        "window",
    )  # fmt: skip

    def __init__(
        self,
        part: _Claimant,
        capacity: MapCapacity,
        gated: InTurns[Item],
        window: RankWindow | None,
        *,
        counted: bool,
    ) -> None:
        self._part = part
        self._capacity = capacity
        self._counted = counted
        self._measured: Measured | None = None  # the claim as it was last measured
        self._measured_at = -1  # the base at that time
        self._since = 0  # the changes until then, less the messages in work
        self._overflowed = -1  # the base at which the claim grew longer than computed
        self._takes_with_room = False  # whether a message handed out with room may be in work
        self._in_work: Item | None = None  # such a message, while it is in work
        self._without_room: set[Item] = set()  # messages handed out without room; some may have been settled since
        self._let_go: Item | None = None  # the message that may be handed out without room
        self.stands_still = False
        """Whether a caller got no message, since those that wait have no room."""
        self.gated = gated
        """The messages whose turn arrived while there was no room."""
        self.window = window
        """It keeps messages from the ready queue; None in the order of arrival."""

    # ---------------------------------------------------------------- waiting messages

    @property
    def exempt(self) -> Item | None:
        """The lowest message, which needs no room: its ack makes the map shorter.

        None if a lower record gives it its place (R4): then its ack adds a run to the map.
        """
        pending = self._part.pending
        lowest = pending.lowest
        return None if lowest in pending.places else lowest

    def __len__(self) -> int:
        """Return the number of messages that wait for room."""
        return len(self.gated) + (0 if self.window is None else len(self.window))

    def remove(self, item: Item) -> None:
        """Remove a message that may no longer be handed out, if it waits at the gate."""
        self.gated.remove(item)

    def admit(self, item: Item) -> bool:
        """Return whether a message may be handed out now. Otherwise, it waits for room."""
        window = self.window
        if window is not None:
            window.ready.discard(item)
            if item.offset < window.exact_end and not self._counted:
                self._takes_with_room, self.stands_still = True, False
                return True
        with_room = self.admits(item)
        if with_room or item is self._let_go:
            self.note_hand_out(item, with_room=with_room)
            return True
        self.gated.add(item)
        return False

    def admits(self, item: Item) -> bool:
        """Return whether a message has room, or needs none; see `admit`."""
        return item is self.exempt or self.has_room(item)

    def note_hand_out(self, item: Item, *, with_room: bool) -> None:
        """Note that a message is handed out."""
        self.stands_still = False
        if self.window is not None:
            self.window.ready.discard(item)
        if with_room:
            self._takes_with_room = True
            return
        if len(self._without_room) > 2 * len(self._part.held) + _FEW:
            self._without_room.intersection_update(self._part.held.values())
        self._without_room.add(item)

    def reach(self, *, exactly: bool) -> bool:
        """Move the best message beyond the window to the ready queue, if it has room by now.

        Call it if there is nothing else to hand out. Returns whether anything was moved.

        Args:
            exactly: see `RankWindow.reach`.
        """
        window = self.window
        if window is None:
            return False
        if window.reach(exactly=exactly):
            return True
        if (head := window.head) is None or not self.has_room(head):
            return False
        window.send_ahead()
        return True

    def let_through(self, line: ReadyQueue[Item]) -> bool:
        """Move the next gated message to the ready queue, if it has room by now, and the lowest.

        Returns whether there were any.
        """
        gated, lowest = self.gated, self.exempt
        before = len(gated)
        if lowest is not None and lowest.state is MessageState.AVAILABLE and lowest in gated:
            gated.remove(lowest)
            self._enter(lowest, line)
        if (head := gated.head) is not None and self.has_room(head):
            gated.remove(head)
            self._enter(head, line)
        return len(gated) < before

    def _enter(self, item: Item, line: ReadyQueue[Item]) -> None:
        if self.window is None:
            line.add(item)
        else:
            self.window.enter(item)

    # ---------------------------------------------------------------- messages without room

    @property
    def waits_for_acks(self) -> bool:
        """True if a message handed out with room is in work: its ack may make room."""
        if not self._takes_with_room:
            return False
        held, one = self._part.held, self._in_work
        if one is None or held.get(one.lane) is not one:
            one = next((item for item in held.values() if item not in self._without_room), None)
            self._in_work, self._takes_with_room = one, one is not None
        return one is not None

    @property
    def is_stuck(self) -> bool:
        """True if no message has room, and none is in work whose ack may make room.

        Messages beyond the window count as messages without room: check the window first.
        """
        window, lowest = self.window, self.exempt
        if lowest is not None and lowest.state is MessageState.AVAILABLE and lowest.lane not in self._part.held:
            return False  # it needs no room
        if window is None or self.waits_for_acks or self._let_go in window.ready:
            return False
        return not window.ready or not self.has_room(next(iter(window.ready)))

    def let_go(self) -> bool:
        """Let the best waiting message compete without room, since the partition is stuck.

        Returns whether there is one.
        """
        window, gated = self.window, self.gated
        assert window is not None
        best, other = window.head, gated.other_head
        if best is not None and (other is None or precedence(best) < precedence(other)):
            gated.add(window.pop_best())
        item = gated.pop()  # messages returned often take turns in it
        if item is None:
            return False
        self._let_go = None if self.has_room(item) else item
        window.enter(item)
        return True

    def keep(self) -> None:
        """Let no message compete without room any longer."""
        self._let_go = None

    # ---------------------------------------------------------------- the room

    def has_room(self, item: Item) -> bool:
        """Return whether the commit map has room for the acks of everything in work and this one."""
        part, capacity, counted = self._part, self._capacity, self._counted
        in_work, each = len(part.held), part.pending.most_splits
        pairs = part.pending.splits + in_work + 1 + min(in_work + 1, len(part.pending.places))
        if pairs <= capacity.always and not counted:
            return True
        # No run but the last ends above the highest message ever handed out.
        base, end = part.pending.base, max(part.reach, item.offset + 1)
        most = min(max(part.most_deliveries, item.deliveries + 1), MOST_COUNTED)
        window = self.window
        if (
            window is not None
            and window.has_room(item.offset)
            and (not counted or capacity.counts_fit(len(part.attempted) + 1, end - base, most))
        ):
            return True
        if capacity.fits(pairs, end - base, len(part.attempted) + 1 if counted else 0, most):
            return True
        if base == self._overflowed:
            return False
        # That was the worst case. The real length is more exact, but measuring it takes time, so it is measured only
        # when that pays off. Since then, the claim may have grown by the messages then in work, and by those handed out
        # or replaced since.
        measured, changes = self._measured, part.changes - self._since
        if measured is not None and capacity.fits_after(measured, each * (changes + 1), base, end, counted=counted):
            return True
        if measured is not None:
            share = _MEASURED_IN_VAIN if capacity.is_far_from_fitting(measured, pairs) else _MEASURED
            few = max(_FEW, pairs // share)
            if base == self._measured_at:
                few = max(few, capacity.settlements_missing(measured))
            if changes - in_work < few:
                return False
        self._measured, self._since, self._measured_at = Measured.of(part.claim(())), part.changes - in_work, base
        return capacity.fits_after(self._measured, each * (in_work + 1), base, end, counted=counted)

    def measure_again(self) -> None:
        """Note that the claim has become shorter without an ack."""
        self._measured, self._overflowed = None, -1

    def overflowed(self) -> None:
        """Note that acks found no room although they should have had some.

        From now on, only the worst case counts, until the lowest message is settled. Otherwise, messages that fit into
        no commit could be handed out again and again.
        """
        self._overflowed = self._part.pending.base
