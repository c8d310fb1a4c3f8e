"""The alert rules and the dashboard: a real Prometheus evaluates each rule and each query on real metrics (R48)."""

from __future__ import annotations

import json
import re
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
import pytest
import yaml

from lvq_kafka import TEXT, Groups, LastValueQueue, Limits, Ttl
from lvq_kafka.core.measures.instruments import prometheus_label, prometheus_name
from lvq_kafka.core.measures.measured import SOURCES
from lvq_kafka.serve import app
from lvq_kafka.telemetry import Metrics, QueueSurvey
from lvq_kafka.testing import MemoryCluster
from tests.listening import listening
from tests.pages import DOCS
from tests.waiting import eventually

RULES = DOCS / "monitoring" / "alerts.yml"
DASHBOARD = DOCS / "monitoring" / "dashboard.json"

GROUPS = yaml.safe_load(RULES.read_text())["groups"]
ALERTS = {rule["alert"]: rule for group in GROUPS for rule in group["rules"]}
QUERIES = [
    (panel["title"], target["expr"])
    for panel in json.loads(DASHBOARD.read_text())["panels"]
    for target in panel.get("targets", ())
]
KNOWN = {
    *(prometheus_name(each) for source in SOURCES.values() for each in source.instruments),
    *(prometheus_label(name) for source in SOURCES.values() for name in source.attributes),
    *(prometheus_label(name) for source in SOURCES.values() for each in source.instruments for name in each.attributes),
}

needs_prometheus = pytest.mark.skipif(
    shutil.which("prometheus") is None or shutil.which("promtool") is None,
    reason="there is no Prometheus here, so no alert rule and no query of the dashboard is evaluated; "
    "docker/install-test-tools.sh installs one on Debian",
)


def names_in(query: str) -> set[str]:
    return set(re.findall(r"\b(?:lvq|messaging)_\w+", query))


@pytest.mark.parametrize("query", [rule["expr"] for rule in ALERTS.values()] + [query for _, query in QUERIES])
def test_r48_a_query_asks_for_metrics_and_labels_that_there_are(query: str) -> None:
    assert names_in(query)
    assert names_in(query) <= KNOWN


def test_r48_every_metric_of_queues_is_on_the_dashboard() -> None:
    shown = set[str]().union(*(names_in(query) for _, query in QUERIES))
    assert not {prometheus_name(each) for each in SOURCES["queue"].instruments} - shown


@pytest.mark.parametrize("alert", ALERTS)
def test_an_alert_says_cause_and_remedy(alert: str) -> None:
    rule = ALERTS[alert]
    assert alert.startswith("Lvq")
    assert rule["annotations"].keys() == {"summary", "cause", "remedy"}
    assert rule["labels"]["severity"] in ("warning", "critical")
    for text in (rule["annotations"]["cause"], rule["annotations"]["remedy"]):
        assert text.endswith(".")


OF_QUEUE = '{lvq_queue="q",messaging_destination_name="q"}'
HEALTHY = {
    f"lvq_queue_up{OF_QUEUE}": "1x60",
    f"lvq_queue_depth{OF_QUEUE}": "5x60",
    f"lvq_queue_consumers{OF_QUEUE}": "1x60",
    f"lvq_queue_oldest_age_seconds{OF_QUEUE}": "1x60",
    f"lvq_queue_limit_messages{OF_QUEUE}": "10x60",
    f"lvq_queue_damage{OF_QUEUE}": "0x60",
    f"lvq_queue_dead_letters{OF_QUEUE}": "3x60",
    f"lvq_queue_measured_age_seconds{OF_QUEUE}": "20x60",
    'lvq_reader_count{lvq_queue="q",lvq_state="caught-up"}': "1x60",
    'lvq_reader_count{lvq_queue="q",lvq_state="disconnected"}': "0x60",
    'lvq_reader_lag{lvq_queue="q"}': "0 20000 0x58",
    'lvq_consumer_trouble{lvq_queue="q"}': "0 1 0x58",
    'lvq_consumer_settled_total{lvq_queue="q",lvq_outcome="acked"}': "0+100x60",
    'lvq_consumer_settled_total{lvq_queue="q",lvq_outcome="rejected"}': "7x60",
    'lvq_producer_failures_total{messaging_destination_name="q"}': "0x60",
}
"""An hour in which nothing is wrong for long."""

