"""A consumer's shared state, driven by hand: the commit of a transaction among plain ones, and trouble."""

from __future__ import annotations

import math
from collections.abc import Iterator
from concurrent.futures import Future, ThreadPoolExecutor, wait
from functools import partial
from typing import Any

import pytest

from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.consuming.wait_queue import Waiter
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Flight
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LVQError, TransportError
from tests.waiting import eventually

NO_LIMITS = ConsumerLimits()


def assign(shared: SharedState, *where: Any, epochs: dict[int, int], tag: bytes) -> None:
    with shared as core:
        core.assign(*where, shared.clock(), epochs=epochs, tag=tag)


def next_commit(shared: SharedState, partitions: list[int] | None = None) -> Flight[Any] | None:
    with shared as core:
        return core.next_commit(shared.clock(), partitions)


def answered(shared: SharedState, flight: Flight[Any], answer: Answer) -> None:
    with shared as core:
        core.answered(flight, answer)


def forget(shared: SharedState, partitions: list[int]) -> None:
    with shared as core:
        core.forget(partitions)


def end_transaction(shared: SharedState, steps: list[Any], flight: Flight[Any] | None, answer: Answer) -> None:
    with shared as core:
        core.end_transaction(steps, flight, answer, shared.clock())


class Hands:
    """SharedState with two partitions of three messages, all of them in work, and a thread for a transaction."""

    def __init__(self, thread: ThreadPoolExecutor) -> None:
        self.shared = SharedState(QueueDefinition(name="q", topic="t", key_header=None), ConsumerLimits())
        both = {0: CommitMap(0), 1: CommitMap(0)}
        nothing = dict.fromkeys(both, 0)
        assign(self.shared, both, nothing, nothing, epochs=nothing, tag=bytes(8))
        records = [Record(p, offset, 0, f"{p}{offset}".encode(), b"v") for p in both for offset in range(3)]
        self.shared.read(Fetch(RecordBatch.of(records), dict.fromkeys(both, 3)))
        flight = next_commit(self.shared)
        assert flight is not None
        answered(self.shared, flight, Answer.STORED)
        self.items = sorted(self.shared.acquire(6)[0], key=lambda item: (item.partition, item.offset))
        self._thread = thread

    def ack(self, item: Item) -> Flight[object]:
        self.shared.apply(Ledger.ack, item)
        flight = next_commit(self.shared)
        assert flight is not None
        return flight

    def begin_commit(self, item: Item) -> Future[Flight[object] | None]:
        self.shared.open_transaction()
        self.shared.apply(Ledger.leave, item)
        return self._thread.submit(self.shared.prepare_commit, [item], 20.0)


class ByHand:
    """SharedState of two partitions, whose clock and time of day stand still but for `sleep`."""

    def __init__(self, bounds: ConsumerLimits = NO_LIMITS, /, *, end: int = 0, **options: Any) -> None:
        self.clock, self.day = 1000.0, 1_000_000.0
        definition = QueueDefinition(name="q", topic="t", key_header=None, **options)
        self.shared = SharedState(definition, bounds, lambda: self.clock, lambda: self.day)
        self._next = {0: 0, 1: 0}
        both = {0: CommitMap(0), 1: CommitMap(0)}
        assign(self.shared, both, {0: 0, 1: 0}, {0: end, 1: 0}, epochs={0: 0, 1: 0}, tag=bytes(8))
        self.renew()

    def renew(self) -> None:
        """Renew the lease."""
        with self.shared as core:
            core.commits.renew(core.partitions)
        flight = next_commit(self.shared)
        assert flight is not None
        answered(self.shared, flight, Answer.STORED)

    def read(self, *messages: str, age: float = 0.0, ttl: float | None = None, partition: int = 0) -> None:
        """Read messages, each of a key of its own, that were appended some seconds ago."""
        at, headers = round((self.day - age) * 1000), [] if ttl is None else [(TTL_HEADER, b"%d" % round(ttl * 1000))]
        begin = self._next[partition]
        records = [
            Record(partition, begin + n, at, key.encode(), key.encode(), tuple(headers))
            for n, key in enumerate(messages)
        ]
        self._next[partition] += len(records)
        self.shared.read(Fetch(RecordBatch.of(records), {partition: self._next[partition]}))
        self.renew()

    def sleep(self, seconds: float) -> None:
        """Let time pass, and renew the lease every half second."""
        while seconds > 0:
            step = min(0.5, seconds)
            self.clock, self.day, seconds = self.clock + step, self.day + step, seconds - step
            self.renew()

    def take(self, most: int = 10, waiter: Waiter | None = None) -> list[Item]:
        return self.shared.acquire(most, waiter)[0]


