"""One Spark session for all tests, and a queue on the shared broker."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import TYPE_CHECKING

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.records import Record
from lvq_kafka.kafka import KafkaLog
from lvq_spark import local_session

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

COMPACTED = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Two tasks at a time, each with two attempts; with Spark's Kafka connector."""
    session = local_session("local[2,2]", connector=True)
    yield session
    session.stop()


@pytest.fixture
def make_queue(lvq_log: KafkaLog, lvq_topic: str) -> Callable[..., LastValueQueue[bytes]]:
    """Creates the test's topic and gives a queue on it."""

    def make(
        partitions: int = 1, key_header: str | None = None, config: Mapping[str, str] | None = None
    ) -> LastValueQueue[bytes]:
        lvq_log.create_topic(lvq_topic, partitions=partitions, config={**COMPACTED, **(config or {})})
        return LastValueQueue(lvq_topic, key_header=key_header, log=lvq_log)

    return make


@pytest.fixture
def collect() -> Callable[[DataFrame], dict[bytes, Record]]:
    """The rows of a snapshot as records by key; fails when a key has two."""

    def collect(snapshot: DataFrame) -> dict[bytes, Record]:
        from pyspark.sql import functions as F  # noqa: N812  # as all of Spark's documentation has it

        rows = snapshot.withColumn("timestamp", F.unix_millis("timestamp")).collect()
        found = {
            bytes(row.key): Record(
                row.partition,
                row.offset,
                row.timestamp,
                bytes(row.key),
                bytes(row.value),
                tuple((key, None if value is None else bytes(value)) for key, value in row.headers or ()),
            )
            for row in rows
        }
        assert len(found) == len(rows)
        return found

    return collect
