"""The room in one partition's commit map, and the messages that wait for some.

A transaction cannot commit what has no room, and a queue that goes by rank keeps its acks durable. Their consumers take
a message only if the acks of everything in work would still fit. `lvq_kafka.core.bounded_hand_out` asks here.
"""

from __future__ import annotations

from collections.abc import Collection, Sized
from typing import Protocol

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.map_capacity import MOST_COUNTED, MapCapacity, Measured
from lvq_kafka.core.pending import Item, PendingList
from lvq_kafka.core.rank_window import RankWindow
from lvq_kafka.core.ready_queue import HeadedQueue, ReadyQueue

__all__ = ["PartitionRoom"]

_FEW = 64  # changes that are not worth another measurement


class _Claimant(Protocol):
    """The partition, as far as its claim depends on it; see `PartitionLedger`."""

    pending: PendingList
    attempted: dict[int, Item]
    changes: int
    most_deliveries: int
    reach: int

    @property
    def held(self) -> Sized: ...

    def claim(self, leaving: Collection[Item]) -> CommitMap: ...


class PartitionRoom:
    """The room in the commit map of one partition.

    Args:
        part: the partition.
        capacity: the room in a commit map.
        gated: an empty queue, for messages whose turn comes while there is no room.
        window: keeps messages from the ready queue in a queue that goes by rank; None in others.
        counted: whether delivery counts take room, too.
    """

    __slots__ = ("_capacity", "_counted", "_measured", "_overflowed", "_part", "_since", "gated", "window")

    def __init__(
        self,
        part: _Claimant,
        capacity: MapCapacity,
        gated: HeadedQueue[Item],
        window: RankWindow | None,
        *,
        counted: bool,
    ) -> None:
        self._part = part
        self._capacity = capacity
        self._counted = counted
        self._measured: Measured | None = None  # the claim as it was when its real length was last of interest
        self._since = 0  # the changes that were no longer in work then
        self._overflowed = -1  # the base at which the claim grew longer than was reckoned
        self.gated = gated
        """The messages whose turn came while there was no room."""
        self.window = window
        """It keeps messages from the ready queue; None in the order of arrival."""

    # ---------------------------------------------------------------- what waits

    def __len__(self) -> int:
        """Return the number of messages that wait for room."""
        return len(self.gated) + (0 if self.window is None else len(self.window))

    def remove(self, item: Item) -> None:
        """Remove a message that may no longer be handed out, if it waits at the gate."""
        self.gated.remove(item)

    def admit(self, item: Item) -> bool:
        """Return whether a message may be handed out now. Otherwise, it waits for room.

        The lowest message may always: its ack makes the map shorter.
        """
        window = self.window
        if window is not None and item.offset < window.exact_end and not self._counted:
            return True
        if self.admits(item):
            return True
        self.gated.add(item)
        return False

    def admits(self, item: Item) -> bool:
        """Return whether a message may be handed out now; see `admit`."""
        return item is self._part.pending.lowest or self.has_room(item)

    def reach(self, line: ReadyQueue[Item]) -> bool:
        """Move the best message beyond the window to the ready queue, if it has room by now.

        Call it if there is nothing else to hand out. Returns whether anything was moved.
        """
        window = self.window
        if window is None:
            return False
        if window.release(measure=True):
            return True
        if (head := window.head) is None or not self.has_room(head):
            return False
        line.add(window.pop_best())
        return True

    def let_through(self, line: ReadyQueue[Item]) -> bool:
        """Move the next gated message to the ready queue, if it has room by now, and the lowest.

        Returns whether there were any.
        """
        gated, lowest = self.gated, self._part.pending.lowest
        before = len(gated)
        if lowest is not None and lowest.state is State.AVAILABLE and lowest in gated:
            gated.remove(lowest)
            line.add(lowest)
        if (head := gated.head) is not None and self.has_room(head):
            gated.remove(head)
            line.add(head)
        return len(gated) < before

    # ---------------------------------------------------------------- the room

    def has_room(self, item: Item) -> bool:
        """Return whether the commit map has room for the acks of everything in work and this one."""
        part, capacity, counted = self._part, self._capacity, self._counted
        in_work = len(part.held)
        pairs = part.pending.splits + in_work + 1
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
        # That was the worst case. The real length says more. Measuring it takes time, so only once it pays off.
        # The claim may be longer by what was in work then, and what was taken or replaced since.
        measured, changes = self._measured, part.changes - self._since
        if measured is not None and capacity.fits_after(measured, changes + 1, base, end, counted=counted):
            return True
        if measured is not None and changes - in_work < max(_FEW, pairs // _FEW):
            return False
        self._measured, self._since = Measured.of(part.claim(())), part.changes - in_work
        return capacity.fits_after(self._measured, in_work + 1, base, end, counted=counted)

    def overflowed(self) -> None:
        """Note that acks found no room that should have had some.

        Only the worst case counts from here on, until the lowest message is settled. Otherwise, messages could be taken
        again and again that no commit has room for.
        """
        self._overflowed = self._part.pending.base
