"""Bring a store up to date: versions of a snapshot, each built from the one before."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lvq_spark.store import refresh
from lvq_spark.submitting import add_reading_options, add_store_options, facts, job_parser, main

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Refresh; the result describes the newest version, whether it is new or was there before."""
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
    return {"store": options.store, **facts(version)}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    options = job_parser(
        f"{__doc__} If nothing is new, it does nothing. Run it again after a failure, and as often as you like.",
        "refresh.py prices -b broker:9092 --store s3a://lake/prices",
        "refresh.py prices --config client.properties --store /data/prices --on-stale fail --keep 24",
    )
    add_store_options(options)
    add_reading_options(options)
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
