"""Spark Connect: what of the library works there.

A process has sessions of one kind, so its tests are in one of their own, with one server for all of them.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from lvq_kafka.testing.brokers import GIVEN, ProvidedBroker

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]


@pytest.mark.timeout(600)
def test_what_works_with_spark_connect(lvq_broker: ProvidedBroker) -> None:
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    environment |= {GIVEN: lvq_broker.bootstrap_servers, "PYTHONPATH": str(ROOT)}
    environment.pop("PYTEST_ADDOPTS", None)
    run = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", str(HERE / "connect" / "connecting.py")],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=550,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-30_000:]
