"""The commit map and its text. The golden texts hold for every language; their meaning is spelled out next to them."""

from __future__ import annotations

import re
import string
import zlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from dataclasses import replace
from random import Random

import pytest

from lvq_kafka.core.commit_map.commit_map import (
    LONGEST_TEXT,
    CommitMap,
    pairs_that_fit,
    size_bound,
    span_that_fits,
    topic_tag,
)
from lvq_kafka.errors import CommitMapRefused, QueueError

TAG = bytes.fromhex("771a22ef75d34c65")
ALPHABET = string.ascii_letters + string.digits + "-_"

GOLDEN = {
    "nothing known but the base": (
        CommitMap(42),
        "00 0000000000000000 00 00 00 7bd5c66f",
        "lvq1.AAAAAAAAAAAAAAAAe9XGbw",
    ),
    "declared: topic and partition count": (
        CommitMap(42, (), TAG, 12, 7),
        "00 771a22ef75d34c65 0c 07 00 97ed4101",
        "lvq1.AHcaIu9100xlDAcAl-1BAQ",
    ),
    "1000 pending, 1001-1002 done, 1003-1005 pending, 1006-1009 done": (
        CommitMap(1000, (1, 2, 3, 4), TAG, 12, 8),
        "00 771a22ef75d34c65 0c 08 04 01020304 feb5e40c",
        "lvq1.AHcaIu9100xlDAgEAQIDBP615Aw",
    ),
    "the same with the mark 1010": (
        CommitMap(1000, (1, 2, 3, 4), TAG, 12, 8, 1010),
        "04 771a22ef75d34c65 0c 08 04 01020304 0a 4897d893",
        "lvq1.BHcaIu9100xlDAgEAQIDBApIl9iT",
    ),
    "long runs, sequence 300, mark 1300, counts 1000: 1 and 1300: 3": (
        CommitMap(1000, (1, 299, 20000, 1), TAG, 12, 300, 1300, {1000: 1, 1300: 3}),
        "06 771a22ef75d34c65 0c ac02 04 01ab02a09c0101 ac02 02 0001 ac0203 844cc8bf",
        "lvq1.BncaIu9100xlDKwCBAGrAqCcAQGsAgIAAawCA4RMyL8",
    ),
    "the largest numbers": (
        CommitMap(2**62, (2**61, 1), bytes(range(8)), 2**31 - 1, 2**62 - 1, 2**62 + 2**61 + 1),
        "04 0001020304050607 ffffffff07 ffffffffffffffff3f 02 80808080808080802001 818080808080808020 f241a2ab",
        "lvq1.BAABAgMEBQYH_____wf__________z8CgICAgICAgIAgAYGAgICAgICAIPJBoqs",
    ),
}
EACH_GOLDEN = pytest.mark.parametrize(("commit_map", "wire", "text"), GOLDEN.values(), ids=GOLDEN.keys())
DEFLATED = "lvq1.AXcaIu9100xlAwnYBAljZBwFo4D6AAC3QUF8"
"""600 runs of 1 from offset 10, partition count 3, sequence 9. Deflaters differ: this is one of the possible texts."""


PACKED = {
    "1001-1002 and 1006-1009 done, as a bitmap": (
        CommitMap(1000, (1, 2, 3, 4), TAG, 12, 8),
        "08 771a22ef75d34c65 0c 08 00 00 0a 02 63c0 ee054f72",
        "lvq1.CHcaIu9100xlDAgAAAoCY8DuBU9y",
    ),
    "the same with mark 1308, and packed counts, 1 of 1000 and 3 of 1300": (
        CommitMap(1000, (1, 2, 3, 4), TAG, 12, 8, 1308, {1000: 1, 1300: 3}),
        "16 771a22ef75d34c65 0c 08 04 01020304 b402 04 00 00 06 0101ab0201 b0 392ca088",
        "lvq1.FncaIu9100xlDAgEAQIDBLQCBAAABgEBqwIBsDksoIg",
    ),
}
"""Texts that another writer may use, although this one writes something so short in plain numbers."""

LONG_AND_DENSE = (
    "lvq1.DHcaIu9100xlDAgGAtoEVEasAgOg475yFkEMA5dGGt_MluT04wswlztLU2dmDbxyiDC5iOxR4Wc3oj9qar2PF_XEoKYaHggT4mjhw13iZrCf"
    "GGx4tW_I26wlETLY-sAoqEYHAbiUAcenJDo"
)
"""70 pending, 300 done, 602 offsets of `random_runs`, 40 pending, 9000 done, 7 pending, 1 done; mark 20000."""


