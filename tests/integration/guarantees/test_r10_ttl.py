"""R10 and R8 on a real broker: what has expired is gone for every reader, and nothing else is."""

from __future__ import annotations

import json
import subprocess
import sys
import time

from lvq_kafka import TEXT, Deleted, EndOfDump, LastValueQueue, TopicSpec, Ttl
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.reading.entries import Entry
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction
from tests.contract.harness import read_all
from tests.property.test_fold import expected as newest
from tests.waiting import eventually

LIMITS = Ttl(default=2.0, minimum=0.5, maximum=600.0)


def declare(cluster: KafkaCluster, name: str, ttl: Ttl = LIMITS, **config: str) -> LastValueQueue[str]:
    spec = TopicSpec(partitions=2, config=config)
    return LastValueQueue.declare(name, key_header="k", ttl=ttl, spec=spec, cluster=cluster, value=TEXT)


def alive(records: list[Record], as_of: float) -> dict[str, str]:
    """Return the current values by the rule, from all records of the log."""
    judge = ExpiryTimes.of(LIMITS)
    assert judge is not None
    logs = [[record for record in records if record.partition == partition] for partition in range(2)]
    return {
        key.decode(): (record.value or b"").decode()
        for key, record in newest(logs).items()
        if judge.expiry(record.timestamp, record.headers) >= as_of * 1000
    }


def test_r10_every_reader_sees_what_has_not_expired_with_compaction_in_between(
    kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    queue = declare(kafka_cluster, topic_name, **{**FORCED_COMPACTION, **DELETES_STAY})
    with queue.producer() as producer:
        for number in range(40):
            producer.put(f"k{number % 20}", f"v{number}", ttl=[None, 0.001, 60, 9999][number % 4])
        producer.flush()
    with queue.view() as view, view.watch() as watch:
        records = read_all(kafka_cluster, topic_name)
        force_compaction(kafka_cluster, topic_name)
        eventually(lambda: len(view) == 10)
        expected = {f"k{number}": f"v{number + 20}" for number in range(20) if number % 4 >= 2}
        assert dict(view) == expected == alive(records, time.time())
        gone = [event for event in watch.drain() if isinstance(event, Deleted) and event.key.startswith("k")]
        assert {event.key for event in gone} == {f"k{number}" for number in range(20)} - expected.keys()
        assert all(event.expired for event in gone)
    with queue.view() as later, queue.browser() as browser:
        assert dict(later) == expected
        dump = browser.drain()
        assert {event.key: event.value for event in dump if isinstance(event, Entry)} == expected
        (end,) = [event for event in dump if isinstance(event, EndOfDump)]
        assert end.as_of <= time.time() + 1


def test_g8_view_export_and_a_fold_by_hand_agree_at_one_cut(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    queue = declare(kafka_cluster, topic_name)
    with queue.producer() as producer:
        for number in range(60):
            producer.put(f"k{number % 30}", f"v{number}", ttl=[None, 1.0, 60][number % 3])
        producer.flush()
    records = read_all(kafka_cluster, topic_name)
    with queue.view() as view:
        snapshot = view.snapshot()
        assert dict(snapshot) == alive(records, snapshot.as_of)
        eventually(lambda: len(view) == 10)
        assert dict(view) == alive(records, view.snapshot().as_of)
    servers = kafka_cluster.config.bootstrap_servers
    run = subprocess.run(
        [sys.executable, "-m", "lvq_kafka", "-b", servers, "export", topic_name, "--format", "text"],
        capture_output=True,
        timeout=60,
        check=True,
    )
    head, *rows = map(json.loads, run.stdout.splitlines())
    assert {row["key"]: row["value"] for row in rows} == alive(records, head["as_of"])


def test_a_maximum_gives_the_topic_a_retention(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    queue = declare(kafka_cluster, topic_name)
    assert queue.declaration is not None
    assert queue.declaration.findings == ()
    config = kafka_cluster.topics.config(topic_name)
    assert (config["cleanup.policy"], config["retention.ms"]) == ("compact,delete", "4200000")
    again = declare(kafka_cluster, topic_name)
    assert again.declaration is not None
    assert again.declaration.findings == ()
    longer = LastValueQueue.declare(
        f"{topic_name}-b", topic=topic_name, key_header="k", ttl=Ttl(maximum=86400.0), cluster=kafka_cluster
    )
    assert longer.declaration is not None
    assert [(finding.setting, finding.expected) for finding in longer.declaration.findings] == [
        ("retention.ms", "90000000")
    ]
