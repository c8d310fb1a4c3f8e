"""The depth of a queue: counted exactly, from outside, while others change it."""

from __future__ import annotations

from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from threading import Event
from typing import Any

import pytest

from lvq_kafka import TEXT, Groups, LastValueQueue, Message, TopicSpec
from lvq_kafka.cluster import LogReader
from lvq_kafka.errors import CatchUpTimeout, Unauthorized
from lvq_kafka.managing.queue_stats import Tally
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import consume, declare, drained, overwrite, put, said
from tests.unit.polling import before_polls
from tests.waiting import eventually


def test_an_empty_queue_is_empty(memory_cluster: MemoryCluster) -> None:
    stats = declare(memory_cluster).stats()
    assert (stats.queue, stats.topic, stats.members, stats.blocked) == ("prices", "prices", 0, False)
    assert (stats.depth, stats.attempted, stats.oldest, stats.lag) == (0, 0, None, 0)
    (one,) = stats.partitions
    assert (one.partition, one.start, one.stable, one.end, one.base, one.sequence) == (0, 0, 0, 0, 0, 0)


def test_the_newest_of_each_key_counts_where_it_is_not_done(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, spec=TopicSpec(partitions=2))
    put(queue, *(f"{number}=1" for number in range(20)), *(f"{number}=2" for number in range(5)), "6", "7")
    stats = queue.stats()
    assert (stats.depth, stats.lag, stats.attempted) == (18, 27, 0)
    assert sum(one.depth for one in stats.partitions) == 18
    consume(queue, "0", "10", "11")
    stats = queue.stats()
    assert stats.depth == 15 == len(drained(queue))
    assert stats.attempted == 15  # `consume` acquired all of them
    assert sum(one.done_ahead for one in stats.partitions) > 0
    assert (queue.stats().depth, queue.stats().lag) == (0, 0)


@pytest.mark.parametrize("question", ["topics.describe", "logs.start_offsets", "logs.end_offsets"])
def test_partitions_that_are_added_while_it_is_looked_are_looked_at_too(
    memory_cluster: MemoryCluster, question: str
) -> None:
    queue = declare(memory_cluster)
    part, _, name = question.partition(".")
    original = getattr(getattr(memory_cluster, part), name)
    to_do = [lambda: memory_cluster.topics.add_partitions("prices", 2)]

    def ask(topic: str, **how: Any) -> Any:
        answer = original(topic, **how)
        if to_do:
            to_do.pop()()
        return answer

    setattr(getattr(memory_cluster, part), name, ask)
    assert [damage.kind for damage in queue.repair().found] == ["partitions-added"]
    assert [one.partition for one in queue.stats().partitions] == [0, 1]


