"""The room in a commit map, for consumers that hand out only messages whose acks fit.

A transaction fails if its acks do not fit, and a ranked queue keeps its acks durable. So both look for room before they
hand out a message. Other acks can wait for room afterwards.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from lvq_kafka.core.commit_map.commit_map import (
    ANY_LENGTH,
    CommitMap,
    counts_size,
    pairs_below,
    pairs_that_fit,
    size_bound,
    span_after,
    span_that_fits,
)

__all__ = ["FAR", "MOST_COUNTED", "MapCapacity", "Measured", "RankRoom", "text_size"]

# Characters by which a map may grow without another ack: its last run grows as more records are read, and the message
# at the base, for which there is always room, may get a delivery count.
_SLACK = 32
_SHORTEST_TEXT = 64  # characters; enough for any base
_COUNT = 2  # bytes of the highest delivery count that is written, and of a gap in a longer list of counts
_PARTS = 4  # of the text; see `RankRoom`
_STEPS = 64  # steps in which the window advances by its own length
_LONGEST_MESSAGE = 40  # characters of two runs, a gap in a list of counts, and a count
_HEAD = 8  # bytes by which the numbers before the runs and the counts may grow

MOST_COUNTED = (1 << 14) - 1
"""The highest delivery count that is written."""

FAR = 1 << 24
"""Offsets above the base within which a `RankRoom` counts messages one by one."""


def text_size(commit_map: CommitMap) -> int:
    """Return the length of a map's text, in characters."""
    return len(commit_map.encode(ANY_LENGTH))


@dataclass(frozen=True, slots=True)
class Measured:
    """A claim whose real length is known."""

    characters: int
    """The length of its text, with the longest frame."""
    pairs: int
    """The number of its pairs of runs."""
    longest_run: int
    end: int
    """The end of the claim. Later acks lie within its runs, or beyond."""

    @classmethod
    def of(cls, claim: CommitMap) -> Measured:
        """Measure a claim."""
        return cls(claim.longest, len(claim.runs) // 2, max(claim.runs, default=1), claim.end)


class Allowance(NamedTuple):
    """Pairs of runs that have room, whatever their lengths, and offsets after them."""

    pairs: int
    within: int
    """The number of offsets over which the pairs may be spread."""
    after: int
    """The number of offsets above the pairs that have room, as a bitmap."""


@dataclass(frozen=True, slots=True)
class RankRoom:
    """The room in a commit map for a ranked queue."""

    ahead: int
    """The number of messages beyond the window that have room, wherever they are within `FAR` offsets."""
    allowances: tuple[Allowance, ...]
    """Alternatives, each with room beside ``ahead``, in ascending order of pairs."""

    @property
    def span(self) -> int:
        """The number of offsets that have room, whichever of them are done."""
        return self.allowances[0].after

    @property
    def step(self) -> int:
        """The number of offsets by which the base rises before the window moves with it."""
        return max(1, self.span // _STEPS)

    @property
    def window(self) -> int:
        """The number of offsets above the base that have room at any time."""
        return self.span - self.step + 1

    @classmethod
    @lru_cache(maxsize=16)
    def of(cls, limit: int) -> RankRoom:
        """Divide a limit of characters: a quarter for messages ahead, the rest for the window."""
        ahead = pairs_that_fit(limit, FAR) // _PARTS
        bits = [Allowance(part * ahead, FAR, span_after(limit, (part + 1) * ahead, FAR)) for part in range(_PARTS)]
        span = max(1, bits[0].after)
        found = {one.pairs: one for one in bits[1:]} | {0: Allowance(0, FAR, span)}
        for within in (FAR >> times for times in range(FAR.bit_length())):
            pairs = pairs_below(limit, within, ahead, FAR)
            if within > span and pairs > max(found):
                found[pairs] = Allowance(pairs, within, 0)
        return cls(ahead, tuple(found[pairs] for pairs in sorted(found)))


class MapCapacity:
    """The capacity of a commit map: the limit of its text, and the claims that always fit.

    Args:
        limit: the most characters of a text, until the broker reports another limit.
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
        """The number of offsets above the base that always fit, without delivery counts."""
        self._rank_room, self._counted_rank_room = RankRoom.of(self._usable), RankRoom.of(self._usable // 2)
        self.always = pairs_that_fit(self._usable, (1 << 63) - 1)
        """The number of pairs of runs that fit over any number of offsets."""

    def rank_room(self, *, counted: bool) -> RankRoom:
        """Return the room of a ranked queue: the same object until the limit changes.

        Args:
            counted: whether half of the text is for delivery counts.
        """
        return self._counted_rank_room if counted else self._rank_room

    def counts_fit(self, counted: int, span: int, most: int) -> bool:
        """Return whether half of the text has room for counts of at most ``most``."""
        return counts_size(counted, span, most) <= self._usable // 2

    def refuse(self, characters: int, *, stored: int) -> None:
        """Halve the limit, since the broker refused a text of this length.

        The limit does not fall below the longest text that the broker has stored.
        """
        self._refused = min(self._refused, characters)
        limit = max(characters // 2, stored if stored < characters else 0, _SHORTEST_TEXT)
        self.limit = min(limit, self.limit)

    def allow(self, limit: int) -> bool:
        """Raise the limit to the broker's, but keep it below any text that the broker refused.

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

    def settlements_missing(self, measured: Measured) -> int:
        """Return the minimum number of messages to settle until a measured claim fits.

        Settling a message removes at most two runs and one count from the claim, unless it is the lowest.
        """
        return max(0, measured.characters - self._usable) // _LONGEST_MESSAGE

    def is_far_from_fitting(self, measured: Measured, pairs: int) -> bool:
        """Return whether a claim that did not fit most likely still does not.

        Its text is taken to be as long per pair of runs as it was, less an eighth.
        """
        return pairs * measured.characters * 7 > measured.pairs * self._usable * 8

    def fits_after(self, measured: Measured, changes: int, base: int, end: int, *, counted: bool) -> bool:
        """Return whether a measured claim still fits after this many changes.

        A change is a message that was counted, acked or replaced. An ack adds at most two runs: it splits an existing
        run, or extends the claim beyond its end. In a bitmap it adds nothing. A count adds an offset and a number, and
        the ack removes it. A replaced message moves the end of a run. All this holds for numbers and bitmaps. A
        deflated text may grow more; then acks wait, and nothing is lost (see `PartitionRoom.overflowed`).

        Args:
            changes: the number of changes since, at most.
            base: the current base.
            end: an offset beyond all messages handed out so far.
        """
        each = 2 * _bytes(max(measured.longest_run, end - measured.end))
        if counted:
            each = max(each, _bytes(end - base) + _COUNT)
        return measured.characters + -(-4 * (changes * each + _HEAD) // 3) <= self._usable


def _bytes(number: int) -> int:
    return max(1, (number.bit_length() + 6) // 7)