def values(items: list[Item]) -> list[bytes]:
    return [item.value for item in items]


def test_r10_a_message_whose_lock_and_time_are_over_is_not_handed_out_again() -> None:
    """The caller ends the lock itself, as the I/O thread may be waiting for a broker that does not answer."""
    hands = ByHand(ConsumerLimits(lock_timeout=0.3), ttl=Ttl(default=0.5))
    hands.read("a", "b")
    (item,) = hands.take(1)
    hands.sleep(0.4)
    assert values(hands.take()) == [b"a", b"b"], "only the lock is over"
    hands.sleep(0.4)
    assert hands.take() == []
    stats = hands.shared.stats
    assert (item.state, stats.timed_out, stats.expired, stats.in_work) == (MessageState.LOST, 3, 2, 0)


def ring(bounds: ConsumerLimits = NO_LIMITS, *, end: int = 0, **options: Any) -> ByHand:
    """Return the state of a ring of two messages in each partition."""
    return ByHand(bounds, end=end, ttl=Ttl(), limits=Limits(policy="ring", messages=2), **options)


def test_r12_a_message_that_has_expired_before_it_is_read_costs_no_other_its_place() -> None:
    hands = ring()
    hands.read("lives on")
    hands.sleep(60)  # nothing is due, so nobody looks at the clock
    hands.read("expired", age=30, ttl=1)
    hands.read("new")
    assert values(hands.take()) == [b"lives on", b"new"]
    assert (hands.shared.stats.evicted, hands.shared.stats.expired) == (0, 1)


def test_r12_a_consumer_that_has_waited_long_for_a_partition_judges_its_messages_by_the_time_it_is() -> None:
    hands = ring(end=3)
    hands.sleep(3600)
    hands.read("lives on", age=3000)
    hands.read("expired", age=2400, ttl=1200)
    hands.read("new", age=1)
    assert values(hands.take()) == [b"lives on", b"new"]
    assert (hands.shared.stats.evicted, hands.shared.stats.expired) == (0, 1)


@pytest.mark.parametrize("how", ["acquire", "turn", "release"])
def test_r12_a_message_that_comes_back_costs_another_its_place_only_if_all_are_in_time(how: str) -> None:
    hands = ring(ConsumerLimits(lock_timeout=0.5))
    hands.read("a", "b")
    held = hands.take()
    hands.read("brief", ttl=0.2)
    hands.sleep(0.3 if how == "release" else 0.6)
    if how == "turn":
        hands.shared.turn()
    elif how == "release":
        hands.shared.apply_many(Ledger.release, held)
    assert values(hands.take()) == [b"a", b"b"]
    assert (hands.shared.stats.evicted, hands.shared.stats.expired) == (0, 1)


def test_r12_a_message_that_expires_in_work_takes_no_room_in_a_ring() -> None:
    hands = ring()
    hands.read("expires", ttl=1)
    hands.take()
    hands.sleep(3)
    hands.read("a", "b")
    assert values(hands.take()) == [b"a", b"b"]
    assert hands.shared.stats.evicted == 0


