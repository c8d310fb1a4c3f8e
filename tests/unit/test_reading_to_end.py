"""The one loop that reads up to a target: its end, its time limits, and its errors."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import NoReturn

import pytest

from lvq_kafka.cluster.reading_to_end import read_to_end
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.progress import Progress
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.errors import BrokerUnavailable, TransportError, Unauthorized

AWAY = BrokerUnavailable("gone", code="_TRANSPORT", retriable=True)
REFUSED = Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED")


class Late(Exception):
    """The arguments of `give_up`."""


def give_up(shortfalls: list[Shortfall], trouble: TransportError | None) -> NoReturn:
    raise Late([(each.partition, each.position, each.target) for each in shortfalls], trouble)


class Script:
    """A reader with scripted steps: each moves to positions, or fails."""

    def __init__(self, *steps: dict[int, int] | Exception, pause: float = 0.0) -> None:
        self._steps: Iterator[dict[int, int] | Exception] = iter(steps)
        self._pause = pause

    def __call__(self) -> Fetch:
        time.sleep(self._pause)
        step = next(self._steps, {})
        if isinstance(step, Exception):
            raise step
        return Fetch(RecordBatch(), step)


def test_it_ends_where_the_positions_do_and_yields_every_fetch() -> None:
    progress = Progress({0: 0, 1: 3})
    poll = Script({0: 2}, {}, {1: 5, 0: 4}, {0: 99})
    at = [(fetch.positions, dict(progress.positions)) for fetch in read_to_end(
        poll, progress, {0: 4, 1: 4}, give_up=give_up
    )]  # fmt: skip
    assert at == [({0: 2}, {0: 2, 1: 3}), ({}, {0: 2, 1: 3}), ({1: 5, 0: 4}, {0: 4, 1: 5})]


def test_where_nothing_is_left_nothing_is_polled() -> None:
    assert list(read_to_end(Script(REFUSED), Progress({0: 4}), {0: 4}, give_up=give_up, timeout=-1)) == []


def test_a_failure_that_passes_by_itself_is_waited_out_and_any_other_is_raised() -> None:
    poll = Script(AWAY, AWAY, {0: 1}, AWAY, {0: 2}, REFUSED)
    progress = Progress({0: 0})
    assert len(list(read_to_end(poll, progress, {0: 2}, give_up=give_up))) == 2
    with pytest.raises(Unauthorized):
        list(read_to_end(poll, progress, {0: 3}, give_up=give_up))


@pytest.mark.parametrize("limit", ["timeout", "patience"])
def test_when_time_is_up_the_shortfall_and_the_error_of_the_last_poll_are_named(limit: str) -> None:
    for steps, trouble in (
        ([{0: 1}, *[AWAY] * 99], AWAY),
        ([AWAY, {0: 1}], None),
        ([{0: 1}, AWAY, {}], None),
    ):
        limits = {limit: 0.03}
        with pytest.raises(Late) as caught:
            list(read_to_end(Script(*steps, pause=0.001), Progress({0: 0}), {0: 2}, give_up=give_up, **limits))  # type: ignore[arg-type]
        assert caught.value.args == ([(0, 1, 2)], trouble)


def test_a_timeout_is_for_everything_and_patience_for_standing_still() -> None:
    steps = [{0: n} for n in range(1, 6)]
    assert list(read_to_end(Script(*steps, pause=0.02), Progress({0: 0}), {0: 5}, give_up=give_up, patience=0.05))
    with pytest.raises(Late):
        list(read_to_end(Script(*steps, pause=0.02), Progress({0: 0}), {0: 5}, give_up=give_up, timeout=0.05))


def test_the_callers_own_work_takes_from_a_timeout_and_not_from_patience() -> None:
    def read(**limits: float) -> None:
        for _ in read_to_end(Script({0: 1}, {0: 2}), Progress({0: 0}), {0: 2}, give_up=give_up, **limits):  # type: ignore[arg-type]
            time.sleep(0.05)

    read(patience=0.02)
    with pytest.raises(Late):
        read(timeout=0.02)


def test_records_fetched_again_are_no_progress() -> None:
    with pytest.raises(Late):
        list(read_to_end(Script(*[{0: 1}] * 99, pause=0.001), Progress({0: 1}), {0: 2}, give_up=give_up, patience=0.02))
