"""The delivery ledger, step by step. R and G numbers are those of the contract."""

from __future__ import annotations

from itertools import chain

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger, LedgerStats
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS, MessageEvent, MessageState
from lvq_kafka.errors import AlreadySettled, LockLost, StateError
from tests.rules import new_ledger
from tests.unit.core.queues import Queue, facts


def ledger_of(*bases: int, target: int = 0) -> Ledger:
    """Return a ledger with a partition for each base."""
    ledger = Ledger()
    for partition, base in enumerate(bases):
        ledger.assign(partition, CommitMap(base), target)
    return ledger


def test_only_the_newest_value_of_a_key_is_handed_out() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"), ("a", "a2"))
    assert queue.drain() == ["b1", "a2"]


def test_r4_a_new_value_goes_to_the_tail() -> None:
    queue = Queue(("1", "1"), ("2", "2"), ("3", "3"), ("4", "4"), ("2", "2b"))
    assert queue.drain() == ["1", "3", "4", "2b"]


def test_r4_with_in_place_order_a_new_value_keeps_the_slot_of_the_one_it_replaces() -> None:
    queue = Queue(("1", "1"), ("2", "2"), ("3", "3"), ("4", "4"), ("2", "2b"), ("2", "2c"), order="in-place")
    assert queue.drain() == ["1", "2c", "3", "4"]


def test_r4_in_place_order_gives_a_deleted_key_a_new_slot() -> None:
    queue = Queue(("1", "1"), ("2", "2"), ("1", None), ("1", "1b"), order="in-place")
    assert queue.drain() == ["2", "1b"]


def test_r4_in_place_order_holds_through_catch_up_and_release() -> None:
    ledger = new_ledger(order="in-place")
    ledger.assign(0, CommitMap(0), 4)
    for offset, (key, value) in enumerate([(b"1", b"1"), (b"2", b"2"), (b"3", b"3"), (b"1", b"1b")]):
        ledger.offer(0, offset, key, value)
    ledger.advance({0: 4})
    first = ledger.acquire()
    assert first is not None
    assert first.value == b"1b"
    second = ledger.acquire()
    assert second is not None
    ledger.release(second)
    ledger.release(first)
    taken = [item.value for _ in range(3) if (item := ledger.acquire())]
    assert taken == [b"1b", b"2", b"3"]


def test_r6_a_held_value_stays_with_its_holder_and_the_newer_one_waits_for_the_ack() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", "a2"))
    assert first.state is MessageState.STALE
    assert queue.ledger.acquire() is None, "two values of a key in work (G13)"
    queue.ledger.ack(first)
    assert queue.drain() == ["a2"]


def test_r6_the_release_of_a_superseded_value_drops_it() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", "a2"))
    queue.ledger.release(first)
    assert first.state is MessageState.SUPERSEDED
    assert queue.drain() == ["a2"]


def test_r6_r7_a_superseded_value_does_not_come_back_when_the_newer_one_was_deleted() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", "a2"), ("a", None))
    queue.ledger.release(first)
    assert queue.drain() == []
    assert queue.base == queue.end


def test_a_released_value_is_handed_out_again_in_its_old_place_and_says_so() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"), ("c", "c1"))
    first, second = queue.take(), queue.take()
    queue.ledger.release(second)
    queue.ledger.release(first)
    again = queue.take()
    assert (again.value, again.deliveries) == (b"a1", 2)
    assert queue.drain() == ["b1", "c1"]


def test_a_value_that_waited_for_its_key_keeps_its_place_before_later_ones() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", "a2"), ("b", "b1"))
    queue.ledger.ack(first)
    assert queue.drain() == ["a2", "b1"]


def test_a_released_value_is_superseded_by_a_later_one_like_any_other() -> None:
    queue = Queue(("a", "m1"))
    queue.ledger.release(queue.take())
    queue.send(("a", "m2"))
    assert queue.drain() == ["m2"]


def test_r9_a_delete_removes_the_waiting_value_and_leaves_the_held_one_with_its_holder() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"))
    first = queue.take()
    queue.send(("a", None), ("b", None))
    assert queue.drain() == []
    assert first.state is MessageState.STALE
    queue.ledger.ack(first)
    assert (queue.base, queue.ledger.assignment.outstanding) == (4, 0)


def test_r9_a_value_after_a_delete_waits_while_the_older_one_is_still_held() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", None), ("a", "a3"))
    assert queue.ledger.acquire() is None
    queue.ledger.release(first)
    assert queue.drain() == ["a3"]


def test_empty_bytes_are_a_value() -> None:
    assert Queue(("a", "")).drain() == [""]


def test_records_without_a_key_are_never_replaced() -> None:
    ledger = ledger_of(0)
    for offset in range(3):
        ledger.offer(0, offset, None, b"%d" % offset)
    taken = [item.value for _ in range(3) if (item := ledger.acquire())]
    assert taken == [b"0", b"1", b"2"]


