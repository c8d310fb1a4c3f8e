"""A local session: it finds a Java that Spark can use, or says what it needs."""

from __future__ import annotations

import os
import re
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError, JavaNotFound
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import merge, merge_each, publish, refresh, register, snapshot
from lvq_spark.session.local_session import _choose_java, local_session


@pytest.fixture
def fake_java(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return the path of the only Java, which the test has to write."""
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    monkeypatch.setenv("PATH", str(tmp_path / "nothing"))
    return java


def write(java: Path, script: str) -> None:
    java.write_text(f"#!/bin/sh\n{script}\n")
    java.chmod(0o755)


def test_a_java_without_the_module_that_spark_needs_is_no_java(fake_java: Path) -> None:
    write(fake_java, 'echo "Error occurred: Module jdk.incubator.vector not found"; exit 1')
    with pytest.raises(JavaNotFound, match=rf"JAVA_HOME: {fake_java} lacks the module; PATH: none"):
        _choose_java()


def test_a_java_that_is_too_old_is_no_java(fake_java: Path) -> None:
    write(fake_java, """echo 'openjdk version "16.0.2" 2021-07-20' >&2""")
    with pytest.raises(JavaNotFound, match="too old"):
        _choose_java()


def test_a_java_that_does_not_run_is_no_java(fake_java: Path) -> None:
    with pytest.raises(JavaNotFound, match=r"does not run.*Install a full JDK"):
        _choose_java()


def test_the_java_on_the_path_helps_out(fake_java: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    other = tmp_path / "other" / "bin" / "java"
    other.parent.mkdir(parents=True)
    write(other, """echo 'openjdk version "21" 2023-09-19' >&2""")
    monkeypatch.setenv("PATH", str(other.parent))
    _choose_java()
    assert os.environ["JAVA_HOME"] == str(other.parent.parent)


def test_a_machine_without_pyspark_is_told_what_to_install(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "pyspark.sql", None)
    with pytest.raises(ConfigError, match=r"Install lvq-kafka\[spark\]"):
        local_session()


@pytest.mark.parametrize("version", ["3.5.8", "4.0.2", "4.0.0.dev1"])
@pytest.mark.parametrize(
    "begin",
    [
        lambda spark, queue: register(spark),
        lambda spark, queue: snapshot(spark, queue),
        lambda spark, queue: refresh(spark, queue, "/nowhere"),
        lambda spark, queue: merge(spark, queue, "nothing"),
        lambda spark, queue: merge_each(queue, "nothing")(SimpleNamespace(sparkSession=spark, columns=[]), 0),
        lambda spark, queue: publish(SimpleNamespace(sparkSession=spark, columns=[]), queue),
    ],
    ids=["register", "snapshot", "refresh", "merge", "merge_each", "publish"],
)
def test_a_spark_that_is_too_old_is_refused_by_its_version(begin: Callable[..., object], version: str) -> None:
    """The check precedes any request: nothing answers there."""
    with (
        closing(KafkaCluster("localhost:1")) as cluster,
        pytest.raises(ConfigError, match=rf"needs Spark 4\.1 or newer, but this is {re.escape(version)}\."),
    ):
        begin(SimpleNamespace(version=version), LastValueQueue("t", key_header=None, cluster=cluster))
