"""R39 on a real broker: a queue that is altered while readers, consumers and producers use it."""

from __future__ import annotations

import json
import time
from pathlib import Path

from lvq_kafka import TEXT, LastValueQueue, Limits, Ttl
from lvq_kafka.core.queue.history import NOTICE
from lvq_kafka.errors import ConfigError, QueueFull
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.test_cli import Shell
from tests.waiting import eventually

PATIENCE = 90.0


def test_r39_a_queue_is_altered_under_those_who_use_it(kafka_cluster: KafkaCluster, topic_name: str) -> None:
    """Nobody is restarted, what was consumed stays so, and all agree on what has expired."""
    with LastValueQueue.declare(topic_name, key_header="k", value=TEXT, cluster=kafka_cluster) as queue:
        other = LastValueQueue.open(topic_name, value=TEXT, cluster=kafka_cluster)
        with queue.view() as view, queue.producer() as producer, other.consumer() as consumer:
            for key in ("consumed", "old"):
                producer.put(key, "1").result(PATIENCE)
            first = consumer.acquire(PATIENCE)
            assert first is not None
            assert first.key == "consumed"
            first.ack(wait=True, timeout=PATIENCE)

            altering = LastValueQueue.open(topic_name, value=TEXT, cluster=kafka_cluster)
            began = time.time()
            alteration = altering.alter(ttl=Ttl(maximum=2.0), limits=Limits(messages=2, policy="reject"))
            assert alteration.since is not None
            assert began + NOTICE - 5 < alteration.since < time.time() + NOTICE + 5

            def takes_a_ttl() -> bool:
                try:
                    producer.put("young", "1", ttl=1.0).result(PATIENCE)
                except ConfigError:
                    return False
                return True

            assert not takes_a_ttl(), "not before it holds"
            eventually(takes_a_ttl, PATIENCE, every=0.2)
            assert time.time() >= alteration.since - 5
            eventually(lambda: set(view) == {"consumed", "old"}, PATIENCE)
            with LastValueQueue.open(topic_name, value=TEXT, cluster=kafka_cluster).view() as later:
                eventually(lambda: set(later) == {"consumed", "old"}, PATIENCE)
            second = consumer.acquire(PATIENCE)
            assert second is not None
            assert second.key == "old", "what was consumed stays so"
            assert consumer.acquire(1.0) is None

            def is_full() -> bool:
                try:
                    for number in range(4):
                        producer.put(f"more {number}", "1").result(PATIENCE)
                except QueueFull:
                    return True
                return False

            eventually(is_full, PATIENCE)


def test_r39_settings_and_the_file_of_a_broker_alter_queues_in_the_shell(
    broker: ProvidedBroker, topic_name: str, tmp_path: Path
) -> None:
    shell = Shell(broker.bootstrap_servers)
    file = tmp_path / "queue.json"
    attributes = {"name": topic_name, "type": "lvq"}
    file.write_text(json.dumps(attributes | {"maximumDeliveryAttempts": 5}))
    shell.run("settings", "set", topic_name, "-o", "default-last-value-key=ticker", "-o", "max-expiry-delay=60000")
    try:
        (row,) = shell.rows("declare", "--from", str(file))
        assert row["outcome"] == "new"
        settings = ("settings", "set", topic_name, "-o", "default-last-value-key=ticker", "-o", "max-expiry-delay=9000")
        (row,) = shell.rows(*settings, "--apply")
        ttl = {"before": {"maximum_ms": 60_000}, "after": {"maximum_ms": 9000}}
        assert row["queues"] == [{"queue": topic_name, "changes": {"ttl": ttl}, "error": None}]
        file.write_text(json.dumps(attributes | {"maximumDeliveryAttempts": 7}))
        assert shell.rows("declare", "--from", str(file), code=4)[0]["outcome"] == "differs"
        assert shell.rows("declare", "--from", str(file), "--apply")[0]["outcome"] == "changed"
        assert shell.rows("declare", "--from", str(file))[0]["outcome"] == "same"
        with LastValueQueue.open(topic_name, bootstrap_servers=broker.bootstrap_servers) as queue:
            assert (queue.newest().ttl, queue.newest().max_deliveries) == (Ttl(maximum=9.0), 7)
    finally:
        shell.run("settings", "delete", topic_name)
