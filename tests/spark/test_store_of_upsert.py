"""Stores that ``upsert`` of earlier versions wrote from a stream, and what has taken its place."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import Record
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import read_version, refresh, register, snapshot, versions
from lvq_spark.store.manifest import _crc32, decode, encode
from tests.spark.test_store_refresh import append, values
from tests.spark.test_store_versions import VERSION

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]


def as_upsert_wrote_it(path: Path, number: int) -> None:
    """Give a version the note of its query and batch, which is all that set those of upsert apart."""
    manifest = path / "versions" / f"{number:010}.json"
    document = {**json.loads(manifest.read_text()), "stream": ["5c9f1a0e-query", number]}
    document["crc32"] = _crc32(document)
    manifest.write_text(json.dumps(document, indent=1))


@pytest.fixture
def written(spark: SparkSession, make_queue: MakeQueue, tmp_path: Path) -> tuple[LastValueQueue[bytes], Path]:
    """Return a queue, and its store as upsert left it: a full version, and a delta from a batch."""
    queue, path = make_queue(2), tmp_path / "store"
    append(queue, *[(f"k{n:02}", "1") for n in range(40)])
    refresh(spark, queue, path)
    as_upsert_wrote_it(path, 1)
    append(queue, ("k01", "2"), ("k02", None))
    refresh(spark, queue, path)
    as_upsert_wrote_it(path, 2)
    return queue, path


def test_a_store_that_upsert_wrote_is_refreshed(
    spark: SparkSession, written: tuple[LastValueQueue[bytes], Path], collect: Collect
) -> None:
    queue, path = written
    assert [version.stream for version in versions(spark, path)] == [("5c9f1a0e-query", 1), ("5c9f1a0e-query", 2)]
    assert len(collect(read_version(spark, path))) == 39
    append(queue, ("k03", "3"), ("new", "1"))
    version = refresh(spark, queue, path)
    assert (version.number, version.kind, version.base, version.stream) == (3, "delta", 2, None)
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_a_store_that_upsert_wrote_is_rebuilt_where_nothing_can_be_built_on_it(
    spark: SparkSession, written: tuple[LastValueQueue[bytes], Path], collect: Collect
) -> None:
    queue, path = written
    for file in path.glob("v2-*/*.parquet"):
        file.unlink()
    append(queue, ("k03", "3"))
    version = refresh(spark, queue, path)
    assert (version.number, version.kind, len(version.reasons)) == (3, "full", 1)
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_the_note_of_a_batch_is_kept_where_a_manifest_has_it() -> None:
    assert decode(encode(VERSION), "here").stream == ("query", 3)


@pytest.mark.parametrize("source", ["lvq", "kafka"])
def test_a_stream_may_say_when_to_refresh(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    tmp_path: Path,
    source: str,
) -> None:
    """Its batches need not be read: a refresh reads the log itself."""
    queue, path = make_queue(2), str(tmp_path / "store")
    register(spark)
    stream = spark.readStream.format(source).option("kafka.bootstrap.servers", lvq_broker.bootstrap_servers)
    stream = stream.option("subscribe", queue.topic).option("startingOffsets", "earliest")

    def run() -> None:
        into = stream.load().writeStream.option("checkpointLocation", str(tmp_path / "checkpoint"))
        into = into.foreachBatch(lambda rows, number: refresh(rows.sparkSession, queue, path))
        query = into.trigger(availableNow=True).start()
        assert query.awaitTermination(120)

    append(queue, ("a", "1"), ("b", "1"))
    run()
    append(queue, ("a", "2"), ("b", None), ("c", "1"))
    run()
    found = versions(spark, path)
    assert [version.kind for version in found] == ["full", "delta"]
    assert values(collect(read_version(spark, path))) == {"a": "2", "c": "1"}
