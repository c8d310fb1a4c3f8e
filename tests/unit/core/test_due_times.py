"""Scheduled messages: from when on a message counts (R11), and the longest delay of a queue."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.timing.delay import LONGEST_DELAY, delay_from_wire, delay_to_wire
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, DueTimes, check_ahead
from lvq_kafka.core.timing.log_time import header_ms
from lvq_kafka.errors import ConfigError

Header = tuple[str, bytes | None]


def own(time: bytes | None) -> list[Header]:
    return [("ticker", b"IBM"), (NOT_BEFORE_HEADER, time)]


@pytest.mark.parametrize(
    ("time", "due"),
    [
        (b"0", 50_000),
        (b"49999", 50_000),
        (b"50000", 50_000),
        (b"50001", 50_001),
        (b"60000", 60_000),
        (b"60001", 60_000),
        (b"9" * 15, 60_000),
    ],
)
def test_r11_a_message_is_due_at_its_time_but_not_before_its_append_nor_later_than_the_longest_delay(
    time: bytes, due: int
) -> None:
    assert DueTimes(10.0).due(50_000, own(time)) == due


@pytest.mark.parametrize("headers", [None, [], [("ticker", b"IBM")], [("lvq-ttl", b"60000")]])
def test_r11_without_a_time_of_its_own_a_message_is_due_at_once(headers: list[Header] | None) -> None:
    judge = DueTimes(10.0)
    assert judge.due(50_000, headers) == 50_000
    assert judge.malformed == 0


@pytest.mark.parametrize("value", [None, b"", b"-1", b"+5", b"5.0", b" 5", b"5s", b"9" * 16, "٥".encode()])
def test_r11_a_time_that_cannot_be_read_counts_as_none_and_is_counted(value: bytes | None) -> None:
    judge = DueTimes(10.0)
    assert header_ms(value) is None
    assert judge.due(50_000, own(value)) == 50_000
    assert (judge.malformed, judge.example) == (1, value)


def test_r11_the_last_of_repeated_headers_counts() -> None:
    judge = DueTimes(10.0)
    assert judge.due(0, [(NOT_BEFORE_HEADER, b"5"), (NOT_BEFORE_HEADER, b"7")]) == 7
    assert judge.due(0, [(NOT_BEFORE_HEADER, b"7"), (NOT_BEFORE_HEADER, b"5")]) == 5


def test_r11_a_queue_without_a_longest_delay_has_no_judge() -> None:
    assert DueTimes.of(None) is None
    judge = DueTimes.of(10.0)
    assert judge is not None
    assert judge.due(0, own(b"99999")) == 10_000


_times = st.one_of(st.none(), st.sampled_from([b"soon", b"0", b"104000", b"99999999"]))
_cells = st.one_of(st.none(), st.just([]), st.just([("ticker", b"IBM")]), _times.map(own))


@given(st.lists(st.tuples(st.integers(100_000, 110_000), _cells), max_size=8))
def test_r11_the_rows_of_a_batch_that_do_not_count_at_once_are_those_due_later(
    batch: list[tuple[int, list[Header] | None]],
) -> None:
    one_by_one, together = DueTimes(3.0), DueTimes(3.0)
    expected = [
        (row, due)
        for row, (timestamp, headers) in enumerate(batch)
        if (due := one_by_one.due(timestamp, headers)) > timestamp
    ]
    assert together.scheduled([timestamp for timestamp, _ in batch], [headers for _, headers in batch]) == expected
    assert together.malformed == one_by_one.malformed


@pytest.mark.parametrize("max_delay", [0.001, 1 / 3, 86400, LONGEST_DELAY])
def test_a_longest_delay_is_stored_in_whole_milliseconds(max_delay: float) -> None:
    assert delay_to_wire(max_delay) == {"ms": round(max_delay * 1000)}
    assert delay_from_wire(delay_to_wire(max_delay)) == round(max_delay * 1000) / 1000


@pytest.mark.parametrize("part", [None, 5, "5", [], {}, {"ms": "5"}, {"ms": 5.0}, {"ms": True}, {"s": 5}])
def test_a_stored_delay_of_another_form_is_refused(part: Any) -> None:
    with pytest.raises(ConfigError, match=r"max_delay=.* does not say a whole number of ms") as caught:
        delay_from_wire(part)
    assert caught.value.options == ("max_delay",)


def test_r11_the_longest_delay_itself_is_not_too_far_ahead() -> None:
    check_ahead("not_before", 1060.0, now=1000.0, max_delay=60.0)
    check_ahead("not_before", 0.0, now=1000.0, max_delay=60.0)
    with pytest.raises(ConfigError, match=r"not_before is 60\.001 s ahead, but the queue's max_delay is 60 s"):
        check_ahead("not_before", 1060.001, now=1000.0, max_delay=60.0)