def test_the_base_is_the_lowest_message_that_is_not_done() -> None:
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"))
    first, second, third = queue.take(), queue.take(), queue.take()
    queue.ledger.ack(second)
    assert queue.base == 0
    queue.ledger.ack(first)
    assert queue.base == 2
    queue.ledger.reject(third)
    assert queue.base == 3


def test_the_base_does_not_pass_a_message_that_was_released() -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    first, second = queue.take(), queue.take()
    queue.ledger.ack(second)
    queue.ledger.release(first)
    assert queue.base == 0


def test_the_base_passes_a_held_value_that_was_superseded_because_it_is_dead_in_any_case() -> None:
    queue = Queue(("a", "a1"))
    queue.take()
    queue.send(("a", "a2"))
    assert queue.base == 1


def test_the_base_moves_over_holes_and_markers() -> None:
    queue = Queue(("a", "a1"))
    queue.ledger.ack(queue.take())
    queue.ledger.advance({0: 17})
    assert queue.base == 17
    queue.ledger.advance({0: 3})
    assert queue.base == 17, "a position moved back"


def test_g12_nothing_is_handed_out_before_the_partition_is_read_up_to_its_target() -> None:
    ledger = ledger_of(0, target=3)
    ledger.offer(0, 0, b"a", b"a1")
    ledger.advance({0: 1})
    assert ledger.acquire() is None
    assert ledger.assignment.catching_up == {0: 3}
    ledger.offer(0, 1, b"a", b"a2")
    ledger.advance({0: 3})
    item = ledger.acquire()
    assert item is not None
    assert item.value == b"a2"
    assert ledger.assignment.catching_up == {}


def test_a_partition_that_catches_up_does_not_hold_up_the_others() -> None:
    ledger = Ledger()
    ledger.assign(0, CommitMap(0), 100)
    ledger.assign(1, CommitMap(0), 0)
    ledger.offer(0, 0, b"a", b"a")
    ledger.offer(1, 0, b"b", b"b")
    item = ledger.acquire()
    assert item is not None
    assert item.partition == 1
    assert ledger.acquire() is None


def test_the_same_key_in_two_partitions_is_two_messages() -> None:
    ledger = ledger_of(0, 0)
    for partition in (0, 1):
        ledger.offer(partition, 0, b"a", b"%d" % partition)
    assert [item.value for _ in range(2) if (item := ledger.acquire())] == [b"0", b"1"]


def test_a_revoked_partition_takes_its_messages_along_and_ends_the_locks() -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    queue.ledger.assign(1, CommitMap(5), 5)
    queue.ledger.offer(1, 5, b"c", b"c")
    held = queue.take()
    assert queue.ledger.revoke([0]) == [held]
    assert (held.state, queue.ledger.in_work, queue.ledger.assignment.positions) == (MessageState.LOST, 0, {1: 6})
    assert queue.drain() == ["c"]
    with pytest.raises(LockLost, match="offset 0 of partition 0"):
        queue.ledger.ack(held)


def test_a_handle_from_before_a_revocation_stays_lost_when_the_partition_comes_back() -> None:
    queue = Queue(("a", "a"))
    held = queue.take()
    queue.ledger.revoke([0])
    queue.ledger.assign(0, CommitMap(0), 0)
    queue.ledger.offer(0, 0, b"a", b"a")
    again = queue.take()
    before = facts(queue.ledger)
    for settle in (queue.ledger.ack, queue.ledger.release, queue.ledger.reject):
        with pytest.raises(LockLost):
            settle(held)
    assert facts(queue.ledger) == before
    queue.ledger.ack(again)


def test_a_withheld_partition_hands_out_nothing_more_but_takes_settlements() -> None:
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"))
    first, second = queue.take(), queue.take()
    queue.ledger.withhold([0])
    queue.ledger.ack(first)
    queue.ledger.release(second)
    queue.ledger.advance({0: 9})
    assert queue.ledger.acquire() is None
    assert queue.base == 1
    assert queue.ledger.revoke([0]) == []


def test_a_handle_is_good_for_one_settlement_even_when_the_message_is_in_work_again() -> None:
    queue = Queue(("a", "a"))
    first = queue.take()
    queue.ledger.release(first)
    second = queue.take()
    before = facts(queue.ledger)
    for settle in (queue.ledger.ack, queue.ledger.release, queue.ledger.reject):
        with pytest.raises(AlreadySettled, match="released"):
            settle(first)
    assert facts(queue.ledger) == before
    queue.ledger.ack(second)


