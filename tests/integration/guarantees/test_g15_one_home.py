"""G15, one home: a key's partition is the one of Java's partitioner, so writers in all languages agree.

``tests/integration/test_murmur2_parity.py`` compares with the Java client itself.
"""

from __future__ import annotations

import json
import subprocess
import sys

from lvq_kafka import LastValueQueue, Message
from tests.integration.guarantees.cluster import read_raw, write_beside
from tests.integration.guarantees.conftest import Declare, QueueOf
from tests.integration.guarantees.writing import put, transaction

KEYS = ["", "a", "IBM", "schlüssel", "キー", "x" * 300, *[f"k{number}" for number in range(60)]]


def homes(servers: str, topic: str) -> dict[str, set[int]]:
    """Return the partitions that have a record of each key."""
    found: dict[str, set[int]] = {}
    for record in read_raw(servers, topic):
        found.setdefault(record.key, set()).add(record.partition)
    return found


def test_g15_all_that_writes_puts_a_key_into_the_same_partition(declare: Declare, servers: str) -> None:
    queue = declare(7)
    put(queue, **dict.fromkeys(KEYS, "put"))
    with queue.producer() as producer:
        for key in KEYS:
            producer.send(Message("sent", headers={"ticker": key}))
    with transaction(queue) as producer:
        for key in KEYS:
            producer.put(key, "in a transaction")
    # A plain librdkafka client with Java's partitioner, and our command line.
    write_beside(servers, queue.topic, *[(key, "beside") for key in KEYS], partitioner="murmur2_random")
    lines = "".join(json.dumps({"key": key, "value": "by the shell"}) + "\n" for key in KEYS)
    subprocess.run(
        [sys.executable, "-m", "lvq_kafka", "-b", servers, "put", queue.name, "--from-jsonl", "-"],
        input=lines.encode(),
        check=True,
        capture_output=True,
        timeout=90,
    )
    put(queue, **dict.fromkeys(KEYS))
    where = homes(servers, queue.topic)
    assert where.keys() == set(KEYS)
    assert len(read_raw(servers, queue.topic)) == 6 * len(KEYS)
    assert {key: partitions for key, partitions in where.items() if len(partitions) > 1} == {}
    assert len(set.union(*where.values())) == 7
    with queue.view() as view:
        assert dict(view) == {}
        assert view.split_keys == []


def test_g15_partitions_that_are_added_are_homes_of_new_writers(queue: LastValueQueue[str], servers: str) -> None:
    put(queue, **dict.fromkeys(KEYS, "1"))
    queue.cluster.topics.add_partitions(queue.topic, 5)
    put(queue, **dict.fromkeys(KEYS, "2"))
    write_beside(servers, queue.topic, *[(key, "3") for key in KEYS], partitioner="murmur2_random")
    later = {r.key: r.partition for r in read_raw(servers, queue.topic) if r.value == "2"}
    assert later == {r.key: r.partition for r in read_raw(servers, queue.topic) if r.value == "3"}
    assert set(later.values()) == set(range(5))
    with queue.view() as view:
        assert dict(view) == dict.fromkeys(KEYS, "3")
        assert set(view.split_keys) == {key for key, partition in later.items() if partition != 0}


def test_g15_a_writer_with_another_partitioner_is_noticed(queue_of: QueueOf, servers: str) -> None:
    """R14: such keys are counted and named. Each still has one current value."""
    queue = queue_of(5)
    put(queue, **dict.fromkeys(KEYS, "ours"))
    write_beside(servers, queue.topic, *[(key, "theirs") for key in KEYS])
    astray = {key for key, partitions in homes(servers, queue.topic).items() if len(partitions) > 1}
    assert len(astray) > len(KEYS) // 2
    with queue.view() as view:
        assert set(view.split_keys) == astray
        assert view.stats.split == len(astray)
        assert {key: view[key] for key in KEYS} == {key: "ours" if key in astray else "theirs" for key in KEYS}
