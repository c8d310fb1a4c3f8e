"""How much a consumer with transactions may have in work so that every ack still finds its place in the commit map.

A transaction cannot commit what its map has no room for. Other acks can wait for room, and so need none beforehand.
"""

from __future__ import annotations

from collections import OrderedDict

from lvq_kafka.core.commit_map import pairs_that_fit, size_bound, span_that_fits
from lvq_kafka.core.pending import Item
from lvq_kafka.core.ready_queue import TRIED_OFTEN

__all__ = ["GatedQueue", "MapCapacity"]

# What a map may grow by without one more ack, in characters: its last run becomes longer when more is read, and the
# message at the base, for which there is always room, may be counted.
_SLACK = 32


class MapCapacity:
    """What a commit map of at most so many characters has room for."""

    def __init__(self, limit: int) -> None:
        self.limit = limit
        self._usable = limit - _SLACK
        # By the bit length of the span: asked for every message, a look into a table is what it may cost.
        self._pairs = [pairs_that_fit(self._usable, (1 << bits) - 1) for bits in range(64)]
        self._whole = span_that_fits(self._usable)
        self.always = self._pairs[-1]
        """So many pairs of runs fit over any number of offsets."""

    def fits(self, pairs: int, span: int, counted: int = 0, most: int = 1) -> bool:
        """Whether so many pairs of runs over so many offsets fit, however long each is; and so many delivery counts.

        The last run may be longer than that.

        Args:
            most: the highest of the counts.
        """
        if counted:
            return size_bound(pairs, span, counted, most) <= self._usable
        return span <= self._whole or pairs <= self._pairs[span.bit_length()]

    def fits_after(self, written: int, acks: int, span: int, *, counted: bool) -> bool:
        """Whether a text of so many characters still fits when so many messages more are acked.

        An ack makes two runs more at most, neither longer than the span; a count is an offset and a number. That is of
        a text of numbers. One that is deflated may become longer; then acks wait, and nothing is lost.
        """
        number = max(1, (span.bit_length() + 6) // 7)
        each = 2 * number + (number + 2 if counted else 0)
        return written + -(-4 * acks * each // 3) <= self._usable


class GatedQueue(OrderedDict[int, Item]):
    """By slot, the messages of a partition whose turn came while there was no room for them, in the order they go on.

    Where it is not empty, all that could be handed out of the partition waits here.
    """

    def add(self, item: Item) -> None:
        """It waits behind the others; or before them if it comes back, unless it does so again and again."""
        comes_back = bool(self) and item.slot < next(iter(self)) and item.deliveries < TRIED_OFTEN
        self[item.slot] = item
        if comes_back:
            self.move_to_end(item.slot, last=False)

    def remove(self, item: Item) -> None:
        """It does not wait any more. Nothing happens when it did not anyway."""
        self.pop(item.slot, None)
