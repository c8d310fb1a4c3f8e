"""Records as clients in other languages may write them, read by everything that reads."""

from __future__ import annotations

import json
import subprocess
import sys
from contextlib import suppress

import pytest

from lvq_kafka import LastValueQueue, Producer
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import UNREADABLE
from lvq_kafka.core.queue.definition import REGISTRY_TOPIC
from lvq_kafka.core.queue.rules import KeyRule, QueueRules
from lvq_kafka.errors import CommitMapRefused, KeyMismatch
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.reading.entries import Entry
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import pin
from lvq_spark.scan.scanning import Scan, connected
from tests.integration.wire import commit_as_others_do
from tests.raw_records import UNREADABLE_NAME, RawRecord, produce_raw
from tests.unit.cli.terminal import terminal
from tests.unit.managing import declare, drained, put


def lvq(broker: ProvidedBroker, *arguments: str) -> list[dict[str, object]]:
    command = [sys.executable, "-m", "lvq_kafka", "-b", broker.bootstrap_servers, *arguments]
    ran = subprocess.run(command, capture_output=True, timeout=60, check=True)
    return [json.loads(line) for line in ran.stdout.splitlines()]


def test_r16_a_header_name_that_is_not_utf_8_stops_nobody(
    broker: ProvidedBroker, kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    queue = declare(kafka_cluster, topic_name)
    put(queue, "before=1")
    evil = RawRecord(b"evil", b"2", [(b"ticker", b"evil"), (UNREADABLE_NAME, b"x")])
    produce_raw(broker.bootstrap_servers, topic_name, evil, evil)
    put(queue, "after=3")
    with queue.view() as view:
        assert dict(view) == {"before": "1", "evil": "2", "after": "3"}
        assert (view.entry("evil").headers, view.stats.mismatched) == (UNREADABLE, 2)
    with queue.browser(follow=False) as browser:
        assert [event.key for event in browser if isinstance(event, Entry)] == ["before", "evil", "after"]
    strict = LastValueQueue(topic_name, key_header="ticker", key_mismatch="fail", cluster=kafka_cluster)
    with pytest.raises(KeyMismatch, match=f"{topic_name}/0/1"), strict.view():
        pass
    (status,) = lvq(broker, "stats", topic_name)
    assert (status["values"], status["mismatched"]) == (3, 2)
    exported = lvq(broker, "browse", topic_name)
    assert [row["key"] for row in exported if "key" in row] == ["before", "evil", "after"]
    assert queue.stats().depth == 3
    assert drained(queue) == ["1", "2", "3"]
    queue.drop()


def test_records_of_any_bytes_can_be_read_by_everything(
    broker: ProvidedBroker, kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    """Odd keys, header names, values and numbers of headers, between the records of transactions."""
    queue = declare(kafka_cluster, topic_name)
    odd: dict[bytes, list[tuple[bytes, bytes | None]]] = {
        b"": [(b"ticker", b"")],
        b"\xff\xfe": [(b"ticker", b"\xff\xfe")],
        b"\x1b]0;title\x07\n": [(b"\x1b[2J", b"\r\xff")],
        b"no headers": [],
        b"null": [(b"ticker", None), (b"", None)],
        b"twice": [(b"ticker", b"once"), (b"ticker", b"twice")],
        b"another": [(b"ticker", b"somebody else")],
        b"NUL": [(b"ticker\0", b"NUL"), (b"a\0b", b"1")],
        b"reserved": [(b"lvq-ttl", b"0"), (b"lvq-unkeyed", b"1"), (b"lvq-dlq-source", b"x")],
        b"many": [(b"ticker", b"many")] * 1000,
        b"wide": [(b"ticker", b"wide"), (b"w", b"x" * 50_000)],
        b"k" * 5_000: [(UNREADABLE_NAME, None)] * 3,
    }
    with queue.producer(transactional_id=topic_name) as producer:
        for number, (key, headers) in enumerate(odd.items()):
            records = [RawRecord(key, value, headers) for value in (b"old", b"%d" % number)]
            produce_raw(broker.bootstrap_servers, topic_name, *records)
            with suppress(ZeroDivisionError), producer.transaction():
                producer.put("aborted", str(1 // (number % 2)))
                producer.delete("aborted")
    expected = [(key_text(key), str(number)) for number, key in enumerate(odd)]
    with queue.view() as view:
        assert [(entry.key, entry.value) for entry in view.entries()] == expected
        assert view.stats.mismatched == 2 * len(["another", "the one that cannot be read"])
    with queue.browser(follow=False) as browser:
        assert [(event.key, event.value) for event in browser if isinstance(event, Entry)] == expected
    assert lvq(broker, "stats", topic_name)[0]["waiting"] == len(odd)
    scan = Scan(pin(queue), ClientConfig(broker.bootstrap_servers))
    with connected(scan.config) as connection:
        rows = [row for batch in scan.rows_of(connection, 0) for row in batch.to_pylist()]
    assert [(key_text(row["key"]), row["value"].decode()) for row in rows] == expected
    other = declare(kafka_cluster, f"{topic_name}-moved")
    assert queue.move(other).messages == len(odd)
    assert sorted(drained(other)) == sorted(value for _, value in expected)
    other.drop(delete_topic=True)
    queue.drop()


ESCAPES = "\x1b]0;owned\x07\x1b[2J\x9b31m\u202e"


def test_foreign_records_in_the_registry_stop_no_other_queue_and_steer_no_terminal(
    broker: ProvidedBroker, kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    hostile = {
        f"{topic_name}-deep": b"[" * 100_000,
        f"{topic_name}{ESCAPES}": json.dumps({ESCAPES: 1}).encode(),
        f"{topic_name}-many": json.dumps({f"field{number}": 1 for number in range(20_000)}).encode(),
        f"--{topic_name}": b"{}",
    }
    queue = declare(kafka_cluster, topic_name)  # creates the registry if this test is the first on its broker
    with Producer(kafka_cluster, QueueRules(keys=KeyRule(REGISTRY_TOPIC))) as registry:
        for key, value in hostile.items():
            registry.put(key, value)
    command = ["-m", "lvq_kafka", "-b", broker.bootstrap_servers]
    try:
        queue = LastValueQueue.open(topic_name, cluster=kafka_cluster)
        with terminal([*command, "queues"], columns=200) as screen:
            assert screen.wait() == 0
        assert screen.text.count("left out") == len(hostile)
        assert screen.text.replace("\n", "").isprintable()
        assert len(screen.text) < 20_000
        for key in hostile:
            with terminal([*command, "stats", "--", key]) as screen:
                assert screen.wait() == 2
            assert screen.text.replace("\n", "").isprintable()
    finally:
        with Producer(kafka_cluster, QueueRules(keys=KeyRule(REGISTRY_TOPIC))) as registry:
            for key in hostile:
                registry.delete(key)
    queue.drop()


def test_a_sequence_that_nobody_can_have_reached_is_refused_told_and_mended(
    broker: ProvidedBroker, kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    queue = declare(kafka_cluster, topic_name)
    put(queue, "a=1", "b=2")

    def commit(sequence: int) -> None:
        text = CommitMap(0, sequence=sequence).encode()
        commit_as_others_do(broker.bootstrap_servers, queue.definition.group, topic_name, {0: Commit(0, text)})

    for sequence in ((1 << 63) - 1, 1 << 62):
        commit(sequence)
        with pytest.raises(CommitMapRefused, match="sequence is out of range"):
            queue.consumer()
        status = [sys.executable, "-m", "lvq_kafka", "-b", broker.bootstrap_servers, "stats", topic_name]
        assert subprocess.run(status, capture_output=True, timeout=60, check=False).returncode == 4
        assert not queue.repair().left
    commit((1 << 62) - 1)
    for value in ("1", "2"):  # the second one after another consumer's last commit
        with queue.consumer() as consumer:
            delivery = consumer.acquire(30)
            assert delivery is not None
            assert delivery.value == value
            delivery.ack()
    assert lvq(broker, "stats", topic_name)[0]["waiting"] == 0
    queue.drop()