def test_r12_a_message_that_is_returned_after_its_time_has_expired_and_is_not_evicted() -> None:
    hands = ring(expiry_topic="late")
    hands.read("expires", ttl=1)
    hands.read("b")
    expires, _ = hands.take()
    hands.read("c")
    hands.sleep(3)
    hands.shared.apply(Ledger.release, expires)
    assert (hands.shared.stats.evicted, hands.shared.stats.expired) == (0, 1)
    with hands.shared as core:
        assert values(core.pop_expired(9, hands.clock)) == [b"expires"]


def test_a_message_set_aside_in_a_partition_that_goes_leaves_its_room_to_a_caller_that_waits() -> None:
    hands, woken = ByHand(ConsumerLimits(max_in_work=2)), list[Waiter]()
    hands.read("a", "b")
    hands.read("c", partition=1)
    first, _ = hands.shared.acquire(2, ahead=True)[0]
    assert hands.shared.hand_over(first)
    waiter = Waiter(1, lambda: woken.append(waiter))
    assert hands.take(1, waiter) == []
    with hands.shared as core:
        core.withhold([0])
    assert woken == [waiter]
    assert values(hands.take(1, waiter)) == [b"c"]


def test_nobody_is_woken_while_reading_has_not_come_to_what_may_be_handed_out() -> None:
    shared, woken = SharedState(QueueDefinition(name="q", topic="t", key_header=None), ConsumerLimits()), []
    assign(shared, {0: CommitMap(0)}, {0: 0}, {0: 2}, epochs={0: 0}, tag=bytes(8))
    waiter = Waiter(1, lambda: woken.append(waiter))
    assert shared.acquire(1, waiter) == ([], [])
    for offset in range(2):
        assert not woken
        shared.read(Fetch(RecordBatch.of([Record(0, offset, 0, b"k", b"v")]), {0: offset + 1}))
    assert woken == [waiter]


def test_a_turn_waits_for_no_holder_while_no_time_runs_for_any_message() -> None:
    """Otherwise the I/O thread and a busy holder would keep handing the interpreter to each other."""
    now = 100.0
    shared = SharedState(
        QueueDefinition(name="q", topic="t", key_header=None), ConsumerLimits(lock_timeout=1.0), lambda: now
    )
    assign(shared, {0: CommitMap(0)}, {0: 0}, {0: 0}, epochs={0: 0}, tag=bytes(8))
    shared.read(Fetch(RecordBatch.of([Record(0, 0, 0, b"k", b"v")]), {0: 1}))
    flight = next_commit(shared)
    assert flight is not None
    answered(shared, flight, Answer.STORED)
    with ThreadPoolExecutor(1) as thread:
        with shared._lock:
            assert thread.submit(shared.turn).result(20) is False
        (item,), _ = shared.acquire(1)
        now += 2.0
        with shared._lock:
            turn = thread.submit(shared.turn)
            assert not wait([turn], 0.05).done
            assert item.state is MessageState.ACQUIRED
        turn.result(20)
    assert item.state is MessageState.LOST


@pytest.fixture
def hands() -> Iterator[Hands]:
    with ThreadPoolExecutor(1) as thread:
        hands = Hands(thread)
        yield hands
        hands.shared.fail(LVQError("the test is over"))


def test_g11_a_transaction_waits_for_a_commit_that_a_revocation_has_overtaken(hands: Hands) -> None:
    """The client may send it again, which would undo the transaction's commit."""
    on_its_way = hands.ack(hands.items[0])
    begun = hands.begin_commit(hands.items[1])
    eventually(lambda: hands.shared.core.is_urgent(hands.shared.clock()))
    hands.shared.core.ledger.withhold([1])
    last = next_commit(hands.shared, [1])
    if last is not None:
        answered(hands.shared, last, Answer.STORED)
    forget(hands.shared, [1])
    assert not wait([begun], 0.1).done
    answered(hands.shared, on_its_way, Answer.STORED)
    flight = begun.result(20)
    assert flight is not None
    assert flight.maps.keys() == {0}


