"""The commit map against a set of done offsets, and its text against any damage."""

from __future__ import annotations

import string
import zlib
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import groupby
from random import Random

from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map import packing
from lvq_kafka.core.commit_map.commit_map import LONGEST_TEXT, CommitMap, pairs_that_fit, size_bound, topic_tag
from lvq_kafka.errors import CommitMapRefused
from tests.effort import examples

ALPHABET = string.ascii_letters + string.digits + "-_"
END = 2**63

lengths = st.one_of(st.integers(1, 3), st.integers(1, 300), st.integers(1, 2**45))


@st.composite
def runs(draw: st.DrawFn, of: st.SearchStrategy[int] = lengths, most: int = 40) -> tuple[int, ...]:
    pairs = draw(st.lists(st.tuples(of, of), max_size=most))
    # Repeated patterns, because they are worth deflating.
    return tuple(length for pair in pairs for length in pair) * draw(st.sampled_from([1, 1, 1, 2, 20]))


@st.composite
def commit_maps(draw: st.DrawFn, counted: bool = True) -> CommitMap:
    base = draw(st.one_of(st.integers(0, 300), st.integers(0, 2**62)))
    counts = st.dictionaries(st.integers(0, 1000), st.integers(1, 500), max_size=20)
    return CommitMap(
        base,
        draw(runs()),
        draw(st.binary(min_size=8, max_size=8)),
        draw(st.one_of(st.integers(0, 200), st.integers(0, 2**31 - 1))),
        draw(st.one_of(st.integers(0, 200), st.integers(0, END // 2 - 1))),
        draw(st.one_of(st.none(), st.integers(0, 1000).map(lambda ahead: base + ahead), st.integers(0, END - 1))),
        {base + ahead: count for ahead, count in draw(counts).items()} if counted else {},
    )


@st.composite
def dense_maps(draw: st.DrawFn) -> CommitMap:
    """Draw maps with a part that is best written as a bitmap, and with many delivery counts."""
    rng = draw(st.randoms(use_true_random=False))
    base = draw(st.sampled_from([0, 1000, 2**62]))
    part = [rng.randint(1, draw(st.integers(1, 12))) for _ in range(2 * draw(st.integers(100, 300)))]
    lengths = (*draw(runs(most=8)), *part, *draw(runs(most=8)))
    commit_map = CommitMap(base, lengths, bytes(8), 3, 9, base + sum(lengths))
    most = draw(st.sampled_from([0, 1, 3, 500]))
    near = [base + rng.randrange(sum(part)) for _ in range(draw(st.integers(0, 600)))] if most else []
    return replace(commit_map, counts={offset: rng.randint(1, most) for offset in near})


@contextmanager
def packed_from(size: int) -> Iterator[None]:
    """Try forms other than plain numbers from this size on."""
    usual, packing.DENSE_FROM = packing.DENSE_FROM, size
    packing.pack_runs.cache_clear()
    try:
        yield
    finally:
        packing.DENSE_FROM = usual
        packing.pack_runs.cache_clear()


@st.composite
def small_maps(draw: st.DrawFn) -> CommitMap:
    """Draw maps with few enough offsets to check each."""
    return CommitMap(draw(st.integers(0, 12)), draw(runs(st.integers(1, 4), most=6)))


def done_offsets(commit_map: CommitMap) -> set[int]:
    """Return the done offsets of a map, computed naively."""
    done = set(range(commit_map.base))
    at = commit_map.base
    for number, length in enumerate(commit_map.runs):
        if number % 2:
            done |= set(range(at, at + length))
        at += length
    return done


@given(st.one_of(commit_maps(), dense_maps()))
@settings(max_examples=examples(60))
@example(CommitMap(0))
@example(CommitMap(END - 1))
def test_a_written_map_is_read_and_anything_after_it_is_ignored(commit_map: CommitMap) -> None:
    text = commit_map.encode(10**6)
    assert set(text[5:]) <= set(ALPHABET)
    assert CommitMap.decode(commit_map.base, text) == commit_map
    for garbage in ("A", "_-", "zzz", "AAAA", "\x00\ufffd"):
        assert CommitMap.decode(commit_map.base, text + garbage) == commit_map


@given(st.one_of(commit_maps(), dense_maps()), st.sampled_from([0, 10**9]))
@settings(max_examples=examples(60))
def test_a_map_means_the_same_in_whichever_form(commit_map: CommitMap, deflate_from: int) -> None:
    with packed_from(deflate_from):
        text = commit_map.encode(10**6)
    assert CommitMap.decode(commit_map.base, text) == commit_map


@given(st.one_of(commit_maps(), dense_maps()))
@settings(max_examples=examples(60))
def test_equal_maps_have_equal_texts(commit_map: CommitMap) -> None:
    packing.pack_runs.cache_clear()
    text = commit_map.encode(10**6)
    packing.pack_runs.cache_clear()
    twin = replace(commit_map, counts=dict(reversed(commit_map.counts.items())))
    assert twin == commit_map
    assert twin.encode(10**6) == text
    assert CommitMap.decode(commit_map.base, text).encode(10**6) == text


@given(st.one_of(commit_maps(), dense_maps()))
@settings(max_examples=examples(60))
def test_no_text_is_longer_than_the_longest_of_its_runs_and_counts(commit_map: CommitMap) -> None:
    framed = replace(commit_map, topic_tag=b"\xff" * 8, partitions=2**31 - 1, sequence=END // 2 - 1, delivered=END - 1)
    assert len(commit_map.encode(10**6)) <= len(framed.encode(10**6)) <= commit_map.longest == framed.longest


@given(small_maps(), small_maps())
def test_a_map_agrees_with_a_set_of_done_offsets(one: CommitMap, other: CommitMap) -> None:
    done = done_offsets(one)
    assert {offset for offset in range(one.end + 10) if one.done(offset)} == done
    assert one.end == max(one.base, max(done, default=-1) + 1)
    start = other.base
    ranges = one.done_from(start)
    assert {offset for first, after in ranges for offset in range(first, after)} == done - set(
        range(max(start, one.base))
    )
    assert all(first < after for first, after in ranges)
    assert one.covers(other) is (done >= done_offsets(other))
    assert one.covers(one)


@given(small_maps(), st.data())
def test_a_map_covers_what_it_came_of_by_acks(before: CommitMap, data: st.DataObject) -> None:
    acked = data.draw(st.sets(st.integers(0, before.end + 10)))
    done = done_offsets(before) | acked
    pending = [offset for offset in range(max(done, default=-1) + 1) if offset not in done]
    base = pending[0] if pending else max(done, default=-1) + 1
    lengths, state = [0], False
    for offset in range(base, max(done, default=-1) + 1):
        if (offset in done) is not state:
            lengths.append(0)
            state = not state
        lengths[-1] += 1
    after = CommitMap(base, tuple(lengths) if pending else ())
    assert done_offsets(after) == done
    assert after.covers(before)
    assert before.covers(after) is (done == done_offsets(before))


@given(commit_maps(), st.integers(55, 600))
def test_a_shortened_map_fits_claims_nothing_more_and_forgets_no_more_than_it_must(
    commit_map: CommitMap, limit: int
) -> None:
    short = commit_map.shortened(limit)
    assert len(short.encode(limit)) <= limit
    assert commit_map.covers(short)
    assert short.runs == commit_map.runs[: len(short.runs)]
    assert replace(short, runs=(), counts={}) == replace(commit_map, runs=(), counts={})
    if short.counts != commit_map.counts:
        lowest = sorted(commit_map.counts.items())[: len(short.counts) + 1]
        assert dict(lowest[:-1]) == short.counts
        if short.runs:
            return  # runs had room in the half that counts left
        longer = replace(short, counts=dict(lowest))
    elif short.runs != commit_map.runs:
        longer = replace(short, runs=commit_map.runs[: len(short.runs) + 2])
    else:
        assert short is commit_map
        return
    assert len(longer.encode(10**6)) > limit


def only(whole: CommitMap, pairs: set[int]) -> CommitMap:
    """Return a map with no more than these pairs of runs of another."""
    lengths: list[int] = []
    at = whole.base
    for pair in sorted(pairs):
        done, after = whole._bounds[2 * pair + 1 : 2 * pair + 3]
        lengths += (done - at, after - done)
        at = after
    return replace(whole, runs=tuple(lengths))


@given(st.one_of(small_maps(), commit_maps(counted=False)), st.data(), st.integers(55, 200))
def test_a_shortened_map_takes_nothing_back_and_keeps_what_is_promised(
    whole: CommitMap, data: st.DataObject, limit: int
) -> None:
    pairs = len(whole.runs) // 2
    said = whole.shortened(data.draw(st.integers(55, 100)))
    promised = data.draw(st.sets(st.integers(0, pairs - 1), max_size=3)) if pairs else set()
    first = [whole._bounds[2 * pair + 1] for pair in promised]
    short = whole.shortened(limit, stored=said, first=first)
    assert len(short.encode(limit)) <= limit
    assert whole.covers(short)
    kept = whole._pairs_of([*said._bounds[1::2], *first])
    if len(only(whole, kept).encode(10**6)) <= limit:  # else they are dropped like anything else
        assert short.covers(said)
        assert all(short.done(offset) for offset in first)
    if short.runs != whole.runs:
        assert len(whole.encode(10**6)) > limit


@given(runs(st.integers(1, 3)), st.integers(55, 600))
def test_without_deflating_a_shortened_map_is_the_longest_of_all_that_fit(lengths: tuple[int, ...], limit: int) -> None:
    assume(len(lengths) < 256)
    commit_map = CommitMap(5, lengths)
    fitting = [
        2 * pairs
        for pairs in range(len(lengths) // 2 + 1)
        if len(CommitMap(5, lengths[: 2 * pairs]).encode(10**6)) <= limit
    ]
    assert len(commit_map.shortened(limit).runs) == max(fitting)


@settings(max_examples=examples(30))
@given(commit_maps(), st.data())
def test_no_single_wrong_byte_of_a_text_is_taken_for_something_else(commit_map: CommitMap, data: st.DataObject) -> None:
    text = commit_map.encode(10**6)
    characters = data.draw(st.lists(st.sampled_from(ALPHABET + "\x00=+"), min_size=3, max_size=3, unique=True))
    for at in range(len(text)):
        for character in characters:
            try:
                read = CommitMap.decode(commit_map.base, text[:at] + character + text[at + 1 :])
            except CommitMapRefused:
                continue
            assert read == commit_map


@given(commit_maps(), st.data())
def test_a_text_cut_off_anywhere_is_refused(commit_map: CommitMap, data: st.DataObject) -> None:
    text = commit_map.encode(10**6)
    at = data.draw(st.integers(1, len(text) - 1))
    try:
        CommitMap.decode(commit_map.base, text[:at])
    except CommitMapRefused as error:
        assert error.reason == ("foreign" if at < 5 else "corrupt")  # noqa: PT017
    else:
        raise AssertionError("it was read")


@settings(max_examples=examples(500))
@given(
    st.integers(0, END - 1),
    st.one_of(
        st.text(),
        st.text(ALPHABET).map("lvq1.".__add__),
        st.binary().map(lambda wire: "lvq1." + urlsafe_b64encode(wire).decode()),
        st.tuples(st.integers(0, 63), st.binary(), st.booleans()).map(
            lambda t: "lvq1." + urlsafe_b64encode(sealed(bytes([t[0]]) + bytes(8) + t[1])).decode()
        ),
    ),
)
@example(END - 1, "lvq1." + "A" * 4000)
def test_no_text_raises_anything_but_a_refusal(base: int, text: str) -> None:
    try:
        read = CommitMap.decode(base, text)
    except CommitMapRefused as error:
        assert error.reason in ("foreign", "newer", "corrupt")  # noqa: PT017
    else:
        assert CommitMap.decode(base, read.encode(10**6)) == read


def sealed(wire: bytes) -> bytes:
    """Append the checksum that readers check."""
    return wire + zlib.crc32(wire).to_bytes(4, "big")


@given(st.one_of(commit_maps(counted=False), dense_maps().map(lambda dense: replace(dense, counts={}))))
@settings(max_examples=examples(60))
def test_no_map_is_longer_than_its_bound(commit_map: CommitMap) -> None:
    pairs, span = len(commit_map.runs) // 2, commit_map.end - commit_map.base
    assert len(commit_map.encode(10**6)) <= size_bound(pairs, span)
    assert size_bound(pairs, span) <= size_bound(pairs + 1, span)
    assert size_bound(pairs, span) <= size_bound(pairs, span + 1)


@given(st.integers(1, 24_000), st.integers(0, 2**63 - 1), st.sampled_from([0.02, 0.1, 0.3, 0.5, 0.9]))
@settings(max_examples=15)
def test_any_map_over_a_span_of_24000_offsets_fits(span: int, seed: int, part: float) -> None:
    rng = Random(seed)
    done = "0" + "".join("1" if rng.random() < part else "0" for _ in range(span - 1)) + "1"
    lengths = tuple(len(list(run)) for _, run in groupby(done))
    longest = CommitMap(0, lengths, b"\xff" * 8, 2**31 - 1, END // 2 - 1, END - 1)
    assert size_bound(span, span + 1) <= LONGEST_TEXT
    assert CommitMap.decode(0, longest.encode()) == longest


@given(dense_maps())
@settings(max_examples=examples(30))
def test_no_counts_are_longer_than_their_bound(commit_map: CommitMap) -> None:
    counts = sorted(commit_map.counts.items())
    span, most = (
        max((offset - commit_map.base + 1 for offset, _ in counts), default=0),
        max((count for _, count in counts), default=1),
    )
    flags, packed = packing.pack_counts(commit_map.base, counts)
    assert len(packed) <= max(1, packing.counts_bound(len(counts), span, most))
    read, end = packing.read_counts(flags, commit_map.base, packed, 0)
    assert (read(), end) == (commit_map.counts, len(packed))


@given(st.integers(1, 60), st.integers(0, 7))
def test_the_bound_is_reached_by_the_longest_lengths_there_can_be(pairs: int, place: int) -> None:
    lengths = (1 << 7 * place,) * (2 * pairs)
    assume(sum(lengths) < END)
    longest = CommitMap(0, lengths, bytes(8), 2**31 - 1, END // 2 - 1, END - 1)
    with packed_from(10**9):
        assert len(longest.encode(10**6)) == size_bound(pairs, longest.end)


@given(st.integers(0, LONGEST_TEXT), st.integers(0, 2**62))
def test_as_many_pairs_as_are_said_to_fit_do(limit: int, span: int) -> None:
    pairs = pairs_that_fit(limit, span)
    assert pairs == 0 or size_bound(pairs, span) <= limit


@given(st.one_of(st.text(), st.text(ALPHABET + "+/", min_size=22, max_size=22)))
def test_every_topic_has_a_tag_of_eight_bytes_that_says_something(topic_id: str) -> None:
    assert len(topic_tag(topic_id)) == 8
    assert any(topic_tag(topic_id))
