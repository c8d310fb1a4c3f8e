"""The ledger: delays, the holders' time, messages that leave, and memory across a restart."""

from __future__ import annotations

import random

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.ledger.timers import Timers
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, LockLost
from tests.rules import new_ledger
from tests.unit.core.queues import Queue

# --- a release with a delay -----------------------------------------------------------------------------------------


def test_a_message_released_with_a_delay_comes_back_into_its_place_when_that_is_over() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"), ("c", "c1"))
    queue.ledger.release(queue.take(), 10.0)
    assert (queue.ledger.assignment.available, queue.ledger.next_wake) == (3, 10.0)
    assert queue.take().value == b"b1"
    queue.ledger.wake(9.9)
    assert queue.ledger.next_wake == 10.0
    queue.ledger.wake(10.0)
    assert queue.ledger.next_wake is None
    again = queue.take()
    assert (again.value, again.deliveries, again.redelivered) == (b"a1", 2, True)
    assert queue.drain() == ["c1"]


def test_a_delayed_message_holds_the_base_and_keeps_its_lane_free() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"))
    queue.ledger.release(queue.take(), 10.0)
    assert queue.drain() == ["b1"]
    assert queue.ledger.assignment.claim(0) == CommitMap(0, (1, 1), delivered=2)


@pytest.mark.parametrize(("record", "left"), [(("a", "a2"), ["a2"]), (("a", None), [])])
def test_a_newer_record_replaces_a_delayed_message_and_waits_for_no_delay(
    record: tuple[str, str | None], left: list[str]
) -> None:
    queue = Queue(("a", "a1"))
    queue.ledger.release(queue.take(), 10.0)
    queue.send(record)
    assert queue.drain() == left
    queue.ledger.wake(20.0)
    assert queue.drain() == []
    assert queue.ledger.stats.replaced + queue.ledger.stats.deleted == 1


def test_with_in_place_order_the_value_that_replaces_a_delayed_one_has_its_place() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"), order="in-place")
    queue.ledger.release(queue.take(), 10.0)
    queue.send(("a", "a2"))
    assert queue.drain() == ["a2", "b1"]


def test_a_delay_ends_without_effect_in_a_partition_that_is_about_to_go() -> None:
    queue = Queue(("a", "a1"))
    queue.ledger.release(queue.take(), 10.0)
    queue.ledger.withhold([0])
    queue.ledger.wake(10.0)
    assert queue.ledger.acquire() is None
    queue.ledger.revoke([0])
    queue.ledger.wake(20.0)
    assert queue.ledger.next_wake is None


# --- the holder's time ----------------------------------------------------------------------------------------------


def test_a_holder_whose_time_is_over_has_lost_the_message_and_it_comes_again() -> None:
    queue = Queue(("a", "a1"))
    held = queue.take(locked_until=5.0)
    queue.ledger.wake(4.9)
    assert held.state is MessageState.ACQUIRED
    queue.ledger.wake(5.0)
    assert (held.state, queue.ledger.in_work, queue.base) == (MessageState.LOST, 0, 0)
    again = queue.take()
    assert (again.value, again.deliveries) == (b"a1", 2)
    with pytest.raises(LockLost, match="its lock timed out"):
        queue.ledger.ack(held)
    queue.ledger.ack(again)


def test_when_the_holder_of_a_superseded_value_runs_out_of_time_the_newer_one_goes_ahead() -> None:
    queue = Queue(("a", "a1"))
    held = queue.take(locked_until=5.0)
    queue.send(("a", "a2"))
    assert queue.ledger.acquire() is None
    queue.ledger.wake(5.0)
    assert held.state is MessageState.LOST
    assert queue.drain() == ["a2"]


def test_a_holder_can_have_more_time_or_less() -> None:
    queue = Queue(("a", "a1"), ("b", "b1"))
    longer, shorter = queue.take(locked_until=5.0), queue.take(locked_until=50.0)
    queue.ledger.extend(longer, 20.0)
    queue.ledger.extend(shorter, 6.0)
    queue.ledger.wake(10.0)
    assert (longer.state, shorter.state) == (MessageState.ACQUIRED, MessageState.LOST)
    with pytest.raises(LockLost):
        queue.ledger.extend(shorter, 30.0)
    queue.ledger.wake(20.0)
    assert longer.state is MessageState.LOST
    assert queue.ledger.stats.timed_out == 2


