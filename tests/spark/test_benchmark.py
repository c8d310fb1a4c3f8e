"""`make bench-spark`: it reads the right values and reports them. Nothing asserts a speed."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.benchmarks import spark as part
from tests.benchmarks.children import result, start
from tests.benchmarks.report import Target
from tests.benchmarks.spark_report import growth_table, progress, spark_table, spark_targets
from tests.benchmarks.topics import Content, load

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@pytest.mark.thorough  # as `make bench-spark` does, at length
def test_every_contestant_gives_the_newest_value_of_every_key(
    spark: SparkSession, lvq_broker: ProvidedBroker, lvq_cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All contestants run in this session, in turn; the benchmark starts a process for each."""

    def here(_: str, contestant: str, servers: str, topics: str) -> object:
        measure = part.refreshed if contestant == "refresh" else partial(part.read, contestant=contestant)
        return measure(spark, servers=servers, topics=part.json.loads(topics))

    monkeypatch.setattr(part, "start", here)
    monkeypatch.setattr(part, "STEPS", 1)
    monkeypatch.setattr(part, "result", lambda measured, timeout: {"topics": measured})
    servers = lvq_broker.bootstrap_servers
    with part.loaded(servers, 2000) as topics:
        results = list(part.run(servers, topics, 1))
        assert len(results) == 2 * 5 + 4 * 2 + 2
        assert all(result["cpu"] > 0 < result["wall"] for result in results)
        table = spark_table(results)
        assert all(contestant in table for contestant in (*part.OURS, *part.RECIPES, *part.REFRESHES))
        assert "4,000" in growth_table(results)
        assert progress(results[0]).startswith("  round 1, plain, format lvq: ")
        assert len(spark_targets(results)) == 7
        topic, headers, count = topics[0]
        wrong = replace(topic, content=Content(200, topic.content.checksum + 1))
        with pytest.raises(RuntimeError, match="format lvq does not give the newest value of every key of plain"):
            next(part.run(servers, [(wrong, headers, count)], 1))


def test_a_contestant_s_own_process_says_what_it_has_read(
    lvq_broker: ProvidedBroker, lvq_cluster: KafkaCluster
) -> None:
    topic = load(lvq_cluster, "small", 2000, 200)
    try:
        topics = json.dumps([(topic.name, False)])
        [read] = result(start("spark", "format lvq", lvq_broker.bootstrap_servers, topics), timeout=250)["topics"]
        assert (read.pop("keys"), read.pop("checksum")) == topic.content
        assert set(read) == {"wall", "cpu", "peak_jvm", "peak_python"}
        assert min(read.values()) > 0
    finally:
        lvq_cluster.topics.delete(topic.name)


DAEMON = """
import os, signal, sys, time
signal.signal(signal.SIGCHLD, signal.SIG_IGN)
worker = os.fork()
while not worker and time.process_time() < 0.3:
    pass
print(worker or "ready", flush=True)
sys.stdin.read()
"""


