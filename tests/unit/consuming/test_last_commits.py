"""The last commit before a partition goes: it holds everything accepted before, and nothing is accepted after it."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from lvq_kafka.cluster import Commit
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.errors import Closed, LockLost, TransportError
from tests.unit.consuming.world import TOPIC, World, consuming, has_read_all, make_world, take
from tests.waiting import eventually

SETTLE: dict[str, Callable[[Delivery[Any]], object]] = {
    "ack": lambda delivery: delivery.ack(),
    "release": lambda delivery: delivery.release(),
    "reject": lambda delivery: delivery.reject("bad"),
    "extend": lambda delivery: delivery.extend(10),
}
NOT_NOW = TransportError("not now", code="COORDINATOR_LOAD_IN_PROGRESS", retriable=True)


class LastCommit:
    """Something that happens during the last commit of a member: when it has left, or when it is stored.

    The consumer must already have its one member.
    """

    def __init__(self, world: World, happens: Callable[[], object], *, stored: bool) -> None:
        (member,) = world.members
        commit = member.commit
        self.raised: list[BaseException | None] = []

        def commit_and_more(commits: Mapping[int, Commit]) -> None:
            if stored:
                commit(commits)
            try:
                self.raised.append(happens() and None)
            except LockLost as error:
                self.raised.append(error)
            if not stored:
                commit(commits)

        member.commit = commit_and_more  # type: ignore[method-assign]

    @property
    def refused(self) -> bool:
        """Return whether it was refused every time."""
        return bool(self.raised) and all(isinstance(error, LockLost) for error in self.raised)


@pytest.mark.parametrize("stored", [False, True], ids=["on its way", "stored"])
@pytest.mark.parametrize("settle", SETTLE.values(), ids=list(SETTLE))
def test_nothing_is_settled_any_more_when_the_last_commit_of_close_has_left(
    world: World, settle: Callable[[Delivery[Any]], object], stored: bool
) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        first, second = take(consumer), take(consumer)
        first.ack()
        last = LastCommit(world, lambda: settle(second), stored=stored)
        consumer.close()
    assert last.refused
    assert world.committed_offsets() == {0: 1}


def test_nothing_is_settled_at_once_any_more_when_the_last_commit_of_close_has_left(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, commit_interval=60) as consumer:
        first, *others = consumer.acquire_many(3, 10)
        first.ack()
        last = LastCommit(world, lambda: consumer.ack_many(others), stored=True)
        consumer.close()
    assert last.refused
    assert world.committed_offsets() == {0: 1}


def test_nothing_is_settled_any_more_when_the_last_commit_of_a_revocation_has_left() -> None:
    world = make_world(2)
    for partition in range(2):
        world.send(("a", "a"), ("b", "b"), partition=partition)
    with consuming(world, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        held = consumer.acquire_many(4, 10)
        of = {number: [one for one in held if one.position.partition == number] for number in range(2)}
        for number in range(2):
            of[number][0].ack()
        last = LastCommit(world, lambda: [of[number][1].ack() for number in (1, 0)], stored=True)
        with consuming(world):
            eventually(lambda: len(consumer.stats.partitions) == 1)
            (kept,) = consumer.stats.partitions
            assert last.refused
            assert world.committed_offsets()[1 - kept] == 1
            assert of[kept][1].settled == (kept == 1), "a partition that stays is not touched"


def test_nothing_is_left_in_a_transaction_any_more_when_the_last_commit_has_left(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        take(consumer).ack()
        with consumer.transaction(producer) as transaction:
            (delivery,) = transaction.acquire_many(1, 10)
            last = LastCommit(world, delivery.ack, stored=True)
            consumer.close()
            with pytest.raises(LockLost):
                delivery.ack()
    assert last.refused
    assert world.committed_offsets() == {0: 1}


def test_a_transaction_begun_before_the_last_commit_is_aborted_when_it_commits_after_it(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer, world.producer() as producer:
        take(consumer).ack()
        transaction = consumer.transaction(producer)
        transaction.__enter__()
        (delivery,) = transaction.acquire_many(1, 10)
        settlement = delivery.ack()
        consumer.close()
        with pytest.raises(Closed):
            transaction.__exit__(None, None, None)
        assert isinstance(settlement.future().exception(10), LockLost)
    assert world.committed_offsets() == {0: 1}


def test_a_last_commit_that_is_sent_again_says_what_was_accepted_before_it_and_no_more(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, commit_interval=60) as consumer:
        first, second = take(consumer), take(consumer)
        first.ack()
        last = LastCommit(world, second.ack, stored=False)
        world.fail_next("commit", NOT_NOW)
        consumer.close()
    assert len(last.raised) == 2
    assert last.refused
    assert world.committed_offsets() == {0: 1}


def test_a_last_commit_that_is_not_stored_is_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        settlement = take(consumer).ack()
        world.fail_next("commit", NOT_NOW, times=100)
        consumer.close()
    assert "partition 0: it is not known whether its last commit was stored" in caplog.text
    with pytest.raises(LockLost):
        settlement.result(10)


def test_a_last_commit_that_has_nothing_new_to_say_is_silent(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        take(consumer).ack(wait=True, timeout=10)
        world.fail_next("commit", NOT_NOW, times=100)
        consumer.close()
    assert "may be delivered again" not in caplog.text


# ---------------------------------------------------------------- with threads


class Holders:
    """Threads that ack what they hold, one by one, and remember the accepted acks.

    They ack half of it at once, and the rest when the last commit has left.
    """

    def __init__(self, world: World, held: list[Delivery[Any]], threads: int = 2) -> None:
        self.accepted: set[str] = set()
        self._tried = 0
        self._at_once = len(held) // 2
        self._has_left = threading.Event()
        LastCommit(world, self._go_on, stored=True)
        self._threads = [threading.Thread(target=self._ack, args=(held[number::threads],)) for number in range(threads)]
        for thread in self._threads:
            thread.start()

    def _ack(self, held: list[Delivery[Any]]) -> None:
        for delivery in held:
            self._tried += 1
            assert self._tried < self._at_once or self._has_left.wait(20)
            try:
                delivery.ack()
            except LockLost:
                continue
            self.accepted.add(delivery.value)

    def _go_on(self) -> None:
        """Let them continue, and wait until they have made progress or are finished."""
        before = self._tried
        self._has_left.set()
        eventually(lambda: self._tried > before + 50 or not any(thread.is_alive() for thread in self._threads))

    def join(self) -> set[str]:
        for thread in self._threads:
            thread.join(30)
        return self.accepted


def everything(world: World) -> set[str]:
    world.send(("last", "last"))
    with consuming(world, max_in_work=10_000) as consumer:
        has_read_all(world, consumer)
        return {delivery.value for delivery in consumer.acquire_many(10_000, 10)}


def hold(world: World, consumer: Consumer[Any], count: int) -> list[Delivery[Any]]:
    has_read_all(world, consumer)
    held: list[Delivery[Any]] = []
    eventually(lambda: held.extend(consumer.acquire_many(count, 0.1)) or len(held) == count)
    return held


@pytest.mark.parametrize("grace", [0.0, 0.01])
def test_a_message_acked_before_close_returned_is_never_seen_again(grace: float) -> None:
    for _ in range(5):
        world = make_world()
        world.send(*((f"k{number}", f"{number}") for number in range(1000)))
        with consuming(world, revoke_grace=grace, max_in_work=10_000, commit_interval=60) as consumer:
            holders = Holders(world, hold(world, consumer, 1000))
            consumer.close()
            accepted = holders.join()
        assert not accepted & everything(world)


def test_a_message_acked_before_a_partition_went_is_never_seen_again() -> None:
    for _ in range(5):
        world = make_world(2)
        for number in range(1000):
            world.write(TOPIC, f"k{number}".encode(), f"{number}".encode(), partition=number % 2)
        with consuming(world, revoke_grace=0.01, max_in_work=10_000, commit_interval=60) as consumer:
            holders = Holders(world, hold(world, consumer, 1000))
            with consuming(world, max_in_work=10_000) as other:
                eventually(lambda other=other: len(other.stats.partitions) == 1)  # type: ignore[misc]
                accepted = holders.join()
                consumer.close()
        assert not accepted & everything(world)


def test_a_last_commit_that_is_not_answered_is_trouble_while_the_consumer_waits(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """The client waits without a limit as long as no broker coordinates the group."""
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._LATE", 0.02)
    world, answered = make_world(partitions=2), threading.Event()
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, commit_interval=60) as one:
        take(one).ack()
        take(one).ack()
        LastCommit(world, lambda: answered.wait(20), stored=False)
        with consuming(world) as two:
            eventually(lambda: "has not answered a commit" in one.stats.trouble)
            answered.set()
            eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 1)
            eventually(lambda: not one.stats.trouble)
    assert caplog.text.count("has not answered a commit") == 1


def test_a_last_commit_is_stored_when_no_thread_can_be_started_any_more(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As when the process exits, from Python 3.12 on."""

    def refuse(_: threading.Timer) -> None:
        raise RuntimeError("can't create new thread at interpreter shutdown")

    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack()
        monkeypatch.setattr("lvq_kafka.consuming.commit_sender.Timer.start", refuse)
        consumer.close()
    assert world.committed_offsets() == {0: 1}