@pytest.mark.parametrize("outcome", ["ack", "release", "reject"])
@pytest.mark.parametrize("second", ["ack", "release", "reject", "leave", "commit", "bury", "give_back"])
def test_a_second_settlement_is_refused_and_changes_nothing(outcome: str, second: str) -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    item = queue.take()
    getattr(queue.ledger, outcome)(item)
    before = facts(queue.ledger)
    with pytest.raises(AlreadySettled):
        getattr(queue.ledger, second)(item)
    assert facts(queue.ledger) == before


def test_refused_steps_on_partitions_change_nothing() -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    queue.take()
    ledger = queue.ledger
    before = facts(ledger)
    with pytest.raises(StateError, match="Partition 0 is already assigned"):
        ledger.assign(0, CommitMap(7), 9)
    with pytest.raises(StateError, match="partition 3"):
        ledger.revoke([0, 3])
    with pytest.raises(StateError, match="partition 3"):
        ledger.withhold([0, 3])
    with pytest.raises(StateError, match="partition 3"):
        ledger.advance({0: 9, 3: 9})
    with pytest.raises(StateError, match="partition 3"):
        ledger.assignment.base(3)
    with pytest.raises(StateError, match="Partition 3 is not assigned"):
        ledger.offer(3, 0, b"a", b"a")
    with pytest.raises(StateError, match="Offset 1 of partition 0 was read before"):
        ledger.offer(0, 1, b"a", b"a")
    assert facts(ledger) == before


def test_records_of_several_partitions_are_taken_in_as_they_lie_in_a_batch() -> None:
    ledger = ledger_of(0, 0, 0)
    partitions = [0, 1, 0, 0, 2]
    ledger.add(
        RecordBatch(partitions, [0, 0, 1, 2, 0], [7] * 5, [b"a"] * 5, [b"0", b"1", b"2", b"3", b"4"], [None] * 5)
    )
    assert ledger.assignment.positions == {0: 3, 1: 1, 2: 1}
    taken = [(item.partition, item.value, item.timestamp) for _ in range(3) if (item := ledger.acquire())]
    assert taken == [(1, b"1", 7), (0, b"3", 7), (2, b"4", 7)]
    ledger.add(RecordBatch())


def test_keys_that_count_may_be_others_than_those_of_the_records() -> None:
    ledger = ledger_of(0)
    batch = RecordBatch([0, 0], [0, 1], [0, 0], [b"x", b"y"], [b"1", b"2"], [None, None])
    ledger.add(batch, [b"a", b"a"])
    item = ledger.acquire()
    assert item is not None
    assert (item.key, item.value, ledger.assignment.outstanding) == (b"a", b"2", 1)


def test_records_before_a_refused_one_are_added() -> None:
    queue = Queue(("a", "1"))
    with pytest.raises(StateError, match="read before"):
        queue.ledger.add(RecordBatch([0, 0], [1, 0], [0, 0], [b"b", b"c"], [b"2", b"3"], [None, None]))
    assert queue.ledger.assignment.positions == {0: 2}
    assert queue.drain() == ["1", "2"]


def test_the_counters_say_what_was_seen() -> None:
    queue = Queue(("a", "a1"), ("a", "a2"), ("b", "b1"), ("b", None), ("c", "c1"), ("nothing", None))
    first, second = queue.take(5.0), queue.take(9.0)
    queue.ledger.ack(first)
    queue.ledger.release(second)
    queue.ledger.reject(queue.take(5.0))
    queue.send(("d", "d1"), ("e", "e1"), ("f", "f1"))
    queue.take(7.0)
    queue.ledger.wake(8.0)
    queue.take()
    queue.ledger.revoke([0])
    assert queue.ledger.stats == LedgerStats(
        read=7, replaced=1, deleted=1, delivered=5, redelivered=2, acked=1, rejected=1, released=1, timed_out=1, lost=1
    )


def test_nothing_is_left_of_what_is_done() -> None:
    queue = Queue(*((f"k{number % 7}", "v") for number in range(1000)), count_deliveries=True)
    queue.drain()
    queue.send(("k1", None), ("k2", "v"), ("k2", None), ("k3", "v"))
    item = queue.take()
    queue.send(("k3", None))
    queue.ledger.release(item)
    ledger, left = queue.ledger, queue.ledger.assignment
    assert (left.available, ledger.in_work, left.outstanding, left.gated) == (0, 0, 0, 0)
    assert ledger.assignment.claim(0) == CommitMap(queue.end)
    (part,) = ledger._partitions.values()
    assert not [*part.waiting, *part.held, *part.pending, *part.attempted]
    assert len(vars(ledger)["_line"]) == 0


