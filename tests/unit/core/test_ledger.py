"""Stories of the delivery ledger, told step by step. R and G numbers are those of the contract."""

from __future__ import annotations

import copy

import pytest

from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.lifecycle import TRANSITIONS, Event, State
from lvq_kafka.errors import AlreadySettled, LockLost, StateError


class Queue:
    """One ledger with a partition 0 that is caught up; records get the next offset."""

    def __init__(self, *records: tuple[str, str | None], order: str = "tail") -> None:
        self.ledger = Ledger(order=order)  # type: ignore[arg-type]
        self.ledger.assign(0, 0, 0)
        self.next = 0
        self.send(*records)

    def send(self, *records: tuple[str, str | None]) -> None:
        for key, value in records:
            self.ledger.offer(0, self.next, key.encode(), None if value is None else value.encode())
            self.next += 1
        self.ledger.advance({0: self.next})

    def take(self) -> Item:
        item = self.ledger.acquire()
        assert item is not None
        return item

    def drain(self) -> list[str]:
        """Take and ack all that comes."""
        taken = []
        while (item := self.ledger.acquire()) is not None:
            taken.append(item.value.decode())
            self.ledger.ack(item)
        return taken

    @property
    def base(self) -> int:
        return self.ledger.base(0)


def facts(ledger: Ledger) -> object:
    """All that can be seen of a ledger, order included."""
    twin = copy.deepcopy(ledger)
    held = sorted((item.partition, item.offset, item.state, item.deliveries) for item in twin.held())
    seen = (twin.bases(), twin.positions, twin.catching_up, twin.available, twin.in_work, twin.outstanding, held)
    upcoming = []
    while (item := twin.acquire()) is not None:
        upcoming.append((item.partition, item.offset, item.value, item.deliveries))
    return (*seen, upcoming)


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
    ledger = Ledger(order="in-place")
    ledger.assign(0, 0, 4)
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
    assert first.state is State.STALE
    assert queue.ledger.acquire() is None, "two values of a key in work (G13)"
    queue.ledger.ack(first)
    assert queue.drain() == ["a2"]


def test_r6_the_release_of_a_superseded_value_drops_it() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", "a2"))
    queue.ledger.release(first)
    assert first.state is State.SUPERSEDED
    assert queue.drain() == ["a2"]


def test_r6_r7_a_superseded_value_does_not_come_back_when_the_newer_one_was_deleted() -> None:
    queue = Queue(("a", "a1"))
    first = queue.take()
    queue.send(("a", "a2"), ("a", None))
    queue.ledger.release(first)
    assert queue.drain() == []
    assert queue.base == queue.next


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
    assert first.state is State.STALE
    queue.ledger.ack(first)
    assert (queue.base, queue.ledger.outstanding) == (4, 0)


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
    ledger = Ledger()
    ledger.assign(0, 0, 0)
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
    ledger = Ledger()
    ledger.assign(0, 0, 3)
    ledger.offer(0, 0, b"a", b"a1")
    ledger.advance({0: 1})
    assert ledger.acquire() is None
    assert ledger.catching_up == {0: 3}
    ledger.offer(0, 1, b"a", b"a2")
    ledger.advance({0: 3})
    item = ledger.acquire()
    assert item is not None
    assert item.value == b"a2"
    assert ledger.catching_up == {}


def test_a_partition_that_catches_up_does_not_hold_up_the_others() -> None:
    ledger = Ledger()
    ledger.assign(0, 0, 100)
    ledger.assign(1, 0, 0)
    ledger.offer(0, 0, b"a", b"a")
    ledger.offer(1, 0, b"b", b"b")
    item = ledger.acquire()
    assert item is not None
    assert item.partition == 1
    assert ledger.acquire() is None


def test_the_same_key_in_two_partitions_is_two_messages() -> None:
    ledger = Ledger()
    for partition in (0, 1):
        ledger.assign(partition, 0, 0)
        ledger.offer(partition, 0, b"a", b"%d" % partition)
    assert [item.value for _ in range(2) if (item := ledger.acquire())] == [b"0", b"1"]


