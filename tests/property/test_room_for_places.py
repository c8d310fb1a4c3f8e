"""In transactions, all that is in work has room in the commit text, also in a queue in place (I9, R4)."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.map_capacity import text_size
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item
from tests.rules import new_ledger

KEYS = [b"a", b"b", b"c", b"d", b"e", None]
STEPS = st.lists(st.one_of(st.sampled_from(KEYS), st.just("take"), st.integers(0, 9)), max_size=60)


def offset_of(number: int) -> int:
    """Return where a record is: so far from others that few runs fill a text, in distances that do not deflate."""
    return (number << 50) + number * 0x9E3779B97F4A7C15 % (1 << 48)


def text_of(ledger: Ledger, leaving: Sequence[Item]) -> int:
    """Return the length of the longest text of a commit with these messages."""
    part = ledger._partitions[0]
    base, runs = part.pending.claim(set(leaving))
    return text_size(CommitMap(base, runs, bytes(8), (1 << 31) - 1, 1 << 60, part.reach))


@given(steps=STEPS, limit=st.integers(64, 110))
@example(steps=[b"a", b"b", b"a", "take"], limit=64)
def test_i9_messages_in_work_in_a_transaction_have_room_beside_places(
    steps: list[bytes | str | int | None], limit: int
) -> None:
    ledger = new_ledger(order="in-place", limit=limit, bounded=True)
    ledger.assign(0, CommitMap(0), target=0)
    taken: list[Item] = []
    for number, step in enumerate(steps):
        if isinstance(step, int):
            if step // 2 < len(taken):
                item = taken.pop(step // 2)
                settle(ledger, item) if step % 2 else ledger.release(item, due=1e6)
        elif step == "take":
            if (item := ledger.acquire()) is not None:
                taken.append(item)
        else:
            assert not isinstance(step, str)
            ledger.offer(0, offset_of(number), step, b"value")
        taken = [item for item in taken if item.state is MessageState.ACQUIRED]  # the others were superseded
        for leaving in taken, taken[::2], taken[1::2]:
            assert text_of(ledger, leaving) <= limit or not leaving


@pytest.mark.parametrize("limit", range(190, 560, 13))
def test_i9_acks_of_keys_in_place_split_the_runs_twice(limit: int) -> None:
    """The messages between them are put off, so there is a run for each place, and for each newest value."""
    keys = [f"{letter}{number}" for letters in ("abc", "ade") for number in range(12) for letter in letters]
    ledger = new_ledger(order="in-place", limit=limit, bounded=True)
    ledger.assign(0, CommitMap(0), target=0)
    for number, key in enumerate(["first", *keys]):
        ledger.offer(0, offset_of(number), key.encode(), b"value")
    leaving = []
    while (item := ledger.acquire()) is not None:
        if item.key is not None and item.key[:1] == b"a":
            leaving.append(item)
        elif item.key is not None and item.key[:1] in b"bc":
            ledger.release(item, due=1e6)
        assert text_of(ledger, leaving) <= limit
    assert leaving


def settle(ledger: Ledger, item: Item) -> None:
    """Commit this message alone in a transaction."""
    ledger.leave(item)
    ledger.commit(item)
