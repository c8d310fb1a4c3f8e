"""Limits on the work of a transactional consumer, so that every ack fits its commit map.

A transaction cannot commit what its map has no room for. Other acks can wait for room, so they need none beforehand.
"""

from __future__ import annotations

from collections import OrderedDict

from lvq_kafka.core.commit_map import ANY_LENGTH, CommitMap, pairs_that_fit, size_bound, span_that_fits
from lvq_kafka.core.pending import Item
from lvq_kafka.core.ready_queue import TRIED_OFTEN

__all__ = ["GatedQueue", "MapCapacity", "text_size"]

# Characters by which a map may grow without another ack: its last run grows as more is read, and the message at the
# base, for which there is always room, may be counted.
_SLACK = 32
_SHORTEST_TEXT = 64  # characters; enough for any base


def text_size(commit_map: CommitMap) -> int:
    """Return the length of a map's text, in characters."""
    return len(commit_map.encode(ANY_LENGTH))


class MapCapacity:
    """The capacity of a commit map: how long its text may be, and what is sure to fit.

    Args:
        limit: the most characters of a text, until the broker says otherwise.
    """

    def __init__(self, limit: int) -> None:
        self._refused = ANY_LENGTH  # characters of the shortest text refused as too large
        self.limit = limit

    @property
    def limit(self) -> int:
        """The maximum length of a text, in characters.

        When it is lowered, maps may stay longer until more messages are settled.
        """
        return self._limit

    @limit.setter
    def limit(self, limit: int) -> None:
        self._limit = limit
        self._usable = limit - _SLACK
        # By the bit length of the span: needed for every message, so it must cost no more than a table lookup.
        self._pairs = [pairs_that_fit(self._usable, (1 << bits) - 1) for bits in range(64)]
        self._whole = span_that_fits(self._usable)
        self.always = self._pairs[-1]
        """The number of pairs of runs that fit over any number of offsets."""

    def refuse(self, characters: int, *, stored: int) -> None:
        """Halve the limit, since the broker refused a text of this length.

        But not below the longest text that it has stored.
        """
        self._refused = min(self._refused, characters)
        limit = max(characters // 2, stored if stored < characters else 0, _SHORTEST_TEXT)
        self.limit = min(limit, self.limit)

    def allow(self, limit: int) -> bool:
        """Raise the limit to what the broker accepts, but below any text that it refused.

        Returns whether there is more room now.
        """
        limit = min(limit, self._refused - 1)
        more = limit > self.limit
        if more:
            self.limit = limit
        return more

    def fits(self, pairs: int, span: int, counted: int = 0, most: int = 1) -> bool:
        """Return whether ``pairs`` pairs of runs over ``span`` offsets fit, however long each is.

        ``counted`` delivery counts have to fit as well. The last run may be longer than the span allows.

        Args:
            most: the highest count.
        """
        if counted:
            return size_bound(pairs, span, counted, most) <= self._usable
        return span <= self._whole or pairs <= self._pairs[span.bit_length()]

    def fits_after(self, written: int, acks: int, span: int, *, counted: bool) -> bool:
        """Return whether a text of ``written`` characters still fits after ``acks`` more acks.

        An ack adds at most two runs, neither longer than the span; a count is an offset and a number. This holds for
        plain numbers. A deflated text may grow more; then acks wait, and nothing is lost.
        """
        number = max(1, (span.bit_length() + 6) // 7)
        each = 2 * number + (number + 2 if counted else 0)
        return written + -(-4 * acks * each // 3) <= self._usable


class GatedQueue(OrderedDict[int, Item]):
    """Messages whose turn came while the map had no room, by slot, in hand-out order.

    While it is not empty, everything in the partition that could be handed out waits here.
    """

    def __init__(self) -> None:
        super().__init__()
        self._lowest_was_last = False

    @property
    def head(self) -> Item:
        """The message whose turn came first."""
        return next(iter(self.values()))

    def next(self, lowest: Item | None, *, has_room: bool) -> Item | None:
        """Pop the partition's lowest message, which needs no room, or the head if there is room.

        A lowest message that has been tried often takes turns with others.
        """
        if lowest is not None and self.get(lowest.slot) is lowest:
            stands_back = lowest.deliveries >= TRIED_OFTEN and self._lowest_was_last
            if not (has_room and stands_back):
                self._lowest_was_last = True
                return self.pop(lowest.slot)
        self._lowest_was_last = False
        return self.popitem(last=False)[1] if has_room else None

    def add(self, item: Item) -> None:
        """Add a message at the end; or at the front if it comes back and was not tried often."""
        comes_back = bool(self) and item.slot < next(iter(self)) and item.deliveries < TRIED_OFTEN
        self[item.slot] = item
        if comes_back:
            self.move_to_end(item.slot, last=False)

    def remove(self, item: Item) -> None:
        """Remove a message, if it is there."""
        self.pop(item.slot, None)