def test_a_worker_that_nobody_waits_for_keeps_its_time() -> None:
    """PySpark's daemon ignores the end of its workers, and ends idle ones after a minute."""
    with subprocess.Popen([sys.executable, "-c", DAEMON], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as daemon:
        assert daemon.stdin is not None
        assert daemon.stdout is not None
        [worker] = {daemon.stdout.readline(), daemon.stdout.readline()} - {b"ready\n"}
        before = part.cpu_seconds()
        process = psutil.Process(int(worker))
        process.kill()
        psutil.wait_procs([process])
        assert part.cpu_seconds() >= before
        daemon.stdin.close()


# -- reports -----------------------------------------------------------------------------------------------------------

MILLIONS = {"quarter": 1, "half": 2, "plain": 4, "headers": 4, "double": 8}


def measured(cpu: Callable[[str, str], float]) -> list[dict[str, Any]]:
    """Return each contestant's cost for each topic, in three rounds on a machine that gets slower and slower."""
    read = [(contestant, topic) for contestant in part.OURS for topic in MILLIONS]
    read += [(recipe, topic) for recipe in part.RECIPES for topic in ("plain", "headers")]
    read += [(refresh, "plain") for refresh in part.REFRESHES]
    return [
        {"round": number, "topic": topic, "contestant": contestant, "records": MILLIONS[topic] * 10**6}
        | {"cpu": slower * cpu(contestant, topic)}
        for number, slower in enumerate((1, 2, 10))
        for contestant, topic in read
    ]


def growing(costs: Mapping[str, float]) -> list[dict[str, Any]]:
    """Return the costs of all contestants as topics grow, on top of the cost of an empty topic."""
    return measured(lambda _, topic: 100 + costs.get(topic, costs["plain"]))


def test_a_target_is_a_share_of_the_best_recipe_or_of_a_snapshot_and_met_where_that_is_low_enough() -> None:
    plain = {"format lvq": 4.0, "snapshot": 6.0, "max_by": 10.0, "refresh, last 1 %": 0.3}
    headers = {"format lvq": 4.0, "snapshot": 2.0, "row_number, 20 k polls": 8.0}
    cpu = {"plain": plain, "headers": headers}
    assert spark_targets(measured(lambda contestant, topic: cpu.get(topic, {}).get(contestant, 20.0)))[:5] == [
        Target("Spark, plain, format lvq: CPU in times max_by", "at most 0.5", 0.4, True),
        Target("Spark, plain, snapshot: CPU in times max_by", "at most 0.5", 0.6, False),
        Target("Spark, headers, format lvq: CPU in times row_number, 20 k polls", "at most 0.5", 0.5, True),
        Target("Spark, headers, snapshot: CPU in times row_number, 20 k polls", "at most 0.5", 0.25, True),
        Target("Spark: CPU of a refresh from the last 1 %, in times a snapshot", "at most 0.1", 0.05, True),
    ]
    plain["refresh, last 1 %"] = 0.9
    slow = spark_targets(measured(lambda contestant, topic: cpu.get(topic, {}).get(contestant, 20.0)))[4]
    assert (slow.measured, slow.met) == (0.15, False)


@pytest.mark.parametrize(
    ("costs", "growth", "met"),
    [
        pytest.param({"quarter": 1, "half": 2, "plain": 4, "double": 8}, 1.0, True, id="linear"),
        pytest.param({"quarter": 1, "half": 2, "plain": 4, "double": 8.5}, 1.125, True, id="a little more"),
        pytest.param({"quarter": 1, "half": 2, "plain": 4, "double": 8.7}, 1.175, False, id="too much more"),
        pytest.param({"quarter": 1, "half": 2.5, "plain": 6.25, "double": 15.625}, 1.339, False, id="25 % a doubling"),
        pytest.param({"quarter": 1, "half": 1.8, "plain": 3.1, "double": 5.2}, 0.75, True, id="less and less"),
        pytest.param({"quarter": 4, "half": 4, "plain": 4, "double": 4}, math.inf, False, id="nothing but noise"),
    ],
)
def test_growth_is_judged_by_what_each_record_more_costs_however_dear_a_query_is(
    costs: dict[str, float], growth: float, met: bool
) -> None:
    found = spark_targets(growing(costs))[5:]
    what = "{}: CPU of each record more in the largest topic, in times that in smaller ones"
    assert found == [Target(what.format(ours), "at most 1.15", growth, met) for ours in part.OURS]


def test_growth_in_a_single_round_is_not_what_counts() -> None:
    results = growing({"quarter": 1, "half": 2, "plain": 4, "double": 8})
    for figures in results:
        if (figures["round"], figures["topic"]) == (0, "double"):
            figures["cpu"] *= 10
    assert {target.measured for target in spark_targets(results)[5:]} == {1.0}


def test_growth_is_shown_for_each_record_and_for_each_more() -> None:
    table = growth_table(growing({"quarter": 1, "half": 2.5, "plain": 6.25, "double": 15.625}))
    head, each, more, *_ = table.splitlines()
    assert head.split()[-4:] == ["1,000,000", "2,000,000", "4,000,000", "8,000,000"]
    assert each.split() == ["format", "lvq", "202.00", "102.50", "53.12", "28.91"]
    assert more.split() == ["format", "lvq:", "each", "more", "3.00", "3.75", "4.69"]
