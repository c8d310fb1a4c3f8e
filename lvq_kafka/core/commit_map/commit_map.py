"""The commit map: the offsets of one partition that are done, as an offset commit.

A commit is an offset, the base, and a text. Everything below the base is done. The text adds, as runs, the offsets
above the base that are done, so messages can be settled in any order and a settled message is not delivered again after
a crash.

Every map is true by itself, whenever it is written and whatever was written before: it claims only offsets that are
done. So a commit that is lost, late or sent twice may cause redeliveries but never a loss. Shortening the text keeps
this true: it may forget done offsets, but never adds any.

The text is ``lvq1.`` followed by unpadded base64url of::

    u8        flags: 2 delivery counts, 4 delivered mark; 1, 8, 16, 32 the forms of runs and counts; 64, 128: newer
    8 bytes   topic tag
    uvarint   partition count of the topic
    uvarint   sequence
    ...       the runs, as `lvq_kafka.core.commit_map.packing` packs them
    [uvarint  delivered mark - base]                     if 4 is set
    [...      the counts, likewise]                      if 2 is set
    u32       CRC-32 (ISO 3309) of all bytes before

docs/guarantees.md has every byte. A u32 is big-endian; a uvarint is LEB128 of a number below 2**63, so at most 9
bytes. A reader takes the base64url characters after ``lvq1.`` and ignores everything after the CRC: some clients return
more than was written.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Literal

from lvq_kafka.core.commit_map.packing import (
    BITMAP,
    COUNTS_DEFLATED,
    COUNTS_PACKED,
    DEFLATED,
    LONGEST_UVARINT,
    MOST_RUNS,
    counts_bound,
    pack_counts,
    pack_runs,
    parted_bound,
    read_counts,
    read_runs,
    read_uvarints,
    runs_bound,
    uvarints,
    windowed_bound,
)
from lvq_kafka.errors import CommitMapRefused

__all__ = [
    "ANY_LENGTH",
    "LONGEST_TEXT",
    "CommitMap",
    "following",
    "pairs_that_fit",
    "size_bound",
    "span_that_fits",
    "topic_tag",
]

LONGEST_TEXT = 4095
"""The longest commit text, in characters.

