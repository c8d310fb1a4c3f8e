"""The commit map: what a queue's group has done in one partition, as an offset commit carries it.

A commit is an offset, the base, and a text. Everything below the base is done; the text adds, in runs, which offsets
above it are done too, so that messages can be settled in any order and none that is settled comes again after a crash.

Every map is true by itself: it claims nothing but what is done, whenever it is written and whatever was written before.
So a commit that is lost, late or sent twice can bring messages again but never lose one. The rule that keeps this so
when the text has to be shortened: done offsets at the far end may be forgotten, nothing may ever be added.

The text is ``lvq1.`` and base64url without padding of::

    u8        flags: 1 runs are deflated, 2 delivery counts, 4 delivered mark; any other bit: a newer format
    8 bytes   topic tag
    uvarint   partition count of the topic
    uvarint   sequence
    uvarint   n, the number of runs, even
              1 clear: n uvarints, the run lengths from the base on: pending, done, pending, done, ...
              1 set:   uvarint byte length, then those n uvarints as one raw deflate stream (RFC 1951)
    [uvarint  delivered mark - base]                     if 4 is set
    [uvarint  m, then m times uvarint offset - the one before (the first: - base), uvarint count]    if 2 is set
    u32       CRC-32 (ISO 3309) of all bytes before

A u32 is big-endian; a uvarint is LEB128 of a number below 2**63, so 9 bytes at most. A reader takes what stands in the
base64url alphabet after ``lvq1.`` and ignores everything after the CRC: some clients hand over more than was written.
"""

from __future__ import annotations

import re
import zlib
from base64 import b64decode, urlsafe_b64decode, urlsafe_b64encode
from bisect import bisect_right
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from functools import lru_cache
from hashlib import blake2b
from itertools import accumulate, islice
from typing import Literal

from lvq_kafka.errors import CommitMapRefused

__all__ = ["LONGEST_TEXT", "CommitMap", "pairs_that_fit", "size_bound", "topic_tag"]

LONGEST_TEXT = 4095
"""Characters that a commit can carry: the broker's default limit is 4096, and this client appends a NUL."""

_PREFIX = "lvq1."
_DEFLATED, _COUNTS, _MARK = 1, 2, 4
_KNOWN_FLAGS = _DEFLATED | _COUNTS | _MARK
# Deflated text says little about what it swells to, so the format bounds it: 64 Ki runs, which is 576 KiB at most.
_MOST_RUNS = 65_536
_LONGEST_UVARINT = 9
_END = 1 << 63
# Bytes. Deflating takes far longer than all the rest; below this there is little to gain by it.
_DEFLATE_FROM = 256
# Flags, topic tag, partition count (an int32), sequence, mark and CRC.
_LONGEST_FRAME = 1 + 8 + 5 + _LONGEST_UVARINT + _LONGEST_UVARINT + 4

_OURS = re.compile(r"lvq1\.([A-Za-z0-9_-]*)")
_NEWER = re.compile(r"lvq[1-9][0-9]*\.")
_UUID = re.compile(r"[A-Za-z0-9+/_-]{22}(==)?")


