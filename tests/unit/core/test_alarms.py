"""Alarms: one for each message, at the time that was said last, and few for nothing."""

from __future__ import annotations

import pytest

from lvq_kafka.core import alarms as module
from lvq_kafka.core.alarms import Alarms
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.outstanding import Item


def held(offset: int = 0) -> Item:
    item = Item(0, offset, 0, b"key", b"value", None, offset)
    item.state = State.ACQUIRED
    return item


def test_only_the_last_time_counts() -> None:
    alarms, item = Alarms(), held()
    alarms.set(item, 5.0)
    alarms.set(item, 9.0)
    assert alarms.take(8.9) == []
    alarms.set(item, 7.0)
    assert alarms.next == 7.0
    assert alarms.take(7.0) == [item]
    assert alarms.take(99.0) == []


def test_a_time_that_was_said_twice_comes_once() -> None:
    """A holder whom it told twice would be told the second time about a handle that is good no more."""
    alarms, item = Alarms(), held()
    alarms.set(item, 5.0)
    alarms.set(item, 5.0)
    assert alarms.take(5.0) == [item]
    assert alarms.next is None
    assert alarms.take(99.0) == []


@pytest.mark.parametrize("state", [State.ACKED, State.REJECTED, State.RELEASED, State.SUPERSEDED, State.LEAVING])
def test_what_is_settled_meanwhile_is_due_no_more(state: State) -> None:
    alarms, item = Alarms(), held()
    alarms.set(item, 5.0)
    item.state = state
    assert alarms.next is None
    assert alarms.take(99.0) == []


@pytest.mark.parametrize("state", [State.ACQUIRED, State.STALE, State.DELAYED])
def test_what_is_not_is_due(state: State) -> None:
    alarms, item = Alarms(), held()
    alarms.set(item, 5.0)
    item.state = state
    assert alarms.take(99.0) == [item]


def test_those_for_nothing_are_swept_out_before_they_are_the_greater_part() -> None:
    alarms = Alarms()
    for offset in range(5000):
        item = held(offset)
        alarms.set(item, float(offset))
        item.state = State.ACKED
        assert len(alarms) <= 256


def test_they_are_not_swept_out_again_and_again_while_all_are_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = 0

    def heapify(heap: list[object]) -> None:
        nonlocal sweeps
        sweeps += 1

    monkeypatch.setattr(module, "heapify", heapify)
    alarms, items = Alarms(), [held(offset) for offset in range(5000)]
    for item in items:
        alarms.set(item, 1.0)
    assert len(alarms) == 5000
    assert sweeps <= 5