def random_runs() -> tuple[int, ...]:
    """Return a pending offset, 600 that are done or not by Python's random bits (seed 1), and a done one."""
    bits = f"0{Random(1).getrandbits(600):0600b}1"
    return tuple(len(run) for run in re.findall("0+|1+", bits))


def text_of(wire: bytes, crc: int | None = None) -> str:
    wire += (zlib.crc32(wire) if crc is None else crc).to_bytes(4, "big")
    return "lvq1." + urlsafe_b64encode(wire).rstrip(b"=").decode()


def refusal(text: str, base: int = 1000) -> CommitMapRefused:
    with pytest.raises(CommitMapRefused) as caught:
        CommitMap.decode(base, text)
    return caught.value


@EACH_GOLDEN
def test_a_golden_map_has_its_golden_text(commit_map: CommitMap, wire: str, text: str) -> None:
    assert commit_map.encode() == text
    assert urlsafe_b64decode(text[5:] + "==").hex() == wire.replace(" ", "")
    assert CommitMap.decode(commit_map.base, text) == commit_map


def test_a_golden_text_with_deflated_runs_is_read_whoever_deflated_it() -> None:
    commit_map = CommitMap(10, (1,) * 600, TAG, 3, 9)
    assert CommitMap.decode(10, DEFLATED) == commit_map
    assert CommitMap.decode(10, commit_map.encode()) == commit_map
    assert len(commit_map.encode()) < 100
    stored_in_one_block = b"\x01\x58\x02\xa7\xfd" + b"\x01" * 600  # RFC 1951, 3.2.4: not compressed
    wire = b"\x01" + TAG + b"\x03\x09\xd8\x04\xdd\x04" + stored_in_one_block
    assert CommitMap.decode(10, text_of(wire)) == commit_map


@pytest.mark.parametrize(("commit_map", "wire", "text"), PACKED.values(), ids=PACKED.keys())
def test_a_golden_text_in_another_form_is_read(commit_map: CommitMap, wire: str, text: str) -> None:
    assert urlsafe_b64decode(text[5:] + "==").hex() == wire.replace(" ", "")
    assert CommitMap.decode(commit_map.base, text) == commit_map


def test_runs_that_lie_close_together_become_a_bitmap_between_the_others() -> None:
    dense = CommitMap(1000, (70, 300, *random_runs(), 40, 9000, 7, 1), TAG, 12, 8, 20_000)
    assert dense.encode() == LONG_AND_DENSE
    assert CommitMap.decode(1000, LONG_AND_DENSE) == dense


def test_a_map_says_which_offsets_are_done() -> None:
    commit_map = CommitMap(1000, (1, 2, 3, 4))
    assert [offset for offset in range(990, 1020) if commit_map.done(offset)] == [
        *range(990, 1000), 1001, 1002, 1006, 1007, 1008, 1009,
    ]  # fmt: skip
    assert commit_map.end == 1010
    assert CommitMap(7).end == 7
    assert CommitMap(7).done(6)
    assert not CommitMap(7).done(7)


@pytest.mark.parametrize(
    ("other", "covered"),
    [
        (CommitMap(0), True),
        (CommitMap(1000), True),
        (CommitMap(1001), False),
        (CommitMap(990, (1, 5)), True),
        (CommitMap(990, (1, 9)), True),
        (CommitMap(990, (1, 10)), False),
        (CommitMap(1000, (1, 2)), True),
        (CommitMap(1000, (1, 3)), False),
        (CommitMap(1000, (2, 1, 5, 1)), True),
        (CommitMap(1000, (6, 5)), False),
        (CommitMap(1000, (100, 1)), False),
    ],
)
def test_a_map_covers_another_if_all_that_is_done_there_is_done_here(other: CommitMap, covered: bool) -> None:
    assert CommitMap(1000, (1, 2, 3, 4)).covers(other) is covered


@pytest.mark.parametrize("offsets", [[], [99, 50, 9, 10, 11, 12, 13, 20, 31, 40], [31, 32], [12]])
def test_the_done_rows_of_many_offsets_are_those_of_each(offsets: list[int]) -> None:
    known = CommitMap(10, (2, 3, 4, 12))
    assert known.rows_done(offsets) == [row for row, offset in enumerate(offsets) if known.done(offset)]


