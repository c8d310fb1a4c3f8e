"""Alarms: one per message, at the last time set, and few false ones."""

from __future__ import annotations

import pytest

from lvq_kafka.core.ledger.timers import Timers
from lvq_kafka.core.waiting import lazy_heap as module
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item


def held(offset: int = 0) -> Item:
    item = Item(0, offset, 0, b"key", b"value", None, offset)
    item.state = MessageState.ACQUIRED
    return item


def test_only_the_last_time_counts() -> None:
    timers, item = Timers(), held()
    timers.set(item, 5.0)
    timers.set(item, 9.0)
    assert timers.pop_due(8.9) == []
    timers.set(item, 7.0)
    assert timers.next == 7.0
    assert timers.pop_due(7.0) == [item]
    assert timers.pop_due(99.0) == []


def test_a_time_that_was_said_twice_comes_once() -> None:
    """The second alarm would reach a holder whose handle is no longer valid."""
    timers, item = Timers(), held()
    timers.set(item, 5.0)
    timers.set(item, 5.0)
    assert timers.pop_due(5.0) == [item]
    assert timers.next is None
    assert timers.pop_due(99.0) == []


@pytest.mark.parametrize(
    "state",
    [MessageState.ACKED, MessageState.REJECTED, MessageState.RELEASED, MessageState.SUPERSEDED, MessageState.LEAVING],
)
def test_the_timer_of_a_message_settled_meanwhile_is_no_longer_due(state: MessageState) -> None:
    timers, item = Timers(), held()
    timers.set(item, 5.0)
    item.state = state
    assert timers.next is None
    assert timers.pop_due(99.0) == []


@pytest.mark.parametrize("state", [MessageState.ACQUIRED, MessageState.STALE, MessageState.DELAYED])
def test_the_timer_of_any_other_message_is_due(state: MessageState) -> None:
    timers, item = Timers(), held()
    timers.set(item, 5.0)
    item.state = state
    assert timers.pop_due(99.0) == [item]


def test_timers_for_nothing_are_swept_out_before_they_are_the_greater_part() -> None:
    timers = Timers()
    for offset in range(5000):
        item = held(offset)
        timers.set(item, float(offset))
        item.state = MessageState.ACKED
        assert len(timers._heap) <= 256


def test_they_are_not_swept_out_again_and_again_while_all_are_for_something(monkeypatch: pytest.MonkeyPatch) -> None:
    sweeps = 0

    def heapify(heap: list[object]) -> None:
        nonlocal sweeps
        sweeps += 1

    monkeypatch.setattr(module, "heapify", heapify)
    timers, items = Timers(), [held(offset) for offset in range(5000)]
    for item in items:
        timers.set(item, 1.0)
    assert len(timers._heap) == 5000
    assert sweeps <= 5
