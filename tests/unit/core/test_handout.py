"""The order of hand-out: the lowest slot first, whatever comes back and whatever goes meanwhile."""

from __future__ import annotations

from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.handout import BySlot


@dataclass(eq=False)
class Slot:
    slot: int


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
            item = line.take()
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
    while (item := line.take()) is not None:
        assert item is waiting.pop(min(waiting))
    assert not waiting
    assert not line._returned_order


def test_what_comes_and_goes_leaves_nothing_behind() -> None:
    line: BySlot[Slot] = BySlot()
    line.add(Slot(0))
    for number in range(1, 10_000):
        item = Slot(number)
        line.add(item)
        first = line.take()
        assert first is not None
        line.add(first)
        line.remove(item)
    assert len(line._returned_order) <= 2
    assert (len(line._line), len(line._returned)) == (0, 1)


def test_what_was_removed_and_comes_again_waits_for_those_in_front_of_it() -> None:
    line: BySlot[Slot] = BySlot()
    slots = [Slot(number) for number in range(3)]
    for slot in slots:
        line.add(slot)
    line.remove(slots[1])
    line.add(slots[1])
    assert [line.take() for _ in range(4)] == [*slots, None]
