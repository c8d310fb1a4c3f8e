"""Queues in place: a key keeps its place, also for the next consumer (R4)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.partition_commits import PartitionCommits
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.rules import new_ledger, rules
from tests.unit.core.queues import Queue


def started_over(queue: Queue, records: list[tuple[str, str | None]], **options: Any) -> Queue:
    """Return the queue of the next consumer, which reads from the base of what the last one committed."""
    loaded = queue.ledger.assignment.claim(0)
    return Queue(*records[loaded.base :], loaded=loaded, order="in-place", **options)


RECORDS: list[tuple[str, str | None]] = [("1", "1"), ("2", "2"), ("3", "3"), ("4", "4"), ("2", "2b"), ("1", "1b")]


def test_r4_in_place_order_outlasts_an_ack_and_its_consumer() -> None:
    queue = Queue(*RECORDS, order="in-place")
    queue.ledger.ack(queue.take())
    assert (queue.base, queue.runs) == (1, (4, 1)), "the place of 2, and what is acked above it"
    assert started_over(queue, RECORDS).drain() == ["2b", "3", "4"]
    assert queue.drain() == ["2b", "3", "4"]
    assert (queue.base, queue.runs) == (6, ())


def test_r4_in_place_a_place_outlasts_replaced_values_of_its_key_that_count_as_done() -> None:
    records: list[tuple[str, str | None]] = [("a", "1"), ("d", "1"), ("d", "2"), ("a", "2")]
    queue = Queue(*records, order="in-place")
    queue.ledger.ack(queue.take())
    records += [("a", "3"), ("d", "3")]
    queue.send(*records[4:])
    assert (queue.base, queue.runs) == (1, (1, 2)), "the place of d, and then a value of it that was replaced"
    assert started_over(queue, records).drain() == ["3", "3"]
    successor = started_over(queue, records)
    assert [successor.take().key, successor.take().key] == [b"d", b"a"] == [queue.take().key, queue.take().key]


def test_r4_in_place_what_an_ack_replaced_is_done_even_if_the_text_left_that_out() -> None:
    loaded = CommitMap(0, (1, 1))
    queue = Queue(("a", "1"), ("a", "2"), ("b", "1"), loaded=loaded, order="in-place")
    assert queue.drain() == ["1"]
    assert (queue.base, queue.runs) == (3, ())


def test_r4_in_place_a_message_of_which_only_the_place_counts_is_not_counted() -> None:
    """Its newer value was acked, and one still to be read has replaced both."""
    ledger = new_ledger(order="in-place")
    ledger.assign(0, CommitMap(0, (2, 1), delivered=3), 4)
    for offset, key in enumerate((b"a", b"b", b"a")):
        ledger.offer(0, offset, key, b"v")
    assert (ledger.assignment.available, ledger.assignment.outstanding) == (1, 1)


@pytest.mark.parametrize("count_deliveries", [False, True])
def test_r4_in_place_order_outlasts_release_delay_and_lost_handles(count_deliveries: bool) -> None:
    queue = Queue(*RECORDS, order="in-place", count_deliveries=count_deliveries)
    first, second = queue.take(), queue.take(locked_until=5.0)
    queue.ledger.release(first, due=9.0)
    queue.ledger.wake(6.0)
    assert started_over(queue, RECORDS, count_deliveries=count_deliveries).drain() == ["1b", "2b", "3", "4"]
    assert second.state is MessageState.LOST
    queue.ledger.wake(9.0)
    queue.send(("1", "1c"), ("2", "2c"))
    assert queue.drain() == ["1c", "2c", "3", "4"]


@pytest.mark.parametrize("gone", ["acked", "deleted", "transaction"])
def test_r4_in_place_a_key_that_was_gone_has_a_new_place_and_its_old_one_is_done(gone: str) -> None:
    queue = Queue(*RECORDS, order="in-place")
    records = list(RECORDS)
    if gone == "deleted":
        records.append(("1", None))
    else:
        item = queue.take()
        if gone == "transaction":
            queue.ledger.leave(item)
            assert queue.ledger.assignment.claim(0, [item]).base == 1, "in the commit of the transaction"
            assert queue.base == 0
            queue.ledger.commit(item)
        else:
            queue.ledger.ack(item)
    records.append(("1", "1c"))
    queue.send(*records[6:])
    assert queue.base == 1
    assert started_over(queue, records).drain() == ["2b", "3", "4", "1c"] == queue.drain()


def test_r4_in_place_a_value_that_comes_while_another_is_in_work_has_its_own_place() -> None:
    queue = Queue(*RECORDS, order="in-place")
    queue.ledger.ack(queue.take())
    held = queue.take()
    queue.send(("2", "2c"))
    assert queue.base == 2, "nothing of 2 is left below"
    assert started_over(queue, [*RECORDS, ("2", "2c")]).drain() == ["3", "4", "2c"]
    queue.ledger.ack(held)
    assert queue.drain() == ["3", "4", "2c"]


def test_r4_places_give_way_when_the_commit_text_has_no_room() -> None:
    keys = [f"k{number}" for number in range(60)]
    records: list[tuple[str, str | None]] = [("x", "x"), *((key, "old") for key in keys), ("x", "x2"), ("y", "y")]
    for key in keys[::2]:
        records += [(key, "new"), (f"{key}+", "other"), ("z", "z")]
    queue = Queue(*records, order="in-place", limit=64)
    commits = PartitionCommits[str](queue.ledger._partitions[0], CommitMap(0), tag=bytes(8), partitions=1, ready=[])
    held = queue.take()
    assert held.value == b"x2"
    while (item := queue.ledger.acquire()) is not None:
        if item.value != b"other":
            queue.ledger.ack(item)
    claim = commits.next_claim((), queue.ledger.capacity)
    assert claim is not None
    assert queue.ledger.stats.displaced == 1
    assert claim.base == 61, "where the newest value of x is"
    queue.ledger.release(held)
    assert queue.take().value == b"x2", "here it keeps its place"


@pytest.mark.parametrize("groups", [None, Groups()], ids=["plain", "groups"])
def test_g16_in_transactions_places_give_way_when_nothing_else_makes_room(groups: Groups | None) -> None:
    keys = [f"k{number}" for number in range(40)]
    records: list[tuple[str, str | None]] = [("x", "x")]
    for key in keys:
        records += [(key, "old"), (f"{key}+", "other")]
    queue = Queue(*records, *((key, "new") for key in keys), order="in-place", limit=95, groups=groups)
    taken = [queue.take() for _ in records]
    queue.ledger.release(taken[0], due=1e6)
    for item in taken[1:]:
        if item.value == b"other":
            queue.ledger.ack(item)
        else:
            queue.ledger.release(item)
    queue.ledger.bounded = True
    assert queue.drain() == ["new"] * 40, "x is put off, and nothing is in work"
    assert queue.ledger.stats.displaced > 0
    assert CommitMap.decode(queue.base, queue.ledger.assignment.claim(0).encode(95)).done(1)


@pytest.mark.parametrize("groups", [None, Groups()], ids=["plain", "groups"])
def test_g16_in_transactions_places_give_way_though_a_superseded_message_is_in_work(groups: Groups | None) -> None:
    """Its ack makes no room: it is done."""
    queue = Queue(("x", "x"), order="in-place", limit=64, bounded=True, groups=groups)
    held = queue.take()
    queue.send(("k", "old"), ("k", "new"), ("x", "x2"))
    assert queue.drain() == ["new"]
    assert queue.ledger.stats.displaced == 1
    queue.ledger.ack(held)
    assert queue.drain() == ["x2"]


@pytest.mark.parametrize("apart", [False, True])
@pytest.mark.parametrize(("at", "expected"), [(2000, [b"a", b"b"]), (2001, [b"b", b"a"])])
def test_r4_in_place_a_value_that_comes_after_its_predecessor_has_expired_stands_at_the_end(
    at: int, expected: list[bytes], apart: bool
) -> None:
    """The value expires with the millisecond 2000, which every consumer and reader can tell from the log."""
    records = [Record(0, 0, 1000, b"a", b"1", ()), Record(0, 1, 1900, b"b", b"2", ()), Record(0, 2, at, b"a", b"3", ())]
    ledger = new_ledger(order="in-place", ttl=Ttl(default=1))
    ledger.assign(0, CommitMap(0), 3)
    values = LatestValues(1, rules(order="in-place", ttl=Ttl(default=1)))
    for batch in [records[:2], records[2:]] if apart else [records]:
        ledger.add(RecordBatch.of(batch))
        values.apply(RecordBatch.of(batch))
    ledger.advance({0: 3})
    taken = [ledger.acquire(), ledger.acquire()]
    assert [item.key for item in taken if item is not None] == expected
    assert list(values.table.keys("in-place")) == expected
    assert values.stats.expired == (at > 2000)


@pytest.mark.parametrize(("between", "base"), [(1500, 0), (1601, 3)], ids=["it lived on", "it was gone"])
def test_r4_in_place_a_place_passes_through_replaced_values_that_count_as_done(between: int, base: int) -> None:
    """The ack of b covers the second value of a. Each lives for 0.6 s, so the third comes after the first (R8)."""
    stored = [(1000, b"a"), (between, b"a"), (1650, b"b"), (1700, b"a")]
    ledger = new_ledger(order="in-place", ttl=Ttl(default=0.6))
    ledger.assign(0, CommitMap(0, (1, 2), delivered=3), 4)
    ledger.add(RecordBatch.of(Record(0, offset, time, key, b"v", ()) for offset, (time, key) in enumerate(stored)))
    ledger.advance({0: 4})
    assert ledger.assignment.base(0) == base
