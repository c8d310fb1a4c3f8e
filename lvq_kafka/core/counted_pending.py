"""Pending messages that are counted, for queues with a ring (R12)."""

from __future__ import annotations

from collections.abc import Sequence

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.pending import Item, PendingList, PlacedPendingList

__all__ = ["CountedPendingList", "PlacedCountedPendingList", "PlacedRingPendingList", "RingPendingList"]


class RingPendingList(PendingList):
    """A pending list that knows its depth: how much of it waits or is in work.

    This one is for queues with a limit of messages, and without options of time: all that is pending counts.
    """

    __slots__ = ()

    @property
    def messages(self) -> int:
        """The number of messages that wait or are in work."""
        return self.count

    @property
    def bytes(self) -> int:
        """The bytes of these; 0 where there is no limit of bytes."""
        return 0

    def include(self, items: Sequence[Item], sizes: Sequence[int]) -> None:
        """Count messages, of these sizes in bytes, from now on."""

    def exclude(self, item: Item) -> None:
        """Count a message no longer, if it counts."""


class CountedPendingList(RingPendingList):
    """A pending list that counts some of what is pending, and adds up sizes.

    A message counts from `include` on, until it is done, replaced, or excluded. Scheduled messages are not included,
    and what has expired is excluded while it waits to be stored elsewhere.
    """

    __slots__ = ("_bytes", "_sizes")

    def __init__(self, loaded: CommitMap, start: int) -> None:
        super().__init__(loaded, start)
        self._sizes: dict[Item, int] = {}
        self._bytes = 0

    @property
    def messages(self) -> int:
        """See `RingPendingList.messages`."""
        return len(self._sizes)

    @property
    def bytes(self) -> int:
        """See `RingPendingList.bytes`."""
        return self._bytes

    def include(self, items: Sequence[Item], sizes: Sequence[int]) -> None:
        """See `RingPendingList.include`."""
        self._sizes.update(zip(items, sizes))
        self._bytes += sum(sizes)

    def exclude(self, item: Item) -> None:
        """See `RingPendingList.exclude`."""
        self._bytes -= self._sizes.pop(item, 0)

    def remove(self, item: Item, *, acked: bool) -> None:
        """See `PendingList.remove`."""
        self.exclude(item)
        super().remove(item, acked=acked)

    def renew(self, item: Item, offset: int) -> None:
        """See `PendingList.renew`. The newer message has to be included, too."""
        self.exclude(item)
        super().renew(item, offset)

    def replace(self, item: Item, twin: Item) -> None:
        """See `PendingList.replace`."""
        if item in self._sizes:
            self._sizes[twin] = self._sizes.pop(item)
        super().replace(item, twin)

    def clear(self) -> None:
        """See `PendingList.clear`."""
        super().clear()
        self._sizes.clear()
        self._bytes = 0


class PlacedRingPendingList(PlacedPendingList, RingPendingList):
    """A `RingPendingList` of a queue in place."""

    __slots__ = ()


class PlacedCountedPendingList(PlacedPendingList, CountedPendingList):
    """A `CountedPendingList` of a queue in place."""

    __slots__ = ()
