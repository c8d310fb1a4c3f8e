"""R16: records with unreadable headers, wherever they are read or copied to."""

from __future__ import annotations

import pytest

from lvq_kafka import Entry, LastValueQueue
from lvq_kafka.core.log.records import UNREADABLE
from lvq_kafka.errors import KeyMismatch
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import declare, drained, put

Queue = LastValueQueue[str]


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> Queue:
    queue = declare(memory_cluster)
    put(queue, "before=1")
    memory_cluster.write("prices", b"evil", b"2", UNREADABLE)
    put(queue, "after=3")
    return queue


@pytest.mark.parametrize("policy", ["record", "header"])
def test_the_record_key_counts_and_a_view_holds_the_record_and_counts_it(
    memory_cluster: MemoryCluster, queue: Queue, policy: str
) -> None:
    same = LastValueQueue("prices", key_header="ticker", key_mismatch=policy, cluster=memory_cluster)  # type: ignore[arg-type]
    with same.view() as view:
        assert list(view) == ["before", "evil", "after"]
        assert view.entry("evil").headers == UNREADABLE
        assert view.stats.mismatched == 1
        memory_cluster.write("prices", b"evil", None, UNREADABLE)
        view.barrier()
        assert list(view) == ["before", "after"]


def test_it_fails_those_who_asked_for_it_and_the_error_names_it(memory_cluster: MemoryCluster, queue: Queue) -> None:
    strict = LastValueQueue("prices", key_header="ticker", key_mismatch="fail", cluster=memory_cluster)
    with pytest.raises(KeyMismatch, match=r"prices/0/1.*cannot be read") as caught, strict.view():
        pass
    assert caught.value.position == ("prices", 0, 1)


def test_a_queue_whose_record_key_is_the_key_has_no_key_to_doubt(memory_cluster: MemoryCluster, queue: Queue) -> None:
    bare = LastValueQueue("prices", key_header=None, key_mismatch="fail", cluster=memory_cluster)
    with bare.view() as view:
        assert (view.entry("evil").headers, view.stats.mismatched) == (UNREADABLE, 0)


def test_a_browser_gives_it_and_no_filter_of_headers_takes_it(memory_cluster: MemoryCluster, queue: Queue) -> None:
    with queue.browser(follow=False) as browser:
        assert [event.key for event in browser if isinstance(event, Entry)] == ["before", "evil", "after"]
    with queue.browser(headers={"ticker": None}) as browser:
        assert [event.key for event in browser.drain() if isinstance(event, Entry)] == ["before", "after"]


def test_a_consumer_is_handed_it_and_its_dead_letter_says_what_it_lacks(
    memory_cluster: MemoryCluster, queue: Queue
) -> None:
    memory_cluster.topics.create("dead", partitions=1, config={})
    with queue.consumer(dead_letters="dead") as consumer:
        for _ in range(3):
            delivery = consumer.acquire(10)
            assert delivery is not None
            if delivery.key == "evil":
                assert delivery.headers == UNREADABLE
                delivery.reject("evil").result(10)
            else:
                delivery.ack()
        assert consumer.stats.mismatched == 1
    (dead,) = memory_cluster.records("dead")
    assert (dead.key, dead.value, dead.headers[0]) == (b"evil", b"2", ("lvq-unreadable", b"1"))


@pytest.mark.parametrize("atomic", [False, True])
def test_it_moves_to_another_queue_as_one_that_lacks_its_headers(
    memory_cluster: MemoryCluster, queue: Queue, atomic: bool
) -> None:
    other = declare(memory_cluster, "other")
    assert queue.move(other, atomic=atomic).messages == 3
    assert [record.headers for record in memory_cluster.records("other") if record.key == b"evil"] == [UNREADABLE]
    assert drained(other) == ["1", "2", "3"]
