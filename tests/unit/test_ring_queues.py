"""Queues with limits, as declared, consumed and measured: rings, and breaches of any policy (R12)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka import Limits, Message, TopicSpec
from lvq_kafka.core.facts import Depth
from lvq_kafka.errors import ConfigError, TopicNotFound
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import declare, drained, put
from tests.waiting import eventually


def ring(**most: int) -> Limits:
    return Limits(policy="ring", **most)  # type: ignore[arg-type]


def letters(text: str) -> list[str]:
    """Return a message for each letter of a text, to be put."""
    return [f"{letter}={at}" for at, letter in enumerate(text)]


@pytest.mark.parametrize("most", [{"messages": 2}, {"bytes": 2}])
@pytest.mark.parametrize("exists", [False, True])
def test_a_ring_that_leaves_a_partition_without_a_share_is_refused(
    memory_cluster: MemoryCluster, most: dict[str, int], exists: bool
) -> None:
    if exists:
        declare(memory_cluster, "other", topic="prices", spec=TopicSpec(partitions=3))
    with pytest.raises(ConfigError, match=r"cannot be shared by 3 partitions") as refusal:
        declare(memory_cluster, limits=ring(**most), spec=TopicSpec(partitions=3))
    assert refusal.value.options == (*most, "partitions")
    if not exists:
        with pytest.raises(TopicNotFound):
            memory_cluster.topics.describe("prices")
    declare(memory_cluster, limits=ring(**dict.fromkeys(most, 3)), spec=TopicSpec(partitions=3))


@pytest.mark.parametrize("policy", ["none", "reject", "block", "disk"])
def test_limits_that_are_not_shared_may_be_lower_than_the_number_of_partitions(
    memory_cluster: MemoryCluster, policy: Any
) -> None:
    declare(memory_cluster, limits=Limits(policy=policy, messages=1), spec=TopicSpec(partitions=3))


@pytest.mark.parametrize(("policy", "does"), [("ring", "evict"), ("disk", "page to disk")])
def test_limits_for_consumers_are_refused_where_nobody_consumes(
    memory_cluster: MemoryCluster, policy: Any, does: str
) -> None:
    with pytest.raises(ConfigError, match=f"exclude each other: consumers {does}") as refusal:
        declare(memory_cluster, limits=Limits(policy=policy, messages=9), non_destructive=True)
    assert refusal.value.options == ("limits", "non_destructive")


def test_each_partition_has_its_share_which_declare_reports(memory_cluster: MemoryCluster) -> None:
    alone = declare(memory_cluster, "alone", limits=ring(messages=7))
    queue = declare(memory_cluster, limits=ring(messages=7), spec=TopicSpec(partitions=2))
    assert alone.declaration is not None
    assert queue.declaration is not None
    assert alone.declaration.findings == ()
    (finding,) = queue.declaration.findings
    assert str(finding).startswith("limits are split over 2 partitions: each partition")
    put(queue, *(f"{number}=1" for number in range(40)))
    with queue.consumer() as consumer:
        eventually(lambda: consumer.stats.available == 6)
        assert consumer.stats.evicted == 34
    assert [one.depth for one in queue.stats().partitions] == [3, 3]
    assert len(drained(queue)) == 6


def test_the_depth_is_measured_in_messages_and_bytes_after_conflation(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=ring(messages=9, bytes=1000), spec=TopicSpec(partitions=2))
    put(queue, *letters("aabca"))
    stats = queue.stats()
    size = 3 * (1 + len("1") + len("ticker") + 1)
    assert (stats.depth, stats.bytes, stats.breach, stats.limits) == (3, size, "", queue.definition.limits)
    assert sum(one.bytes or 0 for one in stats.partitions) == size
    drained(queue)
    assert (queue.stats().depth, queue.stats().bytes) == (0, 0)


def test_without_limits_nothing_is_weighed(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, *letters("ab"))
    stats = queue.stats()
    assert (stats.bytes, stats.breach, stats.limits, stats.partitions[0].bytes) == (None, "", None, None)


def test_the_messages_of_a_standard_queue_are_measured_too(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=ring(messages=2), conflate=False)
    with queue.producer() as producer:
        for number in range(3):
            producer.send(Message(str(number), headers={"ticker": "a"}))
    assert queue.stats().breach == "3 messages where 2 are allowed"
    with queue.consumer(commit_interval=0.01) as consumer:
        eventually(lambda: consumer.stats.evicted == 1)
        eventually(lambda: queue.stats().breach == "")


def test_a_breach_names_each_limit() -> None:
    limits = Limits(policy="none", messages=1000, bytes=5000)
    assert limits.described == "1,000 messages and 5,000 bytes"
    assert limits.breach(Depth(1000, 5000)) == ""
    assert not limits.exceeded_by(Depth(1000, 5000))
    assert ring(messages=1).breach(Depth(2)) == "2 messages where 1 is allowed"
    assert limits.breach(Depth(1001, 10) + Depth(0, 4000)) == "1,001 messages where 1,000 are allowed"
    assert limits.breach(Depth(2000, 6000)) == (
        "2,000 messages where 1,000 are allowed and 6,000 bytes where 5,000 are allowed"
    )
    assert limits.exceeded_by(Depth(1, 5001))


def test_there_is_no_breach_where_the_rest_goes_to_disk(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=Limits(policy="disk", messages=1, bytes=5))
    put(queue, *letters("abc"))
    stats = queue.stats()
    assert (stats.depth, stats.breach, stats.limits) == (3, "", queue.definition.limits)


def test_an_eviction_by_a_ring_is_logged_once_while_it_stays_full(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    def said() -> int:
        return sum("evicts messages" in record.message for record in caplog.records)

    queue = declare(memory_cluster, limits=ring(messages=3))
    with queue.consumer() as consumer:
        for begin in (0, 10, 20):
            put(queue, *(f"{number}=1" for number in range(begin, begin + 10)))
        eventually(lambda: consumer.stats.evicted == 27)
        eventually(lambda: said() == 1)
        consumer.acquire_many(3, timeout=10)[0].ack()
        put(queue, "30=1")
        eventually(lambda: consumer.stats.read == 31)
        assert said() == 1
    assert "more than its ring, 3 messages" in caplog.text


def test_a_message_that_is_too_large_is_logged_once(
    memory_cluster: MemoryCluster, caplog: pytest.LogCaptureFixture
) -> None:
    queue = declare(memory_cluster, limits=ring(bytes=100))
    memory_cluster.write("prices", b"a", b"x" * 200)
    memory_cluster.write("prices", b"b", b"x" * 200)
    with queue.consumer() as consumer:
        eventually(lambda: "evicted the message at offset 0 of partition 0, which has 201 bytes" in caplog.text)
        assert consumer.stats.evicted == 2
        put(queue, "c=1")
        delivery = consumer.acquire(10)
        assert delivery is not None
        assert delivery.key == "c"
    assert caplog.text.count("evicted the message") == 1


def test_a_priority_queue_evicts_the_lowest_priority_first(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=ring(messages=3), order="priority")
    with queue.producer() as producer:
        for key, priority in zip("abcdef", (9, 0, 5, 0, 9, 4)):
            producer.send(Message(key, headers={"ticker": key}, priority=priority))
    assert sorted(drained(queue)) == ["a", "e", "f"]


def test_evicted_messages_leave_a_browser_as_consumed_ones_do(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, limits=ring(messages=2))
    put(queue, *letters("abc"))
    with queue.consumer(commit_interval=0.01) as consumer:
        eventually(lambda: consumer.stats.evicted == 1)
    with queue.browser(follow=False) as browser:
        assert [event.value for event in browser.drain(10) if hasattr(event, "value")] == ["1", "2"]