def test_g11_a_transaction_waits_until_what_was_refused_in_its_partition_is_stored(hands: Hands) -> None:
    on_its_way = hands.ack(hands.items[0])
    begun = hands.begin_commit(hands.items[1])
    eventually(lambda: hands.shared.core.is_urgent(hands.shared.clock()))
    answered(hands.shared, on_its_way, Answer.UNKNOWN)
    assert not wait([begun], 0.1).done
    again = next_commit(hands.shared)
    assert again is not None
    answered(hands.shared, again, Answer.STORED)
    assert begun.result(20) is not None


@pytest.mark.parametrize("partitions", [None, [1]])
def test_g11_no_plain_commit_leaves_while_a_transaction_commits(hands: Hands, partitions: list[int] | None) -> None:
    """Not for partitions that go either: it would be visible at once, and later override the transaction's."""
    flight = hands.begin_commit(hands.items[0]).result(20)
    hands.shared.apply(Ledger.ack, hands.items[3])
    assert next_commit(hands.shared, partitions) is None
    end_transaction(hands.shared, [(Ledger.commit, hands.items[0])], flight, Answer.STORED)
    assert next_commit(hands.shared, partitions) is not None


def test_g11_a_partition_that_comes_back_while_a_transaction_commits_for_it_waits_until_that_is_decided(
    hands: Hands,
) -> None:
    """In the new protocol it may return with the same epoch; then the group accepts the commit, although it is late."""
    shared, item = hands.shared, hands.items[0]
    flight = hands.begin_commit(item).result(20)
    forget(shared, [0])
    looked_at = shared.clock()
    shared.clock = lambda: looked_at
    with pytest.raises(TransportError) as caught:
        shared.core.transaction.check_decided([0, 1], looked_at)
    assert caught.value.retriable
    shared.core.transaction.check_decided([1], looked_at)
    end_transaction(shared, [(Ledger.commit, item)], flight, Answer.STORED)
    with pytest.raises(TransportError):
        shared.core.transaction.check_decided([0], looked_at)
    shared.core.transaction.check_decided([0], math.nextafter(looked_at, math.inf))


def test_g12_a_late_answer_proves_no_more_than_that_the_group_counted_on_us_when_its_commit_was_made(
    hands: Hands,
) -> None:
    """A transaction that has nothing to commit sends nothing, so it proves nothing."""
    shared = hands.shared
    now = shared.clock()
    shared.clock = lambda: now
    known = hands.ack(hands.items[0])
    answered(shared, known, Answer.STORED)
    shared.apply(Ledger.ack, hands.items[3])
    late = next_commit(shared, [1])
    assert late is not None
    made = now
    answered(shared, late, Answer.UNKNOWN)
    shared.core.ledger.withhold([1])
    forget(shared, [1])
    now += LEASE - 1
    shared.open_transaction()
    assert shared.prepare_commit([], 0.0) is None
    end_transaction(shared, [], None, Answer.STORED)
    answered(shared, late, Answer.STORED)
    assert shared.core.lease.counted_on == made


def test_g11_a_transaction_waits_no_longer_for_a_commit_whose_text_was_too_large(hands: Hands) -> None:
    """The broker will not store it later. If the text cannot be shortened yet, no other would ever be stored."""
    on_its_way = hands.ack(hands.items[1])
    begun = hands.begin_commit(hands.items[0])
    eventually(lambda: hands.shared.core.is_urgent(hands.shared.clock()))
    assert not wait([begun], 0.1).done
    answered(hands.shared, on_its_way, Answer.TOO_LARGE)
    flight = begun.result(20)
    assert flight is not None
    assert flight.maps[0].base == 2


@pytest.mark.parametrize("answer", [Answer.UNKNOWN, Answer.TOO_LARGE, Answer.STORED])
def test_g12_a_group_that_finds_a_text_too_large_counts_on_who_has_sent_it(hands: Hands, answer: Answer) -> None:
    """It rejects non-members whatever they send. If the text cannot be shortened, this answer must do."""
    shared = hands.shared
    now = shared.clock() + LEASE + 1
    shared.clock = lambda: now
    shared.apply(Ledger.release, hands.items[0])
    assert shared.core.hand_out.is_suspended(shared.clock())
    flight = next_commit(shared)
    assert flight is not None
    answered(shared, flight, answer)
    assert shared.core.hand_out.is_suspended(shared.clock()) is (answer is Answer.UNKNOWN)


