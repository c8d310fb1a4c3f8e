"""Management of queues with an order by rank: stats, purge, expire, move (R20)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka import Entry, LastValueQueue, Message, TopicSpec
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import consume, declare, drained

Queue = LastValueQueue[str]
both_ways = pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "at least once"])


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> Queue:
    queue = declare(memory_cluster, order="priority")
    with queue.producer() as producer:
        for key, priority in (("a", 1), ("b", 9), ("c", None), ("b", 0)):
            producer.put(key, f"{key} at {priority}", priority=priority)
    return queue


def ranks(cluster: MemoryCluster, topic: str, header: str = PRIORITY_HEADER) -> dict[bytes | None, bytes | None]:
    return {record.key: dict(record.headers).get(header) for record in cluster.records(topic)}


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.message for record in caplog.records if record.name == "lvq_kafka.management"]


def test_ranks_do_not_change_what_is_counted_and_purged(queue: Queue) -> None:
    stats = queue.stats()
    assert (stats.depth, stats.tally.added, stats.tally.replaced) == (3, 4, 1)
    consume(queue, "c")
    assert queue.stats().depth == 2
    assert queue.purge(keys=["b"]).messages == 1
    assert drained(queue) == ["a at 1"]
    assert queue.stats().depth == 0


@both_ways
def test_messages_move_with_their_rank(
    memory_cluster: MemoryCluster, queue: Queue, atomic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    other = declare(memory_cluster, "other", order="priority", priorities=2)
    assert queue.move(other, atomic=atomic).messages == 3
    assert ranks(memory_cluster, "other") == {b"a": b"1", b"b": b"0", b"c": None}
    with other.browser(follow=False) as browser:
        assert [event.key for event in browser if isinstance(event, Entry)] == ["a", "c", "b"]
    assert warnings(caplog) == []


@both_ways
@pytest.mark.parametrize("options", [{}, {"order": "in-place"}, {"order": "sorted"}, {"conflate": False}])
def test_a_rank_that_does_not_count_in_the_other_queue_is_kept_and_logged(
    memory_cluster: MemoryCluster,
    queue: Queue,
    atomic: bool,
    options: dict[str, Any],
    caplog: pytest.LogCaptureFixture,
) -> None:
    other = declare(memory_cluster, "other", **options)
    queue.move(other, atomic=atomic)
    assert sorted(dict(record.headers).get(PRIORITY_HEADER, b"") or b"" for record in memory_cluster.records("other"))[
        -3:
    ] == [b"", b"0", b"1"]
    (line,) = warnings(caplog)
    assert line.startswith("moving from prices to other: 2 of 3 messages have a rank in the header lvq-priority")
    assert line.endswith(f"the order of that queue is {options.get('order', 'tail')}")


def test_nothing_is_logged_of_messages_without_a_rank(
    memory_cluster: MemoryCluster, queue: Queue, caplog: pytest.LogCaptureFixture
) -> None:
    other = declare(memory_cluster, "other")
    assert queue.move(other, keys=["c"]).messages == 1
    assert warnings(caplog) == []


@both_ways
def test_a_sort_header_of_another_name_is_another_rank(
    memory_cluster: MemoryCluster, atomic: bool, caplog: pytest.LogCaptureFixture
) -> None:
    queue = declare(memory_cluster, order="sorted")
    with queue.producer() as producer:
        producer.put("a", "1", sort="x")
    by_price = declare(memory_cluster, "by-price", order="sorted", sort_header="price")
    queue.move(by_price, atomic=atomic)
    assert ranks(memory_cluster, "by-price", SORT_HEADER) == {b"a": b"x"}
    assert "in the header lvq-sort, which does not count there" in warnings(caplog)[0]


def test_a_standard_queue_gets_and_gives_ranks(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, order="priority", conflate=False, spec=TopicSpec(partitions=1))
    with queue.producer() as producer:
        for number, priority in enumerate((1, 9, 1, 9)):
            producer.send(Message(str(number), {"ticker": "a"}, priority=priority))
    other = declare(memory_cluster, "other", order="priority", conflate=False)
    assert queue.move(other).messages == 4
    with other.browser(follow=False) as browser:
        assert [event.value for event in browser if isinstance(event, Entry)] == ["1", "3", "0", "2"]
    other.purge()
    assert other.stats().depth == 0


def test_a_dead_letter_keeps_its_rank(memory_cluster: MemoryCluster, queue: Queue) -> None:
    memory_cluster.topics.create("dead", partitions=1, config={})
    with queue.consumer(dead_letters="dead") as consumer:
        for _ in range(3):
            delivery = consumer.acquire(30)
            assert delivery is not None
            delivery.reject("broken").result(30)
    assert ranks(memory_cluster, "dead") == {b"a": b"1", b"b": b"0", b"c": None}


@pytest.mark.parametrize(
    ("options", "partitions", "actual"),
    [
        ({"order": "priority"}, 3, ["priority over 3 partitions"]),
        ({"order": "sorted", "conflate": False}, 2, ["sorted over 2 partitions"]),
        ({"order": "priority"}, 1, []),
        ({"order": "priority", "non_destructive": True}, 3, []),
        ({"order": "tail"}, 3, []),
    ],
)
def test_r20_an_order_over_several_partitions_is_a_finding(
    memory_cluster: MemoryCluster, options: dict[str, Any], partitions: int, actual: list[str]
) -> None:
    queue = declare(memory_cluster, spec=TopicSpec(partitions=partitions), **options)
    assert queue.declaration is not None
    findings = [finding for finding in queue.declaration.findings if finding.setting == "order"]
    assert [finding.actual for finding in findings] == actual
    assert all("each consumer hands out the best message of its own partitions" in str(found) for found in findings)
