"""The consumer on a real broker: membership, catch-up, commits, and killed members."""

from __future__ import annotations

import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.delivery import Delivery
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.errors import GroupNotFound, LockLost, MessageTooLarge, PartitionsAdded, TransportError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.producing.producer import Producer
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.cable import Cable
from tests.contract.harness import pairs, read_all, settled
from tests.rules import rules
from tests.running import ROOT
from tests.waiting import eventually


class World:
    """A declared queue on the real broker."""

    def __init__(self, cluster: KafkaCluster, topic: str, partitions: int) -> None:
        self.cluster = cluster
        self.definition = QueueDefinition(name=topic, topic=topic, key_header=None)
        cluster.topics.create(topic, partitions=partitions, config={"cleanup.policy": "compact"})
        declare_group(cluster, self.definition.group, topic)

    def send(self, *records: tuple[str, str | None]) -> None:
        writer = self.cluster.writer()
        receipts = [
            writer.append(self.definition.topic, key.encode(), None if value is None else value.encode())
            for key, value in records
        ]
        writer.close(30)
        for receipt in receipts:
            receipt.result(0)

    def committed(self) -> dict[int, int]:
        found = self.cluster.groups.committed(self.definition.group, self.definition.topic)
        return {partition: commit.offset for partition, commit in found.items()}

    def ends(self) -> dict[int, int]:
        return self.cluster.logs.end_offsets(self.definition.topic)

    @contextmanager
    def consuming(
        self, properties: dict[str, Any] | None = None, *, servers: str | None = None, **options: Any
    ) -> Iterator[Consumer[str]]:
        cluster = KafkaCluster(ClientConfig(servers or self.cluster.config.bootstrap_servers, properties or {}))
        options.setdefault("revoke_grace", 0.0)
        try:
            with Consumer(cluster, self.definition, TEXT, **options) as consumer:
                yield consumer
        finally:
            cluster.close()


@pytest.fixture
def one_partition(kafka_cluster: KafkaCluster, topic_name: str) -> World:
    return World(kafka_cluster, topic_name, 1)


@pytest.fixture
def four_partitions(kafka_cluster: KafkaCluster, topic_name: str) -> World:
    return World(kafka_cluster, topic_name, 4)


def take(consumer: Consumer[str], timeout: float = 30.0) -> Delivery[str]:
    delivery = consumer.acquire(timeout)
    assert delivery is not None, f"no message came: {consumer.stats}"
    return delivery


def shared_evenly(one: Consumer[str], two: Consumer[str]) -> None:
    eventually(lambda: len(one.stats.partitions) == len(two.stats.partitions) == 2, 30)


def test_g12_a_consumer_hands_out_only_newest_values_of_a_long_log(one_partition: World) -> None:
    one_partition.send(*((f"k{number % 50}", str(number)) for number in range(20_000)))
    with one_partition.consuming() as consumer:
        values = []
        for _ in range(50):
            with take(consumer) as delivery:
                values.append(int(delivery.value))
        assert values == list(range(19_950, 20_000))
        assert consumer.acquire(0.2) is None
    assert one_partition.committed() == one_partition.ends()


def test_g11_acks_in_any_order_are_durable_and_none_of_them_comes_again(one_partition: World) -> None:
    one_partition.send(("a", "a"), ("b", "b"), ("c", "c"))
    with one_partition.consuming(commit_interval=0.01) as consumer:
        *_, third = (take(consumer) for _ in range(3))
        third.ack(wait=True, timeout=30)
        assert one_partition.committed() == {0: 0}
    with one_partition.consuming() as consumer:
        again = [take(consumer), take(consumer)]
        assert [(delivery.value, delivery.redelivered) for delivery in again] == [("a", True), ("b", True)]
        assert consumer.acquire(0.3) is None
        again[1].ack()
        again[0].ack(wait=True, timeout=30)
        assert one_partition.committed() == {0: 3}


def test_g11_a_durable_ack_survives_and_g10_the_rest_comes_again(one_partition: World) -> None:
    one_partition.send(("a", "a"), ("b", "b"), ("a", None), ("c", "c"))
    with one_partition.consuming() as consumer:
        take(consumer).ack(wait=True, timeout=30)
        held = take(consumer)
    with pytest.raises(LockLost):
        held.ack()
    with one_partition.consuming() as consumer:
        assert take(consumer).value == "c"
        assert consumer.acquire(0.2) is None