def test_a_holder_without_a_time_can_be_given_one() -> None:
    queue = Queue(("a", "a1"))
    held = queue.take()
    assert queue.ledger.next_wake is None
    queue.ledger.extend(held, 5.0)
    queue.ledger.wake(5.0)
    assert held.state is MessageState.LOST


def test_time_does_not_take_away_what_its_holder_is_done_with() -> None:
    queue = Queue(("a", "a1"))
    held = queue.take(locked_until=5.0)
    queue.ledger.leave(held)
    queue.ledger.wake(9.0)
    assert held.state is MessageState.LEAVING
    queue.ledger.commit(held)


def test_nothing_is_due_for_what_was_settled_in_time() -> None:
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"))
    first, second, third = (queue.take(locked_until=5.0 + number) for number in range(3))
    queue.ledger.ack(first)
    queue.ledger.release(second)
    queue.ledger.reject(third)
    assert queue.ledger.next_wake is None


def test_alarms_are_kept_for_no_more_than_twice_of_what_is_in_work() -> None:
    queue = Queue()
    kept = [queue.ledger.timers._heap]
    longest = 0
    queue.send(("slow", "x"))
    slow = queue.take(locked_until=1e9)
    for number in range(5000):
        queue.send(("a", str(number)))
        item = queue.take(locked_until=1e6 + number)
        queue.ledger.extend(slow, 1e9 + number)
        if number % 2:
            queue.ledger.release(item, 1e6 + number)
        else:
            queue.ledger.ack(item)
        longest = max(longest, *map(len, kept))
    assert longest <= 600
    assert queue.ledger.next_wake == 1e6 + 4999


def test_alarms_go_off_in_the_order_of_their_times() -> None:
    timers, times = Timers(), list(range(2000))
    random.Random(4).shuffle(times)
    items = [Item(0, offset, 0, None, b"", None, 0) for offset in times]
    for item in items:
        item.state = MessageState.DELAYED
        timers.set(item, item.offset - 0.5)
        timers.set(item, float(item.offset))
    assert [item.offset for item in timers.pop_due(999.0)] == list(range(1000))
    assert timers.next == 1000.0
    assert [item.offset for item in timers.pop_due(1e6)] == list(range(1000, 2000))
    assert timers.next is None


# --- messages that leave --------------------------------------------------------------------------------------------


def test_a_message_that_leaves_is_done_when_its_transaction_commits() -> None:
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"))
    items = [queue.take() for _ in range(3)]
    for item in items:
        queue.ledger.leave(item)
    assert (queue.base, queue.ledger.in_work) == (0, 3)
    assert queue.ledger.assignment.claim(0, items[1:]) == CommitMap(0, (1, 2), delivered=3)
    assert queue.ledger.assignment.claim(0, items) == CommitMap(3)
    assert queue.ledger.assignment.claim(0) == CommitMap(0, delivered=3), (
        "a plain commit claims what a transaction may take back"
    )
    for item in items:
        queue.ledger.commit(item)
    assert queue.ledger.assignment.claim(0) == CommitMap(3)
    assert queue.ledger.stats.acked == 3


def test_a_message_that_leaves_comes_back_when_its_transaction_aborts() -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    item = queue.take()
    queue.ledger.leave(item)
    queue.ledger.give_back(item)
    again = queue.take()
    assert (again.offset, again.deliveries, again.redelivered) == (0, 2, True)
    queue.ledger.leave(again)
    queue.ledger.give_back(again, 9.0)
    assert queue.drain() == ["b"]
    queue.ledger.wake(9.0)
    assert queue.drain() == ["a"]
    with pytest.raises(AlreadySettled):
        queue.ledger.commit(item)


@pytest.mark.parametrize("end", ["commit", "bury", "give_back"])
def test_a_newer_value_waits_until_the_one_that_leaves_has_left(end: str) -> None:
    queue = Queue(("a", "a1"))
    item = queue.take()
    queue.ledger.leave(item)
    queue.send(("a", "a2"))
    assert queue.ledger.acquire() is None
    assert queue.ledger.assignment.claim(0, [item]) == queue.ledger.assignment.claim(0) == CommitMap(1)
    getattr(queue.ledger, end)(item)
    assert queue.drain() == ["a2"]