The broker's default limit is 4096, and this client appends a NUL.
"""

ANY_LENGTH = 1 << 30
"""A limit in characters, for texts that are known to fit or are only measured."""

_PREFIX = "lvq1."
_COUNTS, _MARK = 2, 4
_KNOWN_FLAGS = DEFLATED | _COUNTS | _MARK | BITMAP | COUNTS_PACKED | COUNTS_DEFLATED
_END = 1 << 63
_MOST_COMMITS = 1 << 62
# Flags, topic tag, partition count (an int32), sequence, mark and CRC.
_LONGEST_FRAME = 1 + 8 + 5 + LONGEST_UVARINT + LONGEST_UVARINT + 4

_OURS = re.compile(r"lvq1\.([A-Za-z0-9_-]*)")
_NEWER = re.compile(r"lvq[1-9][0-9]*\.")
_UUID = re.compile(r"[A-Za-z0-9+/_-]{22}(==)?")


@dataclass(frozen=True, slots=True)
class CommitMap:
    """The done offsets of one partition. Its contents must not be modified.

    Raises:
        ValueError: the values do not form a map: an odd number of runs, an empty run, or a negative offset, for
            example.
    """

    base: int
    """The committed offset: everything below is done."""
    runs: tuple[int, ...] = ()
    """Lengths of the runs from the base on: pending, done, pending, done, ...

    Their number is even and none is 0, so the base itself is pending if there are runs. An offset that no longer
    matters belongs to the run before it.
    """
    topic_tag: bytes = bytes(8)
    """Identifies the topic among those of the same name (`topic_tag`); zero if unknown."""
    partitions: int = 0
    """The topic's partition count when the queue was declared."""
    sequence: int = 0
    """Incremented by every commit.

    If an owner reads back a lower one than it wrote, its commit was overwritten.
    """
    delivered: int | None = None
    """One past the highest offset ever handed out; None if not recorded.

    Pending offsets below this mark may have been delivered before. A mark below the base is raised to the base, which
    means the same.
    """
    counts: Mapping[int, int] = field(default_factory=dict, hash=False)
    """Delivery counts of pending messages, by offset; durable once this map is committed."""
    _bounds: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """The start of each run, and the end of the last one."""

    def __post_init__(self) -> None:
        if self.base < 0 or self.sequence < 0 or not 0 <= self.partitions < 1 << 31 or len(self.topic_tag) != 8:
            raise ValueError("the base, the sequence, the partition count or the topic tag is out of range")
        if len(self.runs) % 2 or (self.runs and min(self.runs) < 1):
            raise ValueError("the runs are not pairs of pending and done")
        object.__setattr__(self, "_bounds", tuple(accumulate(self.runs, initial=self.base)))
        if self.delivered is not None and self.delivered < self.base:
            object.__setattr__(self, "delivered", self.base)
        if self.counts and (min(self.counts) < self.base or min(self.counts.values()) < 1):
            raise ValueError("a delivery count is below 1, or of an offset below the base")
        if max(self.end, self.sequence, self.delivered or 0, max(self.counts, default=0)) >= _END:
            raise ValueError("an offset or the sequence is out of range")

    @property
    def end(self) -> int:
        """The end of the map, which claims nothing about later offsets."""
        return self._bounds[-1]

    def done(self, offset: int) -> bool:
        """Return whether the message at this offset is done. Takes logarithmic time."""
        # Run starts alternate between pending and done, so the parity of those up to `offset` decides.
        return bisect_right(self._bounds, offset) % 2 == 0

    def rows_done(self, offsets: Sequence[int]) -> list[int]:
        """Return the rows of the offsets whose messages are done."""
        bounds = self._bounds
        if not offsets or min(offsets) >= bounds[-1]:
            return []
        return [row for row, offset in enumerate(offsets) if bisect_right(bounds, offset) % 2 == 0]

    def done_from(self, offset: int) -> list[tuple[int, int]]:
        """Return the done ranges from ``offset`` on, as pairs of first offset and exclusive end."""
        ranges = zip(self._bounds[1::2], self._bounds[2::2])
        return [(max(first, offset), after) for first, after in ranges if after > offset]

    def covers(self, other: CommitMap) -> bool:
        """Return whether everything that ``other`` calls done is done in this map, too."""
        mine, theirs = self._bounds, other._bounds
        # My base is pending or unknown, so a higher base claims more than mine.
        return theirs[0] <= mine[0] and all(map(self._done_between, theirs[1::2], theirs[2::2]))

    def _done_between(self, first: int, after: int) -> bool:
        # Pending runs are never empty, so a done range lies entirely in one run, or below the base.
        run = bisect_right(self._bounds, first)
        return run % 2 == 0 and after <= self._bounds[run]

    @property
    def longest(self) -> int:
        """The maximum length of its text in characters, for any topic, sequence and mark."""
        counts = self._packed_counts(len(self.counts))[1]
        return _text_length(_LONGEST_FRAME + len(pack_runs(self.runs)[1]) + len(counts))

    # --- writing ----------------------------------------------------------------------------------------------------

    def encode(self, limit: int = LONGEST_TEXT) -> str:
        """Encode the text for an offset commit at ``base``.

        Raises:
            ValueError: the text would exceed ``limit`` characters. Leaving runs out silently would let callers believe
                that they are stored. Writers call `shortened` first, and check which runs are left.
        """
        text = _PREFIX + urlsafe_b64encode(self._wire(self.runs, len(self.counts))).rstrip(b"=").decode()
        if len(text) > limit or len(self.runs) > MOST_RUNS:
            raise ValueError(f"A commit map of {len(self.runs)} runs does not fit into {limit} characters.")
        return text

    def shortened(
        self, limit: int = LONGEST_TEXT, *, stored: CommitMap | None = None, first: Collection[int] = ()
    ) -> CommitMap:
        """Return this map if it fits into ``limit`` characters, else one that forgets offsets.

        The lowest runs are kept, up to the last pair that fits. Counts take precedence over runs, because they identify
        a message that kills its handler, but get no more than half of the text if runs need the rest; beyond that the
        counts of the highest offsets are dropped. 55 characters are enough for any base.

        Promised runs take precedence over everything else. They are kept whole, and a sixteenth of the text stays free,
        because these runs grow. If they do not fit, they are dropped like anything else.

        Args:
            stored: a map whose runs are promised; it must still be true.
            first: done offsets whose runs are promised, too.

        Raises:
            ValueError: not even the base fits.
        """
        pairs, counted = len(self.runs) // 2, len(self.counts)
        if not counted and size_bound(pairs, self.end - self.base) <= limit and pairs * 2 <= MOST_RUNS:
            return self
        if pairs * 2 <= MOST_RUNS and _text_length(len(self._wire(self.runs, counted))) <= limit:
            return self
        promised = set() if stored is None else self._pairs_of({*stored._bounds[1::2], *first})
        order = [*sorted(promised), *(pair for pair in range(pairs) if pair not in promised)]

        def runs(kept: int) -> tuple[int, ...]:
            lengths: list[int] = []
            at = self.base
            for pair in sorted(order[:kept]):
                done, after = self._bounds[2 * pair + 1 : 2 * pair + 3]
                lengths += (done - at, after - done)
                at = after
            return tuple(lengths)

        bare = len(self._wire((), 0)) - len(pack_runs(())[1])
        counts = cache(lambda counted: len(self._packed_counts(counted)[1]))

        def length(kept: int, counted: int) -> int:
            return _text_length(bare + len(pack_runs(runs(kept))[1]) + counts(counted))

        least, most = len(promised), min(pairs, MOST_RUNS // 2)
        shared = counted > 0 and least < most
        room = max(limit // 2, limit - length(most, 0)) * 3 // 4 if shared else limit
        if counts(counted) > room or length(least, counted) > limit:
            steps = range(0, counted, max(1, counted // 64))  # exact to a few percent: a probe is slow
            fits = bisect_right(steps, False, key=lambda some: counts(some) > room or length(least, some) > limit)
            if not fits:
                if least:
                    return self.shortened(limit)
                raise ValueError(f"A commit map does not fit into {limit} characters.")
            counted = steps[fits - 1]
        kept, free = least, limit // 16 if stored is not None else 0
        if least < most and length(least + 1, counted) <= limit - free:  # a full text mostly stays full
            kept += bisect_right(range(least + 1, most + 1), limit - free, key=lambda kept: length(kept, counted))
        return replace(self, runs=runs(kept), counts=dict(islice(sorted(self.counts.items()), counted)))

    def _pairs_of(self, offsets: Collection[int]) -> set[int]:
        """Return the indexes of the pairs of runs in which these offsets are done."""
        places = (bisect_right(self._bounds, offset) for offset in offsets)
        return {place // 2 - 1 for place in places if place and place % 2 == 0}

    def _wire(self, runs: tuple[int, ...], counted: int) -> bytes:
        """Encode the map with these runs and the counts of the ``counted`` lowest offsets."""
        flags, stored = pack_runs(runs)
        fields = [uvarints((self.partitions, self.sequence)), stored]
        if self.delivered is not None:
            flags |= _MARK
            fields.append(uvarints((self.delivered - self.base,)))
        form, packed = self._packed_counts(counted)
        flags |= form
        fields.append(packed)
        wire = b"".join((bytes((flags,)), self.topic_tag, *fields))
        return wire + zlib.crc32(wire).to_bytes(4, "big")

    def _packed_counts(self, counted: int) -> tuple[int, bytes]:
        if not counted:
            return 0, b""
        form, packed = pack_counts(self.base, sorted(self.counts.items())[:counted])
        return _COUNTS | form, packed

    # --- reading ----------------------------------------------------------------------------------------------------

    @classmethod
    def decode(cls, base: int, text: str, *, queue: str = "", partition: int | None = None) -> CommitMap:
        """Decode a commit from its offset and its text.

        Args:
            base: the committed offset.
            text: the metadata of the commit, as returned by the client.
            queue: the queue's name, for the error message.
            partition: the partition, for the error message.

        Raises:
            CommitMapRefused: the text is missing or not ours (``foreign``), of a later version (``newer``), or damaged
                (``corrupt``).
            ValueError: the base is not an offset.
        """

        def refused(reason: Literal["foreign", "newer", "corrupt"], why: str) -> CommitMapRefused:
            of = f" of queue {queue!r}" if queue else ""
            at = f" at partition {partition}" if partition is not None else ""
            return CommitMapRefused(
                f"The offset commit{of}{at} is refused: {why}.",
                queue=queue,
                partition=partition,
                reason=reason,
                hint=_REMEDIES[reason],
            )

        if base < 0:
            raise ValueError(f"{base} is not an offset.")
        if not text:
            raise refused("foreign", "it has no text, so a plain client or one of Kafka's tools wrote it")
        ours = _OURS.match(text)
        if ours is None and _NEWER.match(text):
            raise refused("newer", f"its text has a later format, {text[: text.index('.')][:20]}")
        if ours is None:
            raise refused("foreign", f"its text is not a commit map: it begins {text[:20]!a}")
        letters = ours[1]
        # A single letter at the end encodes no byte, and we never write one.
        wire = urlsafe_b64decode(letters[: len(letters) - (len(letters) % 4 == 1)] + "==")
        if wire and wire[0] & ~_KNOWN_FLAGS:
            raise refused("newer", f"its text uses a later feature, flags {wire[0]:#04x}")
        try:
            return _parsed(base, wire)
        except ValueError as error:
            raise refused("corrupt", f"its text is damaged, {error}") from None


_BY_THE_OFFSET = "`lvq repair` rewrites the commits from their offsets, and the policy 'ignore' uses these as well:"
_REMEDIES = {
    "foreign": "Something else commits with this consumer group, which should be the queue's own. The record of "
    f"what was consumed is lost. {_BY_THE_OFFSET} everything below counts as consumed, and everything "
    "above is delivered. `lvq reset` starts elsewhere.",
    "newer": f"A later version of lvq-kafka consumes this queue: upgrade this one. {_BY_THE_OFFSET} messages may be "
    "delivered again, but none is lost.",
    "corrupt": f"Look for a program that copies or rewrites this group's offsets. {_BY_THE_OFFSET} messages may be "
    "delivered again, but none is lost.",
}


def _parsed(base: int, wire: bytes) -> CommitMap:
    if not wire:
        raise ValueError("it is cut off")
    flags, tag = wire[0], wire[1:9]
    (partitions, sequence), at = read_uvarints(wire, 9, 2)
    if sequence >= _MOST_COMMITS:  # no writer gets that far
        raise ValueError("its sequence is out of range")
    runs, at = read_runs(flags, wire, at)
    delivered: int | None = None
    counts: Callable[[], dict[int, int]] = dict
    if flags & _MARK:
        (ahead,), at = read_uvarints(wire, at, 1)
        delivered = base + ahead
    if flags & _COUNTS:
        counts, at = read_counts(flags, base, wire, at)
    if wire[at : at + 4] != zlib.crc32(wire[:at]).to_bytes(4, "big"):
        raise ValueError("its checksum differs")
    return CommitMap(base, runs(), tag, partitions, sequence, delivered, counts())


def _text_length(size: int) -> int:
    return len(_PREFIX) + (4 * size + 2) // 3


def size_bound(pairs: int, span: int, counted: int = 0, most: int = 1) -> int:
    """Return the maximum length of a map with ``pairs`` pairs of runs over ``span`` offsets.

    That includes a delivered mark. With 36 bytes for the other fields (1 flags, 8 tag, 5 partitions, 9 sequence, 9
    mark, 4 CRC)::

        characters = 5 + ceil(4 / 3 * (36 + bytes of the runs and of their number + bytes of the counts))

    A map over `span_that_fits` offsets always fits, whatever is done.

    Args:
        counted: the number of these offsets that have a delivery count.
        most: the highest count.
    """
    return _text_length(_LONGEST_FRAME + runs_bound(pairs, span) + counts_bound(counted, span, most))


@lru_cache(maxsize=64)
def span_that_fits(limit: int, most: int = 0) -> int:
    """Return how many offsets a map can span and still fit into ``limit`` characters.

    It fits whichever of them are done. For 4095 characters, the result is 24,152.

    Args:
        most: the highest delivery count, which each of these offsets may have; 0 without counts.
    """

    def longest(span: int) -> int:
        return size_bound(span, span, span if most else 0, most)

    return max(0, bisect_right(range(8 * limit), limit, key=longest) - 1)


def span_after(limit: int, pairs: int, span: int) -> int:
    """Return how many offsets always fit above a number of pairs of runs.

    Args:
        limit: the length of the text, in characters.
        pairs: the number of pairs.
        span: the number of offsets over which the pairs may be spread.
    """
    head = _text_length(_LONGEST_FRAME + windowed_bound(pairs, span, 0))
    return max(0, (limit - head) * 3 // 4 - 1) * 8


def pairs_below(limit: int, span: int, pairs: int, farthest: int) -> int:
    """Return how many pairs of runs always fit below ``pairs`` higher ones.

    Args:
        limit: the length of the text, in characters.
        span: the number of offsets over which the lower pairs may be spread.
        pairs: the number of higher pairs.
        farthest: the number of offsets over which the higher pairs may be spread.
    """

    def longest(below: int) -> int:
        return _text_length(_LONGEST_FRAME + parted_bound(below, span, pairs, farthest))

    return max(0, bisect_right(range(span // 2 + 1), limit, key=longest) - 1)


def counts_size(counted: int, span: int, most: int) -> int:
    """Return the most characters that delivery counts add to a map; see `size_bound`."""
    return -(-4 * counts_bound(counted, span, most) // 3) + 1


def pairs_that_fit(limit: int, span: int) -> int:
    """Return how many pairs of runs over ``span`` offsets fit into ``limit`` characters.

    Their lengths do not matter. This is the inverse of `size_bound`, or a few percent below it: spans are rounded up,
    so that few values have to be computed.
    """
    coarse = max(0, span.bit_length() - 6)
    rounded_up = -(-span >> coarse) << coarse
    return _pairs_that_fit(limit, rounded_up)


@lru_cache(maxsize=1024)
def _pairs_that_fit(limit: int, span: int) -> int:
    return max(0, bisect_right(range(limit + 1), limit, key=lambda pairs: size_bound(pairs, span)) - 1)


def following(sequence: int) -> int:
    """Return the sequence of the next commit.

    It wraps around. No consumer commits often enough to reach the end, but any client can write the last number.
    """
    return (sequence + 1) % _MOST_COMMITS


def topic_tag(topic_id: str) -> bytes:
    """Return eight bytes that tell a topic from later ones of the same name; never all zero.

    Args:
        topic_id: Kafka's topic id, a UUID as base64 text in either alphabet. The tag is the exclusive or of its two
            halves; for any other id it is the 8-byte BLAKE2b of its UTF-8.
    """
    if _UUID.fullmatch(topic_id):
        uuid = b64decode(topic_id[:22].replace("-", "+").replace("_", "/") + "==")
        tag = bytes(high ^ low for high, low in zip(uuid[:8], uuid[8:]))
    else:
        tag = blake2b(topic_id.encode(), digest_size=8).digest()
    return tag if any(tag) else b"\0\0\0\0\0\0\0\1"
