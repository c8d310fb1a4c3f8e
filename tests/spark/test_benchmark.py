"""`make bench-spark` reads what it should, and says so. How fast anything is, is never asserted."""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING

import pytest

from lvq_kafka.kafka import KafkaLog
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.benchmarks import spark as part
from tests.benchmarks.spark_report import growth_table, progress, spark_table, spark_targets
from tests.benchmarks.topics import Content

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

pytestmark = pytest.mark.timeout(300)  # the first test starts the JVM, which takes its time on a busy machine


def test_every_contestant_gives_the_newest_value_of_every_key(
    spark: SparkSession, lvq_broker: ProvidedBroker, lvq_log: KafkaLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All in this session, one after the other; the benchmark starts a process for each."""

    def here(_: str, contestant: str, servers: str, topics: str) -> object:
        measure = part.refreshed if contestant == "refresh" else partial(part.read, contestant=contestant)
        return measure(spark, servers=servers, topics=part.json.loads(topics))

    monkeypatch.setattr(part, "start", here)
    monkeypatch.setattr(part, "STEPS", 1)
    monkeypatch.setattr(part, "result", lambda measured, timeout: {"topics": measured})
    servers = lvq_broker.bootstrap_servers
    with part.loaded(servers, 2000) as topics:
        results = list(part.run(servers, topics, 1))
        assert len(results) == 3 * 5 + 4 * 2 + 2
        assert all(result["cpu"] > 0 < result["wall"] for result in results)
        table = spark_table(results)
        assert all(contestant in table for contestant in (*part.OURS, *part.RECIPES, *part.REFRESHES))
        assert "4,000" in growth_table(results)
        assert progress(results[0]).startswith("  round 1, plain, format lvq: ")
        assert len(spark_targets(results)) == 8
        topic, headers, count = topics[0]
        wrong = replace(topic, content=Content(200, topic.content.checksum + 1))
        with pytest.raises(RuntimeError, match="format lvq does not give the newest value of every key of plain"):
            next(part.run(servers, [(wrong, headers, count)], 1))
