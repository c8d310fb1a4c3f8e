"""The service on the page about consuming, as its supervisor runs it."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.pages import block
from tests.waiting import eventually


def test_the_service_handles_messages_and_stops_on_sigterm(
    broker: ProvidedBroker, kafka_cluster: KafkaCluster, topic_name: str, tmp_path: Path
) -> None:
    program, log = tmp_path / "service.py", tmp_path / "log"
    text = block("docs/how-to/consume.md", "python", "def main()")
    program.write_text(
        text.replace('"ticks.dlq"', f'"{topic_name}.dlq"').replace('"ticks", key', f'"{topic_name}", key')
    )
    environment = os.environ | {"LVQ_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    with log.open("w") as out:
        service = subprocess.Popen([sys.executable, program], env=environment, stderr=out)
    queue = LastValueQueue.declare(topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster)
    try:
        with queue.producer() as producer:
            producer.put("IBM", "119.00")
            producer.put("BAD", "no number")
        eventually(lambda: "IBM costs 119.00 (delivery 1)" in log.read_text(), timeout=60)

        letters = LastValueQueue.open(f"{topic_name}.dlq", value=TEXT, cluster=kafka_cluster)
        with letters.view() as view:
            eventually(lambda: dict(view) == {"BAD": "no number"}, timeout=60)
        service.send_signal(signal.SIGTERM)
        assert service.wait(60) == 0, log.read_text()
        assert "stopped" in log.read_text().splitlines()[-1]
        assert queue.stats().depth == 0, "what was handled is stored"
    finally:
        service.kill()
        service.wait()
    letters.drop(delete_topic=True)
    queue.drop()
