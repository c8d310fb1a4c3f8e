"""The time after which a consumer whose transactions cannot begin is useless to its partitions."""

from __future__ import annotations

from lvq_kafka.core.consumer.yielding import PATIENCE, Yielding


def trying(yielding: Yielding, start: float, end: float, every: float = 1.0, settled: int = 0) -> None:
    """Make attempts that fail at once, between these times."""
    while start <= end:
        yielding.attempt(start, settled)
        yielding.failed(start)
        start += every


def test_time_counts_from_the_first_of_the_attempts_that_failed() -> None:
    yielding = Yielding()
    trying(yielding, 100, 100 + PATIENCE - 1)
    assert not yielding.is_due(100 + PATIENCE - 1, 0)
    trying(yielding, 100 + PATIENCE, 100 + PATIENCE)
    assert yielding.is_due(100 + PATIENCE, 0)


def test_one_attempt_that_takes_very_long_is_enough() -> None:
    yielding = Yielding()
    yielding.attempt(0, 0)
    assert not yielding.is_due(PATIENCE - 1, 0)
    assert yielding.is_due(PATIENCE, 0)


def test_time_does_not_count_where_nobody_tries() -> None:
    yielding = Yielding()
    trying(yielding, 0, 5)
    assert not yielding.is_due(PATIENCE, 0)
    trying(yielding, 6 + 2 * PATIENCE, 6 + 2 * PATIENCE)
    assert not yielding.is_due(6 + 2 * PATIENCE, 0)


def test_a_consumer_that_stopped_trying_long_ago_is_no_longer_judged() -> None:
    yielding = Yielding()
    trying(yielding, 0, PATIENCE)
    assert yielding.is_due(2 * PATIENCE, 0)
    assert not yielding.is_due(2 * PATIENCE + 1, 0)


def test_a_transaction_that_begins_ends_it_and_another_thread_that_still_tries_counts_from_then() -> None:
    yielding = Yielding()
    yielding.attempt(0, 0)
    yielding.attempt(1, 0)
    yielding.reason = "no transaction begins"
    yielding.begun(PATIENCE, 0)
    assert not yielding.away
    assert not yielding.is_due(2 * PATIENCE - 1, 0)
    assert yielding.is_due(2 * PATIENCE, 0)


def test_a_settlement_outside_of_transactions_restarts_the_count() -> None:
    yielding = Yielding()
    yielding.attempt(0, 7)
    assert not yielding.is_due(PATIENCE, 8)
    assert not yielding.is_due(2 * PATIENCE - 1, 8)
    assert yielding.is_due(2 * PATIENCE, 8)


def test_a_settlement_that_a_transaction_is_found_to_have_made_does_not() -> None:
    yielding = Yielding()
    yielding.attempt(0, 7)
    yielding.decided(3)
    assert yielding.is_due(PATIENCE, 10)


def test_a_request_that_finds_no_message_restarts_the_count_and_brings_the_consumer_back() -> None:
    yielding = Yielding()
    yielding.attempt(0, 0)
    yielding.reason = "no transaction begins"
    yielding.asked(PATIENCE)
    assert not yielding.away
    assert not yielding.is_due(2 * PATIENCE - 1, 0)


def test_time_in_which_nobody_else_could_do_more_does_not_count() -> None:
    yielding = Yielding()
    trying(yielding, 0, PATIENCE)
    yielding.excused(PATIENCE)
    assert not yielding.is_due(PATIENCE, 0)
    trying(yielding, PATIENCE + 1, 2 * PATIENCE)
    assert yielding.is_due(2 * PATIENCE, 0)
