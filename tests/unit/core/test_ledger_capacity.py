"""I9: every ack fits into the commit map, because messages that could make it too long are not handed out (yet)."""

from __future__ import annotations

import random
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from heapq import heappop, heappush
from itertools import islice

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.commit_map.map_capacity import MapCapacity, Measured
from lvq_kafka.core.latest.fold import Order
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.effort import examples
from tests.rules import new_ledger
from tests.unit.core.queues import Queue

FRAME = {"topic_tag": b"\xff" * 8, "partitions": (1 << 31) - 1, "sequence": (1 << 63) - 1}


def longest_after(ledger: Ledger, acked: set[Item]) -> int:
    """Return the length of partition 0's map if these were acked, with the longest possible frame."""
    base, runs = ledger._partitions[0].pending.claim(acked)
    claim = ledger.assignment.claim(0)
    gone = {item.offset for item in acked}
    counts = {offset: count for offset, count in claim.counts.items() if offset not in gone}
    mark = None if claim.delivered is None else max(base, claim.delivered)
    return len(replace(CommitMap(base, runs, delivered=mark, counts=counts), **FRAME).encode(1 << 30))


def assert_room(ledger: Ledger, limit: int, seed: int) -> None:
    newest = [item for item in ledger.assignment.held() if item.state in (MessageState.ACQUIRED, MessageState.LEAVING)]
    newest.sort(key=lambda item: item.offset)
    rng = random.Random(seed)
    for acked in (newest, newest[::2], newest[1::2], [item for item in newest if rng.random() < 0.5]):
        assert longest_after(ledger, set(acked)) <= limit


def assert_nothing_is_stranded(ledger: Ledger) -> None:
    """Check, when nothing is handed out, that every waiting message has a reason to wait."""
    for part in ledger._partitions.values():
        for item in part.waiting.values():
            if item.state is MessageState.DELAYED or item.lane in part.held:
                continue
            assert item in part.room.gated
            assert item is not part.pending.first, "the one at the base can always be handed out"
            assert item is not part.room.gated.head or not part.room.has_room(item)
        ready = [item for item in part.waiting.values() if item in part.room.gated]
        assert len(ready) == len(part.room.gated)


WHICH = st.integers(0, 1000)
STEPS = st.one_of(
    st.tuples(st.just("send"), st.integers(1, 12)),
    st.tuples(st.just("acquire"), st.integers(1, 8)),
    *[
        st.tuples(st.just(step), WHICH)
        for step in ("ack", "ack", "ack", "release", "delay", "supersede", "leave", "wake", "skip")
    ],
)


@given(
    limit=st.sampled_from([64, 90, 95, 100, 130, 200]),
    order=st.sampled_from(["tail", "in-place"]),
    counted=st.booleans(),
    steps=st.lists(STEPS, min_size=50, max_size=80),
    seed=st.integers(0, 1000),
)
@settings(max_examples=examples(100))
def test_the_map_never_exceeds_its_limit_whatever_is_acked_in_whatever_order(
    limit: int, order: Order, counted: bool, steps: list[tuple[str, int]], seed: int
) -> None:
    queue = Queue(order=order, limit=limit, count_deliveries=counted, bounded=True)
    ledger, rng, now = queue.ledger, random.Random(seed), 0.0
    for step, number in steps:
        held = sorted(ledger.assignment.held(), key=lambda item: item.offset)
        free = [item for item in held if item.state in (MessageState.ACQUIRED, MessageState.STALE)]
        item = free[number % len(free)] if free else None
        if step == "send":
            for _ in range(number):
                queue.end += rng.choice([0, 0, 0, 1, 100])
                queue.send((str(rng.randrange(60)), rng.choice(["v", "v", "v", None])))
        elif step == "skip":
            queue.end += rng.choice([0, 1, 200, 1 << 40])
            ledger.advance({0: queue.end})
        elif step == "wake":
            now += 1
            ledger.wake(now)
        elif step == "acquire":
            for _ in range(number):
                if ledger.acquire() is None:
                    assert_nothing_is_stranded(ledger)
        elif item is None:
            continue
        elif step == "ack":
            ledger.ack(item)
        elif step == "release":
            ledger.release(item)
        elif step == "delay":
            ledger.release(item, now + 2)
        elif step == "supersede" and item.key is not None:
            queue.send((item.key.decode(), "newer"))
        elif step == "leave":
            ledger.leave(item)
            assert_room(ledger, limit, seed)
            rng.choice([ledger.commit, ledger.give_back])(item)
        assert_room(ledger, limit, seed)
    ledger.wake(1e9)
    for item in list(ledger.assignment.held()):
        ledger.ack(item)
        assert_room(ledger, limit, seed)
    queue.drain()
    assert_nothing_is_stranded(ledger)
    left = (ledger.assignment.outstanding, ledger.assignment.gated, ledger.in_work)
    assert left == (0, 0, 0), "I10: something was never handed out"
    assert queue.base == queue.end


