"""The packed forms of a commit map's runs and delivery counts.

The shortest form is chosen. docs/guarantees.md specifies the bytes; `lvq_kafka.core.commit_map.commit_map` puts them
together.

A few runs are written as plain numbers. Among many runs, dense stretches become a *bitmap*, one bit per offset, and
sparse ones stay numbers; either may be deflated. So runs never take more than a bit per offset or a number per run,
whichever is less, and the longest text can be computed in advance (`runs_bound`, `counts_bound`).
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterable, Sequence
from functools import lru_cache
from itertools import accumulate, cycle
from operator import mul

__all__ = [
    "BITMAP",
    "COUNTS_DEFLATED",
    "COUNTS_PACKED",
    "DEFLATED",
    "LONGEST_UVARINT",
    "MOST_RUNS",
    "counts_bound",
    "pack_counts",
    "pack_runs",
    "parted_bound",
    "read_counts",
    "read_runs",
    "read_uvarints",
    "runs_bound",
    "uvarints",
    "windowed_bound",
]

DEFLATED, BITMAP, COUNTS_PACKED, COUNTS_DEFLATED = 1, 8, 16, 32
"""Flags of a commit map."""

LONGEST_UVARINT = 9
# Deflated text reveals little about its inflated size, so the format limits it: 64 Ki runs, at most 576 KiB, and a
# bitmap of 64 KiB.
MOST_RUNS = 65_536
_MOST_BITS = 1 << 19
# Bytes. Other forms take far longer to write than plain numbers; below this they gain little.
DENSE_FROM = 256
# The numbers before a bitmap: runs, runs before it, bits, and bytes.
_BITMAP_HEAD = 3 + 3 + 3 + 3
_RUNS = re.compile("0+|1+")

Runs = tuple[int, ...]
Unpack = Callable[[], Runs]


# ---------------------------------------------------------------- runs


@lru_cache(maxsize=16)  # a map is measured before it is written, and written again with another sequence
def pack_runs(runs: Runs) -> tuple[int, bytes]:
    """Pack runs into the shortest form; return its flags and bytes.

    Of equals, the oldest wins.
    """
    plain = uvarints(runs)
    number = uvarints((len(runs),))
    forms = [(0, number + plain)]
    if len(plain) >= DENSE_FROM:
        forms.append((DEFLATED, number + _sized(_deflated(plain))))
        if (window := _densest(runs)) is not None:
            head, body = _windowed(runs, window)
            forms.append((BITMAP, head + _sized(body)))
            forms.append((BITMAP | DEFLATED, head + _sized(_deflated(body))))
    return min(forms, key=lambda form: len(form[1]))


def read_runs(flags: int, wire: bytes, at: int) -> tuple[Unpack, int]:
    """Locate packed runs; return a function that unpacks them, and the offset of their end.

    Call the function only once the checksum has confirmed the bytes.

    Raises:
        ValueError: the bytes do not match the flags. The returned function raises it, too.
    """
    if flags & BITMAP:
        windowed, at = _read_windowed(wire, at, deflated=bool(flags & DEFLATED), tail=0)

        def without_tail() -> Runs:
            runs, tail = windowed()
            if tail or len(runs) > MOST_RUNS:
                raise ValueError("it has more runs than it claims")
            return runs

        return without_tail, at
    (count,), at = read_uvarints(wire, at, 1)
    if count > MOST_RUNS:
        raise ValueError(f"it claims {count} runs")
    if not flags & DEFLATED:
        runs, at = read_uvarints(wire, at, count)
        return lambda: runs, at
    (size,), at = read_uvarints(wire, at, 1)

    def unpack() -> Runs:
        stored = _inflated(wire[at : at + size], count * LONGEST_UVARINT)
        runs, end = read_uvarints(stored, 0, count)
        if end < len(stored):
            raise ValueError("its deflated runs differ in number from its claim")
        return runs

    return unpack, at + size


def runs_bound(pairs: int, span: int) -> int:
    """Return the maximum size in bytes of ``pairs`` pairs of runs over ``span`` offsets.

    The number of runs is included. As numbers: there are ``2 * pairs``, a byte each; their sum is at most ``span``, and
    for the k-th byte a length has to grow by ``128**(k-1) - 128**(k-2)``. The maximum is reached by giving all of them
    a second byte (127 each) before any gets a third (16256 each), and so on, as far as the span goes. As a bitmap: a
    bit per offset.
    """
    runs = 2 * min(pairs, span // 2)
    numbers = len(uvarints((runs,))) + _numbers_bound(runs, span)
    if numbers <= DENSE_FROM or span > _MOST_BITS:
        return numbers
    return min(numbers, max(DENSE_FROM + 3, _BITMAP_HEAD + -(-span // 8)))


def windowed_bound(pairs: int, span: int, bits: int) -> int:
    """Return the maximum size in bytes of pairs of runs below a bitmap.

    The pairs are over ``span`` offsets. The run before the bitmap may reach into it, and the last one beyond it.
    """
    runs = 2 * (pairs + 1)
    return max(DENSE_FROM + 3, _BITMAP_HEAD + _numbers_bound(runs, span) + -(-bits // 8) + 1)


def parted_bound(near: int, span: int, far: int, far_span: int) -> int:
    """Return the maximum size in bytes of near and far pairs of runs, as numbers.

    The last of the near runs may reach as far as the far ones.

    Args:
        near: the number of pairs over ``span`` offsets.
        far: the number of pairs beyond, over ``far_span`` offsets.
    """
    runs, far_runs = 2 * min(near, span // 2), 2 * (far + 1)
    numbers = _numbers_bound(runs, span) + _numbers_bound(far_runs, far_span)
    return len(uvarints((runs + far_runs,))) + numbers


def _numbers_bound(runs: int, span: int) -> int:
    size, left = runs, span - runs
    for place in range(1, LONGEST_UVARINT):
        step = (1 << 7 * place) - (1 << 7 * (place - 1))
        longer = min(runs, left // step)
        size += longer
        left -= longer * step
        if longer < runs:
            break
    return size


# ---------------------------------------------------------------- counts


def pack_counts(base: int, counts: Sequence[tuple[int, int]]) -> tuple[int, bytes]:
    """Pack counts of ascending offsets into the shortest form; return its flags and bytes."""
    plain = [len(counts)]
    before = base
    for offset, count in counts:
        plain += (offset - before, count)
        before = offset
    forms = [(0, uvarints(plain))]
    runs = _runs_of(base - 1, (offset for offset, _ in counts)) if len(forms[0][1]) >= DENSE_FROM else ()
    if 0 < len(runs) <= MOST_RUNS and len(counts) <= MOST_RUNS:
        head, body = _windowed(runs, _densest(runs) or (0, 0))
        body += _bits("".join(map(_gamma, (count for _, count in counts))))
        forms.append((COUNTS_PACKED, head + _sized(body)))
        forms.append((COUNTS_PACKED | COUNTS_DEFLATED, head + _sized(_deflated(body))))
    return min(forms, key=lambda form: len(form[1]))


def read_counts(flags: int, base: int, wire: bytes, at: int) -> tuple[Callable[[], dict[int, int]], int]:
    """Locate packed counts by offset, like `read_runs`."""
    if not flags & COUNTS_PACKED:
        (counted,), at = read_uvarints(wire, at, 1)
        pairs, at = read_uvarints(wire, at, 2 * counted)
        counts = dict(zip(accumulate((base + pairs[0], *pairs[2::2])), pairs[1::2])) if pairs else {}
        if len(counts) < counted:
            raise ValueError("it counts an offset twice")
        return lambda: counts, at
    # A count below 2**63 takes 125 bits.
    unpack, at = _read_windowed(wire, at, deflated=bool(flags & COUNTS_DEFLATED), tail=MOST_RUNS * 16)

    def offsets_and_counts() -> dict[int, int]:
        runs, tail = unpack()
        bounds = list(accumulate(runs, initial=base - 1))
        if sum(runs[1::2]) > MOST_RUNS:
            raise ValueError("it counts too many offsets")
        offsets = [offset for first, after in zip(bounds[1::2], bounds[2::2]) for offset in range(first, after)]
        return dict(zip(offsets, _gammas(tail, len(offsets)), strict=True))

    return offsets_and_counts, at


def counts_bound(counted: int, span: int, most: int) -> int:
    """Return the maximum size in bytes of ``counted`` counts of at most ``most``.

    The counts are of ``span`` offsets. As numbers: at most 3 bytes for the number of counts, and for each count its own
    size. The offsets are written as differences that add up to ``span``; a difference d takes one byte and a 7th of
    log2(d), so their total size is greatest when they are equal. Packed: a bit per offset, and for a count c ``2 *
    log2(c) + 1``.
    """
    if not counted:
        return 0
    differences = counted + -(-counted * (span // counted).bit_length() // 7)
    numbers = 3 + counted * len(uvarints((most,))) + differences
    if numbers <= DENSE_FROM or span >= _MOST_BITS:
        return numbers
    packed = -(-(span + 1) // 8) + -(-counted * (2 * most.bit_length() - 1) // 8)
    return min(numbers, max(DENSE_FROM, _BITMAP_HEAD + packed))


def _runs_of(start: int, offsets: Iterable[int]) -> Runs:
    """Return alternating lengths: offsets missing from this ascending sequence, offsets in it."""
    runs: list[int] = []
    at = start
    for offset in offsets:
        if runs and offset == at:
            runs[-1] += 1
        else:
            runs += (offset - at, 1)
        at = offset + 1
    return tuple(runs)


def _gamma(number: int) -> str:
    """Encode in Elias gamma: a zero for each binary digit after the first, then the digits."""
    digits = f"{number:b}"
    return "0" * (len(digits) - 1) + digits


def _gammas(packed: bytes, count: int) -> Runs:
    bits = _text_of(packed, len(packed) * 8)
    numbers, at = [], 0
    for _ in range(count):
        first = bits.find("1", at)
        end = 2 * first - at + 1
        if first < 0 or end > len(bits):
            raise ValueError("its counts are cut off")
        numbers.append(int(bits[first:end], 2))
        at = end
    if "1" in bits[at:] or len(bits) - at >= 8:
        raise ValueError("it has more counts than it claims")
    return tuple(numbers)


# ---------------------------------------------------------------- bitmaps


def _densest(runs: Runs) -> tuple[int, int] | None:
    """Return the range of runs for which a bitmap saves most; None if it saves nothing.

    For each run, a bitmap saves the bits of a number and costs one bit per offset. The best range is the greatest rise
    between two prefix sums of these gains.
    """
    gain = lowest = most = first = after = lowest_at = 0
    for end, run in enumerate(runs, 1):
        gain += (8 if run < 128 else 8 * ((run.bit_length() + 6) // 7)) - run
        if gain < lowest:
            lowest, lowest_at = gain, end
        elif gain - lowest > most:
            most, first, after = gain - lowest, lowest_at, end
    if not most or sum(runs[first:after]) > _MOST_BITS:
        return None
    return first, after


def _windowed(runs: Runs, window: tuple[int, int]) -> tuple[bytes, bytes]:
    """Return the leading numbers, and the body: runs as numbers, a bitmap, runs as numbers."""
    first, after = window
    covered = runs[first:after]
    head = uvarints((len(runs) - len(covered), first, sum(covered)))
    bits = "".join(map(mul, cycle("10" if first % 2 else "01"), covered))
    return head, uvarints(runs[:first]) + _bits(bits) + uvarints(runs[after:])


def _read_windowed(wire: bytes, at: int, *, deflated: bool, tail: int) -> tuple[Callable[[], tuple[Runs, bytes]], int]:
    """Locate runs like `read_runs`.

    Up to ``tail`` bytes after the runs are returned with them.
    """
    (count, first, bits, size), at = read_uvarints(wire, at, 4)
    if not first <= count <= MOST_RUNS or bits > _MOST_BITS:
        raise ValueError(f"it claims {count} runs, {first} of them before {bits} bits")

    def unpack() -> tuple[Runs, bytes]:
        body = wire[at : at + size]
        if deflated:
            body = _inflated(body, count * LONGEST_UVARINT + bits // 8 + 1 + tail)
        before, end = read_uvarints(body, 0, first)
        text = _text_of(body[end:], bits)
        end += -(-bits // 8)
        if text[:1] not in ("", "01"[first % 2]):
            raise ValueError("its bitmap does not begin with another run")
        behind, end = read_uvarints(body, end, count - first)
        return (*before, *map(len, _RUNS.findall(text)), *behind), body[end:]

    return unpack, at + size


def _bits(text: str) -> bytes:
    size = -(-len(text) // 8)
    return int(text.ljust(8 * size, "0") or "0", 2).to_bytes(size, "big")


def _text_of(packed: bytes, bits: int) -> str:
    size = -(-bits // 8)
    if len(packed) < size:
        raise ValueError("its bitmap is cut off")
    return f"{int.from_bytes(packed[:size], 'big'):0{8 * size}b}"[:bits] if bits else ""


# ---------------------------------------------------------------- bytes


def _sized(stored: bytes) -> bytes:
    return uvarints((len(stored),)) + stored


def _deflated(stored: bytes) -> bytes:
    usual = zlib.compress(stored, wbits=-zlib.MAX_WBITS)
    # Random acks form no repeating patterns. Accidental matches would only make the text longer.
    without_matches = zlib.compressobj(wbits=-zlib.MAX_WBITS, strategy=zlib.Z_HUFFMAN_ONLY)
    return min(usual, without_matches.compress(stored) + without_matches.flush(), key=len)


def _inflated(deflated: bytes, most: int) -> bytes:
    inflate = zlib.decompressobj(-zlib.MAX_WBITS)
    try:
        stored = inflate.decompress(deflated, most + 1)
    except zlib.error:
        raise ValueError("its runs cannot be inflated") from None
    if not inflate.eof or inflate.unused_data:
        raise ValueError("its deflated runs differ in number from its claim")
    return stored


def uvarints(values: Iterable[int]) -> bytes:
    """Encode numbers as LEB128."""
    stored = bytearray()
    for value in values:
        while value > 127:
            stored.append(value & 127 | 128)
            value >>= 7
        stored.append(value)
    return bytes(stored)


def read_uvarints(stored: bytes, at: int, count: int) -> tuple[Runs, int]:
    """Read ``count`` numbers starting at ``at``; return them and the offset after them.

    Raises:
        ValueError: there are not that many, or a number is too long.
    """
    letters = stored[at : at + count]
    if len(letters) == count and letters.isascii():  # one byte each, as in almost all cases
        return tuple(letters), at + count
    values = []
    for _ in range(count):
        value = 0
        for place in range(0, 7 * LONGEST_UVARINT, 7):
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