def test_g11_many_that_are_acked_at_once_are_durable_at_once_and_leave_with_a_transaction(
    four_partitions: World,
) -> None:
    cluster, out = four_partitions.cluster, f"{four_partitions.definition.topic}.out"
    cluster.topics.create(out, partitions=1, config={})
    four_partitions.send(*((f"k{number % 400}", str(number)) for number in range(2_000)))
    kept: list[str] = []
    moved: list[str] = []
    with four_partitions.consuming() as consumer:
        while len(kept) < 200:
            batch = consumer.acquire_many(50, 30)
            consumer.ack_many(batch, wait=True, timeout=30)
            kept += [delivery.value for delivery in batch]
    with (
        four_partitions.consuming() as consumer,
        Producer(cluster, rules(topic=out, key_header=None), value=TEXT, transactional_id=out) as producer,
    ):
        while len(kept) + len(moved) < 400:
            with consumer.transaction(producer) as tx:
                batch = tx.acquire_many(50, 30)
                for delivery in batch:
                    producer.put(delivery.key, delivery.value)
                tx.ack_many(batch)
            moved += [delivery.value for delivery in batch]
    assert sorted(map(int, kept + moved)) == list(range(1_600, 2_000))
    assert four_partitions.committed() == four_partitions.ends()
    settled(cluster, out)
    assert [value for _, value in pairs(read_all(cluster, out))] == moved
    cluster.topics.delete(out)


def test_a_dead_letter_that_the_broker_refuses_for_its_size_does_not_abort_every_transaction(
    one_partition: World, caplog: pytest.LogCaptureFixture
) -> None:
    cluster, dead = one_partition.cluster, f"{one_partition.definition.topic}.dead"
    cluster.topics.create(dead, partitions=1, config={"max.message.bytes": "10000"})
    value = "v" * 9_900
    one_partition.send(("a", value))

    def reject() -> bool:
        try:
            with consumer.transaction(producer) as tx, tx.acquire_many(1, 30)[0] as delivery:
                delivery.reject("of no use" * 20)
        except TransportError as error:
            refused.append(error)
            return False
        return True

    refused: list[TransportError] = []
    with (
        one_partition.consuming(dead_letters=dead) as consumer,
        Producer(cluster, rules(topic=dead, key_header=None), value=TEXT, transactional_id=dead) as producer,
    ):
        eventually(reject, 60)
    assert [type(error) for error in refused][:1] == [MessageTooLarge]
    settled(cluster, dead)
    [letter] = read_all(cluster, dead)
    assert (letter.value, letter.headers) == (value.encode(), ())
    assert "has no room for headers" in caplog.text
    cluster.topics.delete(dead)


def test_aborted_transactions_and_markers_at_the_end_of_the_log_hold_nothing_up(one_partition: World) -> None:
    one_partition.send(("a", "a"))
    writer = one_partition.cluster.writer(transactional_id=f"tx-{one_partition.definition.topic}")
    for _ in range(2):
        writer.begin_transaction()
        writer.append(one_partition.definition.topic, b"a", b"never")
        writer.abort_transaction(30)
    writer.close(30)
    with one_partition.consuming() as consumer:
        with take(consumer) as delivery:
            assert delivery.value == "a"
        eventually(lambda: one_partition.committed() == one_partition.ends())


def test_a_second_member_takes_half_and_only_the_locks_of_what_moves_are_lost(four_partitions: World) -> None:
    keys = [f"k{number}" for number in range(40)]
    four_partitions.send(*((key, key) for key in keys))
    with four_partitions.consuming() as one:
        held = [take(one) for _ in keys]
        with four_partitions.consuming() as two:
            shared_evenly(one, two)
            kept = one.stats.partitions
            assert {delivery.position.partition for delivery in held} == {0, 1, 2, 3}
            for delivery in held:
                if delivery.position.partition in kept:
                    assert delivery.state is MessageState.ACQUIRED
                    delivery.ack(wait=True, timeout=30)
                else:
                    with pytest.raises(LockLost):
                        delivery.ack()
            moved = {delivery.value for delivery in held if delivery.position.partition not in kept}
            again = set()
            for _ in moved:
                with take(two) as delivery:
                    again.add(delivery.value)
            assert again == moved
            assert (one.acquire(0.2), two.acquire(0.2)) == (None, None)
    assert four_partitions.committed() == four_partitions.ends()