@pytest.mark.parametrize("counted", [False, True])
def test_messages_go_on_beside_delayed_ones_until_the_map_is_full(counted: bool) -> None:
    queue = Queue(*((str(number), "v") for number in range(30_000)), count_deliveries=counted, bounded=True)
    ledger, rng = queue.ledger, random.Random(1)
    while (item := ledger.acquire()) is not None:
        if rng.random() < 0.5:
            ledger.ack(item)
        else:
            ledger.release(item, 9.0)
    assert ledger.assignment.gated > 1000
    assert_nothing_is_stranded(ledger)
    claim = ledger.assignment.claim(0)
    assert 3600 < longest_after(ledger, set()) <= 4095
    assert (8000 < claim.end < 13_000) if counted else claim.end > ledger.capacity.window - 20  # a bit for each
    ledger.wake(9.0)
    acked = ledger.stats.acked
    assert len(queue.drain()) == 30_000 - acked


def test_the_real_length_says_more_than_the_worst_case() -> None:
    queue = Queue(*((str(number), "v") for number in range(26_000)), bounded=True)
    ledger = queue.ledger
    while (item := ledger.acquire()) is not None:
        if item.offset % 2:
            ledger.ack(item)
        else:
            ledger.release(item, 9.0)
    assert ledger.stats.acked == 13_000, "a regular pattern is short"
    assert longest_after(ledger, set()) < 200


class ByRank:
    """Hands out messages in an order of their own."""

    def __init__(self, rank: Callable[[int], float]) -> None:
        self._rank = rank
        self._ranks: list[tuple[float, int]] = []
        self._items: dict[int, Item] = {}

    def add(self, item: Item) -> None:
        self._items[item.slot] = item
        heappush(self._ranks, (self._rank(item.offset), item.slot))

    def remove(self, item: Item) -> None:
        self._items.pop(item.slot, None)

    def pop(self) -> Item | None:
        while self._ranks:
            item = self._items.pop(heappop(self._ranks)[1], None)
            if item is not None:
                return item
        return None


def taken_until_it_waits(ledger: Ledger, offsets: Sequence[int], in_work: int, stays: float = 0.0) -> int:
    """Take and settle a number at a time, until one waits for room; return how many were taken."""
    count, end, rng = len(offsets), offsets[-1] + 1, random.Random(2)
    ledger.assign(0, CommitMap(0), end)
    keys: list[bytes | None] = [b"%d" % offset for offset in offsets]
    ledger.add(RecordBatch([0] * count, offsets, [0] * count, keys, [b"v"] * count, [None] * count))
    ledger.advance({0: end})
    taken = 0
    while not ledger.assignment.gated:
        items = list(islice(iter(ledger.acquire, None), in_work))
        if not items:
            break
        if ledger.assignment.gated or taken % 2000 == 0:
            assert_room(ledger, ledger.capacity.limit, taken)
        for item in items:
            if rng.random() < stays:
                ledger.release(item, 9.0)
            else:
                ledger.ack(item)
        taken += len(items)
    assert longest_after(ledger, set()) <= ledger.capacity.limit
    return taken


def at_random(offset: int) -> float:
    return random.Random(offset).random()


def every_fourth_first(offset: int) -> float:
    return -1.0 if offset % 4 == 0 else at_random(offset)


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("rank", [at_random, every_fourth_first])
@pytest.mark.parametrize(("step", "stays"), [(1, 0.0), (1, 0.1), (10, 0.1)])
@pytest.mark.parametrize("in_work", [10, 200])
def test_in_any_order_what_was_handed_out_by_its_real_length_fits(
    counted: bool, rank: Callable[[int], float], step: int, stays: float, in_work: int
) -> None:
    ledger = new_ledger(hand_out=ByRank(rank), limit=1000, count_deliveries=counted, bounded=True)
    taken = taken_until_it_waits(ledger, range(0, 12_000 * step, step), in_work, stays)
    assert taken > ledger.capacity.always, "the worst case of any span"


def test_a_real_length_that_forgets_what_is_in_work_does_not_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    fits_after = MapCapacity.fits_after

    def mutant(self: MapCapacity, measured: Measured, changes: int, *ends: int, counted: bool) -> bool:
        return fits_after(self, measured, 0, *ends, counted=counted)

    monkeypatch.setattr(MapCapacity, "fits_after", mutant)
    ledger = new_ledger(hand_out=ByRank(at_random), limit=1000, bounded=True)
    with pytest.raises(AssertionError):
        taken_until_it_waits(ledger, range(12_000), 200)


