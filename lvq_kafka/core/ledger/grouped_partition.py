"""One partition's part of the ledger, in a queue with message groups (R36)."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.waiting.grouped_queue import GroupedQueue
from lvq_kafka.core.waiting.lifecycle import State
from lvq_kafka.core.waiting.pending import Item

__all__ = ["GroupedPartition"]


class GroupedPartition(PartitionLedger):
    """An assigned partition of a queue with groups.

    It says what is no longer in work, so that pins can end. And it has messages that cannot be handed out yet, for a
    delay or because their key is in work, keep their places in their groups.

    Args:
        grouped: the ready queue of all partitions, with its groups.
    """

    __slots__ = ("_grouped",)

    def __init__(self, *args: Any, grouped: GroupedQueue, **options: Any) -> None:
        super().__init__(*args, **options)
        self._grouped = grouped

    # ---------------------------------------------------------------- reading

    def _add_records(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> None:
        if not (self.open and (self.held or self.is_in_place)):
            super()._add_records(batch, keys)
            return
        lanes = {key for key in keys if key is not None and (self.is_in_place or key in self.held)}
        for lane in lanes & self.waiting.keys():
            self.withdraw(self.waiting[lane])
        try:
            super()._add_records(batch, keys)
        finally:
            for lane in lanes & self.waiting.keys():
                self._place(self.waiting[lane])

    def _place(self, item: Item) -> None:
        """Put a waiting message into its group.

        That may be another one than the group of the message that it replaced.
        """
        self.withdraw(item)
        if item.lane in self.held or item.state is not State.AVAILABLE:
            self._grouped.keep_place(item)
        else:
            self._line.add(item)

    def enter(self, item: Item) -> None:
        """See `PartitionLedger.enter`."""
        super().enter(item)
        if self.open and item.lane in self.held:
            self._grouped.keep_place(item)

    # ---------------------------------------------------------------- handing out

    def offer(self, item: Item) -> None:
        """See `PartitionLedger.offer`. A message beyond the window keeps no place in its group."""
        if self.room.window is not None:
            self._grouped.remove(item)
        super().offer(item)

    @property
    def without_room(self) -> int:
        """See `PartitionLedger.without_room`."""
        return super().without_room + self._grouped.gated_in(self._number)

    # ---------------------------------------------------------------- settling

    def remove(self, item: Item, after: State) -> None:
        """See `PartitionLedger.remove`."""
        PartitionLedger.remove(self, item, after)  # as `super`, in less time
        group = item.group
        if group is not None:
            if group.stays:  # as `settled`, without a call
                group.unsettled -= 1
            else:
                self._grouped.settled(item, group)

    def give_back(self, item: Item, after: State, delayed: bool) -> Item | None:
        """See `PartitionLedger.give_back`."""
        twin = super().give_back(item, after, delayed)
        if twin is not None and delayed and self.open:
            self._grouped.keep_place(twin)
        if item.group is not None:
            self._grouped.settled(item, item.group)
        return twin

    def end_locks(self) -> list[Item]:
        """See `PartitionLedger.end_locks`."""
        lost = super().end_locks()
        for item in lost:
            if item.group is not None:
                self._grouped.settled(item, item.group)
        return lost
