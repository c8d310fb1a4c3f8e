"""Pending messages that are counted, for queues with a ring (R12)."""

from __future__ import annotations

from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.pending import Item, PendingList

__all__ = ["CountedPendingList"]


class CountedPendingList(PendingList):
    """A pending list that knows its depth: how much of it waits or is in work.

    A message counts from `include` on, until it is done, replaced, or excluded. Scheduled messages are not included,
    and what has expired is excluded while it waits to be stored elsewhere.
    """

    __slots__ = ("_sizes", "bytes")

    def __init__(self, loaded: CommitMap, start: int) -> None:
        super().__init__(loaded, start)
        self._sizes: dict[Item, int] = {}
        self.bytes = 0
        """The bytes of the messages that wait or are in work."""

    @property
    def messages(self) -> int:
        """The number of messages that wait or are in work."""
        return len(self._sizes)

    def include(self, item: Item, size: int) -> None:
        """Count a message, of this size in bytes, from now on."""
        self._sizes[item] = size
        self.bytes += size

    def exclude(self, item: Item) -> None:
        """Count a message no longer, if it counts."""
        self.bytes -= self._sizes.pop(item, 0)

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
        self.bytes = 0
