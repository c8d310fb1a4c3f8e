"""The ladder of a reader's states. There is no thread and no clock here; tests/unit/test_follower.py has both."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, get_args

import pytest

from lvq_kafka.core.latest.catch_up import (
    LADDER,
    TRANSITIONS,
    AsFarAsAllowed,
    CatchUp,
    State,
    Trouble,
)
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.latest.replay import ReadStage, Replay
from lvq_kafka.core.latest.scheduled_values import ScheduledValues
from lvq_kafka.core.log.absence import STALLED, Absence
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.core.queue.rules import PLAIN
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, DueTimes
from lvq_kafka.errors import BrokerUnavailable, Closed, DataLoss, ReaderFailed, StateError
from tests.pages import page, transitions

PAGE = "docs/maintainers/architecture.md"


def read_of(end: int, *, stable: int | None = None, topic_id: str = "id", since: Mapping[int, int] = {}) -> Replay:
    ends = {0: end}
    absence = Absence(100.0)
    absence.track(0.0, {0: 0})
    return Replay(
        topic_id=topic_id,
        partitions=1,
        values=LatestValues(),
        since=since,
        starts={0: 0},
        ends=ends,
        stable=ends if stable is None else {0: stable},
        absence=absence,
    )


def started(end: int, **how: Any) -> CatchUp:
    reader = CatchUp("prices", 0.0)
    reader.start(0.0, read_of(end, since=reader.since, **how))
    return reader


def fetch(*keys: bytes, position: int) -> Fetch:
    first = position - len(keys)
    return Fetch(RecordBatch.of([Record(0, first + n, 0, key, b"v") for n, key in enumerate(keys)]), {0: position})


def apply(reader: CatchUp, fetched: Fetch) -> list[bytes]:
    assert reader.replay.absence.read(0.0, fetched) is None
    return list(reader.apply(fetched))


def caught_up(end: int = 1) -> CatchUp:
    reader = started(end)
    apply(reader, fetch(*[b"%d" % n for n in range(end)], position=end))
    reader.aim(0.0, "id", {0: end})
    assert reader.state(0.0) == "caught-up"
    return reader


def unavailable() -> BrokerUnavailable:
    return BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)


def test_the_page_shows_the_stages_and_the_ladder_that_the_code_has() -> None:
    stages = {
        str(event): {str(before or "not begun"): after for before, after in transition.stages.items()}
        for event, transition in TRANSITIONS.items()
        if transition.stages
    }
    assert transitions(PAGE, "reading") == stages
    ladder = "\n".join(f"| `{rung.state}` | {rung.when} |" for rung in LADDER)
    assert f"| --- | --- |\n{ladder}\n" in page(PAGE)


def test_every_state_has_its_place_on_the_ladder_and_every_stage_is_reached() -> None:
    assert {rung.state for rung in LADDER} == set(get_args(State))
    assert {after for transition in TRANSITIONS.values() for after in transition.stages.values()} == set(ReadStage)


def test_it_is_caught_up_when_both_targets_are_reached() -> None:
    reader = started(2)
    assert (reader.state(0.0), reader.replay.stage) == ("catching-up", ReadStage.FIRST_TARGET)
    assert apply(reader, fetch(b"a", b"b", position=2)) == [b"a", b"b"]
    assert (reader.state(0.0), reader.replay.stage) == ("catching-up", ReadStage.BETWEEN_TARGETS)
    reader.aim(0.0, "another", {0: 0})
    assert reader.replay.stage == ReadStage.BETWEEN_TARGETS
    reader.aim(0.0, "id", {0: 3})
    assert (reader.state(0.0), reader.replay.stage) == ("catching-up", ReadStage.SECOND_TARGET)
    apply(reader, fetch(position=3))
    assert (reader.state(0.0), reader.replay.stage) == ("caught-up", ReadStage.CAUGHT_UP)
    assert (reader.status(5.0).silence, reader.status(0.0).progress) == (5.0, (3, 3))


def test_an_empty_topic_needs_but_the_second_target() -> None:
    reader = started(0)
    assert reader.replay.stage == ReadStage.BETWEEN_TARGETS
    reader.aim(0.0, "id", {0: 0})
    assert reader.state(0.0) == "caught-up"


def test_it_is_blocked_when_an_open_transaction_hides_all_that_is_missing() -> None:
    reader = started(3, stable=1)
    assert (reader.state(0.0), reader.status(0.0).blocked_by) == ("catching-up", [])
    apply(reader, fetch(b"a", position=1))
    status = reader.status(0.0)
    assert (status.state, status.lag, [one.stable for one in status.blocked_by]) == ("blocked", 2, [1])


@pytest.mark.parametrize("trouble", [Trouble.NO_ANSWER, Trouble.NO_METADATA])
def test_trouble_is_over_when_the_topic_was_observed(trouble: Trouble) -> None:
    reader, error = caught_up(), unavailable()
    assert [reader.lose_touch(trouble, error), reader.lose_touch(trouble, error)] == [True, False]
    assert (reader.state(0.0), reader.trouble) == ("disconnected", error)
    reader.observe(1.0, 1.0, "another", 1, {0: 9}, {0: 9})
    assert reader.state(1.0) == "disconnected"
    reader.observe(1.0, 1.0, "id", 1, {0: 1}, {0: 1})
    assert (reader.state(1.0), reader.trouble, reader.heard) == ("caught-up", None, 1.0)


def test_g5_an_answer_is_as_old_as_its_question() -> None:
    """A broker may have known it then, and have been stopped before it sent it."""
    reader = caught_up()
    reader.observe(9.0, 4.0, "id", 1, {0: 1}, {0: 1})
    assert (reader.status(9.0).lag, reader.status(9.0).silence) == (0, 5.0)


def test_g5_a_partition_that_is_longer_and_brings_nothing_is_stalled() -> None:
    reader = caught_up()
    reader.observe(1.0, 1.0, "id", 1, {0: 2}, {0: 2})
    reader.observe(1.0 + STALLED, 1.0 + STALLED, "id", 1, {0: 9}, {0: 9})
    assert reader.stalled(1.0 + STALLED) == {}
    assert reader.stalled(1.1 + STALLED) == {0: 1}
    assert reader.state(1.1 + STALLED) == "caught-up", "nobody has tried to read it since"
    reader.stall(1.1 + STALLED, unavailable())
    assert (reader.state(1.1 + STALLED), reader.stalled(1.2 + STALLED)) == ("disconnected", {})
    reader.observe(20.0, 20.0, "id", 1, {0: 9}, {0: 9})
    apply(reader, fetch(position=1))
    assert reader.state(20.0) == "disconnected", "it has not moved"
    assert reader.stalled(1.2 + 2 * STALLED) == {0: 1}, "it is tried again"
    assert apply(reader, fetch(b"a", position=2)) == [b"a"]
    assert reader.state(20.0) == "caught-up"


def test_g5_a_partition_that_moves_or_is_held_back_by_a_transaction_is_not_stalled() -> None:
    reader = caught_up()
    reader.observe(1.0, 1.0, "id", 1, {0: 9}, {0: 1})
    assert reader.stalled(100.0) == {}
    reader.observe(1.0, 1.0, "id", 1, {0: 9}, {0: 9})
    late = fetch(b"a", position=2)
    assert reader.replay.absence.read(50.0, late) is None
    list(reader.apply(late))
    assert reader.stalled(50.0 + STALLED) == {}
    assert reader.stalled(50.1 + STALLED) == {0: 2}


def test_a_record_shows_that_the_log_answers_and_nothing_of_the_metadata() -> None:
    reader = caught_up()
    for trouble in Trouble:
        reader.lose_touch(trouble, unavailable())
    apply(reader, fetch(b"a", position=2))
    assert set(reader.troubles) == {
        *(Trouble.OTHER_QUEUE, Trouble.STALLED, Trouble.GONE, Trouble.NO_METADATA),
        *(Trouble.STORE, Trouble.UNSURE, Trouble.WRITER),
    }
    reader.is_sure()
    assert not {Trouble.OTHER_QUEUE, Trouble.UNSURE} & set(reader.troubles)


def test_values_whose_position_is_gone_are_read_again_and_shown_as_they_were_until_then() -> None:
    reader, gone = caught_up(2), DataLoss("the position is gone")
    reader.lose(7.0, gone, "another")
    assert reader.gone is None
    reader.lose(7.0, gone, "id")
    reader.lose(8.0, gone, "id")
    assert (reader.gone, reader.gone_since, reader.state(8.0)) == (gone, 7.0, "disconnected")
    reader.start(9.0, read_of(1, since=reader.since))
    assert (reader.gone, reader.starting_over, reader.values.table.keys()) == (None, True, [b"0", b"1"])
    assert apply(reader, fetch(b"1", position=1)) == []
    assert list(reader.aim(9.0, "id", {0: 1})) == [b"0", b"1"], "the first is gone, and the second is another record"
    assert (reader.starting_over, reader.values.table.keys()) == (False, [b"1"])


def test_it_is_catching_up_while_it_is_about_to_start_further_back_or_was_away_too_long() -> None:
    reader = caught_up()
    assert reader.state(89.0) == "caught-up"
    assert reader.state(91.0) == "catching-up"
    reader.observe(91.0, 91.0, "id", 1, {0: 1}, {0: 1})
    assert reader.state(91.0) == "caught-up"
    reader.rewind({0: 0})
    assert (reader.rewinding, reader.state(91.0)) == (True, "catching-up")


def test_it_refuses_to_be_read_before_its_start_and_after_its_end() -> None:
    reader = CatchUp("prices", 0.0)
    with pytest.raises(StateError, match="was not started"):
        reader.check()
    reader = caught_up()
    reader.check()
    first = DataLoss("the position is gone")
    reader.fail(first)
    reader.fail(unavailable())
    assert (reader.state(0.0), reader.failure) == ("failed", first)
    with pytest.raises(ReaderFailed, match="the position is gone"):
        reader.check()
    reader.close()
    assert reader.state(0.0) == "closed"
    with pytest.raises(Closed):
        reader.check()
    reader.start(0.0, read_of(0))
    assert not reader.open


class TestAsFarAsAllowed:
    """A wait that stops at open transactions, but not at ones with late markers."""

    def test_a_transaction_counts_as_open_when_a_later_look_still_finds_it(self) -> None:
        reader = started(3, stable=1)
        goal = AsFarAsAllowed(reader)
        assert not goal.reached(0.0)
        apply(reader, fetch(b"a", position=1))
        assert not goal.reached(1.0)
        reader.observe(1.3, 1.3, "id", 1, {0: 3}, {0: 1})
        assert not goal.reached(9.0), "the look came too early"
        reader.observe(1.5, 1.5, "id", 1, {0: 3}, {0: 1})
        assert goal.reached(9.0)
        assert not reader.replay.complete
        assert list(reader.accept()) == []
        assert (reader.replay.complete, reader.state(9.0)) == (True, "blocked")

    def test_all_that_was_committed_meanwhile_is_read_as_well(self) -> None:
        reader = started(3, stable=1)
        goal = AsFarAsAllowed(reader)
        apply(reader, fetch(b"a", position=1))
        assert not goal.reached(0.0)
        reader.observe(1.0, 1.0, "id", 1, {0: 4}, {0: 2})
        assert not goal.reached(1.0)
        apply(reader, fetch(b"b", position=2))
        assert goal.reached(1.0)

    def test_it_begins_again_with_another_topic_and_waits_for_a_rewind(self) -> None:
        reader = started(3, stable=1)
        goal = AsFarAsAllowed(reader)
        apply(reader, fetch(b"a", position=1))
        assert not goal.reached(0.0)
        reader.start(1.0, read_of(1, stable=0, topic_id="another", since=reader.since))
        reader.observe(9.0, 9.0, "another", 1, {0: 1}, {0: 0})
        assert not goal.reached(9.0), "of this topic, nothing was known to be blocked"
        reader.observe(10.0, 10.0, "another", 1, {0: 1}, {0: 0})
        assert goal.reached(10.0)
        reader.rewind({0: 0})
        assert not goal.reached(10.0)


MANY = 3000
"""Scheduled records: more than become due in one step."""


def scheduled_read(since: Mapping[int, int]) -> Replay:
    values = ScheduledValues(LatestValues(), PLAIN, DueTimes(10.0))
    return replace(read_of(MANY, since=since), values=values)


def scheduled_fetch() -> Fetch:
    due = ((NOT_BEFORE_HEADER, b"5000"),)
    return Fetch(RecordBatch.of([Record(0, n, 0, b"%d" % n, b"v", due) for n in range(MANY)]), {0: MANY})


def test_a_read_that_starts_over_is_shown_as_of_the_time_that_has_passed_and_time_passes_for_both() -> None:
    reader = CatchUp("prices", 0.0, timed=True)
    reader.start(0.0, scheduled_read(reader.since))
    apply(reader, scheduled_fetch())
    reader.aim(0.0, "id", {0: MANY})
    reader.rewind({0: 0})
    reader.start(0.0, scheduled_read(reader.since))
    apply(reader, scheduled_fetch())
    assert reader.starting_over
    assert len(reader.values.table) == 0
    assert reader.pass_time(5.0) is not None
    assert 0 < len(reader.values.table) == len(reader.replay.values.table) < MANY
    reader.aim(0.0, "id", {0: MANY})
    assert not reader.starting_over
    assert len(reader.values.table) == MANY
    assert reader.pass_time(5.0) is None


def test_time_passes_for_a_read_that_starts_over_when_nothing_is_due_in_what_is_shown() -> None:
    reader = CatchUp("prices", 0.0, timed=True)
    reader.start(0.0, replace(read_of(0, since=reader.since), values=LatestValues()))
    reader.aim(0.0, "id", {0: 0})
    reader.rewind({0: 0})
    reader.start(0.0, scheduled_read(reader.since))
    apply(reader, scheduled_fetch())
    while reader.pass_time(5.0) is not None:
        pass
    assert (len(reader.values.table), len(reader.replay.values.table)) == (0, MANY)