def test_a_dead_letter_counts_as_a_reject_when_it_is_stored() -> None:
    queue = Queue(("a", "a"))
    item = queue.take()
    queue.ledger.leave(item)
    assert queue.ledger.stats.rejected == 0
    queue.ledger.bury(item)
    assert (queue.ledger.stats.rejected, queue.base) == (1, 1)


def test_a_leaving_message_that_was_only_set_aside_was_not_delivered_whatever_becomes_of_it() -> None:
    queue = Queue(("a", "a"), count_deliveries=True)
    queue.ledger.release(queue.take())
    item = queue.ledger.reserve()
    assert item is not None
    queue.ledger.leave(item)
    assert (item.delivered, queue.ledger.assignment.claim(0).counts) == (1, {0: 1})
    queue.ledger.give_back(item)
    assert queue.take().deliveries == 2


def test_a_leaving_message_is_lost_with_its_partition() -> None:
    queue = Queue(("a", "a"))
    item = queue.take()
    queue.ledger.leave(item)
    assert list(queue.ledger.assignment.held()) == [item]
    assert queue.ledger.revoke([0]) == [item]
    for settle in (queue.ledger.commit, queue.ledger.bury, queue.ledger.give_back):
        with pytest.raises(LockLost):
            settle(item)


def test_a_claim_counts_only_what_leaves_from_its_own_partition() -> None:
    ledger = Ledger()
    items = []
    for partition in (0, 1):
        ledger.assign(partition, CommitMap(0), 0)
        ledger.offer(partition, 0, b"a", b"a")
        items.append(ledger.acquire())
    one, other = items
    assert one is not None
    assert other is not None
    ledger.leave(one)
    assert ledger.assignment.claim(0, [one, other]) == CommitMap(1)
    assert ledger.assignment.claim(1, [one, other]) == CommitMap(0, delivered=1), "the other one was not left"


# --- acks in any order, and a restart -------------------------------------------------------------------------------


def test_acks_in_any_order_find_their_place_in_the_claim() -> None:
    queue = Queue(*((str(number), "v") for number in range(8)))
    items = [queue.take() for _ in range(8)]
    for number in (2, 3, 5, 7):
        queue.ledger.ack(items[number])
    assert queue.ledger.assignment.claim(0) == CommitMap(0, (2, 2, 1, 1, 1, 1), delivered=8)
    for number in (0, 1, 4, 6):
        queue.ledger.ack(items[number])
    assert queue.ledger.assignment.claim(0) == CommitMap(8)


def test_a_done_message_is_not_handed_out_again_and_still_supersedes_older_ones() -> None:
    loaded = CommitMap(0, (2, 2), delivered=4)
    queue = Queue(("a", "a1"), ("b", "b1"), ("a", "a2"), ("c", "c1"), ("d", "d1"), loaded=loaded)
    assert queue.ledger.stats.read == 3
    assert (queue.base, queue.runs) == (1, (1, 2)), "the superseded a1 is done, too"
    assert queue.drain() == ["b1", "d1"]


def test_nothing_is_handed_out_before_the_map_is_read_to_its_end() -> None:
    ledger = Ledger()
    ledger.assign(0, CommitMap(0, (1, 4)), target=2)
    ledger.offer(0, 0, b"a", b"a1")
    ledger.advance({0: 4})
    assert ledger.assignment.catching_up == {0: 5}
    assert ledger.acquire() is None, "its newest value may be done already"
    assert ledger.assignment.claim(0) == CommitMap(0, (1, 4))
    ledger.advance({0: 5})
    assert ledger.acquire() is not None


def test_where_the_log_begins_later_reading_does_too_and_what_is_gone_is_done() -> None:
    ledger = Ledger()
    ledger.assign(0, CommitMap(0, (1, 1, 4, 2)), target=0, start=4)
    assert ledger.assignment.positions == {0: 4}
    assert ledger.assignment.claim(0) == CommitMap(4, (2, 2))
    ledger.revoke([0])
    ledger.assign(0, CommitMap(7), target=9, start=2)
    assert ledger.assignment.positions == {0: 7}, "what is committed is read again only from the commit on"


