"""How much may be in work so that every ack still finds its place in the commit map."""

from __future__ import annotations

from collections import OrderedDict

from lvq_kafka.core.commit_map import pairs_that_fit, size_bound
from lvq_kafka.core.outstanding import Item

__all__ = ["Gate", "Room"]

# What a map may grow by without one more ack, in characters: its last run becomes longer when more is read, and the
# message at the base, for which there is always room, may be counted.
_SLACK = 32


class Room:
    """What a commit map of at most so many characters has room for."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._usable = limit - _SLACK
        # By the bit length of the span: asked for every message, a look into a table is what it may cost.
        self._pairs = [pairs_that_fit(self._usable, (1 << bits) - 1) for bits in range(64)]
        self.always = self._pairs[-1]
        """So many pairs of runs fit over any number of offsets."""

    def fits(self, pairs: int, span: int, counted: int = 0) -> bool:
        """Whether so many pairs of runs over so many offsets fit, however long each is; and so many delivery counts.

        The last run may be longer than that.
        """
        if counted:
            return size_bound(pairs, span) + _counts_bound(counted, span) <= self._usable
        return pairs <= self._pairs[span.bit_length()]


class Gate(OrderedDict[int, Item]):
    """By slot, the messages of a partition whose turn came while there was no room for them, in the order they go on.

    Where it is not empty, all that could be handed out of the partition waits here.
    """

    def add(self, item: Item) -> None:
        """It waits behind the others, or before them if it comes back."""
        comes_back = bool(self) and item.slot < next(iter(self))
        self[item.slot] = item
        if comes_back:
            self.move_to_end(item.slot, last=False)

    def remove(self, item: Item) -> None:
        """It does not wait any more. Nothing happens when it did not anyway."""
        self.pop(item.slot, None)


def _counts_bound(counted: int, span: int) -> int:
    """The characters that so many delivery counts below 2**14 take at most.

    Two bytes for each count, and at most 3 for how many there are. The offsets are written as differences, with
    ``span`` for their sum; a difference d takes one byte and a 7th of log2(d), so all of them take most when they are
    equal.
    """
    differences = counted + -(-counted * (span // counted).bit_length() // 7)
    return -(-4 * (3 + 2 * counted + differences) // 3)