def test_a_mark_below_the_base_becomes_the_base() -> None:
    assert CommitMap(10, delivered=3) == CommitMap(10, delivered=10)


@pytest.mark.parametrize(
    "wrong",
    [
        {"base": -1},
        {"base": 2**63},
        {"runs": (1,)},
        {"runs": (0, 1)},
        {"runs": (1, 0)},
        {"runs": (-1, 1)},
        {"runs": (2**63, 1)},
        {"topic_tag": b"short"},
        {"partitions": -1},
        {"partitions": 2**31},
        {"sequence": -1},
        {"sequence": 2**63},
        {"delivered": 2**63},
        {"counts": {4: 1}},
        {"counts": {5: 0}},
        {"counts": {2**63: 1}},
    ],
    ids=str,
)
def test_an_impossible_map_cannot_be_made(wrong: dict[str, object]) -> None:
    with pytest.raises(ValueError, match=r"range|pairs|count"):
        CommitMap(**{"base": 5, **wrong})  # type: ignore[arg-type]


def test_a_commit_without_a_text_is_something_elses() -> None:
    with pytest.raises(CommitMapRefused, match="a plain client or one of Kafka's tools") as caught:
        CommitMap.decode(42, "")
    assert caught.value.reason == "foreign"
    assert "`lvq reset`" in caught.value.hint


@EACH_GOLDEN
@pytest.mark.parametrize("garbage", ["\x00", "=", " lvq1.", "é", "\ud800", "A", "AB", "ABC", "ABCD", "-_" * 50])
def test_anything_after_the_text_is_ignored(commit_map: CommitMap, wire: str, text: str, garbage: str) -> None:
    assert CommitMap.decode(commit_map.base, text + garbage) == commit_map


@pytest.mark.parametrize(
    "text",
    [
        " ",
        "x",
        "lvq",
        "lvq1",
        "lvq1:AAAA",
        "LVQ1.AAAA",
        "lvq0.AAAA",
        "lvq.AAAA",
        " lvq1.AAAA",
        "AQAAAZ",
        "\ud800\x00",
        "{}",
    ],
)
def test_a_text_of_somebody_else_is_foreign(text: str) -> None:
    assert refusal(text).reason == "foreign"


@pytest.mark.parametrize("text", ["lvq2.", "lvq2.AAAA", "lvq10.AAAA"])
def test_a_text_of_a_later_format_is_newer(text: str) -> None:
    assert refusal(text).reason == "newer"


@pytest.mark.parametrize("bit", [64, 128])
def test_a_text_with_a_flag_of_a_later_version_is_newer(bit: int) -> None:
    assert refusal(text_of(bytes([bit]) + TAG + b"\x0c\x08\x00")).reason == "newer"


