"""The page about metrics and traces: its examples of the exporter and of Prometheus are run (R48)."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
import yaml

from lvq_kafka import LastValueQueue
from lvq_kafka.core.measures.conventions import VERSION
from lvq_kafka.core.measures.measured import SOURCES
from lvq_kafka.serve import app
from lvq_kafka.telemetry import QueueSurvey
from lvq_kafka.testing import MemoryCluster
from tests.listening import listening
from tests.pages import DOCS, block, blocks, build_script, page

PAGE = "docs/how-to/metrics.md"


def test_curl_gets_from_the_exporter_what_the_page_shows(memory_cluster: MemoryCluster) -> None:
    LastValueQueue.declare("gauged", key_header="ticker", cluster=memory_cluster)
    memory_cluster.write("gauged", b"IBM", b"118.50")
    (shown,) = [each for each in blocks(PAGE) if "curl" in each.body]
    survey = QueueSurvey(memory_cluster)
    survey.measure()
    with listening(app(metrics=survey.metrics)) as port:
        script = shown.body.replace("localhost:9464", f"localhost:{port}")
        ran = subprocess.run(["bash", "-c", script], capture_output=True, text=True, check=True)
    assert ran.stdout == shown.output


@pytest.mark.skipif(shutil.which("promtool") is None, reason="there is no promtool here to check the configuration")
def test_the_configuration_on_the_page_is_one_of_prometheus(tmp_path: Path) -> None:
    (tmp_path / "prometheus.yml").write_text(block(PAGE, "yaml", "scrape_configs"))
    shutil.copy(DOCS / "monitoring" / "alerts.yml", tmp_path)
    ran = subprocess.run(
        ["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True, text=True
    )
    assert ran.returncode == 0, ran.stdout + ran.stderr


def test_the_page_names_the_version_of_the_conventions() -> None:
    assert f"version {VERSION}" in page(PAGE)


def test_the_tables_have_every_metric_and_alert() -> None:
    built = build_script("metrics")
    assert set(built.TITLES) == set(SOURCES)
    rules = yaml.safe_load((DOCS / "monitoring" / "alerts.yml").read_text())
    for rule in (rule for group in rules["groups"] for rule in group["rules"]):
        assert f"`{rule['alert']}`" in built.alerts()
