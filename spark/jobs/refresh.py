"""Bring a store up to date: versions of a snapshot, each built from the one before."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lvq_spark.store import refresh
from lvq_spark.submitting import add_reading_options, add_store_options, facts, job_parser, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Refresh; the result describes the newest version, whether it is new or was there before."""
    while True:
        version = refresh(
            spark,
            queue,
            options.store,
            on_stale=options.on_stale,
            consistency=options.consistency,
            slices=options.slices,
            keep=options.keep,
            grace=options.grace,
        )
        if options.every is None:
            return {"store": options.store, **facts(version)}
        time.sleep(options.every)


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    options = job_parser(
        f"{__doc__} If nothing is new, it does nothing. Run it again after a failure, and as often as you like.",
        "refresh.py prices -b broker:9092 --store s3a://lake/prices",
        "refresh.py prices --config client.properties --store /data/prices --on-stale fail --keep 24",
        "refresh.py prices -b broker:9092 --store /data/prices --every 60",
    )
    add_store_options(options)
    add_reading_options(options)
    options.add_argument(
        "--every",
        metavar="SECONDS",
        type=float,
        help="do it again and again, with a pause of this many seconds between",
    )
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