HEAD = TAG + b"\x0c\x08"
DAMAGED = {
    "nothing": "lvq1.",
    "not one byte": "lvq1.A",
    "not in the alphabet": "lvq1.+/+/",
    "cut off in the tag": text_of(b"\x00\x01\x02"),
    "the checksum differs": text_of(b"\x00" + HEAD + b"\x00", crc=1),
    "no checksum": "lvq1." + urlsafe_b64encode(b"\x00" + HEAD + b"\x00").decode(),
    "an odd number of runs": text_of(b"\x00" + HEAD + b"\x01\x05"),
    "an empty run": text_of(b"\x00" + HEAD + b"\x02\x05\x00"),
    "fewer runs than claimed": text_of(b"\x00" + HEAD + b"\x7f\x05\x05"),
    "countless runs": text_of(b"\x00" + HEAD + b"\xff" * 8 + b"\x7f"),
    "a number of ten bytes": text_of(b"\x00" + HEAD + b"\x02" + b"\x80" * 9 + b"\x01\x01"),
    "an end out of range": text_of(b"\x00" + HEAD + b"\x02" + b"\xff" * 8 + b"\x7f\x01"),
    "a mark out of range": text_of(b"\x04" + HEAD + b"\x00" + b"\xff" * 8 + b"\x7f"),
    "a sequence that nothing follows": text_of(b"\x00" + TAG + b"\x0c" + b"\xff" * 8 + b"\x7f\x00"),
    "a count of nought": text_of(b"\x02" + HEAD + b"\x00\x01\x05\x00"),
    "an offset counted twice": text_of(b"\x02" + HEAD + b"\x00\x02\x05\x01\x00\x01"),
    "countless counts": text_of(b"\x02" + HEAD + b"\x00" + b"\xff" * 8 + b"\x7f"),
    "a partition count out of range": text_of(b"\x00" + TAG + b"\xff\xff\xff\xff\x0f\x00\x00"),
    "not deflated": text_of(b"\x01" + HEAD + b"\x02\x02\xff\xff"),
    "a deflated text without its end": text_of(b"\x01" + HEAD + b"\x02\x01\x62"),
    "deflated bytes longer than the text": text_of(b"\x01" + HEAD + b"\x02" + b"\xff" * 8 + b"\x7f"),
    "a bitmap that is cut off": text_of(b"\x08" + HEAD + b"\x00\x00\x0a\x01\x63"),
    "a bitmap that begins as the run before it": text_of(b"\x08" + HEAD + b"\x00\x00\x0a\x02\xe3\xc0"),
    "a bitmap that ends with a pending offset": text_of(b"\x08" + HEAD + b"\x00\x00\x0a\x02\x63\x80"),
    "bytes behind a bitmap": text_of(b"\x08" + HEAD + b"\x00\x00\x0a\x03\x63\xc0\x00"),
    "more runs before a bitmap than there are": text_of(b"\x08" + HEAD + b"\x00\x02\x0a\x04\x01\x01\x63\xc0"),
    "a countless bitmap": text_of(b"\x08" + HEAD + b"\x00\x00" + b"\xff" * 8 + b"\x7f\x00"),
    "a bitmap of too many runs": text_of(
        b"\x09" + HEAD + b"\x00\x00\x84\x80\x04\x10" + zlib.compress(b"\x55" * 8193, wbits=-15)[:16].ljust(16, b"\0")
    ),
    "packed counts that are cut off": text_of(b"\x12" + HEAD + b"\x00\x02\x00\x00\x02\x01\x01"),
    "packed counts of nought": text_of(b"\x12" + HEAD + b"\x00\x02\x00\x00\x03\x01\x01\x00"),
    "packed counts with trailing bytes": text_of(b"\x12" + HEAD + b"\x00\x02\x00\x00\x04\x01\x01\x80\x00"),
    "countless packed counts": text_of(b"\x12" + HEAD + b"\x00\x02\x00\x00\x0a\x01" + b"\xff" * 8 + b"\x7f"),
    "nothing deflated": text_of(b"\x01" + HEAD + b"\x00\x00"),
}


def deflated(count: int, stored: bytes, after: bytes = b"") -> str:
    body = zlib.compress(stored, wbits=-15) + after
    numbers = bytearray()
    for number in (count, len(body)):
        while number > 127:
            numbers.append(number & 127 | 128)
            number >>= 7
        numbers.append(number)
    return text_of(b"\x01" + HEAD + bytes(numbers) + body)


DAMAGED |= {
    "deflated runs fewer than claimed": deflated(4, b"\x01" * 3),
    "deflated runs more than claimed": deflated(4, b"\x01" * 5),
    "deflated runs with bytes after them": deflated(4, b"\x01" * 4, b"\x00"),
    "more deflated runs than the format allows": deflated(65_538, b"\x01" * 65_538),
}


@pytest.mark.parametrize("text", DAMAGED.values(), ids=DAMAGED.keys())
def test_a_damaged_text_is_corrupt(text: str) -> None:
    assert refusal(text).reason == "corrupt"


def test_the_most_runs_that_the_format_allows_are_read_and_written() -> None:
    most = CommitMap(0, (1,) * 65_536)
    assert CommitMap.decode(0, most.encode()) == most
    more = CommitMap(0, (1,) * 65_540)
    for limit in (LONGEST_TEXT, 10**6):
        assert more.shortened(limit) == most
        with pytest.raises(ValueError, match="65540 runs does not fit"):
            more.encode(limit)


