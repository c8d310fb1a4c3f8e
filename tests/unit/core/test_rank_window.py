"""The window within which a ranked queue is exact (R20), whatever is acked, and no larger than the map."""

from __future__ import annotations

import random
from collections.abc import Collection
from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap, pairs_below, span_after
from lvq_kafka.core.commit_map.map_capacity import FAR, MapCapacity
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, GroupMode, Groups
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER, QueueOrder
from lvq_kafka.core.waiting.rank_window import RankWindow
from tests.rules import new_ledger

RUN = st.integers(1, 1 << 20)
FRAME = {"topic_tag": b"\xff" * 8, "partitions": (1 << 31) - 1, "sequence": (1 << 63) - 1}


def by_priority(limit: int = 4095, *, counted: bool = False) -> Ledger:
    return new_ledger(order="priority", limit=limit, count_deliveries=counted)


def ranked(priority: int) -> list[tuple[str, bytes | None]]:
    """Return headers for a priority, and for the same order in a sorted queue."""
    return [(PRIORITY_HEADER, b"%d" % priority), (SORT_HEADER, b"%d" % (9 - priority))]


def fill(
    ledger: Ledger, priorities: list[int], *, partition: int = 0, loaded: CommitMap | None = None, apart: int = 1
) -> None:
    """Assign a partition with a message for each priority, with gaps between them."""
    count, loaded = len(priorities), loaded or CommitMap(0)
    ledger.assign(partition, loaded, apart * count)
    offsets = [offset for offset in range(0, apart * count, apart) if offset >= loaded.base]
    headers = [ranked(priorities[offset // apart]) for offset in offsets]
    keys: list[bytes | None] = [b"%d" % offset for offset in offsets]
    size = len(offsets)
    ledger.add(RecordBatch([partition] * size, offsets, [0] * size, keys, [b"v"] * size, headers))
    ledger.advance({partition: apart * count})


def take(ledger: Ledger) -> tuple[int, int]:
    """Take and ack the next message; return its priority and offset."""
    item = ledger.acquire()
    assert item is not None
    ledger.ack(item)
    assert isinstance(item.rank, int)
    return -item.rank, item.offset


def text(ledger: Ledger) -> int:
    return len(replace(ledger.assignment.claim(0), **FRAME).encode(1 << 30))


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize(("limit", "count", "apart"), [(64, 100, 1), (400, 2500, 1), (400, 700, 40), (400, 700, 9000)])
@given(seed=st.integers(0, 1000), stays=st.sampled_from([0.0, 0.0, 0.02]), levels=st.sampled_from([2, 10]))
@settings(max_examples=4, deadline=None)
def test_within_the_window_the_best_comes_first_and_everything_fits(
    limit: int, count: int, apart: int, counted: bool, seed: int, stays: float, levels: int
) -> None:
    rng, ledger = random.Random(seed), by_priority(limit, counted=counted)
    fill(ledger, [rng.randrange(levels) for _ in range(count)], apart=apart)
    part, window = ledger._partitions[0], ledger.window
    assert window is not None
    delayed, taken = set[int](), set[int]()
    held: list[Item] = []
    while (item := ledger.acquire()) is not None:
        taken.add(item.offset)
        if window > 1 and not (counted and delayed):
            nearer = [other for other in part.waiting.values() if other.offset < min(part.base, item.offset) + window]
            better = [other.offset for other in nearer if other.rank < item.rank and other.offset not in delayed]
            assert not better, "one of better rank was within the window"
        held.append(item)
        if len(held) > 20:
            rng.shuffle(held)
            for one in held[5:]:
                if rng.random() < stays:
                    delayed.add(one.offset)
                    ledger.release(one, 1.0)
                else:
                    ledger.ack(one)
            del held[5:]
            assert text(ledger) <= limit
    for one in held:
        ledger.ack(one)
    ledger.wake(2.0)
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
        taken.add(item.offset)
    assert taken == set(range(0, apart * count, apart))
    assert part.base == apart * count
    assert text(ledger) <= limit


def test_an_urgent_message_far_beyond_the_window_comes_at_once() -> None:
    ledger = by_priority(1000)
    fill(ledger, [4] * 10_000 + [9])
    assert take(ledger) == (9, 10_000)
    assert take(ledger) == (4, 0)
    assert ledger.stats.out_of_order == 0


def test_as_many_urgent_messages_beyond_the_window_come_as_have_room() -> None:
    ledger = by_priority(1000)
    room = ledger.capacity.rank_room(counted=False)
    window, ahead = room.window, room.ahead
    assert ahead > 10
    fill(ledger, [4] * 2 * window + [9, 4] * 2 * ahead)
    assert [take(ledger)[0] for _ in range(ahead + 1)] == [9] * ahead + [4]
    assert ledger.stats.out_of_order == 1
    assert ledger.assignment.overtaken == [0]
    left = [take(ledger) for _ in range(window + 4 * ahead)]
    assert 9 in {priority for priority, _ in left}, "once the window reaches the first ones"


def test_messages_that_the_window_has_reached_are_handed_out_although_more_was_read_since() -> None:
    ledger = by_priority(1000)
    room = ledger.capacity.rank_room(counted=False)
    priorities = [0] * room.span + [5] + [0] * 50 + [9, 0] * room.ahead
    fill(ledger, priorities)
    assert [take(ledger)[0] for _ in range(room.ahead)] == [9] * room.ahead
    assert [take(ledger) for _ in range(room.step)] == [(0, offset) for offset in range(room.step)]
    ledger.offer(0, len(priorities), b"new", b"v", 0, [(PRIORITY_HEADER, b"0")])
    assert take(ledger) == (5, room.span)


def test_messages_beyond_the_window_count_as_waiting_for_room() -> None:
    ledger = by_priority(1000)
    fill(ledger, [4] * (ledger.capacity.rank_room(counted=False).span + 100))
    assert ledger.assignment.gated == 100
    take(ledger)
    assert ledger.stats.out_of_order == 0, "of the same rank, the first comes first"
    assert ledger.assignment.overtaken == []


@pytest.mark.parametrize("order", ["priority", "sorted"])
def test_of_the_same_rank_beyond_the_window_the_first_comes_first(order: QueueOrder) -> None:
    ledger = new_ledger(order=order, limit=1000)
    fill(ledger, [4] * 5000)
    held = ledger.acquire()
    assert held is not None
    ledger.offer(0, 5000, held.key, b"newer", 0, ranked(9))  # waits until the older value is settled
    ledger.offer(0, 5001, b"other", b"v", 0, ranked(9))
    ledger.ack(held)
    taken = [ledger.acquire(), ledger.acquire()]
    assert [item and item.offset for item in taken] == [5000, 5001]


def test_few_messages_that_stay_behind_do_not_hold_the_window_back() -> None:
    ledger = by_priority(1000)
    window = ledger.window
    assert window is not None
    count = 4 * window
    fill(ledger, [9] * 5 + [4] * count)
    for _ in range(5):
        item = ledger.acquire()
        assert item is not None
        ledger.release(item, 9.0)
    assert [take(ledger)[1] for _ in range(count)] == list(range(5, count + 5))
    assert ledger.acquire() is None


@pytest.mark.parametrize(("apart", "count"), [(10, 1_900), (100, 1_000), (5_000, 900)])
@pytest.mark.parametrize("read", [1, 10])  # batches
def test_wherever_messages_lie_as_many_have_room_as_half_as_many_pairs(apart: int, count: int, read: int) -> None:
    rng, ledger = random.Random(1), by_priority()
    ledger.assign(0, CommitMap(0), 0)
    headers = [ranked(rng.randrange(10)) for _ in range(count)]
    for part in range(read):
        rows = range(part * count // read, (part + 1) * count // read)
        keys: list[bytes | None] = [b"%d" % row for row in rows]
        offsets, size = [apart * row for row in rows], len(rows)
        ledger.add(RecordBatch([0] * size, offsets, [0] * size, keys, [b"v"] * size, headers[rows.start : rows.stop]))
    taken = [take(ledger)[0] for _ in range(count // 3)]
    assert text(ledger) <= 4095
    taken += [take(ledger)[0] for _ in range(count - len(taken))]
    assert taken == sorted(taken, reverse=True)
    assert ledger.stats.out_of_order == 0


@pytest.mark.parametrize("limit", [200, 600, 1500])
def test_acks_that_are_there_take_the_room_of_messages(limit: int) -> None:
    rng, ledger, offset = random.Random(1), by_priority(limit), 0
    ledger.assign(0, CommitMap(0), 0)
    for number in range(limit):
        ledger.offer(0, offset, b"%d" % number, b"v", headers=ranked(9 if number % 2 else 4))
        offset += rng.randrange(130, 16_000)
    ledger.advance({0: offset})
    part = ledger._partitions[0]
    window, room = part.room.window, ledger.capacity.rank_room(counted=False)
    assert window is not None
    while ledger.assignment.available:
        take(ledger)
        length, inside = window.exact_end - part.base, [one for one in part.pending if one.offset < window.exact_end]
        halves = len(inside) + sum(one in part.pending.acked_behind for one in inside)
        pairs = max(one.pairs for one in room.allowances if length <= one.within + one.after)
        assert halves <= 2 * pairs + 1 or length <= room.span
        assert text(ledger) <= limit


@given(pairs=st.lists(st.tuples(RUN, RUN), max_size=30), near=st.integers(0, 20))
def test_pairs_that_have_room_below_others_do_fit(pairs: list[tuple[int, int]], near: int) -> None:
    below = pairs[:near]
    claim = CommitMap(0, tuple(run for pair in pairs for run in pair), delivered=(1 << 63) - 1, **FRAME)
    limit, span = len(claim.encode(1 << 30)), sum(map(sum, below))
    assert pairs_below(limit - 1, span, len(pairs) - len(below), 1 << 26) < max(1, len(below))


def test_an_urgent_message_that_always_fails_beyond_the_window_blocks_nobody() -> None:
    ledger = by_priority(1000)
    window = ledger.window
    assert window is not None
    count = 3 * window
    fill(ledger, [4] * count + [9])
    others = 0
    for _ in range(3 * count):
        item = ledger.acquire()
        assert item is not None
        if item.offset == count:
            ledger.release(item)
        else:
            ledger.ack(item)
            others += 1
        if others == count:
            break
    assert others == count


def test_after_a_restart_the_window_knows_what_was_acked_beyond_it() -> None:
    ledger = by_priority(1000)
    window, ahead = ledger.capacity.rank_room(counted=False).window, ledger.capacity.rank_room(counted=False).ahead
    priorities = [4] * 3 * window + [9, 4] * 2 * ahead
    fill(ledger, priorities)
    for _ in range(ahead):
        take(ledger)
    claim = ledger.assignment.claim(0)
    successor = by_priority(1000)
    fill(successor, priorities, loaded=claim)
    assert take(successor) == (4, 0), "there is no more room for any of priority 9"
    assert successor.stats.out_of_order == 1


def test_where_the_limit_sinks_or_rises_the_window_follows() -> None:
    ledger = by_priority(800)
    rng = random.Random(3)
    count = 4000
    priorities = [rng.randrange(10) for _ in range(count)]
    fill(ledger, priorities)
    for _ in range(400):
        take(ledger)
    ledger.capacity.limit = 300
    stored = text(ledger)
    for _ in range(400):
        take(ledger)
    assert text(ledger) <= max(300, stored)
    ledger.capacity.limit = 4095
    best = max(priorities[item.offset] for item in ledger._partitions[0].waiting.values())
    assert take(ledger)[0] == best
    left = 0
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
        left += 1
    assert left == count - 801


def test_ranks_decide_over_all_partitions() -> None:
    ledger = by_priority(1000)
    fill(ledger, [4] * 8000)
    fill(ledger, [0, 9, 5], partition=1)
    assert [take(ledger) for _ in range(3)] == [(9, 1), (5, 2), (4, 0)]


@given(
    runs=st.lists(st.integers(1, 1 << 16), max_size=60),
    bits=st.integers(0, 4000),
    seed=st.integers(0, 1000),
    ahead=st.lists(st.integers(1, 1 << 15), max_size=60),
)
def test_a_map_with_room_above_a_number_of_messages_does_fit(
    runs: list[int], bits: int, seed: int, ahead: list[int]
) -> None:
    rng = random.Random(seed)
    below, beyond = runs[: len(runs) // 2 * 2], ahead[: len(ahead) // 2 * 2]
    pairs = (len(below) + len(beyond)) // 2
    dense = "".join(rng.choice("01") for _ in range(bits))
    lengths: list[int] = []
    at = [(length, number % 2) for number, length in enumerate(below)]
    at += [(1, int(bit)) for bit in dense]
    at += [(length, number % 2) for number, length in enumerate(beyond)]
    last = -1
    for length, done in [(1, 0), *at]:
        if done == last:
            lengths[-1] += length
        else:
            lengths.append(length)
        last = done
    if last == 0:
        lengths.pop()
    claim = CommitMap(1 << 40, tuple(lengths), delivered=(1 << 63) - 1, **FRAME)
    size = len(claim.encode(1 << 30))
    assert span_after(size - 40, pairs, FAR) <= bits, "there is no room for all of it"


def test_the_published_window() -> None:
    capacity = MapCapacity(4095)
    plain, counted = capacity.rank_room(counted=False), capacity.rank_room(counted=True)
    assert (plain.window, plain.ahead) == (17_571, 125)
    assert (counted.window, counted.ahead) == (8585, 61)


@pytest.mark.parametrize("groups", [None, Groups()])
@pytest.mark.parametrize("order", ["priority", "sorted"])
def test_a_scheduled_delete_at_the_base_has_no_rank(order: QueueOrder, groups: Groups | None) -> None:
    ledger = new_ledger(order=order, groups=groups, limit=100, max_delay=1000.0)
    ledger.assign(0, CommitMap(0), 3000)
    ledger.offer(0, 0, b"later", None, 1000, [("lvq-not-before", b"900000")])
    for offset in range(1, 3000):
        rank = b"%d" % (offset % 10)
        ledger.offer(0, offset, b"%d" % offset, b"v", 1000, [(PRIORITY_HEADER, rank), (SORT_HEADER, rank)])
    ledger.advance({0: 3000})
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
    assert ledger.stats.acked > 0
    ledger.pass_time(901.0)
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
    assert ledger.stats.acked == 2999


both_modes = pytest.mark.parametrize("mode", ["sticky", "shared"])


@both_modes
@pytest.mark.parametrize("counted", [False, True])
def test_groups_go_on_beyond_a_scheduled_message(mode: GroupMode, counted: bool) -> None:
    ledger = new_ledger(
        order="priority", groups=Groups(mode=mode), limit=1000, count_deliveries=counted, max_delay=1000.0
    )
    assert ledger.window is not None
    rng, end = random.Random(1), 6 * ledger.window
    ledger.assign(0, CommitMap(0), end)
    ledger.offer(0, 0, b"later", b"v", 1000, [("lvq-not-before", b"900000")])
    for offset in range(1, end):
        priority, group = b"%d" % rng.randrange(10), b"%d" % rng.randrange(200)
        ledger.offer(0, offset, b"%d" % offset, b"v", 1000, [(PRIORITY_HEADER, priority), (GROUP_HEADER, group)])
    ledger.advance({0: end})
    held: list[Item] = []
    while (item := ledger.acquire()) is not None:
        held.append(item)
        if len(held) == 8:
            ledger.ack(held.pop(rng.randrange(8)))
            if rng.random() < 0.02:
                assert text(ledger) <= 1000
    for item in held:
        ledger.ack(item)
    assert ledger.stats.acked == end - 1


@both_modes
def test_an_urgent_message_of_a_group_comes_from_beyond_the_window(mode: GroupMode) -> None:
    ledger = new_ledger(order="priority", groups=Groups(mode=mode), limit=1000)
    fill(ledger, [4] * 10_000 + [9])
    assert take(ledger) == (9, 10_000)
    assert take(ledger) == (4, 0)
    assert ledger.stats.out_of_order == 0


def test_a_newer_value_beyond_the_window_does_not_hold_up_its_group() -> None:
    ledger = new_ledger(order="priority", groups=Groups(), limit=1000)
    fill(ledger, [4] * 10_000)
    assert ledger.groups is not None
    one, two = ledger.groups.open(), ledger.groups.open()
    held = ledger.acquire(session=one)
    assert held is not None
    ledger.offer(0, 10_000, held.key, b"newer", 0, [(PRIORITY_HEADER, b"9"), (GROUP_HEADER, b"group")])
    ledger.offer(0, 10_001, b"other", b"other", 0, [(PRIORITY_HEADER, b"9"), (GROUP_HEADER, b"group")])
    ledger.ack(held)
    newer, other = ledger.acquire(session=two), ledger.acquire(session=two)
    assert newer is not None
    assert other is not None
    assert {newer.value, other.value} == {b"newer", b"other"}


@pytest.mark.parametrize("groups", [None, Groups()])
def test_messages_that_came_back_often_are_still_handed_out_by_rank(groups: Groups | None) -> None:
    ledger = new_ledger(order="priority", groups=groups)
    fill(ledger, [1, 9])
    for _ in range(2):
        taken = [ledger.acquire(), ledger.acquire()]
        for item in reversed(taken):  # the worse one first
            assert item is not None
            ledger.release(item)
    for offset in (2, 3, 4):
        ledger.offer(0, offset, b"%d" % offset, b"v", 0, [(PRIORITY_HEADER, b"5")])
    assert [take(ledger)[0] for _ in range(5)] == [9, 5, 5, 5, 1]


def test_partitions_do_not_wait_for_room_in_a_circle() -> None:
    """Each one's lowest message belongs to the group of what finds no room in the other one."""
    ledger = new_ledger(order="priority", groups=Groups())
    assert ledger.groups is not None
    here, there = ledger.groups.open(), ledger.groups.open()

    def send(partition: int, offset: int, priority: int, group: str) -> None:
        headers = [(PRIORITY_HEADER, b"%d" % priority), (GROUP_HEADER, group.encode())]
        ledger.offer(partition, offset, None, b"v", 0, headers)

    for partition, mine, others in ((0, "here", "there"), (1, "there", "here")):
        ledger.assign(partition, CommitMap(0), 0)
        send(partition, 0, 9, mine)  # pins it
        first = ledger.acquire(session=(here, there)[partition])
        assert first is not None
        ledger.ack(first)
        for offset in range(1, 400):
            send(partition, offset, 8 if offset % 2 else 0, mine)
        send(partition, 400, 5, others)
    for session in (here, there):
        for _ in range(200):
            item = ledger.acquire(session=session)
            assert item is not None
            ledger.ack(item)
    ledger.capacity.limit = 64
    while (item := ledger.acquire(session=here) or ledger.acquire(session=there)) is not None:
        ledger.ack(item)
    assert ledger.stats.acked == 802


# --- texts without room -----------------------------------------------------------------------------------------------


def full_of_scheduled(
    limit: int = 200,
    *,
    order: QueueOrder = "priority",
    groups: Groups | None = None,
    counted: bool = False,
    ring: Limits | None = None,
    partitions: int = 1,
) -> tuple[Ledger, int]:
    """Return a ledger whose commit texts scheduled messages have filled: each second one that came until then."""
    ledger = new_ledger(
        order=order, groups=groups, limit=limit, count_deliveries=counted, max_delay=86400.0, limits=ring
    )
    rng = random.Random(1)
    for partition in range(partitions):
        ledger.assign(partition, CommitMap(0), 0)
    for offset in range(0, 8000, 2):
        for partition in range(partitions):
            later = ("lvq-not-before", b"%d" % 50_000_000)
            ledger.offer(partition, offset, b"later%d" % offset, b"v", 1000, [*ranked(rng.randrange(10)), later])
            send(ledger, offset + 1, rng.randrange(10), partition=partition)
        ledger.pass_time(1.0)
        while (item := ledger.acquire()) is not None:
            ledger.ack(item)
        if offset % 64 == 0 and text(ledger) > limit:
            return ledger, offset + 2
    raise AssertionError("the text is never full")


def send(ledger: Ledger, offset: int, priority: int, *, partition: int = 0, group: bytes = b"") -> None:
    headers: list[tuple[str, bytes | None]] = [*ranked(priority), *([(GROUP_HEADER, group)] if group else [])]
    ledger.offer(partition, offset, b"%d" % offset, b"v", 1000, headers)
    ledger.advance({partition: offset + 1})


@pytest.mark.parametrize("counted", [False, True])
@pytest.mark.parametrize("groups", [None, Groups(), Groups(mode="shared")])
@pytest.mark.parametrize("order", ["priority", "sorted"])
def test_g16_scheduled_messages_keep_nothing_from_being_handed_out_by_rank(
    order: QueueOrder, groups: Groups | None, counted: bool
) -> None:
    ledger, offset = full_of_scheduled(order=order, groups=groups, counted=counted)
    for at, priority in enumerate((1, 8, 9, 1)):
        send(ledger, offset + at, priority, group=b"g" if priority == 8 else b"")
    came = []
    while (item := ledger.acquire()) is not None:
        came.append(item.offset - offset)
        ledger.ack(item)
    assert came == [2, 1, 0, 3]
    assert ledger.assignment.gated == 0


def test_g16_messages_returned_with_a_delay_keep_nothing_from_being_handed_out_by_rank() -> None:
    ledger = by_priority(200)
    rng = random.Random(1)
    fill(ledger, [rng.randrange(10) for _ in range(3000)])
    delayed, acked = 0, 0
    while (item := ledger.acquire()) is not None:
        if rng.random() < 0.3:
            ledger.release(item, 9.0)
            delayed += 1
        else:
            ledger.ack(item)
            acked += 1
    assert (delayed + acked, ledger.assignment.available) == (3000, delayed)
    assert text(ledger) > 200, "there was no room for all of them"


def test_messages_without_room_go_beside_others_and_wait_for_those_taken_with_room() -> None:
    ledger = by_priority(400)
    fill(ledger, [4] * 4000)
    held = []
    while (item := ledger.acquire()) is not None:
        held.append(item)
    assert 0 < len(held) < 3900, "all of these may be acked, and there is room"
    assert ledger.assignment.standing_still == [0]
    for at, one in enumerate(held[:-1]):
        ledger.ack(one) if at % 2 else ledger.release(one, 9.0)
    ledger.capacity.limit = 64
    assert ledger.acquire() is None, "the last one is in work"
    ledger.release(held[-1], 9.0)
    others = [ledger.acquire() for _ in range(10)]
    assert None not in others, "nothing waits for what has no room itself"
    assert ledger.assignment.standing_still == []


def test_a_partition_without_room_does_not_wait_for_the_end_of_another_one() -> None:
    ledger, offset = full_of_scheduled()
    ledger.assign(1, CommitMap(0), 0)
    send(ledger, offset, 4)
    send(ledger, offset + 1, 9)
    for other in range(100):
        send(ledger, other, 4, partition=1)
    assert take(ledger) == (9, offset + 1)
    assert take(ledger) == (4, offset), "it came before those of the other partition"
    assert take(ledger) == (4, 0)


def test_messages_with_room_go_before_those_without() -> None:
    ledger, offset = full_of_scheduled()
    ledger.pass_time(50_001.0)  # all that was scheduled
    lowest = next(iter(ledger._partitions[0].pending))
    send(ledger, offset, 9)
    first = ledger.acquire()
    assert first is not None
    assert first.offset in {lowest.offset, offset}
    ledger.ack(first)
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
    assert ledger.assignment.claim(0).runs == ()


def test_a_message_that_always_fails_and_has_no_room_takes_turns_with_others() -> None:
    ledger, offset = full_of_scheduled()
    send(ledger, offset, 9)
    for other in range(offset + 1, offset + 21):
        send(ledger, other, 4)
    came = []
    for _ in range(60):
        item = ledger.acquire()
        assert item is not None
        came.append(item.offset)
        if item.offset == offset:
            ledger.release(item)
        else:
            ledger.ack(item)
    assert set(came) == set(range(offset, offset + 21))


def test_a_transaction_takes_nothing_without_room_and_it_is_said_that_it_stands_still() -> None:
    ledger, offset = full_of_scheduled()
    send(ledger, offset, 9)
    ledger.bounded = True
    assert ledger.acquire() is None
    assert ledger.assignment.standing_still == [0]
    ledger.bounded = False
    assert take(ledger) == (9, offset)
    assert ledger.assignment.standing_still == []


def test_a_ring_by_rank_goes_on_without_room_and_evicts() -> None:
    ledger, offset = full_of_scheduled(ring=Limits(policy="ring", messages=100))
    for at in range(offset, offset + 300):
        send(ledger, at, at % 10)
    assert ledger.assignment.available == 100
    came = [take(ledger)[0] for _ in range(100)]
    assert came == sorted(came, reverse=True)


@both_modes
def test_groups_of_other_sessions_do_not_keep_a_session_from_what_has_no_room(mode: GroupMode) -> None:
    ledger, offset = full_of_scheduled(groups=Groups(mode=mode))
    assert ledger.groups is not None
    one, other = ledger.groups.open(), ledger.groups.open()
    for at in range(offset, offset + 40):
        send(ledger, at, 9 if at % 2 else 4, group=b"one" if at % 2 else b"g%d" % at)
    held = ledger.acquire(None, one)
    assert held is not None
    assert held.offset % 2 == 1, "the group of the better rank"
    came = []
    while (item := ledger.acquire(None, other)) is not None:
        came.append(item.offset)
        ledger.ack(item)
    assert came == list(range(offset, offset + 40, 2))
    ledger.ack(held)
    assert ledger.acquire(None, one) is not None


def test_a_message_looks_at_as_few_others_however_many_are_scheduled_below_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Also where the texts are full."""
    walked, measured = [0], [0]
    measure, claim = RankWindow._measure, PartitionLedger.claim

    def counting(self: RankWindow) -> None:
        measure(self)
        walked[0] += self._walked

    def claiming(self: PartitionLedger, leaving: Collection[Item]) -> CommitMap:
        measured[0] += self.pending.splits
        return claim(self, leaving)

    monkeypatch.setattr(RankWindow, "_measure", counting)
    monkeypatch.setattr(PartitionLedger, "claim", claiming)
    for scheduled in (10, 1000, 10_000):
        ledger = new_ledger(order="priority", max_delay=86400.0)
        ledger.assign(0, CommitMap(0), 0)
        rng, offset = random.Random(1), 0
        for turn in range(scheduled + 500):
            if turn == scheduled:
                walked[0] = measured[0] = 0
            if turn < scheduled:
                headers = [*ranked(4), ("lvq-not-before", b"50000000")]
                ledger.offer(0, offset, b"later%d" % offset, b"v", 1000, headers)
                offset += 1
            for _ in range(4):
                send(ledger, offset, rng.randrange(10))
                offset += rng.randrange(1, 3)
            while (item := ledger.acquire()) is not None:
                ledger.ack(item)
        assert ledger.assignment.available == 0
        assert walked[0] <= 2000 * 40, "messages"
        assert measured[0] <= 2000 * 15, "runs"
