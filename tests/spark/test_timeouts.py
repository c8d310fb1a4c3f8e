"""A test that times out fails alone: the next one of its worker has another session."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.running import run_while_it_speaks
from tests.spark.children import own_environment

TESTS = """
import pytest

pytest_plugins = ["tests.spark.conftest"]


@pytest.mark.timeout(3, func_only=True)
def test_that_calls_the_jvm_for_too_long(spark):
    spark.sparkContext._jvm.java.lang.Thread.sleep(600_000)


def test_that_comes_next(spark):
    assert spark.range(3).count() == 3
    assert [row.id for row in spark.range(2).collect()] == [0, 1]
"""


@pytest.mark.timeout(0)
def test_a_test_that_times_out_takes_no_other_with_it(tmp_path: Path) -> None:
    test = tmp_path / "test_two.py"
    test.write_text(TESTS)
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(test)]
    ran = run_while_it_speaks(command, environment=own_environment() | {"LVQ_TEST_BROKER": "embedded"}, silence=400)
    assert "1 failed, 1 passed" in ran.stdout, ran.stdout + ran.stderr
    assert "Failed: Timeout (>3.0s) from pytest-timeout" in ran.stdout
