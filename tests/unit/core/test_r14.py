"""R14 for the fold that all readers use, in any order of reading, and for the readers themselves."""

from __future__ import annotations

from collections.abc import Mapping
from itertools import groupby
from operator import attrgetter
from typing import Any

import pytest

from lvq_kafka import Entry, Groups, LastValueQueue
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.message_groups import Placement
from lvq_kafka.testing import MemoryCluster
from tests.contract.r14 import BY_GROUP, PARTITIONS, R14ByGroupContract, R14Contract, records
from tests.rules import rules


def folded(batches: list[RecordBatch], placement: Placement = "key") -> Mapping[bytes, bytes]:
    latest = LatestValues(PARTITIONS, rules(groups=Groups(placement=placement)))
    for batch in batches:
        latest.apply(batch)
    return {record.key: record.value for record in latest.table.records()}  # type: ignore[misc]


def by_partition() -> list[RecordBatch]:
    return [RecordBatch.of(some) for _, some in groupby(records(), attrgetter("partition"))]


def one_by_one() -> list[RecordBatch]:
    """Each record by itself, by offset, and from the last partition to the first."""
    by_offset = sorted(records(), key=lambda record: (record.offset, -record.partition))
    return [RecordBatch.of([record]) for record in by_offset]


READINGS = {
    "at once": lambda: [RecordBatch.of(records())],
    "upwards": by_partition,
    "downwards": lambda: by_partition()[::-1],
    "one by one": one_by_one,
}


@pytest.fixture(params=READINGS)
def batches(request: Any) -> list[RecordBatch]:
    return READINGS[request.param]()


class TestFold(R14Contract):
    @pytest.fixture
    def current(self, batches: list[RecordBatch]) -> Mapping[bytes, bytes]:
        return folded(batches)


class TestFoldByGroup(R14ByGroupContract):
    @pytest.fixture
    def current(self, batches: list[RecordBatch]) -> Mapping[bytes, bytes]:
        return folded(batches, "group")


def shown(reader: str, groups: Groups | None) -> Mapping[bytes, bytes]:
    """Return what a reader shows of all cases."""
    cluster = MemoryCluster()
    cluster.topics.create("t", partitions=PARTITIONS, config={"cleanup.policy": "compact"})
    for partition, _, timestamp, key, value, _ in records():
        cluster.write("t", key, value, partition=partition, timestamp=timestamp)
    queue = LastValueQueue("t", key_header=None, groups=groups, cluster=cluster)
    if reader == "browser":
        with queue.browser(follow=False) as browser:
            return {event.key.encode(): event.value for event in browser if isinstance(event, Entry)}
    with queue.view() if reader == "view" else queue.view(where=lambda entry: True) as view:
        return {key.encode(): value for key, value in view.items()}


READERS = ["view", "view by value", "browser"]


@pytest.mark.parametrize("reader", READERS)
class TestReaders(R14Contract):
    @pytest.fixture
    def current(self, reader: str) -> Mapping[bytes, bytes]:
        return shown(reader, None)


@pytest.mark.parametrize("reader", READERS)
class TestReadersByGroup(R14ByGroupContract):
    @pytest.fixture
    def current(self, reader: str) -> Mapping[bytes, bytes]:
        return shown(reader, BY_GROUP)
