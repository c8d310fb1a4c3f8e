"""Commits that are refused, lost, late, too long or overwritten: they cost time or duplicates, never a message."""

from __future__ import annotations

import time
from random import Random
from typing import Any

import pytest

from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.errors import CommitMapRefused, TopicRecreated, TransportError
from tests.unit.consuming.world import (
    GROUP,
    TOPIC,
    World,
    answered_late,
    consuming,
    drain,
    has_read_all,
    in_thread,
    make_world,
    settled_up,
    take,
    values_of,
)
from tests.waiting import eventually


@pytest.fixture(autouse=True)
def soon_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._ANSWER", 0.05)


def test_a_commit_whose_answer_is_lost_is_followed_by_another(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        delivery = take(consumer)
        world.lose_answers("commit", 3)
        delivery.ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 1}


def test_nothing_is_durable_before_an_answer_says_so(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        delivery = take(consumer)
        world.lose_answers("commit", 1000)
        settlement = delivery.ack()
        eventually(lambda: settlement.done() or world.committed_offsets() == {0: 1})
        assert not settlement.done()
        world._state._lost_answers.clear()
        settlement.result(10)


def test_the_answer_to_a_commit_that_was_given_up_is_not_believed(world: World) -> None:
    """Another commit has been sent since, and nobody knows which of the two the group ends up with."""
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        delivery = take(consumer)
        (member,) = world.members
        with answered_late(member) as late:
            settlement = delivery.ack()
            assert not settlement.done()
            eventually(lambda: len(late) > 2)
            late[0]()
            assert not settlement.done()
        settlement.result(10)


def test_there_is_one_commit_on_its_way_at_a_time(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(
        "lvq_kafka.consuming.commit_sender._ANSWER", 60.0
    )  # never give up, however slow this machine is
    world.send(*((f"k{number}", "x") for number in range(100)))
    with consuming(world, commit_interval=0.0) as consumer:
        (member,) = eventually(lambda: world.members)
        commit_async, poll = member.commit_async, member.poll
        flying: list[list[Any]] = []  # polls left before the answer, and the answer
        most: list[int] = []
        polls: list[float] = []

        def watched(commits: Any, answered: Any) -> None:
            flight: list[Any] = [3, None]
            flying.append(flight)
            most.append(len(flying))
            commit_async(commits, lambda outcome: flight.__setitem__(1, lambda: answered(outcome)))

        def late(timeout: float) -> Any:
            fetch = poll(timeout)
            polls.append(timeout)
            for flight in list(flying):
                flight[0] -= 1
                if flight[0] <= 0 and flight[1] is not None:
                    flying.remove(flight)
                    flight[1]()
            return fetch

        member.commit_async, member.poll = watched, late  # type: ignore[method-assign]
        for _ in range(100):
            before = len(polls)
            take(consumer).ack().future()
            eventually(lambda before=before: len(polls) > before, every=0.001)
        settled_up(world, consumer)
    assert len(most) > 10
    assert set(most) == {1}


@pytest.mark.parametrize(
    "code", ["REBALANCE_IN_PROGRESS", "ILLEGAL_GENERATION", "UNKNOWN_MEMBER_ID", "NOT_COORDINATOR", "_TIMED_OUT"]
)
def test_a_commit_that_is_refused_for_now_ends_no_lock_and_is_sent_again(world: World, code: str) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        first, second = take(consumer), take(consumer)
        world.fail_next("commit", TransportError("no", code=code), times=2)
        first.ack(wait=True, timeout=10)
        second.ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 2}


def test_a_commit_that_is_refused_again_and_again_is_not_sent_hundreds_of_times_a_second(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=0.0) as consumer:
        delivery = take(consumer)
        began, before = time.monotonic(), consumer.stats.commits
        world.fail_next("commit", TransportError("no", code="REBALANCE_IN_PROGRESS", retriable=True), times=1000)
        settlement = delivery.ack()
        assert not settlement.done()
        eventually(lambda: "no" in consumer.stats.trouble)
        assert consumer.acquire(0.3) is None
        sent = consumer.stats.commits - before
        assert sent <= 2 + 10 * (time.monotonic() - began)
        world._state._failures.clear()
        settlement.result(10)
        assert consumer.stats.trouble == ""


def test_commits_that_are_refused_are_told_of_though_messages_come_and_the_topic_is_as_it_was(world: World) -> None:
    world.send(("a", "1"))
    with consuming(world, commit_interval=0.0) as consumer:
        delivery = take(consumer)
        world.fail_next("commit", TransportError("no", code="REBALANCE_IN_PROGRESS", retriable=True), times=1000)
        delivery.ack()
        eventually(lambda: "no" in consumer.stats.trouble)
        for number in range(20):
            world.send(("b", str(number)))
            read = consumer.stats.read
            consumer._thread._monitor._observe_at = 0.0
            eventually(lambda read=read: consumer.stats.read > read)
            eventually(lambda: consumer._thread._monitor._observe_at > 0.0)
            assert "no" in consumer.stats.trouble
        world._state._failures.clear()
        eventually(lambda: consumer.stats.trouble == "")


def test_a_topic_that_was_created_anew_is_noticed_by_the_commit_that_is_refused(world: World) -> None:
    world.send(("a", "1"))
    with consuming(world, commit_interval=0.0) as consumer:
        delivery = take(consumer)
        consumer._thread._monitor._topic_id = "another"
        world.fail_next("commit", TransportError("no", code="UNKNOWN_TOPIC_OR_PART"))
        delivery.ack()
        with pytest.raises(TopicRecreated):
            take(consumer)


def test_one_partition_of_a_commit_may_fail_alone() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, commit_interval=60) as consumer:
        first, second = sorted((take(consumer), take(consumer)), key=lambda one: one.position.partition)
        (member,) = world.members
        commit_async = member.commit_async

        def refuse_one(commits: Any, answered: Any) -> None:
            member.commit_async = commit_async  # type: ignore[method-assign]
            error = TransportError("no", code="NOT_COORDINATOR", retriable=True)
            commit_async(commits, lambda outcome: answered({**outcome, 1: error}))

        member.commit_async = refuse_one  # type: ignore[method-assign]
        first.ack()
        second.ack(wait=True, timeout=10)
        assert world.committed_offsets() == {0: 1, 1: 1}