@dataclass(frozen=True, slots=True)
class CommitMap:
    """What is done in one partition. Nothing in it may be changed after it was made.

    Raises:
        ValueError: these values are not a map, like an odd number of runs, an empty one, or a negative offset.
    """

    base: int
    """The committed offset: everything below is done."""
    runs: tuple[int, ...] = ()
    """Lengths from the base on: pending, done, pending, done, ... Even in number and none is 0, so that the base
    itself is pending when there are runs. An offset that no longer matters goes with the run before it."""
    topic_tag: bytes = bytes(8)
    """Which topic of this name the map speaks of (`topic_tag`); zero when that is not known."""
    partitions: int = 0
    """How many partitions the topic had when the queue was declared."""
    sequence: int = 0
    """One more with every commit: an owner that reads back a lower one than it wrote has been overwritten."""
    delivered: int | None = None
    """One past the highest offset ever handed out: pending offsets below may have been delivered before. None when
    that is not recorded. A mark below the base says no more than one at the base, and becomes that."""
    counts: Mapping[int, int] = field(default_factory=dict, hash=False)
    """By offset, how often a pending message was handed out; durable once this map is committed."""
    _bounds: tuple[int, ...] = field(init=False, repr=False, compare=False)
    """Where the runs begin, and where the last one ends."""

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
        """The map says nothing about offsets from here on."""
        return self._bounds[-1]

    def done(self, offset: int) -> bool:
        """Whether the message at this offset is done. Takes logarithmic time."""
        # Of the offsets at which a run begins, those up to `offset` alternate: pending begins, done begins, ...
        return bisect_right(self._bounds, offset) % 2 == 0

    def done_from(self, offset: int) -> list[tuple[int, int]]:
        """The ranges from ``offset`` on that are done, each as its first offset and the one after its last."""
        ranges = zip(self._bounds[1::2], self._bounds[2::2])
        return [(max(first, offset), after) for first, after in ranges if after > offset]

    def covers(self, other: CommitMap) -> bool:
        """Whether everything that ``other`` says is done is done in this map too."""
        mine, theirs = self._bounds, other._bounds
        # My base is pending, or nothing is known of it: a higher base claims what I do not.
        return theirs[0] <= mine[0] and all(map(self._done_between, theirs[1::2], theirs[2::2]))

    def _done_between(self, first: int, after: int) -> bool:
        # Pending runs are never empty, so a stretch that is done lies in one run (or below the base) altogether.
        run = bisect_right(self._bounds, first)
        return run % 2 == 0 and after <= self._bounds[run]

    # --- writing ----------------------------------------------------------------------------------------------------

    def encode(self, limit: int = LONGEST_TEXT) -> str:
        """The text for an offset commit at ``base``.

        Raises:
            ValueError: it would take more than ``limit`` characters. To leave something out unnoticed would be to
                promise more than is stored, so whoever writes takes `shortened` and sees what it still says.
        """
        text = _PREFIX + urlsafe_b64encode(self._wire(self.runs, len(self.counts))).rstrip(b"=").decode()
        if len(text) > limit or len(self.runs) > _MOST_RUNS:
            raise ValueError(f"A commit map of {len(self.runs)} runs does not fit into {limit} characters.")
        return text

    def shortened(self, limit: int = LONGEST_TEXT) -> CommitMap:
        """The map that fits into ``limit`` characters: itself, or one that has forgotten done offsets at the far end.

        It says as much as fits: one pair of runs more would not. Counts are kept before runs, because a message that
        kills its handler is recognised by them; only if they do not fit by themselves are the highest offsets' left
        out. 55 characters are enough for any base.

        Raises:
            ValueError: not even the base fits.
        """
        pairs, counted = len(self.runs) // 2, len(self.counts)
        if not counted and size_bound(pairs, self.end - self.base) <= limit and pairs * 2 <= _MOST_RUNS:
            return self

        def length(pairs: int, counted: int = counted) -> int:
            return _text_length(len(self._wire(self.runs[: 2 * pairs], counted)))

        if pairs * 2 <= _MOST_RUNS and length(pairs) <= limit:
            return self
        if length(0) <= limit:
            kept = bisect_right(range(1, min(pairs, _MOST_RUNS // 2 + 1)), limit, key=length)
            return replace(self, runs=self.runs[: 2 * kept])
        kept = bisect_right(range(counted), limit, key=lambda counted: length(0, counted)) - 1
        if kept < 0:
            raise ValueError(f"A commit map does not fit into {limit} characters.")
        return replace(self, runs=(), counts=dict(islice(sorted(self.counts.items()), kept)))

    def _wire(self, runs: tuple[int, ...], counted: int) -> bytes:
        """The bytes with these runs and the counts of that many offsets, the lowest ones."""
        flags = 0
        stored = _uvarints(runs)
        if len(stored) >= _DEFLATE_FROM:
            deflated = zlib.compress(stored, wbits=-zlib.MAX_WBITS)
            deflated = _uvarints([len(deflated)]) + deflated
            if len(deflated) < len(stored):
                flags, stored = _DEFLATED, deflated
        tail: list[int] = []
        if self.delivered is not None:
            flags |= _MARK
            tail.append(self.delivered - self.base)
        if counted:
            flags |= _COUNTS
            tail.append(counted)
            before = self.base
            for offset, count in islice(sorted(self.counts.items()), counted):
                tail += (offset - before, count)
                before = offset
        head = _uvarints((self.partitions, self.sequence, len(runs)))
        wire = b"".join((bytes((flags,)), self.topic_tag, head, stored, _uvarints(tail)))
        return wire + zlib.crc32(wire).to_bytes(4, "big")

    # --- reading ----------------------------------------------------------------------------------------------------

    @classmethod
    def decode(cls, base: int, text: str, *, queue: str = "", partition: int | None = None) -> CommitMap:
        """Read a commit: its offset and its text.

        Args:
            base: the committed offset.
            text: the metadata of the commit, as the client hands it over.
            queue: for the error message, the queue's name.
            partition: for the error message.

        Raises:
            CommitMapRefused: the text is not ours, or there is none (``foreign``); it is of a later version
                (``newer``) or damaged (``corrupt``).
            ValueError: the base is no offset.
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
            raise refused("foreign", "it has no text, so a plain client or one of Kafka's tools has written it")
        ours = _OURS.match(text)
        if ours is None and _NEWER.match(text):
            raise refused("newer", f"its text is of a later format, {text[: text.index('.')]}")
        if ours is None:
            raise refused("foreign", f"its text is not a commit map, it begins {text[:20]!a}")
        letters = ours[1]
        # A last letter by itself is no byte, and is none of ours.
        wire = urlsafe_b64decode(letters[: len(letters) - (len(letters) % 4 == 1)] + "==")
        if wire and wire[0] & ~_KNOWN_FLAGS:
            raise refused("newer", f"its text uses a later feature, flags {wire[0]:#04x}")
        try:
            return _parsed(base, wire)
        except ValueError as error:
            raise refused("corrupt", f"its text is damaged, {error}") from None


_BY_THE_OFFSET = "`lvq repair` writes the commits anew, by their offsets; the policy `ignore` goes by these, too:"
_REMEDIES = {
    "foreign": "Something else commits with this consumer group, which should be the queue's own. What was consumed is "
    f"not known any more. {_BY_THE_OFFSET} all below counts as consumed, and all above comes. `lvq reset` goes on "
    "elsewhere.",
    "newer": "A later version of lvq-kafka consumes this queue: upgrade this one. "
    f"{_BY_THE_OFFSET} messages may come again, and none is lost.",
    "corrupt": "Look for a program that copies or rewrites this group's offsets. "
    f"{_BY_THE_OFFSET} messages may come again, and none is lost.",
}


def _parsed(base: int, wire: bytes) -> CommitMap:
    if not wire:
        raise ValueError("it is cut off")
    flags, tag = wire[0], wire[1:9]
    (partitions, sequence, count), at = _read_uvarints(wire, 9, 3)
    if count > _MOST_RUNS:
        raise ValueError(f"it claims {count} runs")
    if flags & _DEFLATED:
        (size,), at = _read_uvarints(wire, at, 1)
        deflated, at = wire[at : at + size], at + size
    else:
        runs, at = _read_uvarints(wire, at, count)
    delivered, counts = None, {}
    if flags & _MARK:
        (ahead,), at = _read_uvarints(wire, at, 1)
        delivered = base + ahead
    if flags & _COUNTS:
        (counted,), at = _read_uvarints(wire, at, 1)
        pairs, at = _read_uvarints(wire, at, 2 * counted)
        counts = dict(zip(accumulate((base + pairs[0], *pairs[2::2])), pairs[1::2])) if pairs else {}
        if len(counts) < counted:
            raise ValueError("it counts an offset twice")
    if wire[at : at + 4] != zlib.crc32(wire[:at]).to_bytes(4, "big"):
        raise ValueError("its checksum differs")
    if flags & _DEFLATED:
        runs = _inflated(deflated, count)
    return CommitMap(base, runs, tag, partitions, sequence, delivered, counts)


def _inflated(deflated: bytes, count: int) -> tuple[int, ...]:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        stored = inflate.decompress(deflated, count * _LONGEST_UVARINT + 1)
    except zlib.error:
        raise ValueError("its runs cannot be inflated") from None
    runs, at = _read_uvarints(stored, 0, count)
    if not inflate.eof or inflate.unused_data or at < len(stored):
        raise ValueError("its deflated runs are not as many as it claims")
    return runs


def _uvarints(values: Iterable[int]) -> bytes:
    stored = bytearray()
    for value in values:
        while value > 127:
            stored.append(value & 127 | 128)
            value >>= 7
        stored.append(value)
    return bytes(stored)


def _read_uvarints(stored: bytes, at: int, count: int) -> tuple[tuple[int, ...], int]:
    """``count`` numbers from ``at`` on, and where they end."""
    letters = stored[at : at + count]
    if len(letters) == count and letters.isascii():  # each is one byte, as nearly always
        return tuple(letters), at + count
    values = []
    for _ in range(count):
        value = 0
        for place in range(0, 7 * _LONGEST_UVARINT, 7):
            if at >= len(stored):
                raise ValueError("it is cut off")
            byte = stored[at]
            at += 1
            value |= (byte & 127) << place
            if byte < 128:
                break
        else:
            raise ValueError("a number is too long")
        values.append(value)
    return tuple(values), at


def _text_length(size: int) -> int:
    return len(_PREFIX) + (4 * size + 2) // 3


def size_bound(pairs: int, span: int) -> int:
    """The characters that no map with that many pairs of runs over that many offsets exceeds, with a mark, no counts.

    Deflating only makes a text shorter, so the bound is that of the lengths as they are. There are ``2 * pairs`` of
    them, a byte each; their sum is at most ``span``, and for the k-th byte a length has to grow by
    ``128**(k-1) - 128**(k-2)``. The most bytes come of giving all a second byte (127 each) before one a third (16256
    each), and so on, as far as the span goes. With those, and 36 for all else (1 flags, 8 tag, 5 partitions, 9
    sequence, 9 mark, 4 CRC) and 1 to 3 for the number of runs::

        characters = 5 + ceil(4 / 3 * (36 + bytes of the number of runs + bytes of the runs))
    """
    runs = 2 * min(pairs, span // 2)
    size, left = runs, span - runs
    for place in range(1, _LONGEST_UVARINT):
        step = (1 << 7 * place) - (1 << 7 * (place - 1))
        longer = min(runs, left // step)
        size += longer
        left -= longer * step
        if longer < runs:
            break
    return _text_length(_LONGEST_FRAME + len(_uvarints((runs,))) + size)


def pairs_that_fit(limit: int, span: int) -> int:
    """How many pairs of runs over that many offsets fit into ``limit`` characters, whatever their lengths are.

    The inverse of `size_bound`, at most a few percent below it: spans are rounded up, so that few have to be reckoned.
    """
    coarse = max(0, span.bit_length() - 6)
    rounded_up = -(-span >> coarse) << coarse
    return _pairs_that_fit(limit, rounded_up)


@lru_cache(maxsize=1024)
def _pairs_that_fit(limit: int, span: int) -> int:
    return max(0, bisect_right(range(limit + 1), limit, key=lambda pairs: size_bound(pairs, span)) - 1)


def topic_tag(topic_id: str) -> bytes:
    """Eight bytes that tell a topic from a later one of the same name; never all zero.

    Args:
        topic_id: Kafka's topic id, the base64 text of a UUID in either alphabet: the tag is the exclusive or of its
            two halves. Of any other id the tag is the 8-byte BLAKE2b of its UTF-8.
    """
    if _UUID.fullmatch(topic_id):
        uuid = b64decode(topic_id[:22].replace("-", "+").replace("_", "/") + "==")
        tag = bytes(high ^ low for high, low in zip(uuid[:8], uuid[8:]))
    else:
        tag = blake2b(topic_id.encode(), digest_size=8).digest()
    return tag if any(tag) else b"\0\0\0\0\0\0\0\1"
