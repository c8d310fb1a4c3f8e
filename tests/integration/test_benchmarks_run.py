"""`make bench` runs and checks the data that it reads. How fast anything is, is never asserted."""

from __future__ import annotations

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from lvq_kafka.kafka import KafkaLog
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.benchmarks.bootstrap import CONTESTANTS, measure
from tests.benchmarks.topics import Content, load

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.timeout(300)
def test_a_small_benchmark_runs_to_the_end(broker: ProvidedBroker, tmp_path: Path) -> None:
    output = tmp_path / "results.json"
    options = ["--quick", "--rounds", "1", "--bootstrap-servers", broker.bootstrap_servers, "--output", str(output)]
    command = [sys.executable, "-m", "tests.benchmarks", *options]
    ran = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=280)
    assert ran.returncode == 0, ran.stderr
    results = json.loads(output.read_text())
    read = {(result["topic"], result["contestant"], result["keys"]) for result in results["bootstrap"]}
    assert read == {
        (label, contestant, keys)
        for label, keys in (("unique", 100_000), ("overwrites", 10_000))
        for contestant in CONTESTANTS
    }
    assert {result["what"] for result in results["latency"]} == {"propagation", "idle barrier"}
    assert "Producer.send" in {row["what"] for row in results["produce"]}
    assert all(target["what"] in ran.stdout for target in results["targets"])


def test_a_contestant_that_does_not_hold_the_right_values_is_found_out(
    broker: ProvidedBroker, kafka_log: KafkaLog
) -> None:
    topic = load(kafka_log, "small", 1000, 100)
    try:
        assert measure(broker.bootstrap_servers, topic, "view")["keys"] == 100
        other = Content(100, topic.content.checksum + 1)
        with pytest.raises(RuntimeError, match="view does not hold the newest value of every key of the topic small"):
            measure(broker.bootstrap_servers, replace(topic, content=other), "view")
    finally:
        kafka_log.delete_topic(topic.name)
