"""R18 for consumers: after an absence longer than the log keeps deletes, one rereads its backlog or refuses."""

from __future__ import annotations

from collections.abc import Callable
from threading import Event
from typing import Any

import pytest

from lvq_kafka.cluster import GroupListener, GroupMember
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import DataLoss, LockLost
from tests.unit.consuming.world import TOPIC, World, consuming, drain, has_read_all, make_world, take
from tests.waiting import eventually

DAY = 86_400.0


class Hours:
    """A consumer's clock, with hours that tests add."""

    def __init__(self, consumer: Consumer[Any]) -> None:
        self._shared = consumer._shared
        self._passed = 0.0
        uptime = self._shared.clock
        self._shared.clock = lambda: uptime() + self._passed

    def pass_by(self, seconds: float) -> None:
        self._passed += seconds


def cut_off(world: World, consumer: Consumer[Any], seconds: float, meanwhile: Callable[[], object]) -> None:
    """Cut the consumer off for this long, while the group still counts on it."""
    hours = Hours(consumer)
    world.disconnect()
    eventually(lambda: consumer.stats.trouble)
    meanwhile()
    hours.pass_by(seconds)
    world.reconnect()


def delete_and_clean(world: World) -> None:
    world.send(("a", None), ("b", "b2"))
    world.compact(TOPIC, drop_tombstones=True)
    assert b"a" not in {record.key for record in world.records(TOPIC)}


def test_r18_messages_deleted_while_a_consumer_was_away_are_not_handed_out(world: World) -> None:
    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        consumer.pause()
        cut_off(world, consumer, 2 * DAY, lambda: delete_and_clean(world))
        eventually(lambda: len(world.members) == 2)
        has_read_all(world, consumer)
        consumer.resume()
        assert drain(consumer, 1) == ["b2"]
        assert consumer.stats.trouble == ""


def test_r18_the_retention_of_deletes_may_change_while_a_consumer_is_away(world: World) -> None:
    def keep_deletes_shorter() -> None:
        world._state.topics[TOPIC].config["delete.retention.ms"] = "60000"
        delete_and_clean(world)

    world.send(("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        consumer.pause()
        cut_off(world, consumer, 100, keep_deletes_shorter)
        eventually(lambda: len(world.members) == 2)
        has_read_all(world, consumer)
        consumer.resume()
        assert drain(consumer, 1) == ["b2"]


def test_r18_messages_held_meanwhile_are_lost_and_acked_ones_are_not(world: World) -> None:
    world.send(("x", "x1"), ("a", "a1"), ("b", "b1"))
    with consuming(world) as consumer:
        acked, held = take(consumer), take(consumer)
        consumer.pause()
        acked.ack(wait=True, timeout=20)
        cut_off(world, consumer, 2 * DAY, lambda: delete_and_clean(world))
        eventually(lambda: held.state is MessageState.LOST)
        with pytest.raises(LockLost):
            held.ack()
        consumer.resume()
        assert drain(consumer, 1) == ["b2"]


def test_r18_a_consumer_of_a_quiet_queue_goes_on_however_long_it_was_away(world: World) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        has_read_all(world, consumer)
        consumer.pause()
        cut_off(world, consumer, 30 * DAY, lambda: None)
        eventually(lambda: not consumer.stats.trouble)
        world.send(("b", "b1"))
        consumer.resume()
        assert drain(consumer, 2) == ["a1", "b1"]
        assert len(world.members) == 1


class Slow(World):
    """A log that takes two days for each fetch but the first; meanwhile a delete is written and compacted away."""

    def __init__(self, **options: Any) -> None:
        super().__init__(fetch_limit=2, **options)
        self.reads = 0
        self.slow_reads = 0
        self._hours: Hours | None = None
        self._begun = Event()

    def begin(self, consumer: Consumer[Any], slow_reads: int) -> None:
        """Let the consumer read; its first ``slow_reads`` readers are slow."""
        self._hours, self.slow_reads = Hours(consumer), slow_reads
        self._begun.set()

    def member(self, group: str, topic: str, listener: GroupListener, *, renews: bool = False) -> GroupMember:
        found = super().member(group, topic, listener, renews=renews)
        self.reads += 1
        poll, begun, number = found.poll, [False], self.reads

        def slowly(timeout: float) -> Fetch:
            assert self._begun.wait(10)
            assert self._hours is not None
            if begun[0] and number <= self.slow_reads:
                self.send((f"k{number}", None), ("last", str(number)))
                self.compact(TOPIC, drop_tombstones=True)
                self._hours.pass_by(2 * DAY)
            fetch = poll(timeout)
            begun[0] = begun[0] or bool(fetch.positions)
            return fetch

        found.poll = slowly  # type: ignore[method-assign]
        return found


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> Slow:
    monkeypatch.setattr("tests.unit.consuming.world.World", Slow)
    world = make_world()
    assert isinstance(world, Slow)
    world.send(*((f"k{number}", "1") for number in (1, 2, 3, 4)), ("last", "0"))
    return world


def test_r18_a_backlog_that_takes_longer_than_deletes_are_kept_is_read_again(slow: Slow) -> None:
    with consuming(slow) as consumer:
        slow.begin(consumer, slow_reads=1)
        eventually(lambda: slow.reads == 2)
        assert drain(consumer, 4) == ["1", "1", "1", "1"]


def test_r18_a_backlog_that_can_never_be_read_in_time_is_refused_with_the_remedy(slow: Slow) -> None:
    with consuming(slow) as consumer:
        slow.begin(consumer, slow_reads=9)
        with pytest.raises(DataLoss, match=r"was read 3 times.*partition 0.*Raise delete\.retention\.ms"):
            take(consumer)
        assert slow.reads == 3
        assert consumer.stats.delivered == 0
