"""The order of hand-out: the lowest slot first, whatever returns or leaves meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.waiting.ready_queue import BySlot, InTurns


@dataclass(eq=False)
class Slot:
    slot: int
    deliveries: int = 0


KINDS = st.sampled_from(["new", "new", "take", "take", "back", "remove", "replace"])
STEPS = st.lists(st.tuples(KINDS, st.integers(0, 20)), min_size=20, max_size=50)


@given(STEPS)
def test_the_lowest_slot_is_next(steps: list[tuple[str, int]]) -> None:
    line: BySlot[Slot] = BySlot()
    waiting: dict[int, Slot] = {}
    taken: list[Slot] = []
    for number, (step, which) in enumerate(steps):
        there = sorted(waiting)
        if step == "take":
            item = line.pop()
            assert item is (waiting.pop(there[0]) if there else None)
            taken += [item] if item is not None else []
            continue
        if step == "new":
            item = Slot(number)
        elif step == "back" and taken:
            item = taken.pop(which % len(taken))
        elif step == "replace" and there:
            item = Slot(there[which % len(there)])
        elif step == "remove" and there:
            item = waiting.pop(there[which % len(there)])
            line.remove(item)
            line.remove(item)
            continue
        else:
            continue
        waiting[item.slot] = item
        line.add(item)
    while (item := line.pop()) is not None:
        assert item is waiting.pop(min(waiting))
    assert not waiting
    assert not line._returned_order


def test_messages_that_come_and_go_leave_nothing_behind() -> None:
    line: BySlot[Slot] = BySlot()
    line.add(Slot(0))
    for number in range(1, 10_000):
        item = Slot(number)
        line.add(item)
        first = line.pop()
        assert first is not None
        line.add(first)
        line.remove(item)
    assert len(line._returned_order) <= 2
    assert len(line._line) + len(line._returned) == len(line) == 1


def test_a_removed_message_that_comes_again_waits_for_those_in_front_of_it() -> None:
    line: BySlot[Slot] = BySlot()
    slots = [Slot(number) for number in range(3)]
    for slot in slots:
        line.add(slot)
    line.remove(slots[1])
    line.add(slots[1])
    assert [line.pop() for _ in range(4)] == [*slots, None]


def test_one_that_fails_always_takes_every_second_turn_at_most() -> None:
    line: InTurns[Slot] = InTurns(BySlot())
    for number in range(10):
        line.add(Slot(number))
    taken = []
    while (item := line.pop()) is not None and len(taken) < 40:
        taken.append(item.slot)
        item.deliveries += 1
        if item.slot == 3:
            line.add(item)
    assert taken[:16] == [0, 1, 2, 3, 3, 3, 4, 3, 5, 3, 6, 3, 7, 3, 8, 3], "it comes in its old place twice"
    assert sorted(set(taken)) == list(range(10))


def test_messages_that_always_fail_take_turns() -> None:
    line: InTurns[Slot] = InTurns(BySlot())
    for number in range(6):
        line.add(Slot(number))
    tried = [0] * 6
    for _ in range(60):
        item = line.pop()
        assert item is not None
        item.deliveries += 1
        tried[item.slot] += 1
        line.add(item)
    assert min(tried) >= 8


@given(failing=st.sets(st.integers(0, 30)), turns=st.lists(st.sampled_from(["take", "new", "back"]), max_size=200))
def test_all_other_messages_are_taken_whatever_fails(failing: set[int], turns: list[str]) -> None:
    line: InTurns[Slot] = InTurns(BySlot())
    slots, away, done, tried = 0, list[Slot](), set[int](), dict[int, int]()

    def take() -> None:
        item = line.pop()
        if item is not None:
            item.deliveries += 1
            tried[item.slot] = item.deliveries
            if item.slot in failing:
                away.append(item)
            else:
                done.add(item.slot)

    for turn in turns:
        if turn == "take":
            take()
        elif turn == "back" and away:
            line.add(away.pop())
        elif turn == "new" and slots < 31:
            line.add(Slot(slots))
            slots += 1
    for _ in range(4 * 31):
        while away:
            line.add(away.pop())
        take()
    assert done == set(range(slots)) - failing
    assert all(tried[slot] >= 2 for slot in failing if slot < slots)
