"""Keep a store up to date from a stream of the queue or, with --once, up to now."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lvq_kafka.kafka import KafkaCluster
from lvq_spark.cut.offset_options import EARLIEST
from lvq_spark.source.registering import register
from lvq_spark.store import Version, refresh, upsert, versions
from lvq_spark.submitting import add_store_options, job_parser, main

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Stream until stopped, or with ``--once`` to the end.

    The result describes the newest version.
    """
    store = {"keep": options.keep, "grace": options.grace, "on_stale": options.on_stale}
    work_in = upsert(queue, options.store, **store)  # first, since it checks whether the queue can be streamed
    if not versions(spark, options.store):
        refresh(spark, queue, options.store, **store)  # at once, rather than in the first batch
    newest = versions(spark, options.store)[-1]
    writer = (
        _source(spark, queue, options, _started(queue, newest))
        .writeStream.foreachBatch(work_in)
        .option("checkpointLocation", options.checkpoint)
        .queryName(f"lvq {queue.name}")
    )
    trigger = writer.trigger(availableNow=True) if options.once else writer.trigger(processingTime=options.every)
    query = trigger.start()
    query.awaitTermination()
    newest = versions(spark, options.store)[-1]
    return {
        "store": options.store,
        "version": newest.number,
        "rows": newest.rows,
        "topic": newest.topic,
        "end": dict(newest.end),
    }


def _source(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace, started: str) -> DataFrame:
    register(spark)
    assert isinstance(queue.cluster, KafkaCluster)
    reader = spark.readStream.format("lvq").option("subscribe" if options.bare else "queue", queue.name)
    # A key lies in several partitions if some were added, or if others use another partitioner; upsert handles that.
    # Readers of the store leave out what has expired; until then it counts against records in other partitions.
    reader = reader.option("includeHeaders", "true").option("lvq.strays", "pass").option("lvq.expired", "keep")
    for name, value in queue.cluster.config.properties.items():
        reader = reader.option(f"kafka.{name}", str(value))
    if options.max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets)
    return reader.option("startingOffsets", started).load()  # an existing checkpoint overrides this


def _started(queue: LastValueQueue[Any], newest: Version) -> str:
    """Return where a new query starts: the store's cut, or the beginning of new partitions."""
    there = range(queue.cluster.topics.describe(queue.topic).partitions)
    return json.dumps({queue.topic: {str(p): newest.end.get(p, EARLIEST) for p in {*there, *newest.end}}})


def parser() -> argparse.ArgumentParser:
    """Return the parser of the job's options."""
    options = job_parser(
        f"{__doc__} Each batch costs several Spark jobs, and sometimes a copy of the store: run one every minute or "
        "so, not every second.",
        "stream.py prices -b broker:9092 --store /data/prices --checkpoint /data/prices.checkpoint",
        "stream.py prices --config client.properties --store /data/prices --checkpoint /data/cp --once",
    )
    add_store_options(options)
    options.add_argument(
        "--checkpoint", metavar="PATH", required=True, help="where Spark records the stream's progress"
    )
    options.add_argument(
        "--every", metavar="TIME", default="5 minutes", help="time between batches (default: 5 minutes)"
    )
    options.add_argument("--once", action="store_true", help="process what is there now, then exit")
    options.add_argument("--max-offsets", metavar="N", type=int, help="the most offsets in one batch")
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
