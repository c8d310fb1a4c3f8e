"""The rules of a consumer, by their outcomes: waiters that are ready, waiters that failed, and how many to wake."""

from __future__ import annotations

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Flight
from lvq_kafka.core.consumer.consumer_core import ConsumerCore, Outcome
from lvq_kafka.core.consumer.consumer_transaction import TransactionPhase, Undecided
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LockLost, StateError, TransportError

NO_LIMITS = ConsumerLimits()
NOTHING: Outcome[str] = Outcome([], [], 0)
WOKEN: Outcome[str] = Outcome([], [], 1)


class Core:
    """A core at second 0, with one partition of three messages; the group has heard of it."""

    def __init__(self, limits: ConsumerLimits = NO_LIMITS, *, heard: bool = True) -> None:
        self.core: ConsumerCore[str] = ConsumerCore(limits, now=0.0)
        self.core.assign({0: CommitMap(0)}, {0: 0}, {0: 0}, 0.0, epochs={0: -1}, tag=bytes(8))
        self.read(0, 3)
        if heard:
            self.core.answered(self.send(), Answer.STORED)
        self.core.pop_outcome()

    def read(self, start: int, end: int) -> None:
        batch = RecordBatch.of([Record(0, offset, 0, b"%d" % offset, b"v") for offset in range(start, end)])
        self.core.read(Fetch(batch, {0: end}), batch.keys, 0)

    def take(self, most: int = 1, now: float = 0.0) -> list[Item]:
        return self.core.hand_out.acquire(most, now)[0]

    def send(self, now: float = 0.0) -> Flight[str]:
        flight = self.core.next_commit(now)
        assert flight is not None
        return flight

    def left_in_transaction(self) -> Item:
        (item,) = self.take()
        self.core.open_transaction()
        self.core.ledger.leave(item)
        self.core.queue_transaction()
        return item

    @property
    def outcome(self) -> Outcome[str]:
        return self.core.pop_outcome()


def test_g11_a_waiter_is_ready_when_the_commit_that_says_so_is_stored() -> None:
    one = Core()
    (item,) = one.take()
    one.core.ledger.ack(item)
    assert one.core.wait_done(item, "asked") is None
    assert one.core.is_urgent(0.0)
    flight = one.send(1.0)
    assert one.outcome == NOTHING
    one.core.answered(flight, Answer.STORED)
    assert one.outcome == Outcome(["asked"], [], 1)
    assert one.core.wait_done(item, "late") is True


def test_a_waiter_has_waited_in_vain_when_the_partition_goes_and_one_that_comes_later_is_told_at_once() -> None:
    one = Core()
    stored, lost = one.take(2)
    one.core.ledger.ack(stored)
    one.core.answered(one.send(), Answer.STORED)
    one.core.ledger.ack(lost)
    assert one.core.wait_done(lost, "failed") is None
    one.core.pop_outcome()
    one.core.forget([0])
    assert one.outcome == Outcome([], ["failed"], 1)
    assert one.core.wait_done(stored, "late") is True
    assert one.core.wait_done(lost, "late") is False
    assert one.outcome == NOTHING


def test_nobody_is_woken_for_what_cannot_be_handed_out_yet() -> None:
    core: ConsumerCore[str] = ConsumerCore(ConsumerLimits(), now=0.0)
    core.assign({0: CommitMap(0)}, {0: 0}, {0: 2}, 0.0, epochs={0: -1}, tag=bytes(8))
    assert core.pop_outcome() == WOKEN
    for offset, outcome in ((0, NOTHING), (1, WOKEN)):
        batch = RecordBatch.of([Record(0, offset, 0, b"k", b"v")])
        core.read(Fetch(batch, {0: offset + 1}), batch.keys, 0)
        assert core.pop_outcome() == outcome


def test_g12_nothing_is_handed_out_before_the_group_was_heard_of_nor_when_that_is_long_ago() -> None:
    one = Core(heard=False)
    assert one.take() == []
    assert one.core.hand_out.is_suspended(0.0)
    flight = one.send(10.0)
    one.core.answered(flight, Answer.TOO_LARGE)
    assert one.outcome == WOKEN, "only members hear that"
    (item,) = one.take(now=10.0 + LEASE)
    assert one.take(now=10.1 + LEASE) == []
    assert not one.core.hand_out.hand_over(item, 10.1 + LEASE)


def test_g12_an_answer_to_an_older_commit_renews_no_lease() -> None:
    one = Core()
    older = one.send(LEASE + 1)
    one.core.answered(older, Answer.UNKNOWN)
    one.core.answered(one.send(LEASE + 2), Answer.UNKNOWN)
    one.core.answered(older, Answer.STORED)
    assert one.take(now=LEASE + 3) == []


