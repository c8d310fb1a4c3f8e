"""What all tests share: markers that follow from fixtures, and the rule that CI skips nothing."""

from __future__ import annotations

import os
import signal
from collections.abc import Generator

import pytest
from hypothesis import HealthCheck, settings

# A shell that runs us in the background has us, and so the programs under test, ignore Ctrl-C.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

pytest.register_assert_rewrite("tests.contract", "tests.waiting")

# A busy machine is no reason to fail: what a test may take at most is pytest's timeout.
settings.register_profile("lvq", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True)
settings.load_profile("lvq")

BY_FIXTURE = {
    "broker": {"lvq_broker", "private_broker"},
    "docker": {"docker_engine"},
    "spark": {"spark"},
}
"""Which fixtures make a test what it is. The markers cannot lie: nobody sets them by hand."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for item in items:
        for marker, fixtures in BY_FIXTURE.items():
            if fixtures.intersection(getattr(item, "fixturenames", ())):
                item.add_marker(marker)
    # The tests of Docker itself belong to the Docker run, whatever the broker of the others is.
    if os.environ.get("LVQ_TEST_BROKER") == "embedded":
        of_docker = [item for item in items if item.get_closest_marker("docker")]
        if of_docker:
            config.hook.pytest_deselected(items=of_docker)
            items[:] = [item for item in items if item not in of_docker]


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
