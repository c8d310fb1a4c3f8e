"""A run of `make bench`, which also checks the data that it reads. Speed is never asserted."""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.benchmarks.__main__ import QUICK
from tests.benchmarks.bootstrap import CONTESTANTS, JVM, PEERS, measure
from tests.benchmarks.consume import COMPACTED, KAFKA, MODES
from tests.benchmarks.dump import CONTESTANTS as DUMPS
from tests.benchmarks.groups import CONTESTANTS as GROUPINGS
from tests.benchmarks.groups import WAYS, numbers_of_groups
from tests.benchmarks.limits import OPENING, SENDING
from tests.benchmarks.prefetch import AT_ONCE, KINDS
from tests.benchmarks.rebalance import CHANGES, PROTOCOLS
from tests.benchmarks.report import consume_targets
from tests.benchmarks.scale import queues_used, scale_table
from tests.benchmarks.serve import LVQ, NGINX
from tests.benchmarks.shell import RUNS
from tests.benchmarks.store import CACHE, FIRST, HUNDREDTH, INDEXED, MEMORY, NOTHING, OURS, TABLE_AGAIN, TABLE_FIRST
from tests.benchmarks.store import PEERS as STORE_PEERS
from tests.benchmarks.store import run as compare_stores
from tests.benchmarks.topics import TAIL, Content, load
from tests.benchmarks.workload import Judge, Workload
from tests.running import run_while_it_speaks


def small(output: Path, *parts: str) -> tuple[dict[str, Any], str]:
    """Run a small benchmark; return its results, and what it printed."""
    options = ["--quick", "--rounds", "1", "--output", str(output)]
    ran = run_while_it_speaks([sys.executable, "-m", "tests.benchmarks", *options, *parts])
    assert ran.returncode == 0, ran.stderr
    return json.loads(output.read_text()), ran.stdout


@pytest.mark.timeout(0)
def test_a_part_of_a_small_benchmark_runs_to_the_end(tmp_path: Path) -> None:
    results, printed = small(tmp_path / "results.json", "bootstrap")
    assert {result["contestant"] for result in results["bootstrap"]} == set(CONTESTANTS) - {JVM}
    assert results["targets"]
    assert all(target["what"] in printed for target in results["targets"])


