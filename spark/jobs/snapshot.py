"""Write the current values of a queue, from one cut, to files or a table."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING, Any, Never

from lvq_kafka.errors import ConfigError
from lvq_spark import pin, snapshot
from lvq_spark.schema import ON_REQUEST, SNAPSHOT_COLUMNS, check_columns
from lvq_spark.session.observing import observed
from lvq_spark.submitting import add_reading_options, job_parser, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Write a snapshot; the result has the row count, and the offsets of the cut."""
    from pyspark.sql import Observation
    from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

    _check_target(spark, options)
    spec = pin(queue, as_of=options.as_of, as_of_policy=options.as_of_policy, group=options.group)
    rows = snapshot(
        spark,
        queue,
        columns=options.columns,
        selector=options.selector,
        spec=spec,
        consistency=options.consistency,
        slices=options.slices,
    )
    if options.files is not None:
        rows = rows.coalesce(options.files)
    seen = Observation("written")
    writer = rows.observe(seen, F.count(F.lit(1)).alias("rows")).write.format(options.format).mode(options.mode)
    if options.table is not None:
        writer.saveAsTable(options.table)
    else:
        writer.save(options.output)
    to = {"table": options.table} if options.table else {"output": options.output}
    written = observed(seen) or {"rows": 0}  # dropped only if there are no rows
    return {**to, "rows": written["rows"], "topic": spec.topic, "topic_id": spec.topic_id, "end": dict(spec.end)}


def _check_target(spark: SparkSession, options: argparse.Namespace) -> None:
    """Check that the target does not exist yet, unless it may be replaced.

    This comes before the log is read.

    Raises:
        ConfigError: it exists.
    """
    if options.mode != "error":
        return
    if options.table is not None:
        there, option, target = spark.catalog.tableExists(options.table), "--table", options.table
    else:
        there, option, target = _exists(spark, options.output), "--output", options.output
    if there:
        raise ConfigError(
            f"{target} already exists.",
            options=[option],
            hint=f"--mode overwrite replaces it, --mode append adds to it, and another {option} leaves it alone.",
        )


def _exists(spark: SparkSession, path: str) -> bool:
    """Return whether there is such a file or folder.

    False if Hadoop does not recognize the path, which the format still may.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]

    jvm: Any = spark._jvm
    try:
        target = jvm.org.apache.hadoop.fs.Path(path)
        return bool(target.getFileSystem(spark._jsc.hadoopConfiguration()).exists(target))
    except Py4JJavaError:
        return False


def _columns(said: str) -> Sequence[str]:
    try:
        return check_columns("--columns", [name.strip() for name in said.split(",")], (*SNAPSHOT_COLUMNS, *ON_REQUEST))
    except ConfigError as error:
        raise argparse.ArgumentTypeError(str(error)) from None


def _no_engine(said: str) -> Never:
    raise argparse.ArgumentTypeError(
        f"there is only one engine, so {said} is no choice; use --slices if a partition's keys do not fit into a task"
    )


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    options = job_parser(
        f"{__doc__} For a table kept up to date, with versions, use refresh.py.",
        "snapshot.py prices -b broker:9092 --output s3a://lake/prices",
        "snapshot.py prices --config client.properties --table bronze.prices --format delta --mode overwrite",
        "snapshot.py prices-topic --bare -b broker:9092 --output /data/prices --as-of 2026-11-22T06:00 \\\n"
        "      --columns key,value,timestamp",
    )
    target = options.add_mutually_exclusive_group(required=True)
    target.add_argument("--output", metavar="PATH", help="where to write files")
    target.add_argument("--table", metavar="NAME", help="which table to write")
    options.add_argument(
        "--format", default="parquet", help="any that Spark can write (default: parquet); in JSON, bytes are base64"
    )
    options.add_argument(
        "--mode",
        choices=["error", "overwrite", "append"],
        default="error",
        help="what to do if the target exists; overwritten files are missing until the new ones are written "
        "(default: error)",
    )
    options.add_argument(
        "--columns",
        metavar="NAME,...",
        type=_columns,
        default=SNAPSHOT_COLUMNS,
        help=f"write only these, of {', '.join(SNAPSHOT_COLUMNS)}: the others cost nothing; also "
        f"{', '.join(ON_REQUEST)}",
    )
    options.add_argument(
        "--as-of",
        metavar="TIME",
        type=datetime.fromisoformat,
        help="a past time; values that had expired by then, or were not due, are missing",
    )
    options.add_argument(
        "--as-of-policy",
        choices=["fail", "warn"],
        default="fail",
        help="what to do if compaction may have removed records of that cut",
    )
    options.add_argument("--selector", metavar="CONDITION", help="only keys whose message meets this, as in JMS")
    options.add_argument("--group", help="leave out messages that this consumer group has consumed")
    add_reading_options(options)
    options.add_argument("--engine", type=_no_engine, help=argparse.SUPPRESS)
    options.add_argument("--files", metavar="N", type=int, help="write at most N files")
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
