"""The ledger of a queue whose messages may be scheduled (R11)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from tests.rules import rules
from tests.unit.core.queues import LedgerOfOne


def record(offset: int, key: str | None, value: str | None, *, due: float | None = None, at: float = 0.0) -> Record:
    headers = () if due is None else ((NOT_BEFORE_HEADER, b"%d" % round(due * 1000)),)
    name, body = (None if text is None else text.encode() for text in (key, value))
    return Record(0, offset, int(at * 1000), name, body, headers)


class Queue(LedgerOfOne):
    """A queue whose messages may be scheduled an hour ahead. Its log begins at offset 0."""

    def __init__(self, loaded: CommitMap | None = None, *, target: int = 0, **options: Any) -> None:
        super().__init__(loaded, target=target, max_delay=3600, **options)
        self.end = 0

    def send(self, key: str | None, value: str | None, due: float | None = None, at: float = 0.0) -> None:
        self.read(record(self.end, key, value, due=due, at=at))

    @property
    def scheduled(self) -> int:
        assert self.ledger.times is not None
        return self.ledger.times.scheduled


def test_r11_a_message_counts_from_the_millisecond_on_when_it_is_due() -> None:
    queue = Queue()
    queue.send("a", "a1")
    queue.send("a", "a2", due=10)
    assert not queue.ledger.pass_time(9.999)
    assert (queue.waiting, queue.scheduled) == (["a1"], 1)
    assert queue.ledger.pass_time(10.0)
    assert (queue.waiting, queue.scheduled) == (["a2"], 0)
    assert queue.ledger.stats.replaced == 1


def test_r11_the_base_waits_for_what_is_scheduled_and_what_counts_until_then_is_handed_out() -> None:
    queue = Queue()
    queue.send("a", "a1", due=10)
    queue.send("a", "a2", due=20)
    queue.send("b", "b1")
    assert queue.drain() == ["b1"]
    assert (queue.claim.base, queue.ledger.assignment.outstanding) == (0, 2)
    queue.ledger.pass_time(10.0)
    assert queue.drain() == ["a1"]
    assert queue.claim.base == 1
    queue.ledger.pass_time(20.0)
    assert queue.drain() == ["a2"]
    assert (queue.claim, queue.ledger.assignment.outstanding) == (CommitMap(3), 0)


def test_r11_of_two_scheduled_messages_the_later_one_in_the_log_counts_once_it_is_due() -> None:
    queue = Queue()
    queue.send("a", "a1", due=20)
    queue.send("a", "a2", due=10)
    assert queue.claim.base == 0
    queue.ledger.pass_time(10.0)
    assert (queue.waiting, queue.scheduled) == (["a2"], 0)
    assert queue.drain() == ["a2"]
    queue.ledger.pass_time(20.0)
    assert queue.drain() == []


def test_r11_messages_due_at_once_count_as_the_log_has_them() -> None:
    for times in ((10, 20, 30), (30, 20, 10), (20, 30, 10), (10, 10, 10)):
        queue = Queue()
        for number, due in enumerate(times):
            queue.send("a", f"a{number}", due=due)
        queue.ledger.pass_time(99.0)
        assert (queue.waiting, queue.scheduled, queue.ledger.stats.replaced) == (["a2"], 0, 2)


@pytest.mark.parametrize(("value", "counted"), [("a2", (1, 0)), (None, (0, 1))])
def test_r11_a_message_that_counts_when_it_is_read_drops_all_scheduled_ones_below_it(
    value: str | None, counted: tuple[int, int]
) -> None:
    queue = Queue()
    queue.send("a", "a1", due=10)
    queue.send("a", value)
    stats = queue.ledger.stats
    assert (queue.scheduled, (stats.replaced, stats.deleted)) == (0, counted)
    queue.ledger.pass_time(99.0)
    assert queue.drain() == [value] * (value is not None)
    assert queue.claim == CommitMap(2)


def test_r11_a_held_message_becomes_stale_when_one_of_its_key_is_due() -> None:
    queue = Queue()
    queue.send("a", "a1")
    held = queue.take()
    queue.send("a", "a2", due=10)
    assert held.state is MessageState.ACQUIRED
    queue.ledger.pass_time(10.0)
    assert held.state is MessageState.STALE
    assert queue.ledger.acquire() is None, "two values of a key in work (G13)"
    queue.ledger.release(held)
    assert queue.drain() == ["a2"]
    assert queue.claim == CommitMap(2)


def test_r11_a_message_that_is_released_before_the_next_is_due_comes_back() -> None:
    queue = Queue()
    queue.send("a", "a1")
    queue.send("a", "a2", due=10)
    queue.ledger.release(queue.take())
    again = queue.take()
    assert (again.value, again.deliveries) == (b"a1", 2)
    queue.ledger.leave(again)
    queue.ledger.pass_time(10.0)
    assert again.state is MessageState.LEAVING_STALE
    queue.ledger.give_back(again)
    assert queue.drain() == ["a2"]


def test_r11_a_scheduled_delete_deletes_when_it_is_due_and_is_pending_until_then() -> None:
    queue = Queue()
    queue.send("a", "a1")
    queue.send("a", None, due=10)
    queue.send("b", None, due=10)
    queue.ledger.pass_time(9.0)
    assert (queue.waiting, queue.claim.base) == (["a1"], 0)
    queue.ledger.pass_time(10.0)
    assert (queue.waiting, queue.scheduled, queue.claim.base) == ([], 0, 3)
    assert (queue.ledger.stats.deleted, queue.ledger.stats.read) == (1, 1)


@pytest.mark.parametrize("then", [1.0, 10.0])
def test_r11_messages_due_at_the_same_time_come_in_the_order_of_the_log(then: float) -> None:
    queue = Queue()
    for number in range(5):
        queue.send(None, f"{number}", due=10)
    queue.ledger.pass_time(then)
    queue.send("a", "5", due=10)
    queue.ledger.pass_time(10.0)
    assert queue.drain() == [f"{number}" for number in range(6)]


def test_r11_messages_without_a_key_are_scheduled_each_by_itself() -> None:
    queue = Queue()
    queue.send(None, "x1", due=10)
    queue.send(None, "x2")
    assert queue.drain() == ["x2"]
    queue.ledger.pass_time(10.0)
    assert queue.drain() == ["x1"]


@pytest.mark.parametrize(("order", "expected"), [("tail", ["b1", "a2"]), ("in-place", ["a2", "b1"])])
def test_r4_a_message_takes_its_place_when_it_is_due(order: str, expected: list[str]) -> None:
    queue = Queue(order=order)
    queue.send("a", "a1")
    queue.send("a", "a2", due=10)
    queue.send("b", "b1")
    queue.ledger.pass_time(10.0)
    assert queue.drain() == expected


def test_r11_messages_that_still_count_are_not_conflated_away_while_catching_up() -> None:
    queue = Queue(target=5)
    queue.ledger.pass_time(1.0)
    for read in (
        record(0, "a", "a1"),
        record(1, "a", "a2", due=10),
        record(2, "b", "b1", due=10),
        record(3, "b", "b2"),
        record(4, "c", "c1", due=1),
    ):
        assert queue.ledger.acquire() is None
        queue.read(read)
    assert (queue.waiting, queue.scheduled) == (["a1", "b2", "c1"], 1)
    queue.ledger.pass_time(10.0)
    assert queue.drain() == ["b2", "c1", "a2"]


def test_r11_messages_due_while_catching_up_wait_for_the_end() -> None:
    queue = Queue(target=3)
    queue.read(record(0, "a", "a1"), record(1, "a", "a2", due=10))
    queue.ledger.pass_time(10.0)
    assert queue.ledger.acquire() is None
    queue.read(record(2, "b", "b1"))
    assert queue.drain() == ["b1", "a2"]


def test_g12_a_message_done_in_the_map_has_counted_for_a_consumer_whose_clock_is_faster() -> None:
    """Offset 0 is claimed as pending since nothing lower was acked; the message that superseded it was consumed."""
    queue = Queue(CommitMap(0, (2, 1)), target=3)
    queue.read(record(0, "a", "a1"), record(1, "b", "b1"), record(2, "a", "a2", due=10))
    assert (queue.waiting, queue.scheduled) == (["b1"], 0)
    queue.ledger.pass_time(10.0)
    assert queue.drain() == ["b1"]
    assert queue.claim == CommitMap(3)


def test_r11_a_message_that_counted_for_another_consumer_and_was_not_settled_is_scheduled_again() -> None:
    loaded = CommitMap(0, delivered=2, counts={1: 3})
    queue = Queue(loaded, target=2, count_deliveries=True)
    queue.read(record(0, "a", "a1"), record(1, "a", "a2", due=10))
    assert (queue.waiting, queue.claim.counts) == (["a1"], {1: 3})
    queue.ledger.pass_time(10.0)
    item = queue.take()
    assert (item.value, item.deliveries, item.redelivered) == (b"a2", 4, True)


def test_r10_r11_a_message_that_is_due_after_its_expiry_makes_the_key_go() -> None:
    queue = Queue(ttl=Ttl(default=5))
    queue.send("a", "a1", at=8)
    queue.send("a", "a2", due=10, at=1)
    queue.ledger.pass_time(9.0)
    assert queue.waiting == ["a1"]
    queue.ledger.pass_time(10.0)
    assert (queue.waiting, queue.ledger.stats.expired, queue.claim.base) == ([], 1, 2)


def test_r10_r11_a_message_expires_by_its_append_time_also_after_it_was_due() -> None:
    queue = Queue(ttl=Ttl(default=15))
    queue.send("a", "a1", due=10)
    queue.ledger.pass_time(15.0)
    assert queue.waiting == ["a1"]
    queue.ledger.pass_time(15.001)
    assert queue.waiting == []


def test_r10_r11_a_message_that_expires_as_it_is_due_is_kept_for_the_expiry_topic() -> None:
    queue = Queue(ttl=Ttl(default=5), expiry_topic="letters" if True else None)
    queue.send("a", "a1", due=10)
    queue.send("b", "b1", due=10)
    queue.send("b", "b2")
    queue.ledger.pass_time(4.0)
    assert queue.drain() == ["b2"]
    queue.ledger.pass_time(10.0)
    (kept,) = queue.ledger.pop_expired(9)
    assert (kept.value, queue.claim.base) == (b"a1", 0)
    queue.ledger.bury_expired(kept)
    assert queue.claim == CommitMap(3)


def test_r11_the_newest_message_read_is_a_clock_too() -> None:
    queue = Queue()
    queue.send("a", "a1", due=10)
    queue.send("b", "b1", at=10)
    queue.ledger.pass_time(3.0)
    assert queue.waiting == ["b1", "a1"]
    assert queue.ledger.times is not None
    assert queue.ledger.times.time.behind == 7000


def test_r11_an_unreadable_time_counts_as_none_and_one_too_far_ahead_as_the_longest() -> None:
    queue = Queue()
    queue.read(Record(0, 0, 0, b"a", b"a1", ((NOT_BEFORE_HEADER, b"soon"),)))
    queue.send("b", "b1", due=99_999)
    assert (queue.waiting, queue.scheduled) == (["a1"], 1)
    queue.ledger.pass_time(3600.0)
    assert queue.waiting == ["a1", "b1"]
    assert queue.ledger.times is not None
    assert queue.ledger.times.malformed == 1


def test_r11_an_alarm_says_before_when_nothing_is_due() -> None:
    queue = Queue()
    times = queue.ledger.times
    assert times is not None
    queue.send("a", "a1", due=10)
    assert times.alarm == 0.0
    queue.ledger.pass_time(1.0)
    assert 9.0 < times.alarm <= 10.0
    queue.ledger.pass_time(9.99)
    assert times.alarm == 10.0
    queue.ledger.pass_time(10.0)
    assert times.alarm == float("inf")


def test_r11_a_value_that_the_selector_leaves_out_is_a_delete_when_it_is_due() -> None:
    queue = Queue(selects=lambda record: record.value != b"no")
    queue.send("a", "a1")
    queue.send("a", "no", due=10)
    assert queue.waiting == ["a1"]
    queue.ledger.pass_time(10.0)
    assert (queue.waiting, queue.claim.base) == ([], 2)


def test_a_revoked_partition_leaves_nothing_scheduled() -> None:
    queue = Queue()
    queue.send("a", "a1", due=10)
    (item,) = queue.ledger.assignment.scheduled(0)
    queue.ledger.revoke([0])
    assert (item.state, queue.scheduled) == (MessageState.LOST, 0)
    assert not queue.ledger.pass_time(10.0)


@pytest.mark.parametrize("key", ["a", None])
def test_r11_memory_does_not_grow_with_what_was_superseded(key: str | None) -> None:
    queue = Queue()
    for number in range(10_000):
        queue.send(key or f"k{number % 50}", "v", due=3000)
        queue.send(key or f"k{number % 50}", "v")
        queue.ledger.ack(queue.take())
    times = queue.ledger.times
    assert times is not None
    assert times.scheduling is not None
    assert queue.scheduled == 0
    assert len(times.scheduling._queue) <= 4096


def test_r11_a_counted_message_goes_to_nobody_once_another_is_due() -> None:
    core: ConsumerCore[str] = ConsumerCore(ConsumerLimits(durable_counts=True), rules(max_delay=60), now=0.0)
    core.assign({0: CommitMap(0)}, {0: 0}, {0: 0}, 0.0, epochs={0: -1}, tag=bytes(8))
    batch = RecordBatch.of([record(0, "a", "a1"), record(1, "a", "a2", due=5)])
    core.read(Fetch(batch, {0: 2}), batch.keys, 0)

    def commit() -> None:
        flight = core.next_commit(0.0)
        assert flight is not None
        core.answered(flight, Answer.STORED)

    commit()
    assert core.hand_out.acquire(1, 0.0) == ([], [])
    commit()
    core.pass_time(5.0)
    assert core.hand_out.acquire(1, 0.0) == ([], [])
    commit()
    ((item,), _) = core.hand_out.acquire(1, 0.0)
    assert item.value == b"a2"


def test_a_full_commit_text_says_that_scheduled_messages_fill_it() -> None:
    core: ConsumerCore[str] = ConsumerCore(ConsumerLimits(), rules(max_delay=60), now=0.0)
    core.assign({0: CommitMap(0)}, {0: 0}, {0: 0}, 0.0, epochs={0: -1}, tag=bytes(8))
    core.ledger.capacity.limit = 64
    records = [record(at << 20, f"k{at}", "v", due=50 if at % 2 == 0 else None) for at in range(40)]
    batch = RecordBatch.of(records)
    core.read(Fetch(batch, {0: (39 << 20) + 1}), batch.keys, 0)
    while (item := core.ledger.acquire()) is not None:
        core.ledger.ack(item)
    core.next_commit(0.0)
    assert core.text_is_full
    assert "20 are scheduled and not due, the lowest is offset 0, scheduled" in core.obstacle
    assert "Scheduled messages stay in the text until they are due: schedule fewer of them" in core.obstacle
    core.pass_time(50.0)
    assert "are scheduled" not in core.obstacle


def test_r10_messages_that_have_expired_when_they_are_due_come_to_the_expiry_topic_by_offset() -> None:
    queue = Queue(ttl=Ttl(default=5), expiry_topic="letters" if True else None)
    queue.send("a", "a1", due=12)
    queue.send("b", "b1", due=11)
    queue.send("c", "c1")
    queue.ledger.pass_time(20.0)
    assert [item.value for item in queue.ledger.pop_expired(9)] == [b"a1", b"b1", b"c1"]
