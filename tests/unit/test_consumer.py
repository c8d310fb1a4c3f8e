"""The consumer on the in-memory log."""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lvq_kafka.codecs import JSON, TEXT, Codec
from lvq_kafka.consumer import Consumer
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.lifecycle import State
from lvq_kafka.delivery import Delivery
from lvq_kafka.errors import (
    AlreadySettled,
    Closed,
    ConfigError,
    DataLoss,
    DecodeError,
    KeyMismatch,
    LockLost,
    QueueNotDeclared,
    ReaderFailed,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_kafka.groups import declare_group
from lvq_kafka.ports import Commit, GroupListener, GroupMember
from lvq_kafka.testing import MemoryLog
from tests.waiting import eventually

TOPIC = "prices"


class World(MemoryLog):
    """An in-memory log that remembers its group members."""

    def __init__(self, **options: Any) -> None:
        super().__init__(**options)
        self.members: list[GroupMember] = []

    def member(self, group: str, topic: str, listener: GroupListener) -> GroupMember:
        member = super().member(group, topic, listener)
        self.members.append(member)
        return member

    def send(self, *records: tuple[str, str | None], partition: int | None = None) -> None:
        for key, value in records:
            self.write(TOPIC, key.encode(), None if value is None else value.encode(), partition=partition)

    def committed_offsets(self) -> dict[int, int]:
        return {partition: commit.offset for partition, commit in self.committed("lvq.q", TOPIC).items()}


def make_world(partitions: int = 1, *, declared: bool = True, **options: Any) -> World:
    world = World(**options)
    world.create_topic(TOPIC, partitions=partitions, config={"cleanup.policy": "compact"})
    if declared:
        declare_group(world, "lvq.q", TOPIC)
    return world


@pytest.fixture
def world() -> World:
    return make_world()


@contextmanager
def consuming(
    world: MemoryLog,
    codec: Codec[Any] = TEXT,
    definition: QueueDefinition | None = None,
    **options: Any,
) -> Iterator[Consumer[Any]]:
    definition = definition or QueueDefinition(name="q", topic=TOPIC, key_header=None)
    options.setdefault("commit_interval", 0.01)
    options.setdefault("revoke_grace", 0.0)
    with Consumer(world, definition, codec, **options) as consumer:
        yield consumer


def take(consumer: Consumer[Any], timeout: float = 5.0) -> Delivery[Any]:
    delivery = consumer.acquire(timeout)
    assert delivery is not None, "no message came"
    return delivery


def nothing_comes(consumer: Consumer[Any]) -> bool:
    return consumer.acquire(0.05) is None


def drain(consumer: Consumer[Any], count: int) -> list[str]:
    values = []
    for _ in range(count):
        with take(consumer) as delivery:
            values.append(delivery.value)
    assert nothing_comes(consumer)
    return values


def settled_up(world: World, consumer: Consumer[Any]) -> None:
    """Wait until the consumer has read all, holds nothing back, and has committed it."""
    eventually(lambda: world.committed_offsets() == world.end_offsets(TOPIC, stable=True))


# ---------------------------------------------------------------- taking and settling


def test_a_delivery_says_all_about_its_message() -> None:
    world = make_world(clock=lambda: 1000.5)
    world.write(TOPIC, b"IBM", b'{"bid": 1}', [("ticker", b"IBM"), ("source", b"a"), ("source", b"b")])
    with consuming(world, JSON) as consumer, take(consumer) as delivery:
        assert (delivery.key, delivery.value, delivery.raw) == ("IBM", {"bid": 1}, b'{"bid": 1}')
        assert str(delivery.position) == "prices/0/0"
        assert delivery.timestamp == 1000.5
        assert (delivery.header("source"), delivery.header("none")) == ("b", None)
        assert delivery.headers == (("ticker", b"IBM"), ("source", b"a"), ("source", b"b"))
        assert (delivery.delivery_count, delivery.redelivered, delivery.state) == (1, False, State.ACQUIRED)
        assert "IBM" in repr(delivery)


def test_a_clean_exit_acks_and_the_message_is_gone_for_the_next_consumer(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["a1", "b1"]
    assert world.committed_offsets() == {0: 2}
    with consuming(world) as consumer:
        assert nothing_comes(consumer)


def test_an_exception_releases_and_the_message_comes_again_marked_as_redelivered(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        with pytest.raises(ZeroDivisionError), take(consumer):
            raise ZeroDivisionError
        with take(consumer) as delivery:
            assert (delivery.value, delivery.redelivered, delivery.delivery_count) == ("a1", True, 2)
        assert consumer.stats.redelivered == 1


def test_iteration_yields_messages_until_the_consumer_is_closed(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    seen = []
    with consuming(world) as consumer:
        for delivery in consumer:
            with delivery:
                seen.append(delivery.value)
            if len(seen) == 2:
                consumer.close()
    assert seen == ["a1", "b1"]


def test_a_slow_consumer_gets_the_newest_value_of_each_key_only(world: World) -> None:
    world.send(("slow", "s"))
    with consuming(world) as consumer:
        slow = take(consumer)
        world.send(*(("a", f"a{number}") for number in range(100)), ("b", "b"))
        settled_below(world, consumer, available=2)
        slow.ack()
        assert drain(consumer, 2) == ["a99", "b"]


def settled_below(world: World, consumer: Consumer[Any], *, available: int) -> None:
    """Wait until the consumer has read to the end of the log."""
    eventually(lambda: consumer._holdings._ledger.positions == world.end_offsets(TOPIC, stable=True))
    assert consumer.stats.available == available


def test_r6_a_newer_value_waits_until_the_held_one_is_acked(world: World) -> None:
    world.send(("a", "m1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "m2"))
        settled_below(world, consumer, available=1)
        assert nothing_comes(consumer)
        assert first.state is State.STALE
        first.ack()
        assert drain(consumer, 1) == ["m2"]


def test_r7_a_superseded_value_does_not_come_back_after_a_release_when_the_newer_one_was_deleted(world: World) -> None:
    world.send(("a", "m1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "m2"), ("a", None))
        settled_below(world, consumer, available=0)
        first.release()
        assert nothing_comes(consumer)


def test_r6_what_was_held_at_close_is_superseded_for_the_next_consumer(world: World) -> None:
    world.send(("a", "m1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.send(("a", "m2"))
    with pytest.raises(LockLost):
        first.ack()
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["m2"]


def test_a_second_settlement_is_an_error(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        delivery = take(consumer)
        delivery.ack()
        for settle in (delivery.ack, delivery.release, delivery.reject):
            with pytest.raises(AlreadySettled):
                settle()


def test_a_delivery_that_was_settled_inside_the_block_is_left_alone(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        with take(consumer) as delivery:
            delivery.reject("broken")
        assert nothing_comes(consumer)
        assert (consumer.stats.rejected, consumer.stats.acked) == (1, 0)


def test_a_rejected_message_is_removed_and_the_reason_is_logged(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        take(consumer).reject("no such ticker")
        settled_up(world, consumer)
    assert "rejected prices/0/0: no such ticker" in caplog.text


def test_messages_without_a_key_header_get_unique_keys_and_are_never_replaced(world: World) -> None:
    world.send(*((f"unique-{number}", str(number)) for number in range(3)))
    with consuming(world) as consumer:
        assert drain(consumer, 3) == ["0", "1", "2"]


def test_r4_in_place_order_is_the_queue_definitions_choice(world: World) -> None:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="in-place")
    world.send(("1", "1"), ("2", "2"), ("3", "3"), ("2", "2b"), ("1", "1b"))
    with consuming(world, definition=definition) as consumer:
        assert drain(consumer, 3) == ["1b", "2b", "3"]


# ---------------------------------------------------------------- catch-up and commits


def test_g12_nothing_is_handed_out_before_the_end_of_the_partition_is_known() -> None:
    world = make_world(fetch_limit=1)
    world.send(("a", "old"), *((f"k{number}", "x") for number in range(30)), ("a", "new"))
    with consuming(world) as consumer:
        values = [delivery.value for delivery in (take(consumer) for _ in range(31))]
    assert "old" not in values
    assert values[-1] == "new"


def test_g12_an_open_transaction_does_not_hold_up_the_queue(world: World) -> None:
    world.send(("a", "a1"))
    writer = world.writer(transactional_id="t")
    writer.begin_transaction()
    writer.append(TOPIC, b"a", b"a2").result(5)
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a1"]
        writer.commit_transaction()
        assert drain(consumer, 1) == ["a2"]


def test_the_commit_is_the_lowest_message_that_is_not_done(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer:
        first, second, third = take(consumer), take(consumer), take(consumer)
        second.ack()
        with pytest.raises(TimeoutError):
            third.ack(wait=True, timeout=0.2)
        assert world.committed_offsets() == {0: 0}
        first.ack(wait=True, timeout=5)
        assert world.committed_offsets() == {0: 3}


def test_g10_what_was_not_acked_comes_again_to_the_next_consumer(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer:
        take(consumer)
        take(consumer).ack()
    assert world.committed_offsets() == {0: 0}
    with consuming(world) as consumer:
        assert sorted(drain(consumer, 3)) == ["a", "b", "c"]


def test_g11_an_ack_that_is_waited_for_is_committed_when_it_returns(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, commit_interval=60) as consumer:
        take(consumer).ack(wait=True, timeout=5)
        assert world.committed_offsets() == {0: 1}


def test_waiting_for_an_ack_behind_a_held_message_times_out_and_the_ack_stands(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        first, second = take(consumer), take(consumer)
        with pytest.raises(TimeoutError, match="offset 1"):
            second.ack(wait=True, timeout=0.05)
        assert second.state is State.ACKED
        first.ack(wait=True, timeout=5)
        assert world.committed_offsets() == {0: 2}


def test_acks_are_gathered_into_few_commits(world: World) -> None:
    world.send(*((f"k{number}", "x") for number in range(500)))
    with consuming(world, commit_interval=60) as consumer:
        drain(consumer, 500)
        assert world.committed_offsets() == {0: 0}
    assert world.committed_offsets() == {0: 500}


def test_deletes_and_superseded_records_are_committed_without_any_ack(world: World) -> None:
    with consuming(world) as consumer:
        world.send(("a", "a1"), ("a", None))
        settled_up(world, consumer)
        assert consumer.stats.delivered in (0, 1)


def test_a_commit_that_fails_is_made_good_by_the_next_one(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        world.fail_next("commit", TransportError("busy", code="REBALANCE_IN_PROGRESS", retriable=True), times=2)
        take(consumer).ack(wait=True, timeout=5)
        assert world.committed_offsets() == {0: 1}
        assert consumer.stats.trouble == ""


def test_a_commit_that_is_not_allowed_stops_the_consumer(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        world.fail_next("commit", Unauthorized("no", code="GROUP_AUTHORIZATION_FAILED"), times=2)
        with pytest.raises(ReaderFailed, match="before the ack") as caught:
            take(consumer).ack(wait=True, timeout=5)
        assert isinstance(caught.value.__cause__, Unauthorized)


# ---------------------------------------------------------------- several


def test_two_consumers_share_a_queue_and_the_one_that_stays_takes_over() -> None:
    world = make_world(partitions=4)
    keys = [f"k{number}" for number in range(40)]
    world.send(*((key, key) for key in keys))
    with consuming(world) as one, consuming(world) as two:
        eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 2)
        held = take(two)
        two.close()
        with pytest.raises(LockLost):
            held.ack()
        eventually(lambda: len(one.stats.partitions) == 4)
        seen = Counter(drain(one, 40))
    assert seen == Counter(keys)


def test_a_partition_that_moves_ends_the_locks_and_the_block_goes_on(caplog: pytest.LogCaptureFixture) -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world) as one:
        first, second = take(one), take(one)
        with consuming(world) as two:
            moved, kept = eventually(
                lambda: (
                    (first, second)
                    if first.state is State.LOST
                    else (second, first)
                    if second.state is State.LOST
                    else ()
                )
            )
            with pytest.raises(LockLost):
                moved.ack()
            with pytest.raises(LockLost):
                moved.release()
            with moved:
                pass
            assert "may handle it again" in caplog.text
            assert one.stats.lost == 1
            kept.ack()
            assert take(two).value == moved.value


def test_a_holder_that_finishes_within_the_grace_keeps_its_ack_through_a_rebalance() -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), partition=0)
    world.send(("b", "b"), partition=1)
    with consuming(world, revoke_grace=30.0) as one:
        deliveries = [take(one), take(one)]
        with consuming(world) as two:
            eventually(lambda: any(part.withheld for part in one._holdings._ledger._partitions.values()))
            assert one.acquire(0) is None
            for delivery in deliveries:
                delivery.ack(wait=True, timeout=5)
            eventually(lambda: len(two.stats.partitions) == 1)
            assert nothing_comes(two)
    assert world.committed_offsets() == {0: 1, 1: 1}


def test_a_consumer_that_was_expelled_loses_its_locks_and_goes_on(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.expel(world.members[0])
        eventually(lambda: held.state is State.LOST)
        with pytest.raises(LockLost):
            held.ack()
        assert drain(consumer, 1) == ["a"]


def test_a_consumer_that_is_expelled_while_it_is_assigned_begins_again(world: World) -> None:
    world.send(("a", "a1"))
    ask = world.start_offsets

    def expel_and_ask(topic: str, **options: Any) -> dict[int, int]:
        world.start_offsets = ask  # type: ignore[method-assign]
        world.expel(world.members[0])
        return ask(topic, **options)

    world.start_offsets = expel_and_ask  # type: ignore[method-assign]
    with consuming(world) as consumer:
        assert drain(consumer, 1) == ["a1"]


def test_an_ack_that_is_waited_for_says_when_the_partition_was_lost_before_it_was_durable(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world) as consumer:
        take(consumer)
        second = take(consumer)
        result: list[BaseException] = []

        def ack() -> None:
            try:
                second.ack(wait=True, timeout=10)
            except LockLost as error:
                result.append(error)

        waiter = threading.Thread(target=ack)
        waiter.start()
        eventually(lambda: second.state is State.ACKED)
        world.expel(world.members[0])
        waiter.join(10)
        assert result


def test_several_threads_work_on_one_consumer_one_value_of_a_key_at_a_time(world: World) -> None:
    keys = [f"k{number}" for number in range(20)]
    in_work: Counter[str] = Counter()
    clashes: list[str] = []
    done: Counter[str] = Counter()
    lock = threading.Lock()
    with consuming(world) as consumer:

        def work() -> None:
            for delivery in consumer:
                with delivery:
                    with lock:
                        in_work[delivery.key] += 1
                        if in_work[delivery.key] > 1:
                            clashes.append(delivery.key)
                    done[delivery.value] += 1
                    with lock:
                        in_work[delivery.key] -= 1

        threads = [threading.Thread(target=work) for _ in range(4)]
        for thread in threads:
            thread.start()
        for turn in range(20):
            world.send(*((key, f"{key}.{turn}") for key in keys))
        settled_up(world, consumer)
        stats = consumer.stats
        consumer.close()
        for thread in threads:
            thread.join(10)
    assert not clashes
    assert {f"{key}.19" for key in keys} <= set(done), "the last value of a key was not delivered"
    assert set(done.values()) == {1}
    assert (stats.acked, stats.in_work, stats.available) == (stats.delivered, 0, 0)


def test_acquire_waits_while_as_many_as_allowed_are_in_work(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world, max_in_work=2) as consumer:
        first = take(consumer)
        take(consumer)
        assert nothing_comes(consumer)
        first.ack()
        assert take(consumer).value == "c"


def test_reading_goes_on_while_a_message_is_worked_on(world: World) -> None:
    world.send(("a", "a0"))
    with consuming(world) as consumer, take(consumer):
        for number in range(1, 50):
            world.send(("a", f"a{number}"), ("b", f"b{number}"))
        settled_below(world, consumer, available=2)


# ---------------------------------------------------------------- values and keys


def test_an_unreadable_value_raises_when_it_is_asked_for_and_stays_in_the_queue(world: World) -> None:
    world.send(("a", "{"), ("b", "1"))
    with consuming(world, JSON) as consumer:
        with pytest.raises(DecodeError) as caught, take(consumer) as delivery:
            assert delivery.value
        assert str(caught.value.position) == "prices/0/0"
        assert take(consumer).raw == b"{"
        assert take(consumer).value == 1


def test_an_unreadable_value_can_be_skipped_and_is_counted(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "{"), ("b", "1"))
    with consuming(world, JSON, undecodable="skip") as consumer:
        assert drain(consumer, 1) == [1]
        assert consumer.skipped == 1
        settled_up(world, consumer)
    assert "prices/0/0" in caplog.text


def test_an_unreadable_value_whose_partition_goes_meanwhile_is_left_to_who_has_it_now(world: World) -> None:
    def decode(data: bytes) -> str:
        if data == b"bad" and consumer.stats.lost == 0:
            world.expel(world.members[0])
            eventually(lambda: consumer.stats.lost == 1)
        if data == b"bad":
            raise ValueError("bad")
        return data.decode()

    world.send(("a", "bad"), ("b", "1"))
    with consuming(world, Codec(str.encode, decode), undecodable="skip") as consumer:
        assert drain(consumer, 1) == ["1"]
        assert consumer.stats.rejected == 1


def test_an_unreadable_value_can_be_given_as_bytes(world: World) -> None:
    world.send(("a", "{"))
    with consuming(world, JSON, undecodable="raw") as consumer:
        assert drain(consumer, 1) == [b"{"]


def test_a_value_is_decoded_once_and_only_when_asked_for(world: World) -> None:
    calls: list[bytes] = []

    def decode(data: bytes) -> str:
        calls.append(data)
        return data.decode()

    world.send(("a", "a"), ("b", "b"))
    with consuming(world, Codec(str.encode, decode)) as consumer:
        take(consumer).ack()
        second = take(consumer)
        assert (second.value, second.value) == ("b", "b")
    assert calls == [b"b"]


@pytest.mark.parametrize(("policy", "expected"), [("record", ["1", "2"]), ("header", ["2"])])
def test_r16_a_header_that_disagrees_with_the_key_follows_the_policy(
    world: World, policy: Any, expected: list[str]
) -> None:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header="ticker", key_mismatch=policy)
    world.write(TOPIC, b"a", b"1", [("ticker", b"a")])
    world.write(TOPIC, b"b", b"2", [("ticker", b"a")])
    with consuming(world, definition=definition) as consumer:
        assert drain(consumer, len(expected)) == expected
        assert consumer.stats.mismatched == 1


def test_r16_with_the_policy_fail_the_consumer_stops_with_the_position(world: World) -> None:
    definition = QueueDefinition(name="q", topic=TOPIC, key_header="ticker", key_mismatch="fail")
    world.write(TOPIC, b"b", b"2", [("ticker", b"a")])
    with consuming(world, definition=definition) as consumer, pytest.raises(KeyMismatch) as caught:
        take(consumer)
    assert str(caught.value.position) == "prices/0/0"


# ---------------------------------------------------------------- trouble


def test_r17_a_queue_that_was_never_declared_is_refused_at_once() -> None:
    world = make_world(declared=False)
    with pytest.raises(QueueNotDeclared, match=r"lvq\.q.*never declared, or its group has expired") as caught:
        Consumer(world, QueueDefinition(name="q", topic=TOPIC, key_header=None), TEXT)
    assert caught.value.queue == "q"


def test_r17_partitions_that_were_added_later_are_an_error_and_not_a_silent_start(world: World) -> None:
    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.partitions == (0,))
        world.add_partitions(TOPIC, 2)
        with pytest.raises(QueueNotDeclared, match="partition 1"):
            take(consumer)
        with pytest.raises(QueueNotDeclared):
            take(consumer)


def test_a_missing_topic_is_said_at_once(memory_log: MemoryLog) -> None:
    with pytest.raises(TopicNotFound):
        Consumer(memory_log, QueueDefinition(name="q", topic=TOPIC, key_header=None), TEXT)


def test_a_topic_that_was_created_anew_is_an_error() -> None:
    world = make_world()
    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.partitions == (0,))
        world.delete_topic(TOPIC)
        with pytest.raises((TopicNotFound, TopicRecreated, QueueNotDeclared)):
            take(consumer)


def test_a_topic_created_anew_between_two_assignments_is_noticed(world: World) -> None:
    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.partitions == (0,))
        consumer._consuming._topic_id = "another"
        world.expel(world.members[0])
        with pytest.raises(TopicRecreated):
            take(consumer)


def test_a_commit_beyond_the_end_of_the_log_is_an_error_and_not_a_jump(world: World) -> None:
    world.send(("a", "a"))
    world.commit("lvq.q", TOPIC, {0: Commit(17)})
    with consuming(world) as consumer, pytest.raises(DataLoss, match="up to offset 17"):
        take(consumer)


def test_a_commit_below_the_start_of_the_log_goes_on_at_the_start(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(10)))
    world.delete_records(TOPIC, 0, 8)
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["8", "9"]


def test_a_queue_declared_for_what_is_to_come_beside_an_open_transaction_gets_what_it_hides(world: World) -> None:
    writer = world.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append(TOPIC, b"a", b"hidden")
    world.send(("b", "behind it"))
    declare_group(world, "lvq.late", TOPIC, "latest")
    definition = QueueDefinition(name="late", topic=TOPIC, key_header=None)
    with consuming(world, definition=definition) as consumer:
        assert nothing_comes(consumer)
        writer.commit_transaction()
        assert drain(consumer, 2) == ["hidden", "behind it"]


def test_a_position_behind_an_open_transaction_is_no_data_loss(world: World) -> None:
    writer = world.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append(TOPIC, b"a", b"hidden")
    world.commit("lvq.q", TOPIC, {0: Commit(1)})
    with consuming(world) as consumer:
        assert nothing_comes(consumer)
        world.send(("b", "behind it"))
        writer.commit_transaction()
        assert drain(consumer, 1) == ["behind it"]


@pytest.mark.parametrize("question", ["describe_topic", "start_offsets", "end_offsets"])
def test_a_partition_that_came_in_an_outage_is_begun_when_it_is_over(
    world: World, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming._PATIENCE", 0.0)
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        with take(consumer):
            pass
        settled_up(world, consumer)
        lost = TransportError("no leader", code="LEADER_NOT_AVAILABLE", retriable=True)
        world.fail_next(question, lost, times=3)
        world.expel(world.members[0])
        eventually(lambda: "no leader" in consumer.stats.trouble)
        world.send(("a", "a2"))
        assert drain(consumer, 1) == ["a2"]
        assert consumer.stats.trouble == ""


def test_an_outage_is_survived_and_said(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.disconnect()
        eventually(lambda: consumer.stats.trouble)
        first.ack()
        world.reconnect()
        world.send(("a", "a2"))
        assert drain(consumer, 1) == ["a2"]
        assert consumer.stats.trouble == ""


def test_an_error_that_does_not_pass_stops_the_consumer_and_comes_out_of_every_call(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.fail_next("poll", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
        for _ in range(2):
            with pytest.raises(Unauthorized):
                take(consumer)
        eventually(lambda: held.state is State.LOST)
        with pytest.raises(LockLost):
            held.ack()


def test_an_error_of_another_kind_comes_out_as_reader_failed_with_its_cause(world: World) -> None:
    with consuming(world) as consumer:
        world.fail_next("poll", ZeroDivisionError("oops"))
        with pytest.raises(ReaderFailed, match="oops") as caught:
            take(consumer)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_closed_consumer_refuses_and_can_be_closed_again(world: World) -> None:
    with consuming(world) as consumer:
        consumer.close()
        with pytest.raises(Closed):
            consumer.acquire(0)
        assert list(consumer) == []
        consumer.close()


def test_close_wakes_whoever_waits_for_a_message(world: World) -> None:
    seen: list[Any] = []
    with consuming(world) as consumer:
        thread = threading.Thread(target=lambda: seen.append(list(consumer)))
        thread.start()
        eventually(lambda: consumer.stats.partitions == (0,))
        consumer.close()
        thread.join(5)
    assert seen == [[]]


@pytest.mark.parametrize(
    "options",
    [{"max_in_work": 0}, {"commit_interval": -1}, {"revoke_grace": 100}],
    ids=lambda options: next(iter(options)),
)
def test_an_option_out_of_range_is_named(world: World, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Consumer(world, QueueDefinition(name="q", topic=TOPIC, key_header=None), TEXT, **options)


# ---------------------------------------------------------------- the group's beginning


def test_declare_group_starts_at_the_existing_values_or_at_those_to_come() -> None:
    world = make_world(partitions=2, declared=False)
    world.send(("a", "a"), partition=1)
    assert declare_group(world, "early", TOPIC)
    assert declare_group(world, "late", TOPIC, "latest")
    offsets: Callable[[str], dict[int, int]] = lambda group: {  # noqa: E731
        partition: commit.offset for partition, commit in world.committed(group, TOPIC).items()
    }
    assert (offsets("early"), offsets("late")) == ({0: 0, 1: 0}, {0: 0, 1: 1})


def test_declare_group_does_not_move_what_is_there(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        drain(consumer, 1)
    assert declare_group(world, "lvq.q", TOPIC) is False
    assert world.committed_offsets() == {0: 1}


def test_declare_group_refuses_to_guess_where_only_some_partitions_have_a_position(world: World) -> None:
    world.add_partitions(TOPIC, 3)
    with pytest.raises(QueueNotDeclared, match="partitions 1, 2"):
        declare_group(world, "lvq.q", TOPIC, queue="q")


def test_declare_group_tries_again_while_the_coordinator_is_loading() -> None:
    world = make_world(declared=False)
    loading = TransportError("loading", code="COORDINATOR_LOAD_IN_PROGRESS", retriable=True)
    world.fail_next("committed", loading)
    world.fail_next("commit", loading)
    assert declare_group(world, "lvq.q", TOPIC)
    assert world.committed_offsets() == {0: 0}
    world.fail_next("committed", loading, times=1000)
    with pytest.raises(TransportError, match="loading"):
        declare_group(world, "lvq.q", TOPIC, timeout=0.15)
