"""Keep a store up to date from a stream of the queue: a new version every so often, or one for all there is now."""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from lvq_kafka.kafka import KafkaCluster
from lvq_spark.offset_options import EARLIEST
from lvq_spark.source.registering import register
from lvq_spark.store import Version, refresh, upsert, versions
from lvq_spark.submitting import add_store_options, job_parser, main

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

    from lvq_kafka import LastValueQueue


def work(spark: SparkSession, queue: LastValueQueue[Any], options: argparse.Namespace) -> Mapping[str, object]:
    """Stream until it is stopped, or with ``--once`` to the end; the result tells of the newest version."""
    store = {"keep": options.keep, "grace": options.grace, "on_stale": options.on_stale}
    if not versions(spark, options.store):
        refresh(spark, queue, options.store, **store)  # at once, rather than as the first batch
    newest = versions(spark, options.store)[-1]
    writer = (
        _source(spark, queue, options, _started(queue, newest))
        .writeStream.foreachBatch(upsert(queue, options.store, **store))
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
    # Where partitions were added, or others write by a partitioner of their own, a key has several: upsert knows.
    reader = reader.option("includeHeaders", "true").option("lvq.strays", "pass")
    for name, value in queue.cluster.config.properties.items():
        reader = reader.option(f"kafka.{name}", str(value))
    if options.max_offsets is not None:
        reader = reader.option("maxOffsetsPerTrigger", options.max_offsets)
    return reader.option("startingOffsets", started).load()  # which a checkpoint that is there overrules


def _started(queue: LastValueQueue[Any], newest: Version) -> str:
    """Where a new query starts: at the store's cut, and at the beginning of partitions that it does not have yet."""
    there = range(queue.cluster.describe_topic(queue.topic).partitions)
    return json.dumps({queue.topic: {str(p): newest.end.get(p, EARLIEST) for p in {*there, *newest.end}}})


def parser() -> argparse.ArgumentParser:
    """The options."""
    options = job_parser(
        f"{__doc__} Each batch costs some Spark jobs, and now and then a copy of the store: let them come every "
        "minute or so, not every second.",
        "stream.py prices -b broker:9092 --store /data/prices --checkpoint /data/prices.checkpoint",
        "stream.py prices --config client.properties --store /data/prices --checkpoint /data/cp --once",
    )
    add_store_options(options)
    options.add_argument("--checkpoint", metavar="PATH", required=True, help="where Spark notes how far the stream is")
    options.add_argument("--every", metavar="TIME", default="5 minutes", help="a batch this often (default: 5 minutes)")
    options.add_argument("--once", action="store_true", help="work in what there is now, and end")
    options.add_argument("--max-offsets", metavar="N", type=int, help="of a batch at most")
    return options


if __name__ == "__main__":
    main(parser(), work, sys.argv[1:])
