"""TTL: until when a message counts (R10)."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.log_time import MOST_AHEAD, LogTime
from lvq_kafka.core.timing.ttl import NEVER, TTL_HEADER, Ttl, ttl_text
from lvq_kafka.errors import ConfigError

Header = tuple[str, bytes | None]


def expiry_times(**limits: Any) -> ExpiryTimes:
    found = ExpiryTimes.of(Ttl(**limits))
    assert found is not None
    return found


def own(ttl: bytes | None) -> list[Header]:
    return [("ticker", b"IBM"), (TTL_HEADER, ttl)]


@pytest.mark.parametrize(
    ("limits", "expiry_without", "expiry_of_15000", "expiry_of_5000"),
    [
        ({"maximum": 10}, 60_000, 60_000, 55_000),
        ({"minimum": 10}, NEVER, 65_000, 60_000),
        ({"minimum": 10, "maximum": 20}, 70_000, 65_000, 60_000),
    ],
)
def test_s100_s101_minimum_and_maximum(
    limits: dict[str, float], expiry_without: int, expiry_of_15000: int, expiry_of_5000: int
) -> None:
    judge = expiry_times(**limits)
    assert judge.expiry(50_000, [("ticker", b"IBM")]) == expiry_without
    assert judge.expiry(50_000, own(b"15000")) == expiry_of_15000
    assert judge.expiry(50_000, own(b"5000")) == expiry_of_5000


def test_s102_the_first_policy_that_applies_decides_alone() -> None:
    assert ExpiryTimes.of(None) is None
    assert ExpiryTimes.of(Ttl(never=True)) is None
    usual = expiry_times(default=5, minimum=2, maximum=7)
    assert usual.expiry(0, ()) == 5_000
    assert usual.expiry(0, own(b"1")) == 2_000
    assert usual.expiry(0, own(b"9999")) == 7_000


def test_r10_a_ttl_of_its_own_needs_no_limits() -> None:
    assert expiry_times().expiry(10, own(b"7")) == 17
    assert expiry_times().expiry(10, None) == NEVER


@pytest.mark.parametrize("value", [None, b"", b"-1", b"+5", b"5.0", b" 5", b"5s", b"9" * 16, "٥".encode()])
def test_r10_a_ttl_that_cannot_be_read_counts_as_none_and_is_counted(value: bytes | None) -> None:
    judge = expiry_times(default=3)
    assert judge.expiry(0, own(value)) == 3_000
    assert (judge.malformed, judge.example) == (1, value)


@pytest.mark.parametrize("value", [b"0", b"000"])
@pytest.mark.parametrize(
    ("limits", "lives"),
    [
        ({}, NEVER),
        ({"minimum": 10}, NEVER),
        ({"maximum": 9, "minimum": 1}, 9_000),
        ({"maximum": 9, "default": 3}, 3_000),
    ],
)
def test_r10_a_ttl_of_zero_is_none_of_its_own_and_is_counted(
    limits: dict[str, float], lives: int, value: bytes
) -> None:
    """JMS writes 0 for never."""
    judge = expiry_times(**limits)
    assert judge.expiry(0, own(value)) == lives
    assert judge.expiries([0, 0], [own(value), own(b"2000")], plain=False)[0] == lives
    assert (judge.malformed, judge.example) == (2, value)


@pytest.mark.parametrize("headers", [None, own(b"5000")])
def test_r10_a_message_dated_to_the_end_of_time_never_expires(headers: list[Header] | None) -> None:
    judge = expiry_times(default=10)
    latest = 2**63 - 1
    assert judge.expiry(latest, headers) == NEVER
    assert judge.expiries([latest, 50_000], [headers, None], plain=headers is None) == [NEVER, 60_000]


def test_the_last_of_repeated_headers_counts() -> None:
    assert expiry_times().expiry(0, [(TTL_HEADER, b"5"), (TTL_HEADER, b"7")]) == 7
    judge = expiry_times(default=1)
    assert judge.expiry(0, [(TTL_HEADER, b"5"), (TTL_HEADER, b"x")]) == 1_000


@given(
    limits=st.sampled_from([{}, {"default": 2}, {"maximum": 3}, {"minimum": 1, "maximum": 3}]),
    rows=st.lists(st.tuples(st.integers(0, 9999), st.sampled_from([None, b"1500", b"1", b"9000", b"0", b"?"]))),
)
def test_a_batch_is_judged_as_each_of_its_messages(
    limits: dict[str, float], rows: list[tuple[int, bytes | None]]
) -> None:
    times = [time for time, _ in rows]
    headers = [own(ttl) if ttl else None for _, ttl in rows]
    each = [expiry_times(**limits).expiry(time, header) for time, header in zip(times, headers)]
    assert expiry_times(**limits).expiries(times, headers, plain=False) == each
    if not any(headers):
        assert expiry_times(**limits).expiries(times, headers, plain=True) == each


@pytest.mark.parametrize(
    "limits",
    [
        {"default": 0},
        {"maximum": -1},
        {"minimum": "5"},
        {"maximum": float("inf")},
        {"default": True},
        {"default": 1e10},
    ],
)
def test_bad_limits_are_named(limits: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=r"is not a number of seconds from 0\.001 to") as caught:
        Ttl(**limits)
    assert caught.value.options == tuple(limits)


@pytest.mark.parametrize(
    ("limits", "options"),
    [
        ({"minimum": 5, "maximum": 4}, ("minimum", "maximum")),
        ({"minimum": 5, "default": 4}, ("minimum", "default")),
        ({"default": 5, "maximum": 4}, ("default", "maximum")),
        ({"never": True, "default": 4}, ("never", "default")),
    ],
)
def test_limits_that_contradict_each_other_are_both_named(limits: dict[str, Any], options: tuple[str, ...]) -> None:
    with pytest.raises(ConfigError) as caught:
        Ttl(**limits)
    assert caught.value.options == options


def test_a_ttl_is_written_in_ms() -> None:
    assert ttl_text(1.5) == b"1500"
    assert ttl_text(0.001) == b"1"
    with pytest.raises(ConfigError, match=r"ttl=0 is not .* delete its key"):
        ttl_text(0)


def test_time_is_that_of_the_clock_or_of_the_log_and_never_goes_back() -> None:
    time = LogTime()
    assert time.advance(10.0) == 10_000
    assert time.advance(9.0) == 10_000
    time.saw(12_345)
    time.saw(11_000)
    assert (time.advance(10.5), time.behind) == (12_345, 1_845)
    assert (time.advance(13.0), time.behind) == (13_000, 0)


def test_an_append_time_far_ahead_is_not_believed_but_shown() -> None:
    time = LogTime()
    time.saw(10_000 + MOST_AHEAD + 1)
    assert (time.advance(10.0), time.behind) == (10_000, MOST_AHEAD + 1)


@given(st.integers(0, 1 << 42))
def test_a_clock_that_says_a_whole_number_of_milliseconds_is_taken_at_its_word(ms: int) -> None:
    """2.002 s are 2001.9999999999998 ms by float arithmetic."""
    assert LogTime().advance(2.002) == 2002
    assert LogTime().advance(ms / 1000) == ms
