"""The age of undecided appends: cohorts that live as long as their receipts wait."""

from __future__ import annotations

import time
from types import SimpleNamespace

import pytest

from lvq_kafka.kafka import ages
from lvq_kafka.kafka.ages import Ages, Cohort
from tests.clock import Clock


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> Clock:
    clock = Clock(0.0)
    monkeypatch.setattr(ages, "time", SimpleNamespace(monotonic=clock))
    return clock


def pass_time(to: Ages, clock: Clock, seconds: float) -> bool:
    """Advance the clock in small steps, as the timing thread does; return whether something became overdue."""
    end = clock.now + seconds
    while clock.now < end:
        clock.now += 0.05
        if to.overdue():
            return True
    return False


def test_an_undecided_cohort_becomes_overdue_never_early_and_at_most_a_step_late(clock: Clock) -> None:
    watched = Ages(10.0)
    pass_time(watched, clock, 3.3)
    undecided = watched.current
    begin = clock.now
    assert pass_time(watched, clock, 60)
    assert 10.0 <= clock.now - begin <= 10.0 + watched.step + 0.1
    assert isinstance(undecided, Cohort)


def test_a_decided_cohort_is_not_counted_however_much_is_appended(clock: Clock) -> None:
    watched = Ages(10.0)
    waiting: list[Cohort] = []
    for _ in range(1000):
        waiting.append(watched.current)
        del waiting[:-50]  # the last 2.5 s are undecided
        assert not pass_time(watched, clock, 0.05)


def test_one_that_is_stuck_is_found_among_many_that_go_through(clock: Clock) -> None:
    watched = Ages(10.0)
    stuck = watched.current
    for _ in range(150):
        going_through = watched.current
        assert not pass_time(watched, clock, 0.05)
    del going_through
    assert pass_time(watched, clock, 5)
    del stuck
    assert not watched.overdue()


def test_an_append_after_a_long_rest_is_as_young_as_it_is(clock: Clock) -> None:
    watched = Ages(1.0)
    clock.now += 100  # nobody kept the time
    undecided = watched.current
    assert not pass_time(watched, clock, 0.9)
    assert pass_time(watched, clock, 0.5)
    assert isinstance(undecided, Cohort)


def test_a_forgotten_cohort_is_not_overdue_again(clock: Clock) -> None:
    watched = Ages(1.0)
    lost = watched.current
    pass_time(watched, clock, 1.5)
    young = watched.current
    watched.forget()
    assert not watched.overdue()
    assert pass_time(watched, clock, 2), "the younger one counts as before"
    assert lost is not young


def test_without_a_limit_nothing_is_overdue(clock: Clock) -> None:
    watched = Ages(None)
    undecided = watched.current
    assert not pass_time(watched, clock, 1000)
    assert undecided is watched.current


def test_the_clock_is_the_one_that_nobody_sets() -> None:
    assert ages.time.monotonic is time.monotonic
