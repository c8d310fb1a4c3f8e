"""R14 for the fold that all readers use, in any order of reading, and for the readers themselves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

import pytest

from lvq_kafka import Entry, LastValueQueue
from lvq_kafka.core.fold import LatestValues
from lvq_kafka.core.records import RecordBatch
from lvq_kafka.testing import MemoryCluster
from tests.contract.r14 import PARTITIONS, R14Contract, records


def folded(batches: list[RecordBatch]) -> Mapping[bytes, bytes]:
    latest = LatestValues(PARTITIONS)
    for batch in batches:
        latest.apply(batch)
    return {record.key: record.value for record in latest.table.records()}  # type: ignore[misc]


class TestFoldAtOnce(R14Contract):
    @pytest.fixture
    def current(self) -> Mapping[bytes, bytes]:
        return folded([RecordBatch.of(records())])


@pytest.mark.parametrize("order", [1, -1], ids=["upwards", "downwards"])
class TestFoldByPartition(R14Contract):
    @pytest.fixture
    def current(self, order: int) -> Mapping[bytes, bytes]:
        by_partition = [RecordBatch.of(some) for _, some in groupby(records(), attrgetter("partition"))]
        return folded(by_partition[::order])


class TestFoldOneByOne(R14Contract):
    """Each record by itself, by offset, and from the last partition to the first."""

    @pytest.fixture
    def current(self) -> Mapping[bytes, bytes]:
        by_offset = sorted(records(), key=lambda record: (record.offset, -record.partition))
        return folded([RecordBatch.of([record]) for record in by_offset])


class TestReaders(R14Contract):
    @pytest.fixture(params=["view", "browser"])
    def current(self, request: Any) -> Mapping[bytes, bytes]:
        cluster = MemoryCluster()
        cluster.topics.create("t", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
        for partition, _, timestamp, key, value, _ in records():
            cluster.write("t", key, value, partition=partition, timestamp=timestamp)
        queue = LastValueQueue("t", key_header=None, cluster=cluster)
        if request.param == "view":
            with queue.view() as view:
                return {key.encode(): value for key, value in view.items()}
        with queue.browser(follow=False) as browser:
            return {event.key.encode(): event.value for event in browser if isinstance(event, Entry)}