@pytest.mark.timeout(0)
@pytest.mark.thorough  # each of its many contestants is a process
def test_a_small_benchmark_runs_to_the_end(tmp_path: Path) -> None:
    results, printed = small(tmp_path / "results.json")
    records = QUICK.records
    read = {(result["topic"], result["contestant"], result["keys"]) for result in results["bootstrap"]}
    assert read == {
        (label, contestant, keys)
        for label, keys in (("unique", records), ("overwrites", records // 10), ("key-header", records))
        for contestant in CONTESTANTS
        if contestant != JVM and (label != "key-header" or contestant not in PEERS)
    }
    dumps = {(result["contestant"], result["keys"]) for result in results["dump"]}
    assert dumps == set(product(DUMPS, QUICK.dump_keys))
    assert all(result["beats"] > 0 for result in results["dump"] if result["contestant"] == "async watch")
    assert {result["contestant"]: result["read"] for result in results["store"]} == {
        MEMORY: records,
        INDEXED: records,
        FIRST: records,
        NOTHING: 0,
        HUNDREDTH: records // 100,
    }
    assert results["shared store"]["keys"] == records
    served = [(result["what"], result["contestant"]) for result in results["serve"]]
    assert [pair for pair in served if pair[1] != NGINX] == [(what, LVQ) for what in ("get", "few", "broad", "many")]
    assert all(result["events"] > 0 for result in results["serve"] if result["what"] != "get")
    assert {result["what"] for result in results["latency"]} == {"propagation", "idle barrier"}
    assert "Producer.send" in {row["what"] for row in results["produce"]}
    assert {(result["contestant"], result["mode"]) for result in results["consume"]} == set(product(KAFKA, MODES))
    left = [result["deliveries"] for result in results["consume"] if result["mode"] == COMPACTED]
    assert QUICK.keys <= min(left) <= max(left) <= QUICK.keys + TAIL < QUICK.messages
    assert {(result["what"], result["at_once"]) for result in results["prefetch"]} == set(product(KINDS, AT_ONCE))
    ways = {(one["contestant"], one["groups"], (one["sessions"], one["at_once"])) for one in results["groups"]}
    assert ways == set(product(GROUPINGS, numbers_of_groups(QUICK.messages // 4), WAYS))
    assert {(result["what"], result.get("limited")) for result in results["limits"]} == {
        *product(OPENING, [None]),
        *product(SENDING, [False, True]),
    }
    assert {result["what"] for result in results["acks"]} == {"ack until durable", "commit text", "memory"}
    memory = [result for result in results["acks"] if result["what"] == "memory"]
    assert [result["state"] for result in memory] == ["they wait", "they are in work"]
    assert len(results["broker"]) == 1
    assert {result["what"] for result in results["shell"]} == set(RUNS)
    moves = {(result["protocol"], result["change"]) for result in results["rebalance"]}
    assert moves == set(product(PROTOCOLS, CHANGES))
    assert all(result["seconds"] > 0 < result["stood_still"] for result in results["rebalance"])
    assert all(target["what"] in printed for target in results["targets"])


def test_an_idle_queue_takes_less_of_its_process_than_one_with_a_view(broker: ProvidedBroker) -> None:
    idle, viewed = queues_used(broker.bootstrap_servers, 3, 0.0, ("idle", "with a view"))
    assert (idle["what"], viewed["what"]) == ("a queue idle", "a queue with a view")
    assert idle["threads"] < 2 < viewed["threads"]
    assert idle["descriptors"] < viewed["descriptors"]
    assert "a queue with a view" in scale_table([idle, viewed])


def test_a_contestant_that_does_not_hold_the_right_values_is_found_out(
    broker: ProvidedBroker, kafka_cluster: KafkaCluster
) -> None:
    topic = load(kafka_cluster, "small", 1000, 100)
    try:
        assert measure(broker.bootstrap_servers, topic, "view")["keys"] == 100
        assert measure(broker.bootstrap_servers, topic, JVM)["keys"] == 100
        other = Content(100, topic.content.checksum + 1)
        with pytest.raises(RuntimeError, match="view does not hold the newest value of every key of the topic small"):
            measure(broker.bootstrap_servers, replace(topic, content=other), "view")
    finally:
        kafka_cluster.topics.delete(topic.name)


@pytest.mark.thorough  # as `make bench` does, at length
def test_other_tables_hold_the_values_that_stores_do(broker: ProvidedBroker) -> None:
    results = {result["contestant"]: result for result in compare_stores(broker.bootstrap_servers, 1, 2000)}
    assert results.keys() == {*OURS, *STORE_PEERS}
    assert {result["keys"] for result in results.values()} == {2000}
    assert all(results[name]["disk"] > 0 for name in (FIRST, TABLE_FIRST, TABLE_AGAIN))
    assert results[CACHE]["wall"] > 0 < results[CACHE]["cpu"]


def test_a_compacted_backlog_is_compared_with_what_other_brokers_conflated() -> None:
    def result(mode: str, contestant: str, per_second: float) -> dict[str, Any]:
        rates = {"messages_per_second": per_second, "deliveries_per_second": per_second}
        return {"mode": mode, "contestant": contestant, "round": 0, **rates}

    kafka = [
        result(mode, name, rate)
        for mode in ("backlog", COMPACTED)
        for name, rate in (("consumer", 6.0), ("bare loop", 8.0))
    ]
    others = [result("backlog", "broker-j", 1.0), result("backlog", "artemis", 2.0)]
    found = {target.what: target.measured for target in consume_targets([*kafka, *others])}
    assert found[f"consumer, {COMPACTED}: speed in times bare loop"] == 0.75
    assert found[f"consumer, {COMPACTED}: speed in times artemis, backlog"] == 3.0
    assert found["consumer, backlog: speed in times artemis"] == 3.0


def test_a_consumer_that_steps_back_or_delivers_twice_is_found_out() -> None:
    messages = list(Workload(messages=20, keys=10))
    judge = Judge(Workload(messages=20, keys=10))
    for message in messages[10:]:
        judge.take(*message)
    assert judge.complete
    for again in (messages[0], messages[10]):
        with pytest.raises(RuntimeError, match=f"of {again[0]} was delivered after number 10"):
            judge.take(*again)


def test_a_consumer_is_not_done_before_the_newest_value_of_each_key_has_come() -> None:
    judge = Judge(Workload(messages=20, keys=10))
    for message in list(Workload(messages=20, keys=10))[:-1]:
        judge.take(*message)
    assert judge.deliveries == 19
    assert not judge.complete