def test_a_hostile_text_does_not_swell(monkeypatch: pytest.MonkeyPatch) -> None:
    asked = []
    real = zlib.decompressobj

    class Watched:
        def __init__(self, wbits: int) -> None:
            self.inflate = real(wbits)

        def decompress(self, data: bytes, max_length: int) -> bytes:
            asked.append(max_length)
            inflated = self.inflate.decompress(data, max_length)
            self.eof, self.unused_data = self.inflate.eof, self.inflate.unused_data
            return inflated

    monkeypatch.setattr(zlib, "decompressobj", Watched)
    bomb = deflated(65_536, bytes(64 << 20))
    assert len(bomb) < 100_000
    assert refusal(bomb).reason == "corrupt"
    assert asked == [65_536 * 9 + 1]
    body = zlib.compress(bytes(64 << 20), wbits=-15)
    size = bytes((len(body) & 127 | 128, len(body) >> 7 & 127 | 128, len(body) >> 14))
    for flags, fields in ((b"\x09", b"\x00\x00\x80\x80\x20"), (b"\x32", b"\x00\x00\x00\x80\x80\x20")):
        assert refusal(text_of(flags + HEAD + fields + size + body)).reason == "corrupt"
    assert asked[1:] == [65_536 + 2, 65_536 + 2 + 65_536 * 16]


@EACH_GOLDEN
def test_no_single_wrong_character_is_taken_for_something_else(commit_map: CommitMap, wire: str, text: str) -> None:
    for at in range(len(text)):
        for character in {*ALPHABET, ".", "=", "\x00", "é"} - {text[at]}:
            damaged = text[:at] + character + text[at + 1 :]
            try:
                read = CommitMap.decode(commit_map.base, damaged)
            except CommitMapRefused:
                continue
            # The last letter has bits that belong to no byte.
            assert at == len(text) - 1
            assert read == commit_map


def test_the_refusal_names_the_queue_and_the_partition_and_the_ways_out() -> None:
    with pytest.raises(CommitMapRefused) as caught:
        CommitMap.decode(5, "streams\n", queue="prices", partition=3)
    error = caught.value
    assert (error.queue, error.partition, error.reason) == ("prices", 3, "foreign")
    assert isinstance(error, QueueError)
    assert str(error).startswith("The offset commit of queue 'prices' at partition 3 is refused: ")
    assert "'streams\\n'" in str(error)
    assert "'ignore'" in error.hint
    assert "`lvq repair`" in error.hint


def test_a_base_that_is_no_offset_is_the_callers_mistake() -> None:
    for text in ("", text_of(b"\x00" + HEAD + b"\x00")):
        with pytest.raises(ValueError, match=r"offset|base"):
            CommitMap.decode(-1001, text)


# --- limits ---------------------------------------------------------------------------------------------------------


def test_a_map_is_never_written_longer_than_the_limit() -> None:
    scattered = tuple(n * 7919 % 9973 + 1 for n in range(2000))  # deflating gains nothing
    commit_map = CommitMap(0, scattered, TAG, 12, 8)
    with pytest.raises(ValueError, match="2000 runs does not fit into 4095 characters"):
        commit_map.encode()
    short = commit_map.encode(10_000)
    assert CommitMap.decode(0, short) == commit_map


def test_shortening_forgets_done_offsets_at_the_far_end_only() -> None:
    commit_map = CommitMap(1000, (1, 2, 3, 4), TAG, 12, 8)
    assert commit_map.shortened(32) is commit_map
    assert commit_map.shortened(31) == CommitMap(1000, (1, 2), TAG, 12, 8)
    assert commit_map.shortened(27) == CommitMap(1000, (), TAG, 12, 8)
    with pytest.raises(ValueError, match="does not fit into 26 characters"):
        commit_map.shortened(26)


def test_counts_are_kept_before_runs_and_the_lowest_offsets_before_the_others() -> None:
    counts = {1005: 1, 1000: 2, 1001: 3}
    commit_map = CommitMap(1000, (1, 2, 3, 4), TAG, 12, 8, None, counts)
    full = len(commit_map.encode())
    assert commit_map.shortened(full) is commit_map
    assert commit_map.shortened(full - 1) == CommitMap(1000, (1, 2), TAG, 12, 8, None, counts)
    assert commit_map.shortened(35).counts == {1000: 2, 1001: 3}
    assert commit_map.shortened(35).runs == ()
    assert commit_map.shortened(27) == CommitMap(1000, (), TAG, 12, 8)


