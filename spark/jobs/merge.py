"""Bring a Delta or Iceberg table up to date with a queue, merging only what is new."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lvq_spark.store import merge
from lvq_spark.submitting import add_reading_options, add_refresh_options, facts, job_parser, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Merge; the result says how far the table is."""
    done = merge(
        spark,
        queue,
        options.table,
        on_stale=options.on_stale,
        consistency=options.consistency,
        slices=options.slices,
    )
    return {"table": options.table, **facts(done)}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    options = job_parser(
        f"{__doc__} If nothing is new, it does nothing. Run it again after a failure, and as often as you like. The "
        "session needs the format's package, extension and catalog; readers want the rows whose lvq_role is current.",
        "merge.py prices -b broker:9092 --table lake.db.prices",
        "merge.py prices --config client.properties --table 'delta.`s3a://lake/prices`' --on-stale fail",
    )
    options.add_argument("--table", metavar="NAME", required=True, help="the table; it is created if it does not exist")
    add_refresh_options(options)
    add_reading_options(options)
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