def test_any_order_fits_within_the_window() -> None:
    ledger = new_ledger(hand_out=ByRank(at_random), limit=1000, bounded=True)
    window = ledger.capacity.window
    assert window > 5000
    assert taken_until_it_waits(ledger, range(window), 200) == window


def test_replaced_messages_count_as_changes_of_the_measured_length() -> None:
    ledger = new_ledger(hand_out=ByRank(at_random), limit=1000, bounded=True)
    taken_until_it_waits(ledger, range(0, 30_000, 2), 10)
    part = ledger._partitions[0]
    before = part.changes
    waiting = [item for item in part.waiting.values() if item is not part.pending.first]
    for number, item in enumerate(waiting[:50]):
        ledger.offer(0, 30_000 + number, item.key, b"newer")
    assert part.changes == before + 50


def test_after_a_claim_that_outgrew_its_reckoning_only_the_worst_case_counts_until_the_base_moves() -> None:
    queue = Queue(*((str(number), "v") for number in range(9000)), limit=1000, bounded=True)
    ledger, first = queue.ledger, queue.take()
    for number in range(7000):
        item = queue.take()
        if number % 2:
            ledger.ack(item)
        else:
            ledger.release(item, 9.0)
    part = ledger._partitions[0]
    queue.take()
    part.room.overflowed()
    assert ledger.acquire() is None
    assert ledger.assignment.gated
    ledger.ack(first)
    queue.take()


def full(*more: tuple[str, str | None], order: Order = "tail") -> tuple[Queue, Item]:
    """Return a queue whose map has no room, and the message at its base, which is in work."""
    queue = Queue(("a", "a"), ("b", "b"), ("c", "c"), *more, limit=64, order=order, bounded=True)
    return queue, queue.take()


def test_without_room_only_the_message_at_the_base_is_handed_out() -> None:
    queue, first = full()
    assert queue.ledger.acquire() is None
    assert queue.ledger.assignment.gated == 2
    queue.ledger.release(first)
    assert queue.take().value == b"a"
    assert queue.ledger.acquire() is None


def test_messages_held_back_come_in_their_order() -> None:
    queue, first = full(("d", "d"))
    assert queue.ledger.acquire() is None
    queue.ledger.ack(first)
    assert queue.drain() == ["b", "c", "d"]


@pytest.mark.parametrize("end", ["ack", "release"])
def test_room_that_a_superseded_message_leaves_is_used(end: str) -> None:
    queue = Queue(*((str(number), "v") for number in range(60)), limit=130, bounded=True)
    ledger = queue.ledger
    held = []
    while (item := ledger.acquire()) is not None:
        held.append(item)
    assert ledger.assignment.gated
    for item in held[1:]:
        assert item.key is not None
        queue.send((item.key.decode(), "newer"))
        assert item.state is MessageState.STALE
    assert ledger.acquire() is None
    for item in held[1:]:
        getattr(ledger, end)(item)
    assert ledger.acquire() is not None


def test_a_message_held_back_is_superseded_like_any_that_waits() -> None:
    queue, first = full()
    assert queue.ledger.acquire() is None
    queue.send(("b", "b2"), ("c", None))
    assert queue.ledger.acquire() is None
    assert queue.ledger.assignment.gated == 1
    queue.ledger.ack(first)
    assert queue.drain() == ["b2"]


def test_with_in_place_order_a_value_that_is_held_back_is_replaced_in_its_place() -> None:
    queue, first = full(("d", "d"), order="in-place")
    assert queue.ledger.acquire() is None
    queue.send(("b", "b2"))
    assert queue.ledger.assignment.gated == 3
    queue.ledger.capacity.limit = 4095
    assert [queue.take().value for _ in range(3)] == [b"b2", b"c", b"d"]
    queue.ledger.ack(first)


def test_a_message_that_comes_back_goes_before_those_that_are_held_back() -> None:
    queue = Queue(*((str(number), "v") for number in range(60)), limit=130, bounded=True)
    ledger = queue.ledger
    held = []
    while (item := ledger.acquire()) is not None:
        held.append(item)
    assert len(held) >= 2
    ledger.release(held[-1])
    again = queue.take()
    assert again.offset == held[-1].offset


