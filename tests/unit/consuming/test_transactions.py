"""Consuming and producing in one transaction."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from random import Random
from threading import Event, current_thread
from typing import Any

import pytest

from lvq_kafka.cluster import Commit
from lvq_kafka.codecs import JSON
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import (
    AlreadySettled,
    BrokerUnavailable,
    Closed,
    DeliveryFailed,
    LockLost,
    OutcomeUnknown,
    StateError,
    TransportError,
)
from lvq_kafka.producing.producer import Producer
from tests.unit.consuming.world import (
    GROUP,
    TOPIC,
    Clock,
    World,
    consuming,
    drain,
    has_read_all,
    in_thread,
    make_world,
    nothing_comes,
    settled_up,
    take,
)
from tests.waiting import eventually


class Trouble(Exception):
    """An error inside a block."""


def outputs(world: World) -> list[str]:
    """Return the visible output."""
    return world.texts("out")


def copy(producer: Producer[Any], deliveries: list[Delivery[Any]]) -> None:
    for delivery in deliveries:
        producer.put(delivery.key, f"{delivery.value}!")
        delivery.ack()


def in_transaction(consumer: Consumer[Any], producer: Producer[Any], count: int = 1, **options: Any) -> None:
    with consumer.transaction(producer, **options) as tx:
        copy(producer, tx.acquire_many(count, 10))


@contextmanager
def failing(
    consumer: Consumer[Any],
    producer: Producer[Any],
    error: type[BaseException],
    match: str | None = None,
    **options: Any,
) -> Iterator[tuple[Transaction[Any], pytest.ExceptionInfo[Any]]]:
    """Run a transaction whose block or end must raise this error."""
    with pytest.raises(error, match=match) as caught, consumer.transaction(producer, **options) as tx:
        yield tx, caught


@contextmanager
def aborting(consumer: Consumer[Any], producer: Producer[Any]) -> Iterator[Transaction[Any]]:
    """Run a transaction that is aborted at the end of the block."""
    with failing(consumer, producer, Trouble) as (tx, _):
        yield tx
        raise Trouble


# ---------------------------------------------------------------- commit and abort


def test_outputs_and_acks_become_visible_together(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            copy(producer, tx.acquire_many(2, 10))
            assert outputs(world) == []
            assert world._state.groups[GROUP].committed(TOPIC)[0].offset == 0
        assert (outputs(world), world.committed_offsets()) == (["a!", "b!"], {0: 2})
        assert nothing_comes(consumer)
    with consuming(world) as consumer:
        assert nothing_comes(consumer)


def test_an_exception_aborts_and_the_messages_come_again(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        with aborting(consumer, producer) as tx:
            copy(producer, tx.acquire_many(2, 10))
        assert (outputs(world), world.committed_offsets()) == ([], {0: 0})
        again = consumer.acquire_many(2, 10)
        assert [(one.value, one.redelivered, one.delivery_count) for one in again] == [("a", True, 2), ("b", True, 2)]


def test_one_transaction_after_the_other(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(30)))
    with consuming(world) as consumer, world.producer() as producer:
        has_read_all(world, consumer)
        for number in range(10):
            with consumer.transaction(producer) as tx:
                copy(producer, tx.acquire_many(3, 10))
            assert world.committed_offsets() == {0: 3 * number + 3}
        assert outputs(world) == [f"{number}!" for number in range(30)]
        assert (consumer.stats.acked, consumer.stats.in_work) == (30, 0)


def test_a_transaction_without_acks_or_without_outputs_is_one_all_the_same(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with consumer.transaction(producer):
            producer.put("x", "x")
        with consumer.transaction(producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            delivery.ack()
        with consumer.transaction(producer):
            pass
        assert (outputs(world), world.committed_offsets()) == (["x"], {0: 1})


def test_acks_above_one_that_is_held_commit_too(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer, world.producer() as producer:
        held = take(consumer)
        with consumer.transaction(producer) as tx:
            copy(producer, tx.acquire_many(2, 10))
        assert (world.committed_map().base, world.committed_map().runs) == (0, (1, 2))
        held.ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 3}


def test_messages_released_or_left_unsettled_in_a_transaction_come_again(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            first, second, third = tx.acquire_many(3, 10)
            first.release()
            copy(producer, [second])
        assert third.settled
        assert outputs(world) == ["b!"]
        assert drain(consumer, 2) == ["a", "c"]


def test_a_message_acquired_before_can_be_enlisted(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        for delivery in consumer:
            with consumer.transaction(producer) as tx:
                copy(producer, [tx.enlist(delivery)])
            if delivery.value == "b":
                break
        assert (outputs(world), world.committed_offsets()) == (["a!", "b!"], {0: 2})


def test_a_message_of_another_consumer_cannot_be_enlisted() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world) as one, consuming(world) as two, world.producer() as producer:
        eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 1)
        delivery = take(two)
        with one.transaction(producer) as tx, pytest.raises(StateError, match="another consumer"):
            tx.enlist(delivery)
        delivery.ack()


def test_a_block_around_a_delivery_acks_into_the_transaction(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with aborting(consumer, producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            with delivery:
                producer.put("a", "a!")
            assert delivery.state is MessageState.LEAVING
        with consumer.transaction(producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            with delivery:
                producer.put("a", "a!")
        assert (outputs(world), world.committed_offsets()) == (["a!"], {0: 1})


# ---------------------------------------------------------------- newer values


def test_r6_a_message_replaced_meanwhile_does_not_come_back_after_an_abort(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer, world.producer() as producer:
        with aborting(consumer, producer) as tx:
            copy(producer, tx.acquire_many(2, 10))
            world.send(("a", "a2"), ("b", None))
            has_read_all(world, consumer)
            assert nothing_comes(consumer), "the newer value waits for the older one"
        assert drain(consumer, 1) == ["a2"]


def test_a_message_replaced_meanwhile_commits_and_the_newer_value_comes_next(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            copy(producer, tx.acquire_many(1, 10))
            world.send(("a", "a2"))
            has_read_all(world, consumer)
        assert (outputs(world), drain(consumer, 1)) == (["a1!"], ["a2"])


# ---------------------------------------------------------------- waiting and plain acks


def test_an_ack_in_a_transaction_cannot_be_waited_for_inside(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer, consumer.transaction(producer) as tx:
        (delivery,) = tx.acquire_many(1, 10)
        with pytest.raises(StateError, match="durable when the transaction has committed"):
            delivery.ack(wait=True)
        assert delivery.state is MessageState.ACQUIRED


def test_the_settlement_of_an_ack_resolves_when_the_transaction_commits(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            settlement = delivery.ack()
            assert not settlement.done()
        settlement.result(0)


def test_plain_acks_are_committed_beside_an_open_transaction(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            first, second = tx.acquire_many(2, 10)
            first.ack()
            take(consumer).ack(wait=True, timeout=10)
            assert world.committed_map().runs == (2, 1), "what was acked in the transaction is pending"
            second.ack()
        assert world.committed_offsets() == {0: 3}


def commit_slowly(world: World, producer: Producer[Any], meanwhile: Callable[[], object]) -> None:
    """Run ``meanwhile`` when the offsets are part of a transaction and before it commits."""
    commit = producer.writer.commit_transaction

    def commit_transaction(timeout: float | None = None) -> None:
        meanwhile()
        commit(timeout)

    producer.writer.commit_transaction = commit_transaction  # type: ignore[method-assign]


def test_no_plain_commit_is_sent_while_that_of_a_transaction_is_on_its_way(world: World) -> None:
    """It would override the transaction's commit, and those messages would come again after a restart."""
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=0.0) as consumer, world.producer() as producer:
        outside = take(consumer)

        def meanwhile() -> None:
            sent = consumer.stats.commits
            with pytest.raises(OutcomeUnknown):
                outside.ack().result(0.1)
            assert consumer.stats.commits == sent

        commit_slowly(world, producer, meanwhile)
        with consumer.transaction(producer) as tx:
            copy(producer, tx.acquire_many(1, 10))
        settled_up(world, consumer)
    assert outputs(world) == ["b!"]


