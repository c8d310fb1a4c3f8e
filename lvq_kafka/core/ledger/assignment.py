"""Queries on a consumer's assigned partitions."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from operator import attrgetter

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.ledger.timed_partition import TimedPartition
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import StateError

__all__ = ["Assignment"]

_OFFSET = attrgetter("offset")


class Assignment:
    """A read-only view of a ledger's partitions.

    Args:
        partitions: the ledger's partitions, by number.
        timed: the timed parts of all partitions, in a queue with options of time; else empty.
    """

    def __init__(self, partitions: Mapping[int, PartitionLedger], timed: Mapping[int, TimedPartition]) -> None:
        self._partitions = partitions
        self._timed = timed

    def known(self, partitions: Collection[int]) -> list[PartitionLedger]:
        """Return these partitions.

        Raises:
            StateError: one of them is not assigned.
        """
        missing = sorted(set(partitions) - self._partitions.keys())
        if missing:
            raise StateError(f"Not assigned: partition {', '.join(map(str, missing))}.")
        return [self._partitions[partition] for partition in partitions]

    def claim(self, partition: int, leaving: Collection[Item] = ()) -> CommitMap:
        """Return the claim that the group may commit now.

        The claim stays true whatever happens to the commit later. Done means acked, rejected, evicted, superseded or
        deleted; in a transaction, also ``leaving`` with it.

        Raises:
            StateError: the partition is not assigned.
        """
        (part,) = self.known((partition,))
        return part.claim(leaving)

    def base(self, partition: int) -> int:
        """Return the offset of the lowest message that is not done, else the next one to read.

        Raises:
            StateError: the partition is not assigned.
        """
        (part,) = self.known((partition,))
        return part.base

    @property
    def positions(self) -> dict[int, int]:
        """The next offset to read of every assigned partition."""
        return {number: part.position for number, part in self._partitions.items()}

    @property
    def catching_up(self) -> dict[int, int]:
        """The targets of the partitions that have not reached them."""
        parts = self._partitions.items()
        return {number: part.target for number, part in parts if part.position < part.target}

    @property
    def available(self) -> int:
        """The number of waiting messages."""
        return sum(part.available for part in self._partitions.values())

    @property
    def opened(self) -> bool:
        """True if messages wait in a partition that has reached its target.

        One may be acquired at any time.
        """
        return any(part.hands_out for part in self._partitions.values())

    @property
    def gated(self) -> int:
        """The number of messages that wait for lower ones to make room in the commit map."""
        return sum(part.without_room for part in self._partitions.values())

    @property
    def gated_in(self) -> dict[int, int]:
        """`gated` by partition, where not zero."""
        return {number: gated for number, part in self._partitions.items() if (gated := part.without_room)}

    @property
    def standing_still(self) -> list[int]:
        """Partitions that hand out nothing, since no waiting message has room in the commit map."""
        return [number for number, part in self._partitions.items() if part.stands_still]

    @property
    def overtaken(self) -> list[int]:
        """Partitions whose waiting messages were overtaken by one of worse rank."""
        return [number for number, part in self._partitions.items() if part.is_overtaken]

    def unsettled(self, partition: int) -> tuple[int, Item | None]:
        """Return the number of unfinished messages tried before, and the lowest unfinished one."""
        return self._partitions[partition].unsettled

    def scheduled(self, partition: int) -> list[Item]:
        """Return the scheduled messages and deletes, in offset order."""
        return sorted(self._timed[partition].scheduled, key=_OFFSET) if partition in self._timed else []

    @property
    def outstanding(self) -> int:
        """The number of messages that are not done: waiting, scheduled, or held and the newest."""
        return sum(part.alive for part in self._partitions.values())

    def held(self, partitions: Collection[int] | None = None) -> Iterator[Item]:
        """Yield the messages in work, of these partitions or of all."""
        for number, part in self._partitions.items():
            if partitions is None or number in partitions:
                yield from part.held.values()
