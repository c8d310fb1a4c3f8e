"""Commits by other clients over a queue's own: refused or read as they are, and repaired.

Our clients append a NUL to their text, and rely on it when they read. Other clients write none, and are read past the
end of their text, with different garbage each time. None of that may count as text.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing

import pytest
from confluent_kafka import Consumer, ConsumerGroupTopicPartitions, TopicPartition
from confluent_kafka.admin import AdminClient

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.cluster import Commit
from lvq_kafka.embedded.jars import ensure_jars
from lvq_kafka.embedded.java import find_java
from lvq_kafka.errors import CommitMapRefused
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.wire import commit_as_others_do
from tests.unit.managing import commits, consume, declare, drained, maps, put

LONGEST = 4096  # characters, by the broker's default; this client can write one less

Write = Callable[[Mapping[int, Commit]], None]


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[str]]:
    """Declare a queue with ten messages in two partitions. The first message of each partition is acked."""
    queue = declare(kafka_cluster, topic_name, spec=TopicSpec(partitions=2))
    put(queue, *(f"{number}={number}" for number in range(10)))
    with queue.view() as view:
        consume(queue, *(entry.key for entry in view.entries() if entry.position.offset == 0))
    assert {partition: one.base for partition, one in maps(queue).items()} == {0: 1, 1: 1}
    yield queue
    queue.drop()


@pytest.fixture
def write(broker: ProvidedBroker, queue: LastValueQueue[str]) -> Write:
    """Return a function that commits in the queue's group."""
    return lambda told: commit_as_others_do(broker.bootstrap_servers, queue.definition.group, queue.topic, told)


@pytest.mark.parametrize(
    "text", ["x", "offset saved by hand", "x" * LONGEST, "é" * LONGEST, "with\0a NUL"], ids=lambda text: text[:5]
)
def test_a_text_of_another_kind_is_refused_and_left_alone_until_the_queue_is_repaired(
    queue: LastValueQueue[str], write: Write, text: str
) -> None:
    write({1: Commit(3, text)})
    for use in (queue.consumer, queue.stats, queue.purge):
        with pytest.raises(CommitMapRefused, match="lvq repair") as caught:
            use()
        assert (caught.value.reason, caught.value.partition) == ("foreign", 1)
    assert commits(queue)[1].offset == 3
    assert queue.stats(on_foreign_commits="ignore").depth == 10 - 1 - 3
    assert [(damage.kind, damage.partitions) for damage in queue.repair().found] == [("commit-refused", (1,))]
    assert queue.repair(dry_run=True).found == ()
    assert maps(queue)[1].base == 3
    assert len(drained(queue)) == 10 - 1 - 3


def by_a_plain_client(broker: ProvidedBroker, queue: LastValueQueue[str], offset: int) -> None:
    """Commit like any consumer."""
    with closing(plain_consumer(broker, queue.definition.group)) as consumer:
        consumer.commit(offsets=[TopicPartition(queue.topic, 1, offset)], asynchronous=False)


def by_an_admin_client(broker: ProvidedBroker, queue: LastValueQueue[str], offset: int) -> None:
    """Commit like tools in Python."""
    admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers})
    asked = ConsumerGroupTopicPartitions(queue.definition.group, [TopicPartition(queue.topic, 1, offset)])
    for future in admin.alter_consumer_group_offsets([asked]).values():
        future.result(30)


def by_kafkas_tool(broker: ProvidedBroker, queue: LastValueQueue[str], offset: int) -> None:
    """Run ``kafka-consumer-groups.sh --reset-offsets`` from the embedded broker's jars."""
    java = find_java()
    jars = os.pathsep.join(map(str, ensure_jars()))
    arguments = ["--bootstrap-server", broker.bootstrap_servers, "--group", queue.definition.group]
    arguments += ["--topic", f"{queue.topic}:1", "--reset-offsets", "--to-offset", str(offset), "--execute"]
    ran = subprocess.run(
        [str(java.executable), "-cp", jars, "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand", *arguments],
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    assert queue.topic in ran.stdout, ran.stdout + ran.stderr


def plain_consumer(broker: ProvidedBroker, group: str) -> Consumer:
    return Consumer({"bootstrap.servers": broker.bootstrap_servers, "group.id": group, "enable.auto.commit": False})


@pytest.mark.parametrize("write_offset", [by_a_plain_client, by_an_admin_client, by_kafkas_tool])
def test_offsets_without_a_text_are_refused_and_left_alone_until_the_queue_is_repaired_or_reset(
    broker: ProvidedBroker, queue: LastValueQueue[str], write_offset: Callable[..., None]
) -> None:
    with queue.consumer() as consumer:
        held = consumer.acquire_many(10, 30)
        for delivery in held:
            if delivery.position.partition == 1 and delivery.position.offset > 1:
                delivery.ack(wait=True, timeout=30)
    write_offset(broker, queue, 2)
    assert commits(queue)[1] == Commit(2)
    for use in (queue.consumer, queue.stats, queue.purge, queue.browser().open):
        with pytest.raises(CommitMapRefused, match=r"lvq repair.*lvq reset") as caught:
            use()
        assert (caught.value.reason, caught.value.partition) == ("foreign", 1)
    assert commits(queue)[1] == Commit(2)
    assert [damage.kind for damage in queue.repair(dry_run=True).found] == ["commit-refused"]
    (queue.repair if write_offset is not by_an_admin_client else lambda: queue.reset({1: 2}))()
    assert queue.repair(dry_run=True).found == ()
    assert maps(queue)[1].base == 2
    assert set(drained(queue)) >= {one.value for one in held if one.position == (queue.topic, 1, 2)}


@pytest.mark.parametrize("length", [0, LONGEST], ids=["as it is", "filled up to all that a broker takes"])
def test_a_copy_of_our_text_is_read_and_what_follows_it_is_not(
    queue: LastValueQueue[str], write: Write, length: int
) -> None:
    before = maps(queue)
    write({p: Commit(one.offset, one.metadata.ljust(length, "A")) for p, one in commits(queue).items()})
    assert maps(queue) == before
    assert queue.repair().found == ()
    assert queue.reset({1: 2}).before == before
    assert len(drained(queue)) == 10 - 1 - 2
