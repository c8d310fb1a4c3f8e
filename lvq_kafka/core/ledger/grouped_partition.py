"""Message groups in one partition (R36)."""

from __future__ import annotations

from lvq_kafka.core.ledger.feature import Feature
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.waiting.grouped_queue import GroupedQueue
from lvq_kafka.core.waiting.pending import Item

__all__ = ["GroupedPartition"]


class GroupedPartition(Feature):
    """The messages of an assigned partition in their groups.

    It notifies the groups of messages that are no longer in work, so that pins can end. And it lets messages that
    cannot be handed out yet keep their places in their groups.

    Args:
        grouped: the ready queue of all partitions, with its groups.
    """

    __slots__ = ("_grouped", "_number", "_part")

    def __init__(self, number: int, part: PartitionLedger, grouped: GroupedQueue) -> None:
        self._number = number
        self._part = part
        self._grouped = grouped

    @property
    def without_room(self) -> int:
        """See `Feature.without_room`."""
        return self._grouped.gated_in(self._number)

    def wait(self, item: Item) -> None:
        """See `Feature.wait`."""
        if self._part.open:
            self._grouped.keep_place(item)

    def free(self, item: Item) -> None:
        """See `Feature.free`."""
        group = item.group
        if group is not None:
            if group.stays:  # as `settled`, without a call
                group.unsettled -= 1
            else:
                self._grouped.settled(item, group)
