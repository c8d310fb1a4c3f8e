"""R40: how old a store is by two clocks, and whether it means the same."""

from __future__ import annotations

import pytest

from lvq_kafka.core.latest.footing import ClockReading, Footing, Terms

DAY = 86_400.0
INFINITY = float("inf")


@pytest.mark.parametrize(
    ("earlier", "later", "age"),
    [
        ((100.0, 1000.0, "a"), (160.0, 1060.0, "a"), 60.0),
        (
            (100.0, 1000.0, "a"),
            (160.0, 1000.0 + DAY, "a"),
            DAY,
        ),  # the time of day was set ahead
        ((100.0, 1000.0, "a"), (100.0 + DAY, 1010.0, "a"), DAY),  # the time of day was set back
        ((100.0, 1000.0, "a"), (160.0, 900.0, "a"), INFINITY),
        ((9000.0, 1000.0, "a"), (5.0, 1060.0, "b"), 60.0),  # another start of the system: only the time of day tells
        ((9000.0, 1000.0, "a"), (5.0, 900.0, "b"), INFINITY),
        ((9000.0, 1000.0, ""), (5.0, 1060.0, ""), 60.0),
        ((100.0, 1000.0, "a"), (160.0, 999.5, "a"), 60.0),  # a correction
    ],
)
def test_the_age_of_a_store_is_the_longer_time_of_two_clocks(
    earlier: tuple[float, float, str], later: tuple[float, float, str], age: float
) -> None:
    assert ClockReading(*later).since(ClockReading(*earlier)) == age


def test_a_footing_survives_as_bytes() -> None:
    known = {0: ClockReading(1.5, 2.5, "boot"), 7: ClockReading(float("-inf"), float("-inf"), "boot")}
    footing = Footing("id", 8, 86_400.0, known, 12)
    assert Footing.from_note(footing.to_note()) == footing
    assert footing.ages(ClockReading(11.5, 12.5, "boot")) == {0: 10.0, 7: INFINITY}


def test_terms_that_differ_are_named_and_only_other_times_may_be_shown() -> None:
    before = {"key header": "ticker", "time rule": "{}"}
    assert Terms(before).difference(before) is None
    symbol = Terms({**before, "key header": "symbol"})
    assert symbol.difference(before) == "the key header was 'ticker', and is 'symbol'"
    assert not symbol.serves(before)
    altered = Terms({**before, "time rule": '{"ttl": 1}'})
    assert altered.difference(before) is not None
    assert altered.serves(before)
    more = Terms({**before, "selection": "x"})
    assert more.difference(before) == "the selection was not said, and is 'x'"
    assert not more.serves(before)


def test_terms_with_a_function_are_those_of_no_other_process() -> None:
    terms = Terms({"key header": "ticker"}, lasting=False)
    assert "another process" in (terms.difference(terms.said) or "")
    assert not terms.serves(terms.said)