def test_g14_a_message_is_handed_out_when_its_count_is_stored_and_somebody_is_woken_for_it() -> None:
    one = Core(ConsumerLimits(durable_counts=True))
    assert one.take() == []
    assert one.core.hand_out.counting == 1
    flight = one.send(0.1)
    assert flight.maps[0].counts == {0: 1}
    one.core.answered(flight, Answer.STORED)
    assert one.outcome == Outcome([], [], 2), "the lease is renewed, and a message is counted"
    (item,) = one.take(now=0.2)
    assert (item.offset, item.state) == (0, MessageState.ACQUIRED)


def test_without_groups_what_is_counted_is_for_any_session_that_comes() -> None:
    one = Core(ConsumerLimits(durable_counts=True))
    first, second = one.core.open_session(), one.core.open_session()
    acquire = one.core.hand_out.acquire
    assert acquire(1, 0.0, first, wanted=lambda: {None: 1}) == ([], [])
    one.core.answered(one.send(), Answer.STORED)
    ((item,), _), ((other,), _) = acquire(1, 0.0, second), acquire(1, 0.0, second)
    assert (item.offset, other.offset) == (0, 1), "the one that somebody waited for, then the one of the caller"


def test_locks_that_expire_wake_somebody() -> None:
    one = Core(ConsumerLimits(lock_timeout=1.0))
    (item,) = one.take()
    one.core.wake(0.9)
    assert one.outcome == NOTHING
    one.core.wake(1.0)
    assert one.outcome == WOKEN
    assert item.state is MessageState.LOST


@pytest.mark.parametrize(("silence", "stood_still"), [(LEASE, 0.0), (LEASE + 1, LEASE + 1)])
def test_a_process_that_gives_no_sign_of_life_for_longer_than_a_lease_stood_still(
    silence: float, stood_still: float
) -> None:
    one = Core()
    assert one.core.turn(silence) == stood_still
    one.core.forget([0])
    assert one.core.turn(10 * silence) == 0.0, "one without partitions misses nothing"


# --- transactions -----------------------------------------------------------------------------------------------------


def test_a_transaction_commits_between_plain_commits() -> None:
    one = Core()
    item = one.left_in_transaction()
    assert one.core.is_quiet
    flight = one.core.prepare_commit([item], 1.0)
    assert flight is not None
    assert flight.maps[0].base == 1
    assert one.core.next_commit(1.0) is None
    one.core.end_transaction([(Ledger.commit, item)], flight, Answer.STORED, 2.0)
    assert one.core.transaction.phase is TransactionPhase.NONE
    assert one.core.durable[0].base == 1
    assert one.outcome == WOKEN
    assert one.take(now=1.0 + LEASE), "the lease runs since its commit was made"
    assert not one.take(now=1.1 + LEASE)


def test_a_transaction_whose_turn_has_come_waits_for_the_plain_commit_which_is_sent_until_it_is_stored() -> None:
    one = Core()
    (other,) = one.take()
    one.core.ledger.ack(other)
    plain = one.send()
    item = one.left_in_transaction()
    assert not one.core.is_quiet
    one.core.answered(plain, Answer.UNKNOWN)
    assert not one.core.is_quiet
    assert one.core.is_urgent(0.0)
    one.core.answered(one.send(), Answer.STORED)
    assert one.core.is_quiet
    assert one.core.next_commit(0.0) is None
    assert one.core.prepare_commit([item], 0.0) is not None


def test_a_message_that_is_no_longer_held_cannot_be_committed() -> None:
    one = Core()
    item = one.left_in_transaction()
    one.core.forget([0])
    with pytest.raises(LockLost):
        one.core.prepare_commit([item], 0.0)
    assert one.core.transaction.phase is TransactionPhase.NEXT
    one.core.end_transaction([(Ledger.give_back, item)], None, Answer.UNKNOWN, 0.0)
    assert one.core.transaction.phase is TransactionPhase.NONE


def test_there_is_one_transaction_at_a_time() -> None:
    one = Core()
    one.core.check_transaction()
    one.core.open_transaction()
    with pytest.raises(StateError, match="already has an open transaction"):
        one.core.check_transaction()
    with pytest.raises(StateError):
        one.core.open_transaction()


@pytest.mark.parametrize("committed", [False, True])
def test_the_group_decides_a_transaction_of_unknown_outcome(committed: bool) -> None:
    one = Core()
    item = one.left_in_transaction()
    flight = one.core.prepare_commit([item], 0.0)
    assert flight is not None
    undecided = Undecided(flight, {item: Ledger.commit}, lambda committed: None)
    one.core.leave_undecided(undecided)
    one.core.check_transaction()  # the next transaction may wait for the outcome
    assert one.core.next_commit(0.0) is None
    assert one.core.decide({}, 1.0) is None
    stored = flight.maps[0] if committed else one.core.durable[0]
    assert one.core.decide({0: stored}, 1.0) == (undecided, committed)
    assert item.state is (MessageState.ACKED if committed else MessageState.RELEASED)
    assert one.core.transaction.pop_undecided() is None
    with pytest.raises(TransportError):
        one.core.transaction.check_decided([0], 1.0)
    one.core.transaction.check_decided([0], 1.1)
