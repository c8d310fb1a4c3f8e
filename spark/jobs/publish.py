"""Publish files, a table or a query's rows into a queue: each row is its key's new value."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping
from dataclasses import asdict
from typing import TYPE_CHECKING, Any

from lvq_spark.submitting import job_parser, main
from lvq_spark.writing.publishing import publish

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Publish the rows; the result has the counts, and the offsets that they reach."""
    if options.table is not None:
        rows = spark.table(options.table)
    else:
        rows = spark.read.format(options.format).load(options.input)
    if options.query is not None:
        rows.createOrReplaceTempView("input")
        rows = spark.sql(options.query)
    published = publish(
        rows,
        queue,
        key=options.key,
        value=options.value,
        headers=options.headers,
        newest=options.newest,
        ttl=options.ttl,
        group=options.group,
        not_before=options.not_before,
        priority=options.priority,
        sort=options.sort,
        vanished=options.vanished,
    )
    return {"topic": queue.topic, **asdict(published)}


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    options = job_parser(
        __doc__ or "",
        "publish.py prices -b broker:9092 --input s3a://lake/prices",
        "publish.py prices --config client.properties --table gold.prices --vanished delete \\\n"
        "      --query 'SELECT ticker AS key, to_json(struct(price, at)) AS value FROM input'",
    )
    source = options.add_mutually_exclusive_group(required=True)
    source.add_argument("--input", metavar="PATH", help="files to read")
    source.add_argument("--table", metavar="NAME", help="the table to read")
    options.add_argument(
        "--format",
        default="parquet",
        help="of the files (default: parquet); JSON written by snapshot.py has base64 values, which unbase64() in a "
        "--query decodes",
    )
    options.add_argument("--query", metavar="SQL", help="a query over the input, which is the table `input`")
    options.add_argument("--key", metavar="COLUMN", default="key", help="(default: key)")
    options.add_argument("--value", metavar="COLUMN", default="value", help="null deletes the key (default: value)")
    options.add_argument("--headers", metavar="COLUMN", help="an array of structs of key and value")
    options.add_argument(
        "--newest", metavar="COLUMN", help="of several rows with a key, publish the one with the largest value"
    )
    options.add_argument(
        "--not-before", metavar="COLUMN", help="time from which on the value counts; null for one that counts at once"
    )
    options.add_argument("--priority", metavar="COLUMN", help="priority of the value, 0 to 9; null for 4")
    options.add_argument("--sort", metavar="COLUMN", help="text by which the queue sorts the value; null to come first")
    options.add_argument("--group", metavar="COLUMN", help="the group that the value belongs to; null for none")
    options.add_argument("--ttl", metavar="COLUMN", help="seconds after which the value expires; null for no TTL")
    options.add_argument(
        "--vanished",
        choices=["keep", "delete"],
        default="keep",
        help="what to do with keys that are in the queue but not in the rows (default: keep)",
    )
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