def test_a_transaction_waits_for_the_plain_commit_before_it(world: World) -> None:
    """A plain commit on its way could arrive after the transaction's, and undo it."""
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        first = take(consumer)
        (member,) = world.members
        commit_async, late = member.commit_async, []

        def on_its_way(commits: Any, answered: Any) -> None:
            late.append(lambda: commit_async(commits, answered))

        member.commit_async = on_its_way  # type: ignore[method-assign]
        plain = first.ack().future()
        eventually(lambda: late)

        def work() -> None:
            with consumer.transaction(producer) as tx:
                copy(producer, tx.acquire_many(1, 10))

        with in_thread(work) as outcome:
            eventually(lambda: consumer._shared.core.transaction.phase.name == "NEXT")
            assert world._state.groups[GROUP].undecided(TOPIC) == set()
            member.commit_async = commit_async  # type: ignore[method-assign]
            late[0]()
        assert outcome == [None]
        plain.result(10)
        assert world.committed_offsets() == {0: 2}


def settled(world: World, consumer: Consumer[Any]) -> None:
    """Wait until the commits that follow an assignment are answered."""
    has_read_all(world, consumer)
    core = consumer._shared.core
    eventually(lambda: not core._unanswered and not any(part.due for part in core.commits._partitions.values()))


def test_a_transaction_sends_a_plain_commit_again_whose_answer_was_lost(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._ANSWER", 0.05)
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        settled(world, consumer)
        sent = consumer.stats.commits
        world.lose_answers("commit", 2)
        take(consumer).ack()
        eventually(lambda: consumer.stats.commits > sent)
        with consumer.transaction(producer) as tx:
            copy(producer, tx.acquire_many(1, 10))
        assert world.committed_offsets() == {0: 2}
        assert consumer.stats.commits > sent + 1


def test_a_transaction_that_cannot_learn_of_the_commit_before_it_is_aborted(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._ANSWER", 0.02)
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        settled(world, consumer)
        world.lose_answers("commit", 1000)
        sent = consumer.stats.commits
        take(consumer).ack().done()
        eventually(lambda: consumer.stats.commits > sent)
        with pytest.raises(TransportError, match="not answered in time") as caught:
            in_transaction(consumer, producer, timeout=0.2)
        assert caught.value.retriable
        assert outputs(world) == []
        world._state._lost_answers.clear()
        in_transaction(consumer, producer)
        assert (outputs(world), world.committed_offsets()) == (["b!"], {0: 2})


# ---------------------------------------------------------------- one at a time


def test_a_consumer_has_one_transaction_at_a_time(world: World) -> None:
    with consuming(world) as consumer, world.producer() as one, world.producer(transactional_id="t2") as two:
        with (
            consumer.transaction(one),
            pytest.raises(StateError, match="This consumer already has an open transaction"),
            consumer.transaction(two),
        ):
            pass
        with consumer.transaction(two):
            pass


def test_a_producer_that_has_a_transaction_open_is_refused_and_the_consumer_is_free_again(world: World) -> None:
    with consuming(world) as consumer, world.producer() as producer:
        with producer.transaction(), pytest.raises(StateError, match="already open"), consumer.transaction(producer):
            pass
        with consumer.transaction(producer):
            pass


def test_a_producer_without_a_transactional_id_is_refused(world: World) -> None:
    with (
        consuming(world) as consumer,
        world.producer(transactional_id=None) as producer,
        pytest.raises(StateError, match="no transactional id"),
        consumer.transaction(producer),
    ):
        pass


def test_a_call_on_a_transaction_that_is_not_open_is_refused_with_a_reason(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        tx = consumer.transaction(producer)
        with pytest.raises(StateError, match="not open"):
            tx.acquire(0)
        with tx:
            (delivery,) = tx.acquire_many(1, 10)
        with pytest.raises((StateError, AlreadySettled)):
            delivery.ack()
        assert drain(consumer, 1) == ["a"]
        with pytest.raises(StateError, match="not open"):
            tx.enlist(delivery)


def test_a_transaction_on_a_closed_consumer_is_refused(world: World) -> None:
    with consuming(world) as consumer, world.producer() as producer:
        consumer.close()
        with pytest.raises(Closed), consumer.transaction(producer):
            pass


# ---------------------------------------------------------------- losses


def test_a_lock_that_was_lost_aborts_the_transaction(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        with failing(consumer, producer, LockLost, "no longer held") as (tx, _):
            deliveries = tx.acquire_many(2, 10)
            copy(producer, deliveries)
            world.expel(world.members[0])
            eventually(lambda: all(delivery.state is MessageState.LOST for delivery in deliveries))
        assert (outputs(world), drain(consumer, 2)) == ([], ["a", "b"])


def test_a_lock_that_timed_out_before_the_ack_raises_there(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=0.02) as consumer, world.producer() as producer:
        with failing(consumer, producer, LockLost) as (tx, _):
            (delivery,) = tx.acquire_many(1, 10)
            eventually(lambda: delivery.state is MessageState.LOST)
            delivery.ack()
        assert take(consumer).redelivered


def test_an_ack_in_a_transaction_is_not_bound_to_the_lock_timeout_any_more(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, lock_timeout=1.0) as consumer, world.producer() as producer:
        clock = Clock(consumer)
        with consumer.transaction(producer) as tx:
            copy(producer, tx.acquire_many(1, 10))
            clock.go_on(2.0)
            assert nothing_comes(consumer)
        assert (outputs(world), consumer.stats.timed_out) == (["a!"], 0)


def test_a_member_that_was_put_out_without_knowing_is_refused_and_aborts(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with failing(consumer, producer, LockLost, "aborted") as (tx, caught):
            copy(producer, tx.acquire_many(1, 10))
            world.fail_next("send_offsets", TransportError("who are you?", code="UNKNOWN_MEMBER_ID"))
        assert isinstance(caught.value.__cause__, TransportError)
        assert (outputs(world), drain(consumer, 1)) == ([], ["a"])


def test_a_partition_that_is_revoked_waits_for_the_transaction_within_the_grace() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, revoke_grace=30.0) as one, world.producer() as producer:
        with one.transaction(producer) as tx:
            copy(producer, [take_in(tx), take_in(tx)])
            newcomer = consuming(world)
            two = newcomer.__enter__()
            eventually(lambda: any(not part.open for part in one._shared.core.ledger._partitions.values()))
            assert len(two.stats.partitions) == 0
        eventually(lambda: len(two.stats.partitions) == 1)
        assert sorted(outputs(world)) == ["a!", "b!"]
        assert (nothing_comes(one), nothing_comes(two)) == (True, True)
        newcomer.__exit__(None, None, None)
    assert world.committed_offsets() == {0: 1, 1: 1}


def take_in(tx: Any) -> Delivery[Any]:
    delivery = tx.acquire(10)
    assert delivery is not None
    return delivery  # type: ignore[no-any-return]


def test_a_revocation_between_offsets_and_commit_keeps_the_atomicity(world: World) -> None:
    """The group continues only when the transaction is decided, so nothing comes twice."""
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:

        def meanwhile() -> None:
            world.expel(world.members[0])
            eventually(lambda: 0 not in consumer._shared.core.partitions)

        commit_slowly(world, producer, meanwhile)
        in_transaction(consumer, producer)
        assert outputs(world) == ["a!"]
        assert drain(consumer, 1) == ["b"]
    assert world.committed_offsets() == {0: 2}


def test_close_in_the_middle_aborts(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with failing(consumer, producer, Closed) as (tx, _):
            copy(producer, tx.acquire_many(1, 10))
            consumer.close()
        assert outputs(world) == []
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a"]


# ---------------------------------------------------------------- failures of the producer


def test_a_producer_that_was_fenced_off_aborts(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with failing(consumer, producer, TransportError) as (tx, caught):
            copy(producer, tx.acquire_many(1, 10))
            successor = world.producer()
        assert caught.value.code == "_FENCED"
        assert outputs(world) == []
        in_transaction(consumer, successor)
        successor.close()
        assert (outputs(world), world.committed_offsets()) == (["a!"], {0: 1})


def test_an_output_that_is_not_stored_aborts(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with failing(consumer, producer, DeliveryFailed, "no room") as (tx, _):
            world.fail_next("append", DeliveryFailed("no room", key=b"a", code="INVALID_RECORD"))
            copy(producer, tx.acquire_many(1, 10))
        assert outputs(world) == []
        in_transaction(consumer, producer)
        assert (outputs(world), world.committed_offsets()) == (["a!"], {0: 1})


def test_outputs_that_are_not_decided_in_time_abort(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with failing(consumer, producer, BrokerUnavailable, timeout=0.05) as (tx, caught):
            deliveries = tx.acquire_many(1, 10)
            world.disconnect()
            copy(producer, deliveries)
        assert caught.value.code == "_TIMED_OUT"
        assert "could not be aborted" in "".join(caught.value.__notes__)
        world.reconnect()
        assert drain(consumer, 1) == ["a"]
        producer.writer.abort_transaction()
        assert outputs(world) == []


def test_a_commit_that_fails_and_can_be_aborted_is_aborted(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        world.fail_next("commit_transaction", TransportError("bad state", code="INVALID_TXN_STATE"))
        with pytest.raises(TransportError, match="bad state"):
            in_transaction(consumer, producer)
        assert outputs(world) == []
        in_transaction(consumer, producer)
        assert (outputs(world), world.committed_offsets()) == (["a!"], {0: 1})


# ---------------------------------------------------------------- unknown outcomes


def test_an_outcome_that_nobody_knew_is_told_by_the_group_and_the_consumer_goes_on(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        world.lose_answers("commit_transaction")
        with failing(consumer, producer, OutcomeUnknown, match="not known") as (tx, caught):
            (delivery,) = tx.acquire_many(1, 10)
            producer.put(delivery.key, "a!")
            settlement = delivery.ack()
        assert isinstance(caught.value.__cause__, BrokerUnavailable)
        settlement.result(10)
        in_transaction(consumer, producer)
        assert (outputs(world), world.committed_offsets()) == (["a!", "b!"], {0: 2})
        assert not consumer.stats.trouble


def fail_to_commit(world: World) -> None:
    """Leave the next transaction's commit without an answer, and impossible to abort: its outcome is unknown."""
    world.fail_next("commit_transaction", BrokerUnavailable("no answer", code="_TIMED_OUT", retriable=True))


def test_a_commit_that_was_on_its_way_is_seen_through_before_the_next_transaction(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer, world.producer() as producer:
        fail_to_commit(world)
        with pytest.raises(OutcomeUnknown):
            in_transaction(consumer, producer)
        assert outputs(world) == []
        in_transaction(consumer, producer)
        assert (outputs(world), world.committed_offsets()) == (["a!", "b!"], {0: 2})
        assert nothing_comes(consumer)


def test_a_transaction_that_was_aborted_after_all_brings_its_messages_again(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        fail_to_commit(world)
        with failing(consumer, producer, OutcomeUnknown) as (tx, _):
            (delivery,) = tx.acquire_many(1, 10)
            settlement = delivery.ack()
        assert "is not known whether the transaction" in consumer.stats.trouble
        with world.producer() as successor:  # ends what its predecessor left open
            with pytest.raises(LockLost, match="was aborted"):
                settlement.result(10)
            in_transaction(consumer, successor)
        assert (outputs(world), world.committed_offsets()) == (["a!"], {0: 1})


def test_while_the_outcome_is_not_known_the_next_transaction_waits_and_says_so(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer, world.producer("other", "other") as other:
        fail_to_commit(world)
        with pytest.raises(OutcomeUnknown):
            in_transaction(consumer, producer)
        with pytest.raises(OutcomeUnknown, match="the previous transaction"):
            in_transaction(consumer, other, timeout=0.1)
        producer.writer.commit_transaction()
        with consumer.transaction(other):
            pass


def test_a_settlement_of_a_transaction_says_so_where_the_consumer_ends_before_the_outcome_is_known(
    world: World,
) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        fail_to_commit(world)
        with pytest.raises(OutcomeUnknown), consumer.transaction(producer) as tx:
            settlement = tx.acquire_many(1, 10)[0].ack()
        consumer.close()
        with pytest.raises(OutcomeUnknown, match="is not known whether the transaction"):
            settlement.result(10)


def test_while_an_outcome_is_not_known_nothing_is_committed_that_could_undo_it(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, commit_interval=0.0) as consumer, world.producer() as producer:
        outside = take(consumer)
        has_read_all(world, consumer)
        eventually(lambda: world.committed_map().delivered == 1)
        fail_to_commit(world)
        with pytest.raises(OutcomeUnknown):
            in_transaction(consumer, producer)
        sent = consumer.stats.commits
        settlement = outside.ack()
        consumer.close()
        assert consumer.stats.commits == sent
        with pytest.raises(LockLost):
            settlement.result(0)
        producer.writer.commit_transaction()  # it was on its way
        assert outputs(world) == ["b!"]
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["a", "c"]


def test_a_worker_goes_on_by_itself_after_an_outage_in_any_step(world: World) -> None:
    world.send(*((f"k{number}", f"k{number}") for number in range(5)))
    with consuming(world) as consumer, world.producer() as producer:
        for step in ("append", "send_offsets", "commit_transaction", "abort_transaction"):
            with (
                suppress(BrokerUnavailable, OutcomeUnknown, Trouble),
                consumer.transaction(producer, timeout=0.2) as tx,
            ):
                (delivery,) = tx.acquire_many(1, 10)
                call = getattr(producer.writer, step)

                def after_the_outage_began(*arguments: Any, call: Callable[..., Any] = call, **options: Any) -> Any:
                    world.disconnect()
                    return call(*arguments, **options)

                setattr(producer.writer, step, after_the_outage_began)
                producer._append = producer.writer.append
                producer.put(delivery.key, f"{delivery.value}!")
                delivery.ack()
                if step == "abort_transaction":
                    raise Trouble
            setattr(producer.writer, step, call)
            producer._append = producer.writer.append
            with pytest.raises((BrokerUnavailable, OutcomeUnknown)):
                in_transaction(consumer, producer, timeout=0.05)
            assert consumer.stats.trouble
            world.reconnect()
        while not (world.committed_offsets() == {0: 5} and nothing_comes(consumer)):
            in_transaction(consumer, producer)
        assert sorted(outputs(world)) == [f"k{number}!" for number in range(5)]


def test_an_interrupt_during_the_commit_leaves_it_unknown_where_it_cannot_be_aborted(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        commit = producer.writer.commit_transaction

        def interrupted(timeout: float | None = None) -> None:
            commit(timeout)
            raise KeyboardInterrupt

        producer.writer.commit_transaction = interrupted  # type: ignore[method-assign]
        with pytest.raises(OutcomeUnknown) as caught:
            in_transaction(consumer, producer)
        assert isinstance(caught.value.__cause__, KeyboardInterrupt)


# ---------------------------------------------------------------- dead letters, room


def test_a_rejection_in_a_transaction_moves_the_message_with_it(world: World) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, dead_letters="dead") as consumer, world.producer() as producer:
        with aborting(consumer, producer) as tx:
            tx.acquire_many(1, 10)[0].reject("bad")
        assert world.texts("dead") == []
        with consumer.transaction(producer) as tx:
            first, second = tx.acquire_many(2, 10)
            first.reject("bad")
            copy(producer, [second])
            assert world.texts("dead") == []
        assert (world.texts("dead"), outputs(world), world.committed_offsets()) == (["a"], ["b!"], {0: 2})
        assert (consumer.stats.rejected, consumer.stats.acked) == (1, 1)
    headers = dict(world.records("dead")[0].headers)
    assert (headers["lvq-dlq-source"], headers["lvq-dlq-count"]) == (b"prices/0/0", b"2")


def test_a_rejection_without_dead_letters_leaves_with_the_transaction(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            tx.acquire_many(1, 10)[0].reject("bad")
        assert (world.committed_offsets(), consumer.stats.rejected) == ({0: 1}, 1)


def test_messages_taken_beside_one_that_can_neither_be_read_nor_rejected_are_available_again(world: World) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(("a", "{"), ("b", "1"), ("c", "2"))
    with (
        consuming(world, JSON, undecodable="skip", dead_letters="dead") as consumer,
        world.producer() as producer,
    ):
        has_read_all(world, consumer)
        world.fail_next("append", TransportError("full", code="_QUEUE_FULL", retriable=True))
        with pytest.raises(TransportError, match="full"), consumer.transaction(producer) as tx:
            tx.acquire_many(3, 10)
        assert (consumer.stats.in_work, consumer.stats.available) == (0, 3)
        assert [take(consumer).value for _ in range(2)] == [1, 2]


def test_a_dead_letter_that_cannot_be_handed_over_leaves_the_message_where_it_is(world: World) -> None:
    world.topics.create("dead", partitions=1, config={})
    world.send(("a", "a"))
    with consuming(world, dead_letters="dead") as consumer, world.producer() as producer:
        with consumer.transaction(producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            world.fail_next("append", TransportError("full", code="_QUEUE_FULL", retriable=True))
            with pytest.raises(TransportError, match="full"):
                delivery.reject("bad")
            producer.writer._failure = None  # type: ignore[attr-defined]
        assert world.texts("dead") == []
        assert drain(consumer, 1) == ["a"]


def test_a_transaction_whose_text_is_too_long_is_aborted_and_shorter_ones_fit() -> None:
    world = make_world(metadata_limit=80)
    world.send(*((f"k{number}", str(number)) for number in range(200)))
    chaos = Random(7)
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        has_read_all(world, consumer)
        with failing(consumer, producer, TransportError) as (tx, caught):
            copy(producer, [one for one in tx.acquire_many(100, 10) if chaos.random() < 0.5])
        assert caught.value.code == "OFFSET_METADATA_TOO_LARGE"
        assert outputs(world) == []
        while world.committed_offsets() != {0: 200}:
            in_transaction(consumer, producer, 100)
    assert len(outputs(world)) == 200


def test_transactions_and_plain_acks_beside_each_other_lose_nothing_and_bring_nothing_twice() -> None:
    world = make_world(partitions=4)
    count = 400
    world.send(*((f"k{number}", str(number)) for number in range(count)))
    plain: list[str] = []
    with consuming(world, commit_interval=0.0) as consumer, world.producer() as producer:

        def work() -> None:
            for delivery in consumer:
                with delivery:
                    plain.append(delivery.value)

        turn = 0
        with in_thread(work), in_thread(work):
            while len(plain) + len(outputs(world)) < count:
                turn += 1
                with suppress(Trouble), consumer.transaction(producer) as tx:
                    copy(producer, tx.acquire_many(5, 0.05))
                    if turn % 3 == 0:
                        raise Trouble
            settled_up(world, consumer)
            consumer.close()
    produced = [value.rstrip("!") for value in outputs(world)]
    assert sorted(plain + produced, key=int) == [str(number) for number in range(count)]


def test_a_look_that_began_before_the_commit_of_a_transaction_does_not_take_it_for_that_of_another(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._REREAD", 0.0)
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        committed, asked, over = world.groups.committed, Event(), Event()
        found, overwritten = consumer._shared.core.found, list[list[int]]()

        def judged(*args: Any) -> list[int]:
            overwritten.append(found(*args))
            return overwritten[-1]

        def slowly(group: str, topic: str, *, timeout: float = 10.0, **options: Any) -> dict[int, Commit]:
            found = committed(group, topic, timeout=timeout, **options)
            if current_thread() is consumer._thread._thread:
                asked.set()
                assert over.wait(10)
            return found

        with consumer.transaction(producer) as tx:
            (delivery,) = tx.acquire_many(1, 10)
            delivery.ack()
            eventually(lambda: not consumer._shared.core._unanswered)
            world.groups.committed = slowly  # type: ignore[method-assign]
            consumer._shared.core.found = judged  # type: ignore[method-assign]
            consumer._thread._monitor.hasten()
            assert asked.wait(10)
        assert committed(GROUP, TOPIC)[0].offset == 1
        over.set()
        eventually(lambda: overwritten)
        assert overwritten == [[]]
