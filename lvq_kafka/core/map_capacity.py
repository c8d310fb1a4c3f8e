"""Limits on the work of a transactional consumer, so that every ack fits its commit map.

A transaction cannot commit what its map has no room for. Other acks can wait for room, so they need none beforehand.
"""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import dataclass

from lvq_kafka.core.commit_map import ANY_LENGTH, CommitMap, pairs_that_fit, size_bound, span_that_fits
from lvq_kafka.core.pending import Item
from lvq_kafka.core.ready_queue import TRIED_OFTEN

__all__ = ["GatedQueue", "MapCapacity", "Measured", "text_size"]

# Characters by which a map may grow without another ack: its last run grows as more is read, and the message at the
# base, for which there is always room, may be counted.
_SLACK = 32
_SHORTEST_TEXT = 64  # characters; enough for any base
_COUNT = 2  # bytes of the highest delivery count that is written, and of a gap in a longer list of counts
_HEAD = 8  # bytes by which the numbers before the runs and the counts may grow


def text_size(commit_map: CommitMap) -> int:
    """Return the length of a map's text, in characters."""
    return len(commit_map.encode(ANY_LENGTH))


@dataclass(frozen=True, slots=True)
class Measured:
    """A claim whose real length is known."""

    characters: int
    """The length of its text, with the longest frame."""
    longest_run: int
    end: int
    """The end of the claim. Later acks lie within its runs, or beyond."""

    @classmethod
    def of(cls, claim: CommitMap) -> Measured:
        """Measure a claim."""
        return cls(claim.longest, max(claim.runs, default=1), claim.end)


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
        self.window = span_that_fits(self._usable)
        """The number of offsets above the base that fit whatever is done there, without delivery counts."""
        self.always = pairs_that_fit(self._usable, (1 << 63) - 1)
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
        return span <= self.window or pairs <= pairs_that_fit(self._usable, span)

    def fits_after(self, measured: Measured, changes: int, base: int, end: int, *, counted: bool) -> bool:
        """Return whether a measured claim still fits after this many changes.

        A change is a message that was counted, acked or replaced. An ack adds two runs at most: parts of one that is
        there, or of what lies beyond the end of the claim. In a bitmap it adds nothing. A count adds an offset and a
        number, and goes with the ack. A replaced message moves the end of a run. All this holds for numbers and
        bitmaps. A deflated text may grow more; then acks wait, and nothing is lost (see `PartitionLedger.overflowed`).

        Args:
            changes: the number of changes since, at most.
            base: the base by now.
            end: the end of the messages that were handed out by now.
        """
        each = 2 * _bytes(max(measured.longest_run, end - measured.end))
        if counted:
            each = max(each, _bytes(end - base) + _COUNT)
        return measured.characters + -(-4 * (changes * each + _HEAD) // 3) <= self._usable


def _bytes(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)


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
