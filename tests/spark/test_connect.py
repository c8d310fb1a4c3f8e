"""Features that work with Spark Connect.

A process has sessions of one kind only, so these tests run in their own, with one server for all of them.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from lvq_kafka.testing.brokers import GIVEN, ProvidedBroker
from tests.running import ROOT
from tests.spark.children import own_environment, run_tests
from tests.spark.starting import quick_start

HERE = Path(__file__).resolve().parent


@pytest.mark.timeout(0)
def test_the_library_works_with_spark_connect(lvq_broker: ProvidedBroker) -> None:
    environment = own_environment() | quick_start(ROOT) | {GIVEN: lvq_broker.bootstrap_servers}
    run_tests(sys.executable, [HERE / "connect" / "connecting.py"], environment)
