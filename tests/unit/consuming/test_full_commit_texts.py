"""Healthy messages next to ones that always fail, are delayed or held: they get through, with trouble reported."""

from __future__ import annotations

import logging
from random import Random
from threading import Thread

import pytest

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.errors import OutcomeUnknown
from tests.unit.consuming.world import GROUP, TOPIC, World, consuming, has_read_all, make_world, settled_up, take
from tests.waiting import eventually


def filled(messages: int, **options: int) -> World:
    world = make_world(**options)
    world.send(*((f"k{number}", str(number)) for number in range(messages)))
    return world


def scattered(messages: int) -> set[str]:
    """Return half of the values, without a pattern that a commit could shorten."""
    rng = Random(7)
    return {str(number) for number in range(messages) if rng.random() < 0.5}


def work(consumer: Consumer[str], healthy: set[str], *, delay: float) -> None:
    """Take and settle until all healthy messages are acked; the others fail."""
    left = set(healthy)
    while left:
        deliveries = consumer.acquire_many(200, 10)
        assert deliveries, f"{len(left)} healthy messages never come"
        for delivery in deliveries:
            if delivery.value in healthy:
                delivery.ack()
                left.remove(delivery.value)
            else:
                delivery.release(delay=delay)


def done_in(world: World) -> int:
    said = world.committed_map()
    return said.base + sum(said.runs[1::2])


@pytest.mark.parametrize("delay", [0.0, 3600.0])
@pytest.mark.parametrize("durable_counts", [False, True])
def test_where_every_second_of_6000_messages_fails_always_the_others_are_acked_durably(
    delay: float, durable_counts: bool
) -> None:
    world = filled(6000)
    with consuming(world, durable_counts=durable_counts) as consumer:
        work(consumer, {str(number) for number in range(1, 6000, 2)}, delay=delay)
        eventually(lambda: done_in(world) == 3000)
        assert (consumer.stats.gated, consumer.stats.omitted, consumer.stats.trouble) == (0, 0, "")


def test_handlers_that_fail_always_leave_every_other_message_its_turn() -> None:
    world = filled(6000)
    handled: set[str] = set()

    def handle(delivery: Delivery[str]) -> None:
        if int(delivery.value) % 2 == 0:
            raise RuntimeError("it fails always")
        handled.add(delivery.value)

    logging.getLogger("lvq_kafka.consumer").disabled = True
    try:
        with consuming(world) as consumer:
            workers = Thread(target=lambda: consumer.run(handle, workers=4, retry_delay=0))
            workers.start()
            eventually(lambda: len(handled) == 3000, 60)
            consumer.close()
            workers.join(20)
    finally:
        logging.getLogger("lvq_kafka.consumer").disabled = False


def test_beyond_the_room_messages_go_on_and_it_is_said_what_is_in_the_way(caplog: pytest.LogCaptureFixture) -> None:
    world = filled(12_000, metadata_limit=1000)
    healthy = scattered(12_000)
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        consumer._shared.core.ledger.capacity.limit = 1000
        work(consumer, healthy, delay=3600.0)
        eventually(lambda: consumer.stats.omitted > 1000)
        stats = consumer.stats
        assert stats.gated == 0
        assert stats.commit_text <= stats.text_limit == 1000
        lowest = min(set(range(12_000)) - set(map(int, healthy)))
        assert "runs of acked messages are not stored and come again after a crash" in stats.trouble
        assert f"the lowest is offset {lowest}, delayed" in stats.trouble
        assert "offset.metadata.max.bytes" in stats.trouble
        eventually(lambda: sum("commit text" in record.message for record in caplog.records) == 1)
    done = world.committed_map()
    assert "gives up partition 0: the commit text had no room for all acks" in caplog.text
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        assert consumer.stats.available == 12_000 - sum(map(done.done, range(12_000)))
        assert done.runs, "what was durable does not come again"


