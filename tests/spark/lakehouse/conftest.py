"""A session with Delta and Iceberg, on the Spark that they support; see ``tests/spark/test_lakehouse.py``."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lvq_spark import local_session
from tests.effort import TIMES
from tests.spark import starting
from tests.spark.cluster import JOBS
from tests.spark.jars import with_jars
from tests.spark.jvm import stop
from tests.spark.lakehouse.sessions import properties

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


FIRST = "test_the_first_merge_"
"""The test that runs on both formats in any case."""


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Run tests of both formats on Delta only, unless more effort is asked for: a merge takes seconds."""
    if TIMES > 1:
        return
    names = {item.nodeid for item in items}
    again = [
        item
        for item in items
        if "iceberg" in item.nodeid and item.nodeid.replace("iceberg", "delta") in names and FIRST not in item.nodeid
    ]
    config.hook.pytest_deselected(items=again)
    items[:] = [item for item in items if item not in again]


@pytest.fixture(scope="session")
def formats(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """Return the properties of a session with a path for Delta and a catalog, ``ice``, for Iceberg."""
    return properties(tmp_path_factory.mktemp("lakehouse"))


@pytest.fixture(scope="session")
def spark(formats: dict[str, str]) -> Iterator[SparkSession]:
    """Yield a session like that of the other tests, with both formats."""
    session = local_session("local[2,2]", with_jars(**formats))
    yield session
    stop(session)


@pytest.fixture
def submit(formats: dict[str, str], spark: SparkSession) -> Callable[..., str]:
    """Return a function that runs a job with ``spark-submit`` and one executor process, and returns its output.

    The session has already chosen the Java and the Python for both.
    """
    import pyspark

    home = Path(pyspark.__file__).parent
    properties = {
        **formats,
        "spark.executor.memory": "512m",
        "spark.executor.extraJavaOptions": starting.SMALL,
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.ui.enabled": "false",
    }
    options = [word for name, value in properties.items() for word in ("--conf", f"{name}={value}")]

    def submit(job: str, *arguments: str) -> str:
        done = subprocess.run(
            [home / "bin" / "spark-submit", "--master", "local-cluster[1,1,512]", *options, JOBS / job, *arguments],
            env={**os.environ, "SPARK_HOME": str(home), "SPARK_LOCAL_IP": "127.0.0.1"},
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
        assert done.returncode == 0, done.stdout + done.stderr[-6000:]
        return done.stdout

    return submit


@pytest.fixture(params=["delta", "iceberg"])
def table(request: pytest.FixtureRequest, lvq_topic: str, tmp_path_factory: pytest.TempPathFactory) -> str:
    """Return the name of a table that does not exist yet."""
    if request.param == "delta":
        return f"delta.`{tmp_path_factory.mktemp('delta')}/prices`"
    return f"ice.db.{lvq_topic.replace('-', '_').replace('.', '_')}"