def test_a_revoked_partition_takes_its_messages_along_and_ends_the_locks() -> None:
    queue = Queue(("a", "a"), ("b", "b"))
    queue.ledger.assign(1, 5, 5)
    queue.ledger.offer(1, 5, b"c", b"c")
    held = queue.take()
    assert queue.ledger.revoke([0]) == [held]
    assert (held.state, queue.ledger.in_work, queue.ledger.positions) == (State.LOST, 0, {1: 6})
    assert queue.drain() == ["c"]
    with pytest.raises(LockLost, match="offset 0 of partition 0"):
        queue.ledger.ack(held)


def test_a_handle_from_before_a_revocation_stays_lost_when_the_partition_comes_back() -> None:
    queue = Queue(("a", "a"))
    held = queue.take()
    queue.ledger.revoke([0])
    queue.ledger.assign(0, 0, 0)
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
@pytest.mark.parametrize("second", ["ack", "release", "reject"])
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
    with pytest.raises(StateError, match="Partition 0 is assigned already"):
        ledger.assign(0, 7, 9)
    with pytest.raises(StateError, match="partition 3"):
        ledger.revoke([0, 3])
    with pytest.raises(StateError, match="partition 3"):
        ledger.withhold([0, 3])
    with pytest.raises(StateError, match="partition 3"):
        ledger.advance({0: 9, 3: 9})
    with pytest.raises(StateError, match="partition 3"):
        ledger.base(3)
    with pytest.raises(StateError, match="Partition 3 is not assigned"):
        ledger.offer(3, 0, b"a", b"a")
    with pytest.raises(StateError, match="Offset 1 of partition 0 was read before"):
        ledger.offer(0, 1, b"a", b"a")
    assert facts(ledger) == before


def test_nothing_is_left_of_what_is_done() -> None:
    queue = Queue(*((f"k{number % 7}", "v") for number in range(1000)))
    queue.drain()
    queue.send(("k1", None))
    ledger = queue.ledger
    assert (ledger.available, ledger.in_work, ledger.outstanding) == (0, 0, 0)
    (part,) = ledger._partitions.values()
    assert (part.waiting, part.held, part.outstanding) == ({}, {}, {})
    assert not vars(ledger._hand_out)["_line"]
    assert not vars(ledger._hand_out)["_returned"]


def story(state: State) -> tuple[Ledger, Item]:
    """A ledger with a message in that state."""
    queue = Queue(("a", "a1"))
    item = next(iter(queue.ledger._partitions[0].waiting.values()))
    if state is State.AVAILABLE:
        return queue.ledger, item
    queue.take()
    if state is State.STALE:
        queue.send(("a", "a2"))
    elif state is State.SUPERSEDED:
        queue.send(("a", "a2"))
        queue.ledger.release(item)
    elif state is State.LOST:
        queue.ledger.revoke([0])
    elif state is not State.ACQUIRED:
        {State.ACKED: queue.ledger.ack, State.RELEASED: queue.ledger.release, State.REJECTED: queue.ledger.reject}[
            state
        ](item)
    assert item.state is state
    return queue.ledger, item


@pytest.mark.parametrize("state", list(State))
@pytest.mark.parametrize("event", [Event.ACK, Event.RELEASE, Event.REJECT])
def test_settlements_follow_the_transition_table(state: State, event: Event) -> None:
    ledger, item = story(state)
    settle = {Event.ACK: ledger.ack, Event.RELEASE: ledger.release, Event.REJECT: ledger.reject}[event]
    after = TRANSITIONS[event].get(state)
    if after is None:
        before = facts(ledger)
        with pytest.raises((AlreadySettled, LockLost)):
            settle(item)
        assert (item.state, facts(ledger)) == (state, before)
    else:
        settle(item)
        assert item.state is after


@pytest.mark.parametrize("state", [State.AVAILABLE, State.ACQUIRED, State.STALE])
def test_what_is_alive_can_be_superseded_and_revoked(state: State) -> None:
    ledger, item = story(state)
    ledger.offer(0, 10, b"a", b"newer")
    assert item.state is TRANSITIONS[Event.SUPERSEDE][state]
    ledger, item = story(state)
    ledger.revoke([0])
    assert item.state is TRANSITIONS[Event.REVOKE][state]


def test_the_table_leaves_no_way_out_of_an_end() -> None:
    ends = {State.RELEASED, State.ACKED, State.REJECTED, State.SUPERSEDED, State.LOST}
    assert not ends & {state for rows in TRANSITIONS.values() for state in rows}