def test_a_caller_that_waits_for_an_ack_without_room_learns_when_there_is_some() -> None:
    world = filled(400, metadata_limit=64)
    with consuming(world, max_in_work=400) as consumer:
        has_read_all(world, consumer)
        consumer._shared.core.ledger.capacity.limit = 64
        held = {delivery.value: delivery for delivery in consumer.acquire_many(400, 10)}
        healthy = scattered(400) - {"0"}
        acked = [held.pop(value).ack() for value in healthy]
        settled = [settlement.future() for settlement in acked]
        eventually(lambda: consumer.stats.omitted > 0)
        commits = eventually(lambda: any(future.done() for future in settled) and consumer.stats.commits)
        eventually(lambda: not consumer._shared.core.is_urgent(consumer._shared.clock()), 10)
        assert not all(future.done() for future in settled)
        assert consumer.stats.commits <= commits + 2, "nothing new can be said"
        with pytest.raises(OutcomeUnknown) as caught:
            max(acked, key=lambda settlement: settlement._item.offset).result(0.01)
        assert "runs of acked messages are not stored" in caught.value.hint
        for delivery in held.values():
            delivery.ack()
        for future in settled:
            future.result(10)


def test_a_broker_that_takes_longer_texts_is_asked_and_used() -> None:
    world = filled(40_000, metadata_limit=20_000)
    healthy = scattered(40_000)
    with consuming(world) as consumer:
        assert consumer.stats.text_limit == 4095
        work(consumer, healthy, delay=3600.0)
        eventually(lambda: done_in(world) == len(healthy), 20)
        assert consumer.stats.text_limit == 20_000
        assert len(world.groups.committed(GROUP, TOPIC)[0].metadata) > 4095
        assert consumer.stats.trouble == ""
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        assert consumer.stats.available == 40_000 - len(healthy)


def test_the_broker_is_asked_before_a_text_is_full() -> None:
    world = filled(16_000, metadata_limit=20_000)
    with consuming(world) as consumer:
        work(consumer, scattered(16_000), delay=3600.0)
        eventually(lambda: consumer.stats.text_limit == 20_000, 20)
        assert consumer.stats.commit_text < 4095


def test_a_transaction_is_never_given_what_it_could_not_commit() -> None:
    world = filled(1000, metadata_limit=200)
    with consuming(world) as consumer, world.producer() as producer:
        has_read_all(world, consumer)
        consumer._shared.core.ledger.capacity.limit = 200
        healthy, rounds = scattered(1000), 0
        while consumer.stats.gated == 0 and rounds < 1000:
            rounds += 1
            with consumer.transaction(producer) as tx:
                if (delivery := tx.acquire(0.5)) is None:
                    break
                if delivery.value in healthy:
                    delivery.ack()
                else:
                    delivery.release(delay=3600.0)
        assert 50 < rounds < 1000
        assert consumer.stats.gated > 0
        assert "because a transaction could not commit them" in consumer.stats.trouble


def test_evictions_scattered_over_the_log_may_fill_the_text_and_nothing_is_lost_or_stuck() -> None:
    """In a ring by rank, while one message stays in work for long."""
    world, random = make_world(metadata_limit=200), Random(7)
    limits = Limits(policy="ring", messages=500)
    queue = QueueDefinition(name="q", topic=TOPIC, key_header=None, order="priority", limits=limits)

    def send(offsets: range, *priorities: bytes) -> None:
        for at in offsets:
            world.write(TOPIC, b"%d" % at, b"%d" % at, headers=[(PRIORITY_HEADER, random.choice(priorities))])

    with consuming(world, definition=queue, max_in_work=1000) as consumer:
        consumer._shared.core.ledger.capacity.limit = 200
        send(range(1), b"9")
        held = take(consumer)
        send(range(1, 500), b"1", b"8")
        has_read_all(world, consumer)
        send(range(500, 700), b"8")
        eventually(lambda: consumer.stats.omitted > 0)
        has_read_all(world, consumer)
        assert (consumer.stats.evicted, consumer.stats.commit_text <= 200) == (200, True)
        assert "runs of acked or evicted messages are not stored and come again" in consumer.stats.trouble
        assert "the lowest is offset 0, acquired" in consumer.stats.trouble
        assert "add partitions, or raise the brokers' offset.metadata.max.bytes" in consumer.stats.trouble
        stored = world.committed_map()
        assert 0 < sum(map(stored.done, range(700))) < 200, "as many as there is room for, and after a crash the rest"
        waiting = {item.offset for item in consumer._shared.core.ledger._partitions[0].waiting.values()}
        came = []
        for _ in range(499):  # few may be in work at a time
            came.append(take(consumer))
            came[-1].ack()
        assert {delivery.position.offset for delivery in came} == waiting
        held.ack()
        settled_up(world, consumer)
        assert (world.committed_map().base, consumer.stats.trouble) == (700, "")
