"""Management of a queue with a TTL: what has expired does not wait, is not moved, and is counted."""

from __future__ import annotations

import time

import pytest

from lvq_kafka import LastValueQueue, Tally, TopicSpec, Ttl
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import Unauthorized
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import declare, drained, maps, put

NOON = 1_000_000_000.0


class Day:
    """A cluster with a clock of its own, and a queue on it whose messages live for ten seconds."""

    def __init__(self) -> None:
        self.now = NOON
        self.cluster = MemoryCluster(clock=lambda: self.now)
        self.queue = declare(self.cluster, ttl=Ttl(default=10))

    def put_for(self, ttl: float, key: str) -> None:
        with self.queue.producer() as producer:
            producer.put(key, "own", {"x": "y"}, ttl=ttl)


@pytest.fixture
def day() -> Day:
    return Day()


@pytest.fixture
def queue(day: Day) -> LastValueQueue[str]:
    """Return the queue at second 11: c and d have not expired."""
    put(day.queue, "a=1", "b=1", "a=2")
    day.put_for(3600, "c")
    day.now += 11
    put(day.queue, "d=1")
    return day.queue


def test_r10_expired_messages_do_not_count_and_are_counted_apart(queue: LastValueQueue[str], day: Day) -> None:
    stats = queue.stats()
    assert (stats.depth, stats.oldest) == (2, NOON)
    assert stats.tally == Tally(added=5, replaced=1, deleted=0, consumed=0, expired=2)
    day.now += 11
    assert (queue.stats().depth, queue.stats().tally.expired) == (1, 3)
    day.now += 3600
    assert queue.stats().depth == 0


def test_r8_a_message_that_an_expired_value_has_replaced_does_not_count(day: Day) -> None:
    put(day.queue, "a=1")
    day.put_for(1, "a")
    day.now += 2
    assert day.queue.stats().depth == 0


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "at least once"])
def test_r10_expired_messages_are_not_moved_and_are_done(queue: LastValueQueue[str], day: Day, atomic: bool) -> None:
    other = declare(day.cluster, "other", ttl=Ttl())
    assert queue.move(other, atomic=atomic).messages == 2
    assert [record.key for record in day.cluster.records("other")] == [b"c", b"d"]
    assert dict(day.cluster.records("other")[0].headers)[TTL_HEADER] == b"3600000"
    assert (queue.stats().depth, maps(queue)[0].base) == (0, 5)
    assert drained(other) == ["own", "1"]


def test_r10_purging_a_key_says_that_what_has_expired_is_done_too(queue: LastValueQueue[str]) -> None:
    change = queue.purge(keys=["c", "a"])
    assert (change.messages, change.after[0].base) == (1, 4)
    assert drained(queue) == ["1"]


def test_expire_goes_by_the_time_of_the_cluster_even_without_the_right_to_ask_the_group(
    queue: LastValueQueue[str], day: Day, caplog: pytest.LogCaptureFixture
) -> None:
    assert abs(time.time() - day.now) > 3600
    day.cluster.fail_next("groups.committed_at", Unauthorized("no", code="GROUP_AUTHORIZATION_FAILED"))
    change = queue.expire(older_than=5)
    assert "judged by the clock of this machine" in caplog.text
    assert (change.messages, drained(queue)) == (1, ["1"])


def test_r10_reclaiming_frees_what_has_expired_once_a_consumer_has_committed_it(day: Day) -> None:
    queue = declare(day.cluster, "freed", ttl=Ttl(default=10), spec=TopicSpec(reclaim=True))
    put(queue, "a=1", "b=1")
    day.now += 11
    assert queue.reclaim().offsets == 0
    assert drained(queue) == []
    assert queue.reclaim().offsets == 2
