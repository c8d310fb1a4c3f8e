"""Options and names of earlier versions: errors that name their successors."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

import lvq_spark
from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing import MemoryCluster
from lvq_spark import local_session, snapshot
from tests.spark.test_jobs import JOBS


@pytest.mark.parametrize(
    ("option", "value"), [("engine", "python"), ("engine", "connector"), ("connector_options", {"minPartitions": "4"})]
)
def test_a_snapshot_has_one_engine_and_names_slices(memory_cluster: MemoryCluster, option: str, value: object) -> None:
    given: dict[str, Any] = {option: value}
    with pytest.raises(ConfigError, match=rf"no longer has the option {option}\..*lvq\.slices") as error:
        snapshot(None, LastValueQueue("t", key_header=None, cluster=memory_cluster), **given)  # type: ignore[arg-type]
    assert error.value.options == (option,)


def test_a_session_brings_no_jars_and_says_how_spark_gets_them() -> None:
    given: dict[str, Any] = {"connector": True}
    with pytest.raises(ConfigError, match=r"no longer has the option connector\..*spark\.jars\.packages"):
        local_session(**given)


def test_an_option_that_never_was_is_an_error_as_in_any_function() -> None:
    given: dict[str, Any] = {"conector": True}
    with pytest.raises(TypeError, match=r"local_session\(\) got an unexpected keyword argument 'conector'"):
        local_session(**given)


@pytest.mark.parametrize(
    ("name", "successor"), [("choose_engine", r"lvq\.slices"), ("upsert", r"refresh .*foreachBatch")]
)
def test_a_name_that_is_gone_is_an_import_error_that_says_what_to_use(name: str, successor: str) -> None:
    with pytest.raises(ImportError, match=rf"lvq_spark no longer has {name}\..*{successor}"):
        exec(f"from lvq_spark import {name}")
    with pytest.raises(ImportError, match=successor):
        getattr(lvq_spark, name)
    assert name not in lvq_spark.__all__
    with pytest.raises(AttributeError, match="has no attribute 'chose_engine'"):
        lvq_spark.chose_engine  # type: ignore[attr-defined]  # noqa: B018


def test_a_job_has_one_engine() -> None:
    command = [sys.executable, str(JOBS / "snapshot.py"), "prices", "--output", "/nowhere", "--engine", "connector"]
    run = subprocess.run(command, capture_output=True, text=True, check=False)
    assert run.returncode == 2
    assert "there is only one engine, so connector is no choice; use --slices" in run.stderr
