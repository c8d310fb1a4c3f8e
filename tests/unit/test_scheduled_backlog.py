"""Management of a queue with scheduled messages: stats, purge, expire, move, reclaim (R11)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka import LastValueQueue, Tally, TopicSpec
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.errors import QueueError
from lvq_kafka.testing import MemoryCluster
from tests.unit.managing import consume, declare, drained, maps, put

NOON = 1_000_000_000.0


class Day:
    """A cluster with a clock of its own, and a queue on it whose messages may be scheduled an hour ahead."""

    def __init__(self, **options: Any) -> None:
        self.now = NOON
        self.cluster = MemoryCluster(clock=lambda: self.now)
        self.queue = declare(self.cluster, max_delay=3600.0, **options)

    def schedule(self, key: str, value: str | None, after: float) -> None:
        """Send a message that counts this many seconds after noon."""
        self.cluster.write(
            self.queue.topic,
            key.encode(),
            None if value is None else value.encode(),
            headers=[("ticker", key.encode()), (NOT_BEFORE_HEADER, self.at(after))],
        )

    @staticmethod
    def at(after: float) -> bytes:
        return b"%d" % round((NOON + after) * 1000)


@pytest.fixture
def day() -> Day:
    """Return the day of a queue with the values 1 of a and b, and 2 and 3 of a and 2 of c to come."""
    day = Day()
    put(day.queue, "a=1", "b=1")
    day.schedule("a", "2", 20)
    day.schedule("a", "3", 10)
    day.schedule("c", "2", 10)
    return day


def test_r11_scheduled_messages_are_counted_apart(day: Day) -> None:
    stats = day.queue.stats()
    assert stats.depth == 2
    assert stats.tally == Tally(added=5, replaced=0, deleted=0, consumed=0, scheduled=3)
    day.now += 10
    stats = day.queue.stats()
    assert stats.depth == 3
    assert stats.tally == Tally(added=5, replaced=2, deleted=0, consumed=0)


def test_r11_messages_consumed_below_scheduled_ones_are_not_counted_as_scheduled(day: Day) -> None:
    consume(day.queue, "a", "b")
    assert maps(day.queue)[0].base == 2
    assert day.queue.stats().tally == Tally(added=3, replaced=0, deleted=0, consumed=0, scheduled=3)


def test_r11_messages_due_by_now_are_moved_in_the_order_in_which_they_would_be_handed_out() -> None:
    day = Day()
    for key, after in (("a", 30), ("b", 20), ("c", 10)):
        day.schedule(key, key, after)
    day.now += 30
    other = declare(day.cluster, "other")
    day.queue.move(other)
    assert [record.key for record in day.cluster.records("other")] == [b"c", b"b", b"a"]


def test_r11_purging_a_key_takes_what_is_scheduled_too(day: Day) -> None:
    change = day.queue.purge(keys=["a"])
    assert (change.messages, maps(day.queue)[0].done(0), maps(day.queue)[0].done(3)) == (3, True, True)
    day.now += 20
    assert drained(day.queue) == ["1", "2"]


def test_r11_purging_everything_takes_what_is_scheduled_too(day: Day) -> None:
    day.queue.purge()
    day.now += 20
    assert (drained(day.queue), day.queue.stats().depth) == ([], 0)


def test_r11_purging_a_key_takes_its_scheduled_deletes_which_are_no_messages(day: Day) -> None:
    day.schedule("b", None, 10)
    assert day.queue.purge(keys=["b"]).messages == 1
    day.now += 20
    assert drained(day.queue) == ["3", "2"]
    assert maps(day.queue)[0].base == 6


def test_r11_scheduled_messages_are_not_expired_by_their_age(day: Day) -> None:
    day.now += 5
    assert day.queue.expire(older_than=1).messages == 2
    assert day.queue.stats().tally.scheduled == 3
    day.now += 5
    assert day.queue.expire(older_than=1).messages == 2
    assert drained(day.queue) == []


@pytest.mark.parametrize("atomic", [True, False], ids=["atomic", "at least once"])
def test_r11_scheduled_messages_are_due_in_the_other_queue_when_they_are_here(day: Day, atomic: bool) -> None:
    other = declare(day.cluster, "other", max_delay=60.0)
    assert day.queue.move(other, atomic=atomic).messages == 5
    assert (day.queue.stats().depth, day.queue.stats().tally.scheduled) == (0, 0)
    assert other.stats().tally == Tally(added=5, replaced=0, deleted=0, consumed=0, scheduled=3)
    assert drained(other) == ["1", "1"]
    day.now += 10
    assert drained(other) == ["3", "2"]
    day.now += 10
    assert (drained(other), drained(day.queue)) == ([], [])


def test_r11_a_delay_that_the_queue_has_cut_stays_as_it_is() -> None:
    day = Day()
    day.schedule("a", "1", 99_999)
    other = declare(day.cluster, "other", max_delay=99_999.0)
    day.queue.move(other)
    assert dict(day.cluster.records("other")[0].headers)[NOT_BEFORE_HEADER] == day.at(3600)


@pytest.mark.parametrize("max_delay", [None, 15.0])
def test_r11_a_queue_that_lets_them_wait_less_long_gets_no_scheduled_messages(
    day: Day, max_delay: float | None
) -> None:
    other = declare(day.cluster, "other", max_delay=max_delay)
    with pytest.raises(QueueError, match="scheduled, and would count too early in other"):
        day.queue.move(other)
    assert day.cluster.records("other") == []
    assert day.queue.move(other, keys=["b"]).messages == 1
    day.now += 20
    assert day.queue.move(other).messages == 2
    assert drained(other) == ["1", "3", "2"]


def test_r11_a_scheduled_delete_that_does_not_move_holds_nothing_up(day: Day) -> None:
    put(day.queue, "d=1")
    day.schedule("z", None, 10)
    other = declare(day.cluster, "other")
    with pytest.raises(QueueError, match="3 of the messages"):
        day.queue.move(other)
    day.now += 20
    day.schedule("y", None, 60)
    assert day.queue.move(other).messages == 4


def test_r11_a_scheduled_delete_moves_with_what_it_will_delete(day: Day) -> None:
    day.schedule("b", None, 10)
    day.schedule("z", None, 10)
    other = declare(day.cluster, "other", max_delay=60.0)
    put(other, "z=kept")
    day.queue.move(other)
    assert [record.key for record in day.cluster.records("other") if record.value is None] == [b"b"]
    day.now += 10
    assert sorted(drained(other)) == ["2", "3", "kept"]


def test_r11_nothing_is_reclaimed_beyond_what_is_scheduled() -> None:
    day = Day(spec=TopicSpec(reclaim=True))
    put(day.queue, "a=1")
    day.schedule("a", "2", 10)
    put(day.queue, "b=1")
    assert drained(day.queue) == ["1", "1"]
    assert day.queue.reclaim().after == {0: 1}
    day.now += 10
    assert drained(day.queue) == ["2"]
    assert day.queue.reclaim().after == {0: 3}


def test_r11_a_browser_of_what_is_left_shows_what_counts(day: Day) -> None:
    queue: LastValueQueue[str] = day.queue
    consume(queue, "a", "b")
    assert queue.stats().depth == 0
    day.now += 10
    assert queue.stats().depth == 2