FAULTS: dict[str, dict[str, str]] = {
    "LvqMessagesWaitLong": {f"lvq_queue_oldest_age_seconds{OF_QUEUE}": "0+60x60"},
    "LvqQueueWithoutConsumers": {f"lvq_queue_consumers{OF_QUEUE}": "0x60"},
    "LvqQueueNearLimit": {f"lvq_queue_depth{OF_QUEUE}": "10x60"},
    "LvqQueueDamaged": {f"lvq_queue_damage{OF_QUEUE}": "1x60"},
    "LvqQueueBlocked": {f"lvq_queue_blocked{OF_QUEUE}": "1x60"},
    "LvqAcksPending": {f"lvq_queue_pending{OF_QUEUE}": "1x60"},
    "LvqCommitTextNearlyFull": {f"lvq_queue_crowded{OF_QUEUE}": "1x60"},
    "LvqDeadLetters": {f"lvq_queue_dead_letters{OF_QUEUE}": "3x55 4x5"},
    "LvqQueueNotMeasured": {f"lvq_queue_up{OF_QUEUE}": "0x60"},
    "LvqExporterMissing": {f"lvq_queue_up{OF_QUEUE}": "1x10"},
    "LvqReaderNotCurrent": {'lvq_reader_count{lvq_queue="q",lvq_state="disconnected"}': "1x60"},
    "LvqReaderFailed": {'lvq_reader_count{lvq_queue="q",lvq_state="failed"}': "1x60"},
    "LvqReaderLags": {'lvq_reader_lag{lvq_queue="q"}': "20000x60"},
    "LvqConsumerTrouble": {'lvq_consumer_trouble{lvq_queue="q"}': "1x60"},
    "LvqMessagesRejected": {'lvq_consumer_settled_total{lvq_queue="q",lvq_outcome="rejected"}': "7x55 8x5"},
    "LvqMessagesEvicted": {'lvq_consumer_removed_total{lvq_queue="q",lvq_reason="evicted"}': "7x55 8x5"},
    "LvqDeliveriesLost": {'lvq_consumer_settled_total{lvq_queue="q",lvq_outcome="lost"}': "7x55 8x5"},
    "LvqSendsFail": {'lvq_producer_failures_total{messaging_destination_name="q"}': "0x55 1x5"},
    "LvqSendsWait": {'lvq_producer_undecided{messaging_destination_name="q"}': "2000x60"},
    "LvqClockBehind": {'lvq_reader_clock_behind_seconds{lvq_queue="q"}': "60x60"},
    "LvqIrregularRecords": {'lvq_consumer_irregular_total{lvq_queue="q",lvq_reason="mismatched"}': "0x50 1x10"},
}
"""By alert, what is wrong in an hour that is healthy otherwise."""


@needs_prometheus
def test_each_alert_fires_on_its_fault_and_no_other_one_does(tmp_path: Path) -> None:
    assert FAULTS.keys() == ALERTS.keys()
    tests = []
    for name, faults in {"": {}, **FAULTS}.items():
        series = [{"series": each, "values": values} for each, values in {**HEALTHY, **faults}.items()]
        firing = {"labels": f'{{alertname="{name}"}}', "value": 1}
        question = {
            "expr": 'count by (alertname) (ALERTS{alertstate="firing"})',
            "eval_time": "60m",
            "exp_samples": [firing] if name else [],
        }
        tests.append({"interval": "1m", "input_series": series, "promql_expr_test": [question]})
    whole = {"rule_files": [str(RULES)], "evaluation_interval": "1m", "tests": tests}
    (tmp_path / "tests.yml").write_text(yaml.safe_dump(whole))
    ran = subprocess.run(["promtool", "test", "rules", tmp_path / "tests.yml"], capture_output=True, text=True)
    assert ran.returncode == 0, ran.stdout + ran.stderr


