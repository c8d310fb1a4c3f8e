"""The ledger of a queue with a TTL: messages that wait expire, those in work stay with their holders."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.ledger.expiring_items import Expiring
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.ledger.message_times import MessageTimes
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled
from tests.rules import rules
from tests.unit.core.queues import LedgerOfOne

TEN = Ttl(default=10)


class Queue(LedgerOfOne):
    """A queue whose messages expire. Records are appended at second 0, and are read up to the end."""

    def __init__(self, ttl: Ttl = TEN, *, target: int = 0, **options: Any) -> None:
        super().__init__(target=target, ttl=ttl, **options)

    def send(self, *keys: str, ttl: object = None, at: float = 0.0) -> None:
        headers = () if ttl is None else ((TTL_HEADER, str(ttl).encode()),)
        records = [
            Record(0, offset, int(at * 1000), key.encode(), b"%d" % offset, headers)
            for offset, key in enumerate(keys, self.end)
        ]
        self.read(*records)

    @property
    def times(self) -> MessageTimes:
        assert self.ledger.times is not None
        return self.ledger.times

    @property
    def expiring(self) -> Expiring:
        assert self.times.expiring is not None
        return self.times.expiring


def test_r39_a_message_that_has_expired_does_not_return_with_altered_options() -> None:
    queue = Queue()
    queue.send("a")
    queue.send("b", at=11.0)
    queue.ledger.pass_time(1.0)  # by a slow clock
    assert queue.waiting == ["1"]
    queue.ledger.revoke([0])

    queue.ledger.adopt(rules(ttl=TEN, max_delay=5.0), None, count_deliveries=False)
    queue.ledger.assign(0, CommitMap(0), 0)
    queue.end = 0
    queue.send("a")  # b was compacted away
    queue.ledger.pass_time(1.0)

    assert queue.waiting == []


def test_r10_a_message_expires_a_millisecond_after_its_last_moment() -> None:
    queue = Queue()
    queue.send("a", "b")
    assert not queue.ledger.pass_time(10.0)
    assert queue.waiting == ["0", "1"]
    assert queue.ledger.pass_time(10.001)
    assert queue.waiting == []
    assert (queue.ledger.stats.expired, queue.ledger.assignment.outstanding) == (2, 0)
    assert queue.ledger.acquire() is None


def test_r10_an_expired_message_is_done_and_takes_no_room_in_the_claim() -> None:
    queue = Queue(Ttl())
    queue.send("a")
    for key in "bcd":
        queue.send(key, ttl=5)
        queue.send(key.upper())
    queue.ledger.pass_time(1.0)
    assert queue.claim == CommitMap(0)
    queue.ledger.ack(queue.take())
    assert queue.claim.base == 2


def test_r8_a_replaced_message_does_not_come_back_when_its_successor_expires() -> None:
    queue = Queue(Ttl())
    queue.send("a")
    old = queue.take()
    queue.send("a", ttl=5)
    queue.ledger.pass_time(1.0)
    queue.ledger.release(old)
    queue.ledger.pass_time(1.0)
    assert (old.state, queue.waiting, queue.claim.base) == (MessageState.SUPERSEDED, [], 2)


@pytest.mark.parametrize("settle", [Ledger.ack, Ledger.reject, Ledger.extend])
def test_r10_a_holder_keeps_what_expires_in_its_hands(settle: Any) -> None:
    queue = Queue()
    queue.send("a")
    item = queue.take()
    queue.ledger.pass_time(100.0)
    assert (item.state, queue.ledger.in_work, queue.ledger.stats.expired) == (MessageState.ACQUIRED, 1, 0)
    settle(*(queue.ledger, item, 1e9)[: 3 if settle is Ledger.extend else 2])
    assert item.state in (MessageState.ACKED, MessageState.REJECTED, MessageState.ACQUIRED)


@pytest.mark.parametrize("due", [None, 50.0])
def test_r10_a_message_released_after_its_time_is_dropped(due: float | None) -> None:
    queue = Queue()
    queue.send("a")
    item = queue.take()
    queue.ledger.pass_time(11.0)
    queue.ledger.release(item, due)
    queue.ledger.pass_time(11.0)
    assert (item.state, queue.waiting, queue.claim.base, queue.ledger.stats.expired) == (
        MessageState.RELEASED,
        [],
        1,
        1,
    )
    queue.ledger.wake(100.0)
    assert queue.ledger.acquire() is None


def test_r10_a_message_that_waits_for_the_end_of_a_delay_expires_too() -> None:
    queue = Queue()
    queue.send("a")
    queue.ledger.release(queue.take(), 50.0)
    queue.ledger.pass_time(11.0)
    queue.ledger.wake(50.0)
    assert (queue.waiting, queue.ledger.acquire()) == ([], None)


def test_r10_a_message_left_in_a_transaction_stays_and_expires_when_that_aborts() -> None:
    queue = Queue()
    queue.send("a", "b")
    one, other = queue.take(), queue.take()
    queue.ledger.leave(one)
    queue.ledger.leave(other)
    queue.ledger.pass_time(11.0)
    assert (one.state, other.state) == (MessageState.LEAVING, MessageState.LEAVING)
    queue.ledger.commit(one)
    queue.ledger.give_back(other)
    queue.ledger.pass_time(11.0)
    assert (one.state, other.state, queue.claim) == (MessageState.ACKED, MessageState.RELEASED, CommitMap(2))


def test_r10_a_message_that_is_set_aside_is_not_handed_over_after_its_time() -> None:
    queue = Queue()
    queue.send("a")
    item = queue.ledger.reserve()
    assert item is not None
    queue.ledger.pass_time(11.0)
    with pytest.raises(AlreadySettled):
        queue.ledger.hand_over(item)
    assert (queue.ledger.in_work, queue.ledger.stats.expired, queue.claim) == (0, 1, CommitMap(1))


def test_r10_a_superseded_message_that_is_set_aside_expires_too() -> None:
    queue = Queue(Ttl())
    queue.send("a", ttl=5)
    item = queue.ledger.reserve()
    assert item is not None
    queue.send("a")
    queue.ledger.pass_time(1.0)
    assert (item.state, queue.waiting) == (MessageState.SUPERSEDED, ["1"])
    assert queue.take().value == b"1"


def test_r10_a_counted_message_that_expires_before_anyone_comes_is_not_handed_out() -> None:
    core: ConsumerCore[str] = ConsumerCore(ConsumerLimits(durable_counts=True), rules(ttl=TEN), now=0.0)
    core.assign({0: CommitMap(0)}, {0: 0}, {0: 0}, 0.0, epochs={0: -1}, tag=bytes(8))
    batch = RecordBatch.of([Record(0, 0, 0, b"a", b"v")])
    core.read(Fetch(batch, {0: 1}), batch.keys, 0)

    def commit() -> None:
        flight = core.next_commit(0.0)
        assert flight is not None
        core.answered(flight, Answer.STORED)

    commit()
    hand_out = core.hand_out
    assert hand_out.acquire(1, 0.0) == ([], [])
    commit()
    core.pass_time(11.0)
    assert hand_out.acquire(1, 0.0) == ([], [])
    assert (core.ledger.in_work, hand_out.counting, core.ledger.assignment.claim(0).counts) == (0, 0, {})


def test_r10_an_own_ttl_decides_whatever_the_order_in_the_log() -> None:
    queue = Queue(Ttl(default=2))
    queue.send("a")
    queue.send("b", ttl=500)
    queue.send("c", ttl=4000)
    queue.send("d", ttl="forever")
    queue.ledger.pass_time(1.0)
    assert queue.waiting == ["0", "2", "3"]
    queue.ledger.pass_time(3.0)
    assert queue.waiting == ["2"]
    assert (queue.expiring.expiry_times.malformed, queue.expiring.malformed) == (1, (0, 3))


def test_r10_a_newer_value_has_its_own_time() -> None:
    queue = Queue(Ttl())
    for ttl, left in ((5000, ["0"]), (60000, ["1"]), (1000, ["2"]), (None, ["3"])):
        queue.send("a", ttl=ttl)
        assert queue.waiting == left
    queue.ledger.pass_time(1e9)
    assert queue.waiting == ["3"]
    queue.send("a", ttl=1, at=1e9)
    queue.ledger.pass_time(1e9 + 1)
    assert queue.waiting == []


def test_r10_a_message_that_has_expired_when_it_is_read_never_waits() -> None:
    queue = Queue()
    queue.ledger.pass_time(100.0)
    queue.send("a", at=80)
    assert (queue.waiting, queue.claim.base, queue.ledger.stats.expired) == ([], 1, 1)


def test_r10_time_never_goes_back() -> None:
    queue = Queue()
    queue.ledger.pass_time(100.0)
    queue.ledger.pass_time(5.0)
    queue.send("a", at=80)
    assert queue.waiting == []


def test_r10_the_newest_message_read_is_a_clock_too() -> None:
    queue = Queue()
    queue.send("a", at=50)
    queue.send("b", at=70)
    queue.ledger.pass_time(55.0)
    assert queue.waiting == ["1"]
    assert queue.times.time.behind == 15_000


def test_r10_a_message_buffered_while_catching_up_expires_when_it_is_processed() -> None:
    queue = Queue(target=4)
    queue.send("a", "b", "a")
    assert queue.ledger.assignment.available == 2
    queue.ledger.pass_time(11.0)
    queue.send("c", at=5)
    queue.ledger.pass_time(11.0)
    assert (queue.waiting, queue.ledger.assignment.available, queue.claim.base) == (["3"], 1, 3)


def test_r10_an_alarm_says_before_when_nothing_can_expire() -> None:
    queue = Queue()
    queue.send("a")
    queue.ledger.pass_time(1.0)
    assert 9.0 < queue.times.alarm <= 10.0
    queue.ledger.pass_time(11.0)
    assert queue.times.alarm == float("inf")
    queue.send("b", at=11)
    assert queue.times.alarm == 0.0


def test_r10_the_alarm_knows_of_what_catch_up_kept_back_until_its_end() -> None:
    """A caller may look at the clock in between; and the end may be a transaction's marker, which is no record."""
    queue = Queue(target=3)
    queue.send("a")
    queue.ledger.pass_time(1.0)
    assert queue.times.alarm == float("inf")
    queue.ledger.advance({0: 3})
    assert queue.times.alarm == 0.0
    queue.ledger.pass_time(2.0)
    assert 9.0 < queue.times.alarm <= 10.0


@pytest.mark.parametrize("keys", [("a",), ()])
def test_r10_memory_does_not_grow_with_what_was_consumed_or_replaced(keys: tuple[str, ...]) -> None:
    queue = Queue(Ttl(default=3600))
    for number in range(300):
        queue.send(*(keys or (f"k{number}",)) * 100)
        while (item := queue.ledger.acquire()) is not None and number % 2:
            queue.ledger.ack(item)
        if item is not None:
            queue.ledger.release(item)
        queue.ledger.pass_time(1.0)
    assert len(queue.expiring._queue) <= 4096 + 2 * queue.ledger.assignment.outstanding
    queue.ledger.pass_time(4000.0)
    assert queue.ledger.assignment.outstanding == 0
    assert len(queue.expiring._queue) == 0


def test_r10_the_time_changes_nothing_in_a_queue_without_ttl() -> None:
    ledger = Ledger()
    ledger.assign(0, CommitMap(0), 0)
    ledger.offer(0, 0, b"a", b"v", 0, [(TTL_HEADER, b"1")])
    assert not ledger.pass_time(1e9)
    assert ledger.acquire() is not None
