"""R43: a reader may show a part of a transaction, and which parts it never shows."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from pathlib import Path
from threading import Event as Flag

import pytest

from lvq_kafka import TEXT, EndOfDump, LastValueQueue, TopicSpec
from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.testing import MemoryCluster
from tests.waiting import eventually

FIRST, SECOND, THIRD = (
    [key for key in "abcdefgh" if home_partition(key.encode(), 2) == home][at] for home, at in ((0, 0), (1, 0), (1, 1))
)


class OneByOne(MemoryCluster):
    """A cluster whose readers of the topic ``q`` return one record at a time, and as many as they may."""

    def __init__(self) -> None:
        super().__init__()
        self.allowed = 0
        self.all = Flag()

    def reader(self, topic: str, positions: Mapping[int, int], **how: bool) -> LogReader:
        found = super().reader(topic, positions, **how)
        if topic != "q":
            return found
        poll: Callable[[float], Fetch] = found.poll
        left: list[Fetch] = []

        def poll_one(timeout: float) -> Fetch:
            if not left:
                left.extend(_singles(poll(timeout)))
            if left and (self.allowed > 0 or self.all.is_set() or not len(left[0].batch)):
                self.allowed -= len(left[0].batch)
                return left.pop(0)
            return Fetch(RecordBatch(), {})

        found.poll = poll_one  # type: ignore[method-assign]
        return found


def _singles(fetch: Fetch) -> list[Fetch]:
    records = list(fetch.batch)
    parts = [Fetch(RecordBatch.of([one]), {one.partition: one.offset + 1}) for one in records]
    return [*parts, Fetch(RecordBatch(), fetch.positions)] if fetch.positions else parts


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_r43_a_transaction_over_partitions_shows_where_another_one_is_open_there(
    memory_cluster: MemoryCluster, tmp_path: Path, *, stored: bool
) -> None:
    queue = LastValueQueue.declare(
        "q", key_header="k", value=TEXT, cluster=memory_cluster, spec=TopicSpec(partitions=2)
    )
    with queue.producer() as producer:
        producer.put(FIRST, "old")
        producer.put(SECOND, "old")
    with (
        queue.view(store=tmp_path / "store" if stored else None) as view,
        queue.producer(transactional_id="slow") as slow,
        queue.producer(transactional_id="fast") as fast,
    ):
        with slow.transaction():
            slow.put(THIRD, "x").result(10)
            with fast.transaction():
                fast.put(FIRST, "new")
                fast.put(SECOND, "new")
            eventually(lambda: view[FIRST] == "new")
            snapshot = view.snapshot()
            assert (snapshot[FIRST], snapshot[SECOND]) == ("new", "old"), "half of it"
            with queue.browser() as browser:
                *entries, end = browser.drain()
                assert isinstance(end, EndOfDump)
                assert [block.partition for block in end.blocked] == [1]
                assert {(entry.key, entry.value) for entry in entries} == {(FIRST, "new"), (SECOND, "old")}  # type: ignore[union-attr]
        view.barrier()
        assert (view[FIRST], view[SECOND]) == ("new", "new"), "it was committed before the barrier"


def test_r43_a_cut_may_lie_within_a_transaction_in_one_partition_and_shows_its_first_records() -> None:
    cluster = OneByOne()
    queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=cluster)
    with queue.view() as view, queue.producer(transactional_id="t") as producer:
        with producer.transaction():
            for key in "abc":
                producer.put(key, "1")
        shown = set()
        for count in (1, 2):
            cluster.allowed = 1
            eventually(lambda count=count: len(view) == count)  # type: ignore[misc]
            snapshot = view.snapshot()
            shown.add("".join(snapshot))
            assert sum(snapshot.offsets.values()) == count
        assert shown == {"a", "ab"}
        cluster.all.set()
        view.barrier()
        assert "".join(view) == "abc"


def test_r43_nothing_of_a_transaction_shows_that_is_open_or_was_aborted(memory_cluster: MemoryCluster) -> None:
    queue = LastValueQueue.declare("q", key_header="k", value=TEXT, cluster=memory_cluster)
    with queue.view() as view, queue.producer(transactional_id="t") as producer:
        with suppress(ZeroDivisionError), producer.transaction():
            producer.put("a", "1").result(10)
            assert dict(view.snapshot()) == {}
            raise ZeroDivisionError
        view.barrier()
        assert dict(view) == {}