def test_messages_without_a_key_all_count(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    with queue.producer() as producer:
        for _ in range(3):
            producer.send(Message("x"))
    assert queue.stats().depth == 3


def test_a_key_mismatch_counts_by_the_queues_policy_and_is_no_reason_to_stop(memory_cluster: MemoryCluster) -> None:
    for name, policy, depth in (("r", "record", 2), ("h", "header", 1), ("f", "fail", 2)):
        queue = declare(memory_cluster, name, key_mismatch=policy)
        memory_cluster.write(name, b"a", b"1", [("ticker", b"c")])
        memory_cluster.write(name, b"b", b"1", [("ticker", b"c")])
        assert queue.stats().depth == depth


def test_added_replaced_and_consumed_messages_are_counted(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, spec=TopicSpec(partitions=2))
    assert queue.stats().tally == Tally(0, 0, 0, 0)
    put(queue, "a=1", "b=1", "c=1", "a=2", "d=1", "d", "a=3", "e", "b=2")
    tally = queue.stats().tally
    assert tally == Tally(added=7, replaced=3, deleted=1, consumed=0)
    assert tally.added == tally.replaced + tally.deleted + tally.consumed + queue.stats().depth


def test_consumed_messages_are_counted_from_the_base_on(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1", "a=2", "d=1", "e=1")
    overwrite(queue, p0=said(queue, 1, 1, 1, 1, 1))  # a=1 is below the base, c=1 and d=1 are done
    stats = queue.stats()
    assert stats.tally == Tally(added=5, replaced=0, deleted=0, consumed=2)
    assert stats.depth == 3
    put(queue, "c=2", "e=2")
    stats = queue.stats()
    assert stats.tally == Tally(added=7, replaced=1, deleted=0, consumed=2)
    assert stats.depth == 4
    memory_cluster.compact("prices")
    assert queue.stats().tally == Tally(added=5, replaced=0, deleted=0, consumed=1), "what is gone is not counted"
    overwrite(queue, p0=said(queue, 8))
    assert queue.stats().tally == Tally(0, 0, 0, 0)


def test_redeliveries_are_counted_where_consumers_count_durably(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1", "d=1")
    assert queue.stats().redelivered == 0
    overwrite(queue, p0=said(queue, 0, delivered=3, counts={0: 1, 1: 4, 2: 2}))
    stats = queue.stats()
    assert (stats.redelivered, stats.attempted) == (4, 3)
    put(queue, "b=2")
    assert queue.stats().redelivered == 1


def test_the_oldest_is_the_oldest_of_those_that_wait() -> None:
    now = [10.0]
    cluster = MemoryCluster(clock=lambda: now[0])
    queue = declare(cluster)
    oldest = []
    for at, key in ((10.0, "z"), (100.0, "m"), (1000.0, "z")):
        now[0] = at
        put(queue, f"{key}=1")
        oldest.append(queue.stats().oldest)
    assert oldest == [10.0, 10.0, 100.0]
    consume(queue, "m")
    assert queue.stats().oldest == 1000.0


def test_messages_handed_out_and_not_done_are_shown_apart(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")
    overwrite(queue, p0=said(queue, 0, 1, 1, sequence=9, delivered=2))
    (one,) = queue.stats().partitions
    assert (one.depth, one.attempted, one.done_ahead, one.sequence) == (2, 1, 1, 9)


def test_messages_hidden_by_a_transaction_do_not_count_and_are_reported(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1")
    with queue.producer(transactional_id="t") as producer, producer.transaction():
        producer.put("b", "2").result(5)
        stats = queue.stats()
        assert (stats.depth, stats.lag, stats.blocked) == (1, 2, True)
    assert queue.stats().depth == 2


def test_a_queue_that_is_never_consumed_has_a_depth_and_no_lag(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, non_destructive=True)
    put(queue, "a=1", "b=1", "a=2", "b")
    for asked in (queue, LastValueQueue("prices", key_header="ticker", value=TEXT, cluster=memory_cluster)):
        stats = asked.stats()
        assert (stats.depth, stats.lag, stats.members, stats.attempted) == (1, None, None, 0)
        assert (stats.partitions[0].base, stats.partitions[0].sequence) == (None, None)
        assert stats.tally == Tally(added=3, replaced=1, deleted=1, consumed=0)


def test_it_reads_from_what_is_done_on_and_not_from_the_beginning(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = declare(memory_cluster, spec=TopicSpec(partitions=2))
    put(queue, *(f"{number}=1" for number in range(20)))
    ends = memory_cluster.logs.end_offsets("prices")
    overwrite(queue, p0=said(queue, ends[0]), p1=said(queue, 3))
    asked: list[Mapping[int, int]] = []
    reader = memory_cluster.reader

    def noted(topic: str, positions: Mapping[int, int]) -> LogReader:
        asked.append(positions)
        return reader(topic, positions)

    monkeypatch.setattr(memory_cluster, "reader", noted)
    assert queue.stats().depth == ends[1] - 3
    assert asked == [{1: 3}]


def test_messages_consumed_during_the_read_do_not_count(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")
    before_polls(memory_cluster, lambda reader, poll: overwrite(queue, p0=said(queue, 0, 1, 1, sequence=3)))
    stats = queue.stats()
    assert (stats.depth, stats.partitions[0].done_ahead, stats.partitions[0].sequence) == (2, 1, 3)
    assert stats.tally == Tally(added=3, replaced=0, deleted=0, consumed=1)


def test_a_partition_reset_during_the_read_is_read_again(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")
    overwrite(queue, p0=said(queue, 2))

    def reset(reader: int, poll: int) -> None:
        if reader == 1:
            overwrite(queue, p0=said(queue, 1))

    before_polls(memory_cluster, reset)
    assert queue.stats().depth == 2


def test_a_log_that_is_truncated_during_the_read_is_read_on_where_it_begins(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")

    def truncate(reader: int, poll: int) -> None:
        if reader == 1:
            memory_cluster.delete_records("prices", 0, 2)

    before_polls(memory_cluster, truncate)
    assert queue.stats().depth == 1


def test_records_gone_below_the_beginning_of_the_log_are_no_lag(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1", "b=1", "c=1")
    memory_cluster.delete_records("prices", 0, 2)
    assert (queue.stats().lag, queue.stats().depth) == (1, 1)


def test_an_outage_during_the_read_passes(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1")

    def interrupt(reader: int, poll: int) -> None:
        memory_cluster.disconnect() if poll == 1 else memory_cluster.reconnect()

    before_polls(memory_cluster, interrupt)
    assert queue.stats().depth == 1


def test_a_read_that_takes_too_long_is_told(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    put(queue, "a=1")
    with pytest.raises(CatchUpTimeout, match="The end of prices was not reached"):
        queue.stats(timeout=-1)


def test_members_are_counted_where_one_may_ask(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    with queue.consumer() as consumer:
        eventually(lambda: consumer.stats.partitions)
        assert queue.stats().members == 1
        memory_cluster.fail_next("groups.member_count", Unauthorized("No.", code="GROUP_AUTHORIZATION_FAILED"))
        assert queue.stats().members is None
    assert queue.stats().members == 0


def test_no_number_is_negative_while_everything_moves(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster)
    done = Event()

    def send() -> None:
        with queue.producer() as producer:
            for number in range(3000):
                producer.put(number % 50, str(number))

    def take() -> None:
        with queue.consumer(commit_interval=0.001) as consumer:
            while not done.is_set():
                delivery = consumer.acquire(0.01)
                if delivery is not None:
                    delivery.ack()

    with ThreadPoolExecutor() as threads:
        taking, sending = threads.submit(take), threads.submit(send)
        while not sending.done():
            stats = queue.stats()
            assert 0 <= stats.attempted <= stats.depth <= 50
            tally = stats.tally
            assert min(tally.added, tally.replaced, tally.deleted, tally.consumed, stats.redelivered) >= 0
            assert tally.added == tally.replaced + tally.deleted + tally.consumed + stats.depth
            assert stats.lag is not None
            assert stats.lag >= 0
        eventually(lambda: queue.stats().depth == 0)
        done.set()
        taking.result()
        sending.result()
    assert queue.stats().lag == 0


def test_r20_messages_that_wait_are_counted_by_the_priority_that_they_have(memory_cluster: MemoryCluster) -> None:
    queue = declare(memory_cluster, order="priority", priorities=2)
    assert {waiting.depth for waiting in queue.stats().priorities.values()} == {0}
    with queue.producer() as producer:
        first = producer.put("a", "1", priority=9).result(10)
        producer.put("b", "1", priority=9)
        producer.put("c", "1")
        producer.put("d", "1", priority=0)
        producer.put("d", "2", priority=1)
    memory_cluster.write("prices", b"e", b"1", [("lvq-priority", b"high")])
    stats = queue.stats()
    assert {priority: waiting.depth for priority, waiting in stats.priorities.items() if waiting.depth} == {
        9: 2,
        4: 2,
        1: 1,
    }
    assert list(stats.priorities) == [9, 8, 7, 6, 5, 4, 3, 2, 1, 0]
    assert stats.priorities[9].oldest == stats.oldest
    assert stats.priorities[0].oldest is None
    consume(queue, "a", "b")
    assert queue.stats().priorities[9].depth == 0
    assert first.offset == 0
    assert stats.groups is None


def test_r36_groups_of_messages_that_wait_are_counted_and_the_oldest_message_is_known(
    memory_cluster: MemoryCluster,
) -> None:
    queue = declare(memory_cluster, groups=Groups(header="customer"))
    assert (queue.stats().groups, queue.stats().oldest_in_group) == (0, None)
    for key, customer in (("a", None), ("b", b"x"), ("c", b"y"), ("d", b"x")):
        memory_cluster.write("prices", key.encode(), b"1", [] if customer is None else [("customer", customer)])
    stats = queue.stats()
    assert (stats.groups, stats.priorities) == (2, {})
    assert stats.oldest is not None
    assert stats.oldest_in_group is not None
    assert stats.oldest <= stats.oldest_in_group
    consume(queue, "b", "d")
    assert queue.stats().groups == 1
