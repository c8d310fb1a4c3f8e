"""R30 and R34 on a real broker: selected keys are the filter of all keys, and watches resume exactly or not at all."""

from __future__ import annotations

import random
from functools import partial
from typing import Any

import pytest

from lvq_kafka import Deleted, EndOfDump, Entry, View
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import DataLoss
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import DELETES_STAY, FORCED_COMPACTION, force_compaction
from tests.following import keep_up
from tests.integration.guarantees.conftest import QueueOf
from tests.raw_records import RawRecord, produce_raw
from tests.waiting import eventually

SETTINGS = {**FORCED_COMPACTION, **DELETES_STAY}
PARTITIONS = 3


def selected(entry: Entry[str]) -> bool:
    return entry.value.startswith("in")


class Writing:
    """Writes random values and deletes, some of them outside their home partition."""

    def __init__(self, address: str, topic: str) -> None:
        self._address = address
        self._topic = topic
        self._random = random.Random(7)

    def write(self, count: int, *, strays: float) -> None:
        choose = self._random
        records: dict[int, list[RawRecord]] = {partition: [] for partition in range(PARTITIONS)}
        for number in range(count):
            key = b"k%d" % choose.randrange(30)
            value = choose.choice([b"in %d", b"out %d", b"out %d", None])
            partition = home_partition(key, PARTITIONS)
            if choose.random() < strays:
                partition = (partition + 1) % PARTITIONS
            data = None if value is None else value % number
            records[partition].append(RawRecord(key, data))
        for partition, batch in records.items():
            if batch:
                produce_raw(self._address, self._topic, *batch, partition=partition)


@pytest.mark.parametrize("strays", [0.0, 0.1])
def test_r30_a_view_holds_the_filter_of_all_keys_with_compaction_in_between(
    lvq_broker: ProvidedBroker, kafka_cluster: KafkaCluster, queue_of: QueueOf, topic_name: str, strays: float
) -> None:
    queue = queue_of(PARTITIONS, config=SETTINGS)
    writing = Writing(lvq_broker.bootstrap_servers, topic_name)
    writing.write(200, strays=strays)
    with (
        queue.view() as full,
        queue.view(where=selected) as view,
        queue.view(partitions=[1], where=selected) as part,
        view.watch(dump=True) as watch,
    ):
        shown: dict[str, str] = {}
        for _ in range(3):
            writing.write(100, strays=strays)
            force_compaction(kafka_cluster, topic_name)
            writing.write(20, strays=strays)
            for reader in (full, view, part):
                reader.barrier()
            expected = {entry.key: entry.value for entry in full.entries() if selected(entry)}
            assert dict(view) == expected
            keep_up(shown, watch.drain())
            assert shown == expected
            with queue.view(where=selected) as later:
                assert dict(later) == expected
        assert bool(full.split_keys) == bool(strays)
        if not strays:
            assert part.keys() == {key for key in expected if home_partition(key.encode(), PARTITIONS) == 1}
        assert set(part.snapshot().offsets) == {1}


@pytest.mark.parametrize("gone", [False, True])
def test_r34_a_watch_resumes_with_the_deletes_or_is_refused_when_they_are_gone(
    kafka_cluster: KafkaCluster, queue_of: QueueOf, topic_name: str, gone: bool
) -> None:
    queue = queue_of(1)  # nothing is cleaned yet: a delete that stays once stays for its time
    cache: dict[str, str] = {}
    with queue.producer() as producer:
        for key in "abcd":
            producer.put(key, f"{key}1").result(30)
        with queue.view() as view, view.watch(dump=True) as watch:
            events = watch.drain()
        keep_up(cache, events)
        end = events[-1]
        assert isinstance(end, EndOfDump)
        producer.delete("a").result(30)
        for number in range(5):
            producer.put("b", f"b{number}").result(30)
        producer.put("e", "e1").result(30)
    force_compaction(kafka_cluster, topic_name, drop_tombstones=gone)
    if gone:
        kafka_cluster.topics.alter_config(topic_name, {"delete.retention.ms": "3000"})
    with queue.view() as view:
        for since in (end, end.offsets):
            if gone:
                eventually(partial(_is_refused, view, since))  # the deletes were young a moment ago
                continue
            resumed = view.watch(since=since).drain()
            assert isinstance(resumed[0], Deleted)
            assert isinstance(resumed[-1], EndOfDump)
            followed = dict(cache)
            keep_up(followed, resumed)
            assert followed == dict(view)
            assert [event.key for event in resumed if not isinstance(event, EndOfDump)][:3] == ["a", "b", "e"]


def _is_refused(view: View[str], since: Any) -> bool:
    try:
        view.watch(since=since).close()
    except DataLoss as error:
        return "records are missing" in str(error)
    return False