def test_a_partition_without_room_does_not_hold_up_the_others() -> None:
    queue, _ = full()
    queue.ledger.assign(1, CommitMap(0), 0)
    queue.ledger.offer(1, 0, b"x", b"x")
    assert queue.take().value == b"x"
    assert queue.ledger.acquire() is None


def test_a_value_replaced_in_its_place_while_others_are_held_back_is_handed_out_once() -> None:
    queue = Queue(("a", "a"), ("b", "b"), limit=64, order="in-place", bounded=True)
    ledger, first = queue.ledger, queue.take()
    ledger.assign(1, CommitMap(0), 0)
    ledger.offer(1, 0, b"x", b"x")
    queue.send(("c", "c"))
    assert queue.take().value == b"x", "b is held back, and c comes after x"
    assert ledger.assignment.gated == 1
    queue.send(("b", "b2"), ("c", "c2"))
    ledger.ack(first)
    assert queue.drain() == ["b2", "c2"]


def test_the_room_that_a_message_needs_depends_on_the_highest_that_was_handed_out() -> None:
    queue = Queue(*((key, key) for key in "abcdef"), limit=103, order="in-place", bounded=True)
    queue.end = 1000
    queue.send(("a", "a2"))
    assert [queue.take().offset for _ in range(2)] == [1000, 1]
    assert queue.ledger.acquire() is None, "the runs from the base on may become longer than a byte"
    other = Queue(*((key, key) for key in "abcdef"), limit=103, bounded=True)
    assert [other.take().offset for _ in range(6)] == [0, 1, 2, 3, 4, 5]


def test_the_room_that_a_message_needs_depends_on_what_was_done_before() -> None:
    ledger = new_ledger(limit=100, bounded=True)
    ledger.assign(0, CommitMap(0, (3, 995, 1, 1)), 1000)
    for offset in (0, 1, 2, 998):
        ledger.offer(0, offset, b"%d" % offset, b"v")
    ledger.advance({0: 1000})
    assert ledger.acquire() is not None
    assert ledger.acquire() is None
    assert ledger.assignment.gated == 3


def test_a_message_held_back_goes_with_its_partition() -> None:
    queue, first = full()
    assert queue.ledger.acquire() is None
    queue.ledger.withhold([0])
    assert queue.ledger.assignment.gated == 0
    queue.ledger.ack(first)
    assert queue.ledger.acquire() is None
    queue.ledger.revoke([0])
    assert queue.ledger.acquire() is None


def test_where_the_limit_sinks_messages_go_on_one_by_one_from_the_base() -> None:
    queue = Queue(*((str(number), str(number)) for number in range(100)), bounded=True)
    items = [queue.take() for _ in range(90)]
    for item in items[1::2]:
        queue.ledger.ack(item)
    queue.ledger.capacity.limit = 64
    assert queue.ledger.acquire() is None
    for item in items[::2]:
        queue.ledger.ack(item)
    assert queue.drain() == [str(number) for number in range(90, 100)]


@pytest.mark.parametrize("order", ["tail", "in-place"])
def test_holding_back_a_large_backlog_takes_constant_time_per_message(order: Order) -> None:
    rng = random.Random(3)
    records = [(str(rng.randrange(20_000)), "v") for _ in range(60_000)]
    queue = Queue(*records, order=order, limit=200, bounded=True)
    began = time.process_time()
    acked = 0
    delayed: Sequence[int] = range(0, 1000, 7)
    while (item := queue.ledger.acquire()) is not None:
        if acked in delayed and item.deliveries == 1:
            queue.ledger.release(item, 1.0)
            queue.ledger.wake(2.0)
        else:
            queue.ledger.ack(item)
        acked += 1
    assert queue.ledger.assignment.outstanding == 0
    assert time.process_time() - began < 10, "one pass over what waits for each message takes a minute"


@given(
    runs=st.lists(st.integers(1, 1 << 22), min_size=2, max_size=200),
    offsets=st.lists(st.floats(0, 0.99), max_size=100),
    count=st.integers(1, (1 << 14) - 1),
)
def test_a_map_that_is_judged_to_fit_does_fit(runs: list[int], offsets: list[float], count: int) -> None:
    runs = runs[: len(runs) // 2 * 2]
    span, base = sum(runs), 1 << 40
    counts = {base + int(span * at): count for at in offsets}
    commit_map = CommitMap(base, tuple(runs), delivered=(1 << 63) - 1, counts=counts, **FRAME)
    size = len(commit_map.encode(1 << 30))
    assert not MapCapacity(size + 20).fits(len(runs) // 2, span, len(counts), count), (
        "there is no room for what may come"
    )
    assert MapCapacity(2 * size + 100).fits(len(runs) // 2, span, len(counts), count) or size < 600