def test_a_waiting_caller_is_woken_when_many_messages_are_settled(hands: Hands) -> None:
    shared, woken = hands.shared, []
    waiter = Waiter(1, lambda: woken.append(waiter))
    assert shared.acquire(1, waiter) == ([], [])
    shared.apply_many(Ledger.release, hands.items)
    assert woken == [waiter]


def test_a_commit_may_become_urgent_while_somebody_holds_a_message_or_can_take_one(hands: Hands) -> None:
    """The I/O thread makes short polls then, because callers that take, settle or close wait for the end of a poll."""
    shared = hands.shared
    for item in hands.items[1:]:
        shared.apply(Ledger.ack, item)
    assert shared.core.is_busy
    shared.apply(Ledger.release, hands.items[0])
    assert shared.core.is_busy
    shared.core.pause(True)
    assert not shared.core.is_busy
    shared.core.pause(False)
    ((again,), _) = shared.acquire(1)
    shared.core.pause(True)
    assert shared.core.is_busy
    shared.apply(Ledger.ack, again)
    shared.core.pause(False)
    assert not shared.core.is_busy


REFUSED = TransportError("no", code="REBALANCE_IN_PROGRESS", retriable=True)


def test_arriving_messages_do_not_prove_that_commits_are_stored(hands: Hands) -> None:
    flight = hands.ack(hands.items[0])
    hands.shared.report("committing", REFUSED)
    hands.shared.read(Fetch(RecordBatch.of([Record(0, 3, 0, b"new", b"v")]), {0: 4}))
    hands.shared.core.obstacles.clear("reading")
    assert hands.shared.stats.trouble == "no"
    answered(hands.shared, flight, Answer.STORED)
    assert hands.shared.stats.trouble == ""
    assert not hands.shared.core.obstacles.in_trouble


def test_commits_that_were_refused_are_no_trouble_any_more_when_their_partition_is_gone(hands: Hands) -> None:
    hands.ack(hands.items[0])
    hands.shared.report("committing", REFUSED)
    forget(hands.shared, [0])
    assert hands.shared.stats.trouble == ""


def test_an_outage_is_over_when_messages_come_or_the_cluster_answers(hands: Hands) -> None:
    hands.shared.report("reading", REFUSED)
    hands.shared.read(Fetch(RecordBatch.of([Record(0, 3, 0, b"new", b"v")]), {0: 4}))
    assert hands.shared.stats.trouble == ""
    hands.shared.report("reading", REFUSED)
    hands.shared.core.obstacles.clear("reading")
    assert hands.shared.stats.trouble == ""


def test_locks_and_delays_end_for_a_caller_that_acquires_while_the_io_thread_waits_for_a_broker() -> None:
    now = 100.0
    shared = SharedState(
        QueueDefinition(name="q", topic="t", key_header=None), ConsumerLimits(lock_timeout=1.0), lambda: now
    )
    assign(shared, {0: CommitMap(0)}, {0: 0}, {0: 2}, epochs={0: 0}, tag=bytes(8))
    shared.read(Fetch(RecordBatch.of([Record(0, at, 0, b"%d" % at, b"v") for at in range(2)]), {0: 2}))
    flight = next_commit(shared)
    assert flight is not None
    answered(shared, flight, Answer.STORED)
    forgotten, delayed = shared.acquire(2)[0]
    shared.apply(partial(Ledger.release, due=now + 0.5), delayed)
    assert shared.acquire(1) == ([], [])
    now += 0.6
    assert [item.offset for item in shared.acquire(1)[0]] == [delayed.offset]
    now += 0.6
    assert [item.offset for item in shared.acquire(1)[0]] == [forgotten.offset]
    assert forgotten.state is MessageState.LOST