# ---------------------------------------------------------------- the length limit of a text


def test_a_text_that_is_too_long_is_halved_until_it_fits_and_every_ack_becomes_durable() -> None:
    world = make_world(metadata_limit=90)
    world.send(*((f"k{number}", str(number)) for number in range(200)))
    chaos = Random(3)
    with consuming(world, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        deliveries = consumer.acquire_many(200, 10)
        chaos.shuffle(deliveries)
        for delivery in deliveries[:100]:
            delivery.ack()
        deliveries[100].ack().done()
        eventually(lambda: consumer._shared.core.ledger.capacity.limit <= 90)
        eventually(lambda: 0 < len(world.groups.committed(GROUP, TOPIC)[0].metadata) <= 90)
        rest = [delivery.ack() for delivery in deliveries[101:]]
        for settlement in rest:
            settlement.result(10)
        assert world.committed_offsets() == {0: 200}


def test_where_the_text_has_no_room_messages_are_handed_out_and_acks_wait_for_lower_ones() -> None:
    world = make_world(metadata_limit=90)
    world.send(*((f"k{number}", str(number)) for number in range(300)))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        consumer._shared.core.ledger.capacity.limit = 90
        held = consumer.acquire_many(300, 10)
        assert len(held) == 300
        scattered = set(Random(5).sample(range(1, 300), 150))  # a regular pattern would take little room
        settlements = [held[number].ack().future() for number in scattered]
        eventually(lambda: consumer.stats.omitted > 0)
        assert consumer.stats.text_limit == 90
        assert "are not, the lowest is offset 0, acquired" in consumer.stats.trouble
        assert not all(future.done() for future in settlements)
        settlements += [held[number].ack().future() for number in set(range(300)) - scattered]
        for future in settlements:
            future.result(10)
        settled_up(world, consumer)
        assert consumer.stats.commit_text <= 90
        assert (consumer.stats.omitted, consumer.stats.trouble) == (0, "")


def test_acks_left_out_of_a_shortened_text_are_not_called_durable_and_their_messages_come_again() -> None:
    world = make_world(metadata_limit=80)
    world.send(*((f"k{number}", str(number)) for number in range(200)))
    chaos = Random(5)
    with consuming(world, commit_interval=60) as consumer:
        has_read_all(world, consumer)
        deliveries = consumer.acquire_many(200, 10)
        acked = [one for one in deliveries if chaos.random() < 0.5]
        settlements = {one.position.offset: one.ack() for one in acked}
        eventually(lambda: settlements[min(settlements)].done())
        eventually(
            lambda: 0 < len(world.groups.committed(GROUP, TOPIC)[0].metadata) <= 80 and world.committed_map().runs
        )
    stored = world.committed_map()
    forgotten = [offset for offset in settlements if not stored.done(offset)]
    assert forgotten
    for offset, settlement in settlements.items():
        if stored.done(offset):
            settlement.result(0)
        else:
            assert settlement.future().exception(0) is not None
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        again = {delivery.position.offset for delivery in consumer.acquire_many(200, 10)}
    assert again == set(range(200)) - {offset for offset in range(200) if stored.done(offset)}


# ---------------------------------------------------------------- commits by others


@pytest.mark.parametrize(
    ("text", "reason"),
    [("", "foreign"), ("hello", "foreign"), ("lvq9.AAAA", "newer"), ("lvq1.AAAAAAAAAAAAAAAAAAAAAAAAAAAA", "corrupt")],
)
def test_a_commit_of_something_else_is_refused_and_said(world: World, text: str, reason: str) -> None:
    world.send(("a", "a"), ("b", "b"))
    world.groups.commit(GROUP, TOPIC, {0: Commit(1, text)})
    with pytest.raises(CommitMapRefused) as caught, consuming(world):
        pass
    assert (caught.value.reason, caught.value.partition) == (reason, 0)
    assert world.groups.committed(GROUP, TOPIC) == {0: Commit(1, text)}, "it is left alone"


@pytest.mark.parametrize("text", ["", "hello"])
def test_a_commit_of_something_else_can_be_ignored_and_goes_by_its_offset(world: World, text: str) -> None:
    world.send(("a", "a"), ("b", "b"))
    world.groups.commit(GROUP, TOPIC, {0: Commit(1, text)})
    with consuming(world, on_foreign_commits="ignore") as consumer:
        assert drain(consumer, 1) == ["b"]
    assert world.committed_map().base == 2, "ours again"


def test_a_policy_for_foreign_commits_is_one_of_two(world: World) -> None:
    with pytest.raises(ValueError, match="one of refuse, ignore"), consuming(world, on_foreign_commits="guess"):
        pass


@pytest.mark.parametrize("text", ["", "hello"])
def test_a_foreign_commit_that_comes_before_an_assignment_stops_the_consumer(world: World, text: str) -> None:
    with consuming(world) as consumer:
        settled_up(world, consumer)
        world._state.groups[GROUP].store(TOPIC, {0: Commit(0, text)})
        world.expel(world.members[0])
        with pytest.raises(CommitMapRefused):
            take(consumer)


@pytest.mark.parametrize("text", [None, "", "hello"], ids=["ours", "without a text", "foreign"])
def test_a_commit_that_was_written_over_ours_is_put_right(
    world: World, text: str | None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._LOOK", 0.01)
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._REREAD", 0.01)
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:  # repaired at once, because a durable ack was lost
        old = world.groups.committed(GROUP, TOPIC) if text is None else {0: Commit(0, text)}
        take(consumer).ack(wait=True, timeout=10)
        world._state.groups[GROUP].store(TOPIC, old)
        eventually(lambda: world.committed_offsets() == {0: 1})
        assert world.committed_map().base == 1
        assert "overwrote that of queue q, partition 0" in caplog.text
        world.send(("b", "b"))
        assert values_of([take(consumer)]) == ["b"]


# ---------------------------------------------------------------- redelivered


def test_the_redelivered_mark_goes_across_a_restart(world: World) -> None:
    world.send(*((key, key) for key in "abcd"))
    with consuming(world) as consumer:
        first, second = take(consumer), take(consumer)
        second.ack()
        assert not first.redelivered
    with consuming(world) as consumer:
        marks = [(delivery.value, delivery.redelivered) for delivery in consumer.acquire_many(4, 10)]
    assert marks == [("a", True), ("c", False), ("d", False)]


def test_a_value_that_came_after_the_restart_is_not_redelivered(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        take(consumer)
    world.send(("a", "a2"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        assert (delivery.value, delivery.redelivered) == ("a2", False)


def test_every_text_is_one_that_can_be_read_back(world: World) -> None:
    """Settle at random, and check what the group holds at any moment."""
    world.send(*((f"k{number % 40}", str(number)) for number in range(400)))
    chaos = Random(11)

    def work() -> None:
        for delivery in consumer:
            if chaos.random() < 0.3:
                delivery.release()
            else:
                delivery.ack()

    with consuming(world, commit_interval=0.0) as consumer, in_thread(work):
        while world.committed_offsets() != {0: 400}:
            commit = world.groups.committed(GROUP, TOPIC)[0]
            said = CommitMap.decode(commit.offset, commit.metadata)
            assert said.base <= said.end <= 400
        consumer.close()
