"""The messages beyond the window of ranks, in two orders, against sorted lists."""

from __future__ import annotations

from collections.abc import Callable
from itertools import count

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.core.waiting.rank_window import Beyond, BeyondByLevel, BeyondByRank
from lvq_kafka.core.waiting.ranked_queue import precedence

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("add"), st.integers(0, 3), st.booleans()),
        st.tuples(st.sampled_from(["back", "remove", "reach", "pop", "tidy"]), st.integers(0, 50), st.just(False)),
    ),
    max_size=60,
)


def item_of(offset: int, slot: int, rank: int) -> Item:
    item = Item(0, offset, 0, b"key", b"value", None, slot)
    item.rank, item.beyond = rank, True
    return item


@pytest.mark.parametrize("kind", [BeyondByLevel, BeyondByRank])
@given(steps=STEPS)
def test_the_best_is_first_and_the_lowest_are_reached_whatever_comes_and_goes(
    kind: Callable[[], Beyond], steps: list[tuple[str, int, bool]]
) -> None:
    beyond, marked, gone = kind(), list[Item](), list[Item]()
    offsets, slots = count(), count()
    late: list[int] = []
    for step, number, is_stray in steps:
        if step == "add":
            if is_stray and late:  # a scheduled message that is due now: it has the last slot, but not the last offset
                item = item_of(late.pop(), next(slots), number)
            else:
                late.append(next(offsets))
                item = item_of(next(offsets), next(slots), number)
            marked.append(item)
            beyond.add(item)
        elif step == "back" and gone:
            item = gone.pop(number % len(gone))
            item.beyond = True
            marked.append(item)
            beyond.add(item)
        elif step == "remove" and marked:
            item = marked.pop(number % len(marked))
            item.beyond = False
            gone.append(item)
        elif step == "pop" and marked:
            head = beyond.head
            assert head is not None
            head.beyond = False
            marked.remove(head)
            gone.append(head)
        elif step == "reach":
            found = beyond.pop_below(number)
            below = [item for item in marked if item.offset < number]
            assert sorted(map(id, found)) == sorted(map(id, below))
            assert not any(item.beyond for item in found)
            marked = [item for item in marked if item.offset >= number]
        elif step == "tidy":
            beyond.tidy()
        assert beyond.head is min(marked, key=precedence, default=None)
