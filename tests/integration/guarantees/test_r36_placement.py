"""R36, R14: in a queue placed by group, a group lies in one partition, and the latest record of a key counts."""

from __future__ import annotations

import json
import random
import subprocess
import sys
from collections.abc import Iterator

import pytest

from lvq_kafka import TEXT, Groups, LastValueQueue, Message, TopicSpec
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.kafka import KafkaCluster
from tests.waiting import eventually

PARTITIONS = 4
GROUPS = ["ann", "bob", "schlüssel", "キー", "x" * 300, *[f"g{number}" for number in range(12)]]


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[str]]:
    queue = LastValueQueue.declare(
        topic_name,
        key_header="ticker",
        groups=Groups(header="JMSXGroupID", placement="group"),
        spec=TopicSpec(partitions=PARTITIONS),
        value=TEXT,
        cluster=kafka_cluster,
    )
    assert queue.declaration is not None
    assert [finding.setting for finding in queue.declaration.findings] == []
    yield queue
    queue.drop(delete_topic=True)


def place(name: str, partitions: int = PARTITIONS) -> int:
    return home_partition(name.encode(), partitions)


def test_r36_all_that_writes_puts_a_group_into_one_partition(queue: LastValueQueue[str], servers: str) -> None:
    with queue.producer() as producer:
        for number, group in enumerate(GROUPS):
            producer.put(f"a{number}", "1", group=group)
            producer.send(Message("1", {"ticker": f"b{number}", "JMSXGroupID": group}))
            producer.send(Message("1", group=group))
    with queue.producer(transactional_id=queue.topic) as sure, sure.transaction():
        for number, group in enumerate(GROUPS):
            sure.put(f"c{number}", "1", group=group)
    lines = "".join(
        json.dumps({"key": f"d{number}", "value": "1", "headers": {"JMSXGroupID": group}}) + "\n"
        for number, group in enumerate(GROUPS)
    )
    subprocess.run(
        [sys.executable, "-m", "lvq_kafka", "-b", servers, "put", queue.name, "--from-jsonl", "-"],
        input=lines.encode(),
        check=True,
        capture_output=True,
        timeout=90,
    )
    where: dict[str | None, set[int]] = {}
    with queue.view() as view:
        for entry in view.entries():
            where.setdefault(entry.header("JMSXGroupID"), set()).add(entry.position.partition)
        assert len(view) == 5 * len(GROUPS)
    assert where == {group: {place(group)} for group in GROUPS}
    assert len(set.union(*where.values())) == PARTITIONS


def test_r14_the_latest_record_of_a_key_counts_whatever_its_partition(queue: LastValueQueue[str]) -> None:
    choose = random.Random(14)
    expected: dict[str, str] = {}
    with queue.producer() as producer, queue.view() as view, queue.view(where=lambda entry: True) as selected:
        for number in range(200):
            key, group = f"k{choose.randrange(9)}", choose.choice(GROUPS)
            # Acknowledged one by one, so that append times, in ms, say which is the latest.
            if choose.random() < 0.2:
                producer.delete(key, group=group).result(20)
                expected.pop(key, None)
            else:
                producer.put(key, f"{number}", group=group).result(20)
                expected[key] = f"{number}"
        for one in (view, selected):
            one.barrier()
            assert dict(one) == expected
        assert view.split_keys
    with queue.view() as later:
        assert dict(later) == expected


def test_r36_a_delete_goes_where_the_value_is(queue: LastValueQueue[str]) -> None:
    with queue.producer() as producer:
        assert producer.put("a", "1", group="ann").result(20).partition == place("ann")
        assert producer.delete("a", group="ann").result(20).partition == place("ann")
        assert producer.put("b", "1").result(20).partition == place("b")
        assert producer.delete("b", {"JMSXGroupID": None}).result(20).partition == place("b")
    with queue.view() as view:
        assert (dict(view), view.split_keys) == ({}, [])


def test_r36_a_producer_opened_later_knows_the_added_partitions(queue: LastValueQueue[str]) -> None:
    queue.cluster.topics.add_partitions(queue.topic, 9)

    def placed() -> bool:
        with queue.producer() as producer:
            return {producer.put("a", "1", group=group).result(20).partition for group in GROUPS} == {
                place(group, 9) for group in GROUPS
            }

    eventually(placed, 30)


def test_r36_messages_of_a_group_are_moved_together(queue: LastValueQueue[str], kafka_cluster: KafkaCluster) -> None:
    with LastValueQueue.declare(
        f"{queue.name}-source",
        key_header="ticker",
        groups=Groups(header="JMSXGroupID"),
        value=TEXT,
        cluster=kafka_cluster,
    ) as source:
        with source.producer() as producer:
            for number, group in enumerate(GROUPS):
                producer.put(f"k{number}", "1", group=group)
        assert source.move(queue).messages == len(GROUPS)
        source.drop(delete_topic=True)
    with queue.view() as view:
        assert {entry.header("JMSXGroupID"): entry.position.partition for entry in view.entries()} == {
            group: place(group) for group in GROUPS
        }