def test_a_claim_says_no_less_than_the_one_before_when_done_records_are_gone_from_the_log() -> None:
    loaded = CommitMap(0, (1, 2, 1, 2))
    ledger = Ledger()
    ledger.assign(0, loaded, target=8)
    ledger.offer(0, 0, b"a", b"a")
    ledger.offer(0, 3, b"b", b"b")
    assert ledger.assignment.claim(0).covers(loaded)
    ledger.offer(0, 7, b"c", b"c")
    ledger.advance({0: 8})
    assert ledger.assignment.claim(0) == CommitMap(0, (1, 2, 1, 3))


def test_a_message_that_the_group_handed_out_before_says_so() -> None:
    loaded = CommitMap(0, delivered=2)
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"), loaded=loaded)
    taken = [queue.take() for _ in range(3)]
    assert [item.redelivered for item in taken] == [True, True, False]
    assert [item.deliveries for item in taken] == [1, 1, 1]
    assert queue.ledger.assignment.claim(0).delivered == 3
    queue.send(("a", "a2"), ("a", "a3"))
    queue.ledger.ack(taken[0])
    assert not queue.take().redelivered, "a newer value was not handed out before"


def test_a_value_that_takes_over_the_place_of_one_that_was_delivered_before_the_restart_is_new() -> None:
    queue = Queue(("a", "a1"), loaded=CommitMap(0, delivered=1))
    queue.send(("a", "a2"))
    assert not queue.take().redelivered


def test_the_mark_of_what_was_handed_out_stays_when_nothing_is_handed_out() -> None:
    queue = Queue(("a", "a"), loaded=CommitMap(0, delivered=9))
    assert queue.ledger.assignment.claim(0) == CommitMap(0, delivered=9)


def test_the_mark_of_what_was_handed_out_never_sinks() -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    first = queue.take()
    queue.take()
    queue.ledger.release(first)
    queue.take()
    assert queue.ledger.assignment.claim(0).delivered == 2


def restarted(queue: Queue, *records: tuple[str, str | None]) -> Queue:
    """Return the queue of the next consumer after a crash, with the whole log from the beginning."""
    text = queue.ledger.assignment.claim(0).encode()
    return Queue(*records, count_deliveries=True, loaded=CommitMap.decode(queue.base, text))


def test_counts_of_deliveries_outlive_a_restart() -> None:
    records = [("a", "a"), ("b", "b"), ("c", "c"), ("d", "d")]
    queue = Queue(*records, count_deliveries=True)
    first, second = queue.take(), queue.take()
    queue.ledger.release(second)
    second = queue.take()
    third = queue.take()
    queue.ledger.ack(third)
    assert queue.ledger.assignment.claim(0) == CommitMap(0, (2, 1), delivered=3, counts={0: 1, 1: 2})
    assert first.deliveries == 1

    queue = restarted(queue, *records)
    assert queue.ledger.assignment.claim(0).counts == {0: 1, 1: 2}
    taken = [queue.take() for _ in range(3)]
    assert [(item.offset, item.deliveries, item.redelivered) for item in taken] == [
        (0, 2, True),
        (1, 3, True),
        (3, 1, False),
    ]
    queue.ledger.ack(taken[0])
    queue.send(("b", "b2"))
    assert queue.ledger.assignment.claim(0).counts == {3: 1}
    assert queue.base == 3


def test_counts_that_are_not_read_yet_are_not_forgotten() -> None:
    ledger = new_ledger(count_deliveries=True)
    ledger.assign(0, CommitMap(0, (1, 1, 3, 1), counts={0: 1, 2: 5, 3: 6}), target=6)
    assert ledger.assignment.claim(0).counts == {0: 1, 2: 5, 3: 6}
    ledger.offer(0, 0, b"a", b"a")
    ledger.offer(0, 2, b"b", b"b")
    assert ledger.assignment.claim(0).counts == {0: 1, 2: 5, 3: 6}
    ledger.offer(0, 4, b"c", b"c")
    assert ledger.assignment.claim(0).counts == {0: 1, 2: 5}, "the record at 3 is gone"


def test_counts_of_what_is_done_are_left_out_even_if_somebody_wrote_them() -> None:
    ledger = new_ledger(count_deliveries=True)
    ledger.assign(0, CommitMap(0, (2, 2), counts={0: 1, 3: 7}), target=0)
    ledger.advance({0: 2})
    assert ledger.assignment.claim(0) == CommitMap(4)