@contextmanager
def prometheus(place: Path, scraped: int) -> Iterator[httpx.Client]:
    """Run a Prometheus that scrapes a port and evaluates the rules, and yield a client for its API."""
    config = {
        "global": {"scrape_interval": "200ms", "scrape_timeout": "200ms", "evaluation_interval": "200ms"},
        "rule_files": [str(RULES)],
        "scrape_configs": [{"job_name": "lvq", "static_configs": [{"targets": [f"127.0.0.1:{scraped}"]}]}],
    }
    (place / "prometheus.yml").write_text(yaml.safe_dump(config))
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    command = [
        "prometheus",
        f"--config.file={place / 'prometheus.yml'}",
        f"--storage.tsdb.path={place / 'data'}",
        f"--web.listen-address=127.0.0.1:{port}",
    ]
    with (place / "log").open("w") as log, subprocess.Popen(command, stderr=log, stdout=log) as server:
        try:
            with httpx.Client(base_url=f"http://127.0.0.1:{port}", timeout=20) as client:

                def is_ready() -> bool:
                    assert server.poll() is None, (place / "log").read_text()
                    try:
                        return client.get("/-/ready").status_code == 200
                    except httpx.TransportError:
                        return False

                eventually(is_ready, 60)
                yield client
        finally:
            server.terminate()


@contextmanager
def measured() -> Iterator[int]:
    """Serve the metrics of a program that has one of everything, and yield the port."""
    cluster = MemoryCluster()
    cluster.topics.create("letters", partitions=1, config={})
    queue = LastValueQueue.declare(
        "orders",
        key_header="code",
        value=TEXT,
        cluster=cluster,
        order="priority",
        groups=Groups(),
        limits=Limits(messages=100, bytes=10_000, policy="none"),
        ttl=Ttl(default=3600),
        dead_letters="letters",
    )
    LastValueQueue.declare("prices", key_header="ticker", cluster=cluster)
    with queue.producer() as producer, queue.view() as view, queue.consumer() as consumer:
        for number in range(5):
            producer.put(f"k{number}", "1", priority=number, group="g")
        delivery = consumer.acquire(10)
        assert delivery is not None
        delivery.reject("bad").result(10)
        survey = QueueSurvey(cluster, every=0.05, metrics=Metrics().add(producer, consumer))
        with survey, listening(app(view, metrics=survey.metrics)) as port:
            yield port


@needs_prometheus
def test_r48_a_prometheus_evaluates_every_rule_and_every_query_of_the_dashboard(tmp_path: Path) -> None:
    with measured() as port, prometheus(tmp_path, port) as client:

        def rows(query: str) -> list[Any]:
            asked = re.sub(r"\$__rate_interval", "1m", query.replace("$queue", ".*"))
            answer = client.get("/api/v1/query", params={"query": asked}).json()
            assert answer["status"] == "success", answer
            found: list[Any] = answer["data"]["result"]
            return found

        eventually(lambda: rows('lvq_queue_depth{lvq_queue="orders",lvq_priority="4"}'), 60)
        eventually(lambda: rows("rate(lvq_reader_read_total[1m])"), 60)  # two scrapes
        for title, query in QUERIES:
            assert eventually(lambda query=query: rows(query), 30), title

        def rules() -> list[Any]:
            groups = client.get("/api/v1/rules").json()["data"]["groups"]
            return [rule for group in groups for rule in group["rules"]]

        eventually(lambda: all(rule["health"] != "unknown" for rule in rules()), 60)
        assert {rule["name"]: (rule["health"], rule.get("lastError")) for rule in rules()} == dict.fromkeys(
            ALERTS, ("ok", None)
        )
        assert client.get("/api/v1/targets").json()["data"]["activeTargets"][0]["lastError"] == ""