def story(state: MessageState) -> tuple[Ledger, Item]:
    """Return a ledger with a message in this state, and that message; if stale, its key has another one."""
    ring = Limits(policy="ring", messages=3)
    queue = Queue(("a", "a1"), ttl=Ttl(default=70), max_delay=100, limits=ring)
    ledger, item = queue.ledger, queue.take(50.0)
    match state:
        case MessageState.SCHEDULED:
            ledger.ack(item)
            ledger.offer(0, 1, b"a", b"a2", headers=[(NOT_BEFORE_HEADER, b"60000"), (TTL_HEADER, b"100000")])
            (item,) = ledger.assignment.scheduled(0)
        case MessageState.AVAILABLE | MessageState.DELAYED | MessageState.EXPIRED:
            ledger.release(item, 60.0 if state is MessageState.DELAYED else None)
            (item,) = ledger._partitions[0].waiting.values()
            ledger.pass_time(80.0 if state is MessageState.EXPIRED else 60.0)
        case MessageState.EVICTED:
            ledger.release(item)
            (item,) = ledger._partitions[0].waiting.values()
            fill_up(ledger)
        case MessageState.LEAVING | MessageState.LEAVING_STALE:
            ledger.leave(item)
        case MessageState.LOST:
            ledger.revoke([0])
            ledger.assign(0, CommitMap(0), 0)
        case MessageState.ACKED | MessageState.REJECTED | MessageState.RELEASED:
            {
                MessageState.ACKED: ledger.ack,
                MessageState.REJECTED: ledger.reject,
                MessageState.RELEASED: ledger.release,
            }[state](item)
    if state in (MessageState.STALE, MessageState.LEAVING_STALE, MessageState.SUPERSEDED):
        queue.send(("a", "a2"))
    if state is MessageState.SUPERSEDED:
        ledger.release(item)
    assert item.state is state
    return ledger, item


def fill_up(ledger: Ledger) -> None:
    """Add as many messages as a ring of three holds, so that whatever waits goes."""
    first = ledger.assignment.positions[0]
    for offset in range(first, first + 3):
        ledger.offer(0, offset, b"%d" % offset, b"v")


SETTLEMENTS = {
    MessageEvent.ACK: Ledger.ack,
    MessageEvent.RELEASE: Ledger.release,
    MessageEvent.REJECT: Ledger.reject,
    MessageEvent.LEAVE: Ledger.leave,
    MessageEvent.COMMIT: Ledger.commit,
    MessageEvent.BURY: Ledger.bury,
    MessageEvent.RETURN: Ledger.give_back,
    MessageEvent.WITHDRAW: Ledger.withdraw,
    MessageEvent.EXTEND: lambda ledger, item: ledger.extend(item, 99.0),
}
HAPPENINGS = {
    (MessageEvent.DUE, MessageEvent.TIME_OUT): lambda ledger: (ledger.wake(60.0), ledger.pass_time(60.0)),
    (MessageEvent.SUPERSEDE,): lambda ledger: ledger.offer(0, 10, b"a", b"newer"),
    (MessageEvent.EXPIRE, MessageEvent.DUE): lambda ledger: ledger.pass_time(80.0),
    (MessageEvent.EVICT,): fill_up,
    (MessageEvent.REVOKE,): lambda ledger: ledger.revoke([0]),
}


def test_every_event_but_the_hand_out_is_tried_below() -> None:
    assert {*SETTLEMENTS, *chain(*HAPPENINGS)} == set(MessageEvent) - {MessageEvent.ACQUIRE}


@pytest.mark.parametrize("state", list(MessageState))
@pytest.mark.parametrize("event", SETTLEMENTS)
def test_settlements_follow_the_transition_table(state: MessageState, event: MessageEvent) -> None:
    ledger, item = story(state)
    after = TRANSITIONS[event].get(state)
    before = facts(ledger)
    if after is None:
        with pytest.raises(LockLost if state is MessageState.LOST else AlreadySettled):
            SETTLEMENTS[event](ledger, item)
        assert (item.state, facts(ledger)) == (state, before)
    else:
        SETTLEMENTS[event](ledger, item)
        assert item.state is after
        assert ledger.in_work == (event in (MessageEvent.LEAVE, MessageEvent.EXTEND))


@pytest.mark.parametrize("state", list(MessageState))
@pytest.mark.parametrize("events", HAPPENINGS)
def test_the_state_of_a_message_follows_the_transition_table(
    state: MessageState, events: tuple[MessageEvent, ...]
) -> None:
    ledger, item = story(state)
    HAPPENINGS[events](ledger)
    assert item.state is next((TRANSITIONS[event][state] for event in events if state in TRANSITIONS[event]), state)


def test_the_table_leaves_no_way_out_of_an_end() -> None:
    ends = {
        MessageState.RELEASED,
        MessageState.ACKED,
        MessageState.REJECTED,
        MessageState.SUPERSEDED,
        MessageState.EXPIRED,
        MessageState.EVICTED,
        MessageState.LOST,
    }
    assert not ends & {state for rows in TRANSITIONS.values() for state in rows}
    assert {state for rows in TRANSITIONS.values() for state in rows} | ends == set(MessageState)
