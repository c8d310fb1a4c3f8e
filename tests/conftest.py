"""Rules for all tests: marks derived from fixtures, and no skips in CI."""

from __future__ import annotations

import gc
import os
import signal
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import HealthCheck, settings

from tests.effort import TIMES, examples

# A shell that starts us in the background makes us ignore Ctrl-C, and with us the programs under test.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.contract", "tests.waiting")

# A busy machine is no reason to fail. Only pytest's timeout limits a test.
settings.register_profile(
    "lvq",
    max_examples=examples(100),
    deadline=None,
    suppress_health_check=[HealthCheck.too_slow],
    print_blob=True,
)
settings.load_profile("lvq")

BY_FIXTURE = {
    "broker": {"lvq_broker", "private_broker"},
    "docker": {"docker_engine"},
    "protocol": {"new_queue"},
    "spark": {"spark"},
}
"""The fixtures that decide a test's marks. Nobody sets these marks by hand, so they cannot be wrong."""

BY_PLACE = {
    "protocol": (
        "tests/simulator/",
        "tests/property/test_commit_map.py",
        "tests/property/test_ledger_machine.py",
        "tests/property/test_management.py",
        "tests/property/test_queue_browser.py",
    )
}
"""The same for tests that need no fixtures."""

TOGETHER = (
    "tests/spark/test_cluster.py",  # these six start Sparks of their own
    "tests/spark/test_connect.py",
    "tests/spark/test_demo.py",
    "tests/spark/test_example.py",
    "tests/spark/test_lakehouse.py",
    "tests/spark/test_timeouts.py",
    "tests/spark/test_store",  # from here on they share a Spark: four, about as long as each other
    "tests/spark/test_s",
    "tests/spark/test_p",
    "tests/spark/",
    "[artemis",  # one of the brokers of test_bridge.py; its other tests share the other
    "test_bridge.py",
    "test_bad_input.py",
    "test_docker.py",
    "test_docker_spark.py",
    "test_expired_groups.py",
    "test_kafka_errors.py",
    "test_murmur2_parity.py",
    "test_three_nodes.py",
)
"""Tests that share something slow to start. Each group stays on one worker, so that it starts only once."""


IN_DOCKER_TOO = ("tests/integration/test_kafka_cluster_contract.py",)
"""Tests that also run on Kafka in Docker: everything that the library asks of a cluster.

The image holds the same Kafka as the embedded broker. Only the way to reach it differs.
"""

LONGEST = (
    *("tests/spark/", "tests/spark/test_store", "tests/spark/test_s", "tests/spark/test_lakehouse.py"),
    "tests/spark/test_p",
    "tests/integration/test_torture.py",  # mostly waits, so it runs alongside tests that compute
    "tests/integration/test_kept_alive.py",  # waits, too
    *("[artemis", "test_bridge.py"),  # build a client from source first
    "tests/integration/test_three_nodes.py",
    *("tests/spark/test_cluster.py", "tests/integration/test_benchmarks_run.py"),
    *("tests/spark/test_connect.py", "tests/spark/test_demo.py", "tests/spark/test_example.py"),
    *("test_docker_spark.py", "test_docker.py"),
    *("tests/integration/guarantees/test_g14_durable.py", "tests/integration/test_lost_brokers.py"),
)
"""The slowest groups and files. They start first: otherwise the whole run would wait for them at the end."""


def _group(nodeid: str) -> str:
    """Return the group of a test. Most tests are a group of their own."""
    return next((group for group in TOGETHER if group in nodeid), nodeid)


def _turn(item: pytest.Item) -> int:
    places = (_group(item.nodeid), item.nodeid.partition("::")[0])
    return next((turn for turn, longest in enumerate(LONGEST) if longest in places), len(LONGEST))


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> object | None:
    """With ``--dist loadgroup``, hand tests to workers as they become free, in the groups of `TOGETHER`.

    xdist's own groups are marks, which do not reach the scheduler with pytest 9.2.
    """
    if config.getoption("dist") != "loadgroup":
        return None
    from xdist.scheduler import LoadScopeScheduling

    config.option.loadscopereorder = False  # not by the number of tests: `LONGEST` knows better

    class Scheduling(LoadScopeScheduling):
        def _split_scope(self, nodeid: str) -> str:
            return _group(nodeid)

    return Scheduling(config, log)


LONG_TIMEOUT = 1500
"""Seconds, enough for any test on a loaded machine.

A signal that interrupts a call to the JVM puts the connection out of step for all later tests of its worker. A proof
only computes; it reports a finding once it is the shortest, which takes minutes more.
"""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if hasattr(config, "workerinput"):  # without workers, keep the requested order
        items.sort(key=_turn)
    for item in items:
        for marker, fixtures in BY_FIXTURE.items():
            if fixtures.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
        for marker, places in BY_PLACE.items():
            if item.nodeid.startswith(places):
                item.add_marker(marker)
        is_long = any(map(item.get_closest_marker, ("spark", "protocol")))
        if is_long and not item.get_closest_marker("timeout"):
            item.add_marker(pytest.mark.timeout(LONG_TIMEOUT))
    kept, left_out = [], []
    for item in items:
        (kept if _proves_something(item) else left_out).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def pytest_collection_finish() -> None:
    """Leave what is there by now out of garbage collections: with 10,000 tests, each would take half a second."""
    gc.collect()
    gc.freeze()


def _proves_something(item: pytest.Item) -> bool:
    """Return whether a test belongs to this run: of this effort, and on the embedded broker, in Docker, or on neither.

    The run on Docker has the tests of Docker itself, and those of `IN_DOCKER_TOO`. The other tests would only repeat
    the run on the embedded broker.
    """
    if TIMES == 1 and item.get_closest_marker("thorough"):
        return False
    docker = item.get_closest_marker("docker") is not None
    match os.environ.get("LVQ_TEST_BROKER"):
        case "embedded":
            return not docker
        case "docker":
            return docker or item.nodeid.startswith(IN_DOCKER_TOO)
    return True


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    if not hasattr(report, "wasxfail"):
        _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if report.skipped and os.environ.get("CI") == "true":
        reason = report.longrepr[2] if isinstance(report.longrepr, tuple) else report.longrepr
        report.outcome = "failed"
        report.longrepr = f"{report.nodeid} skipped, and with CI=true nothing may skip.\n{reason}"