def test_counts_refuse_more_than_half_of_what_runs_need() -> None:
    rng = Random(4)
    runs = tuple(rng.choice((1, 1, 2, 3, 5)) for _ in range(20_000))
    counts = {offset: rng.choice((1, 1, 2, 9)) for offset in range(0, 20_000, 2)}
    short = CommitMap(0, runs, TAG, 12, 8, None, counts).shortened()
    halves = [replace(short, runs=()), replace(short, counts={})]
    assert all(1800 < len(half.encode()) < 2400 for half in halves)
    few = CommitMap(0, runs[:100], TAG, 12, 8, None, counts).shortened()
    assert few.runs == runs[:100]
    assert len(few.encode()) > 3900


def test_every_base_fits_into_55_characters() -> None:
    largest = CommitMap(2**62, (1, 1), bytes(range(8)), 2**31 - 1, 2**63 - 1, 2**63 - 1)
    assert len(largest.shortened(55).encode(55)) == 55 == size_bound(0, 0)


@pytest.mark.parametrize(
    ("pairs", "span", "characters"),
    [
        (0, 0, 55),
        (1, 2, 57),  # two bytes more
        (1, 1000, 60),  # and two lengths of two bytes
        (100, 200, 323),  # all lengths are 1
        (500, 1000, 399),  # a bitmap would be shorter than the size from which one is tried
        (1500, 3000, 569),  # a bitmap
        (500, 10_000, 1483),  # all lengths are 1, except 70 that are 127 longer
        (1000, 10**6, 5449),
        (10**9, 10, 68),  # ten offsets hold five pairs at most
    ],
)
def test_the_bound_is_the_formula_of_its_documentation(pairs: int, span: int, characters: int) -> None:
    assert size_bound(pairs, span) == characters


@pytest.mark.parametrize(("most", "offsets"), [(0, 24_152), (1, 8016), (5, 3435), (9, 2672)])
def test_the_window_that_fits_whatever_is_done_and_counted(most: int, offsets: int) -> None:
    assert span_that_fits(LONGEST_TEXT, most) == offsets
    assert size_bound(offsets, offsets, offsets if most else 0, most) <= LONGEST_TEXT


def test_acks_at_random_are_deflated_without_matches() -> None:
    rng = Random(5)
    runs = tuple(int(rng.expovariate(0.1)) + 1 if number % 2 == 0 else 1 for number in range(2000))
    usual = zlib.compress(bytes(runs), wbits=-15)
    commit_map = CommitMap(0, runs)
    assert len(commit_map.encode()) < 4 * len(usual) // 3
    assert CommitMap.decode(0, commit_map.encode()) == commit_map


def test_the_pairs_that_fit_are_those_of_the_bound_to_a_few_percent() -> None:
    for span in (30_000, 123_456, 10**7, 10**12):
        pairs = pairs_that_fit(LONGEST_TEXT, span)
        assert size_bound(pairs, span) <= LONGEST_TEXT < size_bound(pairs + pairs // 30 + 1, span)
    assert pairs_that_fit(54, 10**6) == 0
    assert pairs_that_fit(LONGEST_TEXT, 3000) >= 1500  # the most possible


# --- the topic's tag ------------------------------------------------------------------------------------------------


def test_the_tag_of_a_topic_is_its_uuid_folded() -> None:
    assert urlsafe_b64decode("3Yc0sVkhSUKqnRZeLPIFJw==").hex() == "dd8734b159214942aa9d165e2cf20527"
    assert topic_tag("3Yc0sVkhSUKqnRZeLPIFJw") == topic_tag("3Yc0sVkhSUKqnRZeLPIFJw==") == TAG


def test_both_alphabets_of_base64_give_one_tag() -> None:
    assert topic_tag("-_-_-_-_AAAAAAAAAAAAAA") == topic_tag("+/+/+/+/AAAAAAAAAAAAAA")
    assert topic_tag("-_-_-_-_AAAAAAAAAAAAAA") == bytes.fromhex("fbffbffbffbf0000")


def test_another_id_is_hashed() -> None:
    assert topic_tag("1") == bytes.fromhex("f6fc42039fba3776")
    assert topic_tag("") != topic_tag("1") != topic_tag("2")


def test_no_tag_is_the_unknown_one() -> None:
    assert topic_tag("AAAAAAAAAAAAAAAAAAAAAA") == b"\0\0\0\0\0\0\0\1"