def test_work_that_ends_within_the_grace_is_not_done_twice(four_partitions: World) -> None:
    keys = [f"k{number}" for number in range(40)]
    four_partitions.send(*((key, key) for key in keys))
    done: list[str] = []
    with four_partitions.consuming(revoke_grace=30.0) as one:
        held = [take(one) for _ in keys]
        with four_partitions.consuming() as two:
            eventually(lambda: any(not part.open for part in one._shared.core.ledger._partitions.values()), 30)
            for delivery in held:
                delivery.ack()
                done.append(delivery.value)
            shared_evenly(one, two)
            assert (one.acquire(0.2), two.acquire(0.2)) == (None, None)
    assert sorted(done) == sorted(keys)
    assert four_partitions.committed() == four_partitions.ends()


def test_g10_g11_a_killed_member_loses_nothing_and_what_it_acked_durably_stays_gone(
    broker: ProvidedBroker, four_partitions: World
) -> None:
    keys = [f"k{number}" for number in range(60)]
    four_partitions.send(*((key, f"{key}.0") for key in keys), *((key, f"{key}.1") for key in keys))
    definition = four_partitions.definition
    seen: dict[str, set[str]] = {"acked": set(), "held": set()}
    with subprocess.Popen(
        [
            sys.executable,
            "-m",
            "tests.integration.consuming_process",
            broker.bootstrap_servers,
            definition.name,
            definition.topic,
        ],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            assert process.stdout is not None
            for line in process.stdout:
                kind, position = line.split()
                seen[kind].add(position)
                if len(seen["held"]) == 20:
                    break
            with four_partitions.consuming({"session.timeout.ms": 6000}) as survivor:
                eventually(lambda: len(survivor.stats.partitions) == 2, 30)
                process.send_signal(signal.SIGKILL)
                taken: dict[str, str] = {}
                while len(taken) < 50:
                    with take(survivor) as delivery:
                        taken[str(delivery.position)] = delivery.value
                assert survivor.acquire(0.2) is None
        finally:
            process.kill()
    assert len(seen["acked"]) == 10
    assert not seen["acked"] & taken.keys(), "a durable ack was forgotten"
    assert seen["held"] <= taken.keys(), "what the killed member held was lost"
    assert all(value.endswith(".1") for value in taken.values()), "a superseded value came back"
    assert len({value.split(".")[0] for value in taken.values()}) == 50
    assert four_partitions.committed() == four_partitions.ends()


def test_slow_work_does_not_cost_the_membership(one_partition: World) -> None:
    one_partition.send(("a", "a1"))
    with one_partition.consuming({"session.timeout.ms": 6000, "max.poll.interval.ms": 6000}) as consumer:
        delivery = take(consumer)
        assert consumer.acquire(8) is None
        assert delivery.state is MessageState.ACQUIRED
        delivery.ack(wait=True, timeout=30)


def test_the_new_consumer_protocol_shares_and_takes_over_as_well(four_partitions: World) -> None:
    keys = [f"k{number}" for number in range(20)]
    four_partitions.send(*((key, key) for key in keys))
    protocol = {"group.protocol": "consumer"}
    with four_partitions.consuming(protocol) as one:
        first = take(one)
        with four_partitions.consuming(protocol) as two:
            shared_evenly(one, two)
            settled = first.position.partition in one.stats.partitions
            if settled:
                first.ack(wait=True, timeout=30)
        eventually(lambda: len(one.stats.partitions) == 4, 30)
        taken = set()
        for _ in range(20 - settled):
            with take(one) as delivery:
                taken.add(delivery.value)
        assert taken == set(keys) - ({first.value} if settled else set())


@pytest.mark.timeout(300)
@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_zombie_in_a_transaction_is_fenced_and_its_output_never_seen(one_partition: World, protocol: str) -> None:
    cluster, out = one_partition.cluster, f"{one_partition.definition.topic}.out"
    properties = {"classic": {"session.timeout.ms": 6000}, "consumer": {"group.protocol": "consumer"}}[protocol]
    cluster.topics.create(out, partitions=1, config={})
    one_partition.send(("a", "a"))

    def producer(name: str) -> Producer[Any]:
        return Producer(cluster, rules(topic=out, key_header=None), value=TEXT, transactional_id=f"{out}.{name}")

    def overtaken(zombie: Consumer[str], its_output: Producer[Any]) -> None:
        with zombie.transaction(its_output) as tx:
            (delivery,) = tx.acquire_many(1, 60)
            its_output.put("a", "the zombie's").result(30)
            delivery.ack()
            cable.cut()
            with (
                one_partition.consuming(properties) as successor,
                producer("successor") as output,
                successor.transaction(output) as theirs,
            ):
                (again,) = theirs.acquire_many(1, 120)
                output.put("a", "its successor's")
                again.ack()

    with (
        Cable(cluster.config.bootstrap_servers) as cable,
        one_partition.consuming(properties, servers=cable.bootstrap_servers, commit_interval=60) as zombie,
        producer("zombie") as its_output,
    ):
        try:
            with pytest.raises(LockLost):
                overtaken(zombie, its_output)
        finally:
            cable.mend()
    settled(cluster, out)
    assert pairs(read_all(cluster, out)) == [("a", "its successor's")]
    assert one_partition.committed() == {0: 1}
    cluster.topics.delete(out)


def test_r17_an_undeclared_queue_and_one_whose_group_was_deleted_are_errors(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    kafka_cluster.topics.create(topic_name, partitions=2, config={"cleanup.policy": "compact"})
    definition = QueueDefinition(name=topic_name, topic=topic_name, key_header=None)
    with pytest.raises(GroupNotFound):
        Consumer(kafka_cluster, definition, TEXT)
    assert declare_group(kafka_cluster, definition.group, topic_name)
    assert not declare_group(kafka_cluster, definition.group, topic_name)
    with Consumer(kafka_cluster, definition, TEXT) as consumer:
        eventually(lambda: consumer.stats.partitions == (0, 1), 30)
    assert kafka_cluster.groups.delete(definition.group)
    with pytest.raises(GroupNotFound, match="expired or was deleted"):
        Consumer(kafka_cluster, definition, TEXT)


def test_r17_partitions_that_are_added_under_a_consumer_stop_it_with_a_reason(one_partition: World) -> None:
    one_partition.send(("a", "a"))
    with one_partition.consuming({"topic.metadata.refresh.interval.ms": 500}) as consumer:
        take(consumer).ack(wait=True, timeout=30)
        one_partition.cluster.topics.add_partitions(one_partition.definition.topic, 2)
        with pytest.raises(PartitionsAdded, match="partition 1"):
            take(consumer)


def test_a_consumer_that_is_left_behind_leaves_its_partition_to_another(one_partition: World) -> None:
    one_partition.send(("a", "a"), ("b", "b"))
    consumer = Consumer(one_partition.cluster, one_partition.definition, TEXT)
    take(consumer).ack()
    with pytest.warns(ResourceWarning, match=r"unclosed consumer of .*test_consumer\.py"):
        del consumer
    with one_partition.consuming() as another:
        assert take(another).value == "b"


def test_a_consumer_goes_on_when_the_broker_was_killed_and_is_back(
    private_broker: ProvidedBroker, topic_name: str
) -> None:
    cluster = KafkaCluster(private_broker.bootstrap_servers)
    world = World(cluster, topic_name, 1)
    world.send(("a", "a1"), ("b", "b1"))
    with world.consuming() as consumer:
        first = take(consumer)
        private_broker.kill()
        eventually(lambda: consumer.stats.trouble, 30)
        private_broker.restart()
        again: set[str] = set()
        try:
            first.ack(wait=True, timeout=60)
        except LockLost:  # the group has removed it meanwhile
            again = {"a1"}
        world.send(("a", "a2"))
        rest: set[str] = set()
        while not rest >= {"b1", "a2"}:
            with take(consumer, 60) as delivery:
                rest.add(delivery.value)
        assert rest <= {"b1", "a2"} | again
    assert world.committed() == world.ends()
    cluster.close()
