"""Messages that cannot be processed: first to the dead letter topic, then out of the queue."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest

from lvq_kafka.codecs import BYTES, JSON
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import (
    BrokerUnavailable,
    ConfigError,
    DeliveryFailed,
    DeliveryUnknown,
    LockLost,
    TopicNotFound,
    TransportError,
)
from lvq_kafka.testing.memory_writer import CLIENT_LIMIT
from tests.unit.consuming.world import (
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

DEAD = "dead"


@pytest.fixture
def world() -> World:
    world = make_world()
    world.topics.create(DEAD, partitions=1, config={})
    return world


@pytest.fixture(autouse=True)
def soon_again(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.dead_letters._AGAIN", 0.02)


def test_a_rejected_message_goes_to_the_dead_letters_as_it_was_with_what_is_to_know(world: World) -> None:
    world.write(TOPIC, b"IBM", b"118", [("ticker", b"IBM"), ("note", None)])
    with consuming(world, dead_letters=DEAD) as consumer:
        take(consumer).reject("no such exchange: é").result(10)
    (dead,) = world.records(DEAD)
    assert (dead.key, dead.value) == (b"IBM", b"118")
    assert dead.headers == (
        ("ticker", b"IBM"),
        ("note", None),
        ("lvq-dlq-source", b"prices/0/0"),
        ("lvq-dlq-count", b"1"),
        ("lvq-dlq-reason", "no such exchange: é".encode()),
    )
    assert world.committed_offsets() == {0: 1}


def test_a_message_that_was_delivered_too_often_says_how_often(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, dead_letters=DEAD, max_deliveries=3) as consumer:
        for number in range(3):
            delivery = take(consumer)
            assert (delivery.value, delivery.delivery_count) == ("a", number + 1)
            delivery.release()
        assert drain(consumer, 1) == ["b"]
        settled_up(world, consumer)
        assert (consumer.stats.rejected, consumer.stats.in_work) == (1, 0)
    (dead,) = world.records(DEAD)
    assert dict(dead.headers) == {
        "lvq-dlq-source": b"prices/0/0",
        "lvq-dlq-count": b"3",
        "lvq-dlq-reason": b"delivered 3 times and never acknowledged",
    }


def test_without_a_topic_a_message_that_was_delivered_too_often_is_removed_and_the_next_comes_at_once(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(5)))
    with consuming(world, max_deliveries=1, max_in_work=5) as consumer:
        Clock(consumer)  # no lease expires, which would wake waiters too
        for delivery in consumer.acquire_many(4, 10):
            delivery.release()
        assert drain(consumer, 1) == ["4"]
        settled_up(world, consumer)
        assert consumer.stats.rejected == 4
    assert "prices/0/0 was rejected and removed: delivered 1 times and never acknowledged" in caplog.text


def test_a_newer_value_is_counted_anew(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world, dead_letters=DEAD, max_deliveries=2) as consumer:
        take(consumer).release()
        world.send(("a", "a2"))
        has_read_all(world, consumer)
        for _ in range(2):
            delivery = take(consumer)
            assert delivery.value == "a2"
            delivery.release()
        assert nothing_comes(consumer)
    assert world.texts(DEAD) == ["a2"]


def test_a_long_reason_is_cut_off_at_a_character(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        take(consumer).reject("x" * 999 + "é" * 5000).result(10)
    assert dict(world.records(DEAD)[0].headers)["lvq-dlq-reason"] == b"x" * 999


def test_a_reason_that_is_no_text_for_the_wire_is_written_as_well_as_it_goes(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        take(consumer).reject("bad \ud800 text").result(10)
    assert dict(world.records(DEAD)[0].headers)["lvq-dlq-reason"] == b"bad ? text"


def test_a_message_that_has_no_room_for_more_headers_becomes_a_dead_letter_as_it_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    """The client refuses one of two messages, and the broker the other."""
    largest = {"client": CLIENT_LIMIT, "broker": 10_000}
    values = {key: b"v" * (size - len(key)) for key, size in largest.items()}
    world.topics.alter_config(TOPIC, {"max.message.bytes": str(CLIENT_LIMIT)})
    world.topics.alter_config(DEAD, {"max.message.bytes": str(2 * CLIENT_LIMIT)})
    for key, value in values.items():
        world.write(TOPIC, key.encode(), value)
    with consuming(world, codec=BYTES, dead_letters=DEAD) as consumer:
        take(consumer).reject("of no use").result(10)
        world.topics.alter_config(DEAD, {"max.message.bytes": str(largest["broker"])})
        take(consumer).reject("of no use").result(10)
        assert consumer.stats.rejected == 2
    assert {dead.key.decode(): (dead.value, dead.headers) for dead in world.records(DEAD)} == {
        key: (value, ()) for key, value in values.items()
    }
    assert "prices/0/1 has no room for headers" in caplog.text
    assert "prices/0/1 was rejected and moved to dead: of no use" in caplog.text


def test_in_a_transaction_too_a_message_that_has_no_room_for_more_headers_becomes_a_dead_letter_as_it_is(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    value = b"v" * (CLIENT_LIMIT - 1)
    for topic in TOPIC, DEAD:
        world.topics.alter_config(topic, {"max.message.bytes": str(CLIENT_LIMIT)})
    world.write(TOPIC, b"a", value)
    with consuming(world, codec=BYTES, dead_letters=DEAD) as consumer, world.producer() as producer:
        with consumer.transaction(producer) as transaction:
            (delivery,) = transaction.acquire_many(1, 10)
            settlement = delivery.reject("of no use")
        settlement.result(10)
        assert consumer.stats.rejected == 1
    assert [(dead.value, dead.headers) for dead in world.records(DEAD)] == [(value, ())]
    assert "prices/0/0 has no room for headers" in caplog.text


def test_a_dead_letter_that_the_broker_refuses_for_its_size_aborts_one_transaction_not_all(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    value = b"v" * 9_999
    world.topics.alter_config(DEAD, {"max.message.bytes": "10000"})
    world.write(TOPIC, b"a", value)
    with consuming(world, codec=BYTES, dead_letters=DEAD) as consumer, world.producer() as producer:
        with (
            pytest.raises(TransportError, match="An append of this transaction failed"),
            consumer.transaction(producer) as transaction,
        ):
            transaction.acquire_many(1, 10)[0].reject("of no use")
        with consumer.transaction(producer) as transaction:
            transaction.acquire_many(1, 10)[0].reject("of no use")
        assert consumer.stats.rejected == 1
    assert [(dead.value, dead.headers) for dead in world.records(DEAD)] == [(value, ())]
    assert "prices/0/0 has no room for headers" in caplog.text


# ---------------------------------------------------------------- dead letters that cannot be stored


def test_a_message_that_is_too_large_for_the_dead_letter_topic_comes_again(world: World) -> None:
    world.topics.alter_config(DEAD, {"max.message.bytes": "10"})
    world.send(("a", "0123456789"))
    with consuming(world, dead_letters=DEAD) as consumer:
        with pytest.raises(DeliveryFailed, match=r"dead letter of prices/0/0 could not be stored.*max\.message\.bytes"):
            take(consumer).reject("bad").result(10)
        again = take(consumer)
        world.topics.alter_config(DEAD, {"max.message.bytes": "10000"})
        again.reject("bad").result(10)
    assert dict(world.records(DEAD)[0].headers)["lvq-dlq-reason"] == b"bad"


@pytest.mark.parametrize(
    "failure",
    [
        DeliveryFailed("refused", key=b"a", code="INVALID_RECORD"),
        TransportError("no room", code="_QUEUE_FULL", retriable=True),
    ],
    ids=["receipt", "call"],
)
def test_a_message_whose_dead_letter_is_not_stored_comes_again(
    world: World, failure: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.fail_next("append", failure)
        settlement = delivery.reject("bad")
        assert "the dead letter of prices/0/0 could not be stored" in caplog.text
        assert "the dead letter of prices/0/0 could not be stored" in consumer.stats.trouble
        again = take(consumer)
        assert (again.value, again.redelivered, again.delivery_count) == ("a", True, 2)
        with pytest.raises(DeliveryFailed, match=r"dead letter of prices/0/0 could not be stored.*comes again"):
            settlement.result(10)
        assert world.texts(DEAD) == []
        again.reject("bad").result(10)
        assert consumer.stats.trouble == ""
    assert world.texts(DEAD) == ["a"]


def test_a_message_whose_dead_letter_may_have_been_stored_comes_again_too(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.lose_answers("append")
        with pytest.raises(DeliveryUnknown, match=r"dead letter of prices/0/0 may not have been stored.*comes again"):
            delivery.reject("bad").result(10)
        assert "the dead letter of prices/0/0 may not have been stored" in caplog.text
        take(consumer).reject("bad").result(10)
    assert world.texts(DEAD) == ["a", "a"]


def test_the_source_is_not_done_before_the_dead_letter_is_stored(world: World) -> None:
    world.send(("a", "a"), ("b", "b"))
    with consuming(world, dead_letters=DEAD) as consumer:
        first, second = take(consumer), take(consumer)
        world.disconnect()
        rejected = first.reject("bad")
        assert (first.state, first.settled) == (MessageState.LEAVING, True)
        with dead_letters_held(world):
            second.ack(wait=True, timeout=10)
            assert world.committed_map().runs == (1, 1), "the rejected one is not done"
            assert not rejected.done()
            assert nothing_comes(consumer), "nobody gets it meanwhile"
        rejected.result(10)
        assert (world.texts(DEAD), world.committed_offsets()) == (["a"], {0: 2})


@contextmanager
def dead_letters_held(world: World) -> Iterator[None]:
    """Keep writes waiting in the client until the end of the block, although the cluster is reachable."""
    cluster = world._state
    waiting, cluster.outbox[:] = list(cluster.outbox), []
    world.reconnect()
    try:
        yield
    finally:
        with cluster.changed:
            cluster.outbox += waiting
            stored = [send() for send in waiting]
        for tell in stored:
            tell()


def test_a_rejection_in_an_outage_is_made_good_when_it_is_over(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.disconnect()
        settlement = delivery.reject("bad")
        world.reconnect()
        settlement.result(10)
    assert world.texts(DEAD) == ["a"]


def test_a_crash_before_the_dead_letter_is_stored_brings_the_message_again(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.disconnect()
        delivery.reject("bad")
        with dead_letters_held(world):
            world.expel(world.members[0])
            eventually(lambda: delivery.state is MessageState.LOST)
            assert world.texts(DEAD) == []
            assert drain(consumer, 1) == ["a"]


def test_a_crash_after_the_dead_letter_and_before_the_commit_brings_it_twice_with_one_source(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD, commit_interval=60) as consumer:
        take(consumer).reject("bad")
        assert world.texts(DEAD) == ["a"]
        world.expel(world.members[0])
        take(consumer).reject("bad").result(10)
    sources = {dict(record.headers)["lvq-dlq-source"] for record in world.records(DEAD)}
    assert (world.texts(DEAD), sources) == (["a", "a"], {b"prices/0/0"})


def test_a_dead_letter_stored_after_the_partition_has_gone_leaves_the_message_to_who_has_it(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.disconnect()
        settlement = delivery.reject("bad")
        with dead_letters_held(world):
            world.expel(world.members[0])
            eventually(lambda: delivery.state is MessageState.LOST)
        assert isinstance(settlement.future().exception(10), LockLost)
        assert world.texts(DEAD) == ["a"]
        assert drain(consumer, 1) == ["a"]


def test_a_message_that_was_replaced_while_its_dead_letter_was_written_is_gone_either_way(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.send(("a", "a2"))
        has_read_all(world, consumer)
        world.fail_next("append", DeliveryFailed("refused", key=b"a", code="INVALID_RECORD"))
        delivery.reject("bad")
        assert drain(consumer, 1) == ["a2"]


def test_a_second_settlement_is_refused_while_the_dead_letter_is_on_its_way(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.disconnect()
        delivery.reject("bad")
        settle: list[Callable[[], object]] = [delivery.ack, delivery.release, delivery.reject, delivery.extend]
        for one in settle:
            with pytest.raises(Exception, match="leaving") as caught:
                one()
            assert not isinstance(caught.value, LockLost)
        world.reconnect()


def test_close_waits_for_dead_letters_and_commits_what_they_have_removed(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD, commit_interval=60) as consumer:
        take(consumer).reject("bad")
    assert (world.texts(DEAD), world.committed_offsets()) == (["a"], {0: 1})


def test_close_in_an_outage_gives_up_on_dead_letters_in_time(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world, dead_letters=DEAD) as consumer:
        delivery = take(consumer)
        world.disconnect()
        delivery.reject("bad")
        consumer.close(0.2)
        world.reconnect()
    with consuming(world, dead_letters=DEAD) as consumer:
        assert drain(consumer, 1) == ["a"]


# ---------------------------------------------------------------- options


def test_a_dead_letter_topic_that_is_missing_is_said_at_once(world: World) -> None:
    with pytest.raises(TopicNotFound, match="nowhere"), consuming(world, dead_letters="nowhere"):
        pass


def test_the_topic_of_the_queue_cannot_take_its_dead_letters(world: World) -> None:
    with pytest.raises(ConfigError, match="the queue's own topic"), consuming(world, dead_letters=TOPIC):
        pass


def test_max_deliveries_is_one_at_least(world: World) -> None:
    with pytest.raises(ConfigError, match="max_deliveries"), consuming(world, max_deliveries=0):
        pass


def test_values_that_cannot_be_read_go_to_the_dead_letters_too(world: World) -> None:
    world.send(("a", "{"), ("b", "1"))
    with consuming(world, JSON, dead_letters=DEAD, undecodable="skip") as consumer:
        with take(consumer) as delivery:
            assert delivery.value == 1
        settled_up(world, consumer)
    (dead,) = world.records(DEAD)
    assert dead.value == b"{"
    assert b"prices/0/0" in (dict(dead.headers)["lvq-dlq-reason"] or b"")


def test_dead_letters_that_fail_for_a_while_are_logged_once_and_written_in_the_end(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    world.send(("a", "a"), ("b", "b"))
    away = BrokerUnavailable("away", code="_TRANSPORT", retriable=True)
    world.fail_next("append", away, times=3)
    with consuming(world, dead_letters=DEAD) as consumer, in_thread(lambda: reject_all_a(consumer)):
        settled_up(world, consumer)
        consumer.close()
    assert world.texts(DEAD) == ["a"]
    assert caplog.text.count("could not be stored") == 1


def reject_all_a(consumer: Consumer[str]) -> None:
    for delivery in consumer:
        with delivery:
            if delivery.value == "a":
                delivery.reject("bad")