def test_counts_are_part_of_what_is_committed_only_if_so_asked() -> None:
    queue = Queue(("a", "a"), loaded=CommitMap(0, counts={0: 3}))
    assert queue.ledger.assignment.claim(0).counts == {}
    item = queue.take()
    assert (item.deliveries, item.redelivered) == (4, True)


# ---------------------------------------------------------------- set aside, and perhaps never handed out

NEVER_GOT = {
    "released": lambda ledger, item: ledger.release(item),
    "out of time": lambda ledger, item: (ledger.extend(item, 1.0), ledger.wake(2.0)),
    "not rejected after all": lambda ledger, item: (ledger.leave(item), ledger.give_back(item)),
    "withheld": lambda ledger, item: ledger.withhold([0]),
}


def set_aside(queue: Queue) -> Item:
    item = queue.ledger.reserve()
    assert item is not None
    return item


@pytest.mark.parametrize("end", NEVER_GOT)
@pytest.mark.parametrize("times", [0, 1])
def test_a_message_set_aside_and_never_handed_over_was_not_delivered(end: str, times: int) -> None:
    queue = Queue(("a", "a"), count_deliveries=True)
    ledger = queue.ledger
    for _ in range(times):
        ledger.release(queue.take())
    item = set_aside(queue)
    assert ledger.assignment.claim(0).counts == {0: times + 1}, "it has to be stored before the message is handed over"
    (part,) = ledger.assignment.known([0])
    part.changed = False
    NEVER_GOT[end](ledger, item)
    assert part.changed
    assert ledger.assignment.claim(0).counts == ({0: times} if times else {})
    stats = ledger.stats
    assert (stats.delivered, stats.released, stats.timed_out) == (times, times, 0)
    assert ledger.in_work == 0
    if end != "withheld":
        again = queue.take()
        assert (again.deliveries, again.redelivered) == (times + 1, times > 0)


def test_a_message_set_aside_is_delivered_when_it_is_handed_over() -> None:
    queue = Queue(("a", "a"), count_deliveries=True)
    item = set_aside(queue)
    assert (queue.ledger.stats.delivered, queue.ledger.next_wake) == (0, None)
    queue.ledger.hand_over(item, 5.0)
    assert (queue.ledger.stats.delivered, queue.ledger.next_wake) == (1, 5.0)
    queue.ledger.withhold([0])
    assert item.state is MessageState.ACQUIRED, "its holder can still settle it"
    queue.ledger.release(item)
    assert queue.ledger.assignment.claim(0).counts == {0: 1}


def test_a_newer_value_takes_the_place_of_what_was_never_handed_over_without_its_count() -> None:
    queue = Queue(("a", "a1"), count_deliveries=True)
    queue.ledger.release(set_aside(queue))
    queue.send(("a", "a2"))
    item = queue.take()
    assert (item.value, item.deliveries, item.redelivered) == (b"a2", 1, False)
    queue.ledger.release(item)
    item = set_aside(queue)
    queue.send(("a", "a3"))
    assert item.state is MessageState.STALE
    queue.ledger.release(item)
    assert item.state is MessageState.SUPERSEDED
    item = queue.take()
    assert (item.value, item.deliveries, item.redelivered) == (b"a3", 1, False)
    assert queue.ledger.assignment.claim(0).counts == {2: 1}


def test_a_message_that_is_not_held_cannot_be_handed_over() -> None:
    queue = Queue(("a", "a"))
    item = set_aside(queue)
    queue.ledger.withhold([0])
    with pytest.raises(AlreadySettled):
        queue.ledger.hand_over(item)


def test_a_leaving_message_needs_no_count() -> None:
    queue = Queue(("a", "a"), ("b", "b"), count_deliveries=True)
    first, second = queue.take(), queue.take()
    queue.ledger.leave(second)
    assert queue.ledger.assignment.claim(0, [second]).counts == {0: 1}
    queue.ledger.leave(first)
    assert queue.ledger.assignment.claim(0, [first, second]) == CommitMap(2)


def test_the_mark_of_what_the_group_handed_out_before_survives_that_nobody_gets_it() -> None:
    queue = Queue(("a", "a"), loaded=CommitMap(0, delivered=1))
    item = queue.ledger.reserve()
    assert item is not None
    queue.ledger.release(item)
    again = queue.take()
    assert (again.redelivered, again.deliveries) == (True, 1)
