"""README and tutorial, followed literally on a real broker."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Cluster
from lvq_kafka.errors import QueueNotDeclared
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.pages import run

LVQ = Path(sys.executable).parent / "lvq"


@pytest.fixture
def prices(kafka_cluster: Cluster) -> object:
    """Drop the queue of both pages after a test."""
    yield None
    with suppress(QueueNotDeclared):
        LastValueQueue.open("prices", cluster=kafka_cluster).drop(delete_topic=True)


@pytest.mark.parametrize("name", ["README.md", "docs/tutorial.md"])
def test_a_page_does_what_it_shows(
    broker: ProvidedBroker, prices: object, capsys: pytest.CaptureFixture[str], name: str
) -> None:
    environment = os.environ | {"LVQ_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    said: dict[str, str] = {}

    def shell(command: Sequence[str]) -> None:
        done = subprocess.run([LVQ, *command], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        said[command[0]] = done.stdout

    run(name, shell, lambda: capsys.readouterr().out, {"localhost:9092": broker.bootstrap_servers})
    if "browse" in said:
        assert '"119.25"' in said["browse"]
        assert "27.95" not in said["browse"], "what was consumed is hidden"
