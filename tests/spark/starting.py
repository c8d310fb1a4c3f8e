"""Quick starts for the processes of Spark's tests: small JVMs with archived Spark classes, Pythons forked warm.

Run as a module, this creates the archive, which halves a JVM's work before its first query. The archive belongs to this
Python's PySpark and to the Java that created it; other JVMs do not use it.
"""

from __future__ import annotations

import os
import sys
import tempfile
from pathlib import Path

__all__ = ["SMALL", "SUBMIT", "quick_start"]

_WARM = Path(__file__).with_name("warm")
_ARCHIVE = Path(sys.prefix) / "spark-classes.jsa"

SMALL = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"
"""The JVM's second compiler would take most of the JVM's time in tests, for code that runs on a few rows."""

_QUIET = "-Xlog:disable -Xlog:all=error:stderr"  # else a JVM prints to stdout that an archive does not fit
SUBMIT = f"{SMALL} {_QUIET} -XX:SharedArchiveFile={_ARCHIVE}" if _ARCHIVE.exists() else SMALL
"""The options of a JVM that `SparkSubmit` runs in: that of every session and every driver."""


def quick_start(*paths: Path | str) -> dict[str, str]:
    """Return an environment in which Spark's processes start sooner, with more paths to import from."""
    return {"PYTHONPATH": os.pathsep.join(map(str, (_WARM, *paths))), "SPARK_SUBMIT_OPTS": SUBMIT}


def _make_archive() -> None:
    from lvq_spark import local_session
    from tests.spark.jars import with_jars

    new = _ARCHIVE.with_suffix(".new")
    os.environ["SPARK_SUBMIT_OPTS"] = f"{SMALL} {_QUIET} -XX:ArchiveClassesAtExit={new}"
    session = local_session("local[1]", with_jars(**{"spark.sql.shuffle.partitions": "1"}))
    jvm = session.sparkContext._gateway.proc  # type: ignore[union-attr]
    with tempfile.TemporaryDirectory() as folder:
        rows = session.range(100).selectExpr("id", "CAST(id % 7 AS STRING) AS key")
        rows.groupBy("key").max("id").write.parquet(f"{folder}/newest")
        session.read.parquet(f"{folder}/newest").mapInArrow(lambda batches: batches, "key STRING").collect()
    session.stop()
    jvm.stdin.close()  # that ends it
    jvm.wait()
    new.replace(_ARCHIVE)


if __name__ == "__main__":
    _make_archive()
