"""A consumer's troubles, and its reports of them."""

from __future__ import annotations

import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from lvq_kafka.cluster import Commit, LogEnd, TopicDescription
from lvq_kafka.codecs import TEXT
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.declared.group_checks import declare_group
from lvq_kafka.errors import (
    Closed,
    ConfigError,
    DataLoss,
    GroupNotFound,
    LockLost,
    PartitionsAdded,
    ReaderFailed,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_admin import MemoryLogs, MemoryTopics
from tests.unit.consuming.world import (
    TOPIC,
    World,
    consuming,
    drain,
    make_world,
    nothing_comes,
    settled_up,
    take,
)
from tests.waiting import eventually

T = TypeVar("T")


def test_r17_a_queue_that_was_never_declared_is_refused_at_once() -> None:
    world = make_world(declared=False)
    with pytest.raises(GroupNotFound, match=r"lvq\.q.*never declared, or its group has expired") as caught:
        Consumer(world, QueueDefinition(name="q", topic=TOPIC, key_header=None), TEXT)
    assert caught.value.queue == "q"


def test_r17_partitions_that_were_added_later_are_an_error_and_not_a_silent_start(world: World) -> None:
    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.partitions == (0,))
        world.topics.add_partitions(TOPIC, 2)
        with pytest.raises(PartitionsAdded, match="partition 1") as caught:
            take(consumer)
        assert caught.value.partitions == (1,)
        with pytest.raises(PartitionsAdded):
            take(consumer)


def test_a_missing_topic_is_said_at_once(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(TopicNotFound):
        Consumer(memory_cluster, QueueDefinition(name="q", topic=TOPIC, key_header=None), TEXT)


def test_a_topic_that_was_created_anew_is_an_error() -> None:
    world = make_world()
    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.partitions == (0,))
        world.topics.delete(TOPIC)
        with pytest.raises((TopicNotFound, TopicRecreated, GroupNotFound)):
            take(consumer)


def test_a_topic_created_anew_between_two_assignments_is_noticed(world: World) -> None:
    with consuming(world) as consumer:
        eventually(lambda: consumer.stats.partitions == (0,))
        consumer._thread._monitor._topic_id = "another"
        world.expel(world.members[0])
        with pytest.raises(TopicRecreated):
            take(consumer)


def test_a_commit_beyond_the_end_of_the_log_is_an_error_and_not_a_jump(world: World) -> None:
    world.send(("a", "a"))
    world.groups.commit("lvq.q", TOPIC, {0: Commit(17, CommitMap(17).encode())})
    with consuming(world) as consumer, pytest.raises(DataLoss, match="up to 17"):
        take(consumer)


def test_r17_a_log_that_was_cut_and_has_grown_again_is_an_error_and_not_a_skip(world: World) -> None:
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    with consuming(world) as consumer:
        assert drain(consumer, 3) == ["a", "b", "c"]
    world.elect(TOPIC, 0, end=1)
    world.send(("d", "d"), ("e", "e"), ("f", "f"))
    for _ in range(2):
        with consuming(world) as consumer, pytest.raises(DataLoss, match=r"up to 3.*below 1.*lvq repair q"):
            take(consumer)


def test_a_later_leader_is_remembered_with_the_commit(world: World) -> None:
    world.send(("a", "a"))
    world.elect(TOPIC, 0)
    world.send(("b", "b"))
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["a", "b"]
    assert world.groups.committed("lvq.q", TOPIC)[0].leader_epoch == 1
    with consuming(world) as consumer:  # reads nothing, and forgets nothing
        eventually(lambda: consumer.stats.partitions == (0,))
        consumer._shared.core.commits.renew([0])
        eventually(lambda: world.committed_map().sequence > 2)
    assert world.groups.committed("lvq.q", TOPIC)[0].leader_epoch == 1
    with consuming(world) as consumer:
        assert nothing_comes(consumer)


def test_r17_the_commit_of_a_transaction_remembers_the_leader_too(world: World) -> None:
    world.elect(TOPIC, 0)
    world.send(("a", "a"), ("b", "b"))
    with world.producer() as producer, consuming(world) as consumer, consumer.transaction(producer) as tx:
        for _ in range(2):
            tx.acquire(10).ack()
    assert world.groups.committed("lvq.q", TOPIC)[0].leader_epoch == 1
    world.elect(TOPIC, 0, end=0)
    world.send(("c", "c"), ("d", "d"), ("e", "e"))
    with consuming(world) as consumer, pytest.raises(DataLoss, match=r"up to 2.*below 0"):
        take(consumer)


def test_a_commit_below_the_start_of_the_log_goes_on_at_the_start(world: World) -> None:
    world.send(*((f"k{number}", str(number)) for number in range(10)))
    world.delete_records(TOPIC, 0, 8)
    with consuming(world) as consumer:
        assert drain(consumer, 2) == ["8", "9"]


def test_a_queue_declared_for_what_is_to_come_beside_an_open_transaction_gets_what_it_hides(world: World) -> None:
    writer = world.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append(TOPIC, b"a", b"hidden")
    world.send(("b", "behind it"))
    declare_group(world, "lvq.late", TOPIC, "latest")
    definition = QueueDefinition(name="late", topic=TOPIC, key_header=None)
    with consuming(world, definition=definition) as consumer:
        assert nothing_comes(consumer)
        writer.commit_transaction()
        assert drain(consumer, 2) == ["hidden", "behind it"]


def test_a_position_behind_an_open_transaction_is_no_data_loss(world: World) -> None:
    writer = world.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append(TOPIC, b"a", b"hidden")
    world.groups.commit("lvq.q", TOPIC, {0: Commit(1, CommitMap(1).encode())})
    with consuming(world) as consumer:
        assert nothing_comes(consumer)
        world.send(("b", "behind it"))
        writer.commit_transaction()
        assert drain(consumer, 1) == ["behind it"]


@pytest.mark.parametrize("question", ["topics.describe", "logs.start_offsets", "logs.stable_ends"])
def test_a_partition_that_came_in_an_outage_is_begun_when_it_is_over(
    world: World, question: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._PATIENCE", 0.0)
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        with take(consumer):
            pass
        settled_up(world, consumer)
        lost = TransportError("no leader", code="LEADER_NOT_AVAILABLE", retriable=True)
        world.fail_next(question, lost, times=1000)
        world.expel(world.members[0])
        eventually(lambda: "no leader" in consumer.stats.trouble)
        world._state._failures.clear()
        world.send(("a", "a2"))
        assert drain(consumer, 1) == ["a2"]
        assert consumer.stats.trouble == ""


def test_a_partition_that_a_broker_has_not_heard_of_yet_is_begun_when_it_has(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    world = make_world(partitions=2)
    world.send(("a", "a"), ("b", "b"), ("c", "c"))
    lagging = Lagging(world, partitions=1, answers=4)
    monkeypatch.setattr(world.topics, "describe", lagging.describe)
    monkeypatch.setattr(world.logs, "start_offsets", lagging.start_offsets)
    monkeypatch.setattr(world.logs, "stable_ends", lagging.stable_ends)
    with consuming(world) as consumer:
        assert sorted(drain(consumer, 3)) == ["a", "b", "c"]
    assert lagging.answers == 0


class Lagging:
    """A broker that knows only a topic's first partitions, until it has described the topic this many times."""

    def __init__(self, cluster: MemoryCluster, partitions: int, answers: int) -> None:
        self._topics, self._logs, self._known = MemoryTopics(cluster._state), MemoryLogs(cluster._state), partitions
        self.answers = answers

    def describe(self, topic: str, **how: Any) -> TopicDescription:
        described = self._topics.describe(topic, **how)
        if self.answers:
            self.answers -= 1
            described = replace(described, partitions=self._known)
        return described

    def start_offsets(self, topic: str, **how: Any) -> dict[int, int]:
        return self._cut(self._logs.start_offsets(topic, **how))

    def stable_ends(self, topic: str, **how: Any) -> dict[int, LogEnd]:
        return self._cut(self._logs.stable_ends(topic, **how))

    def _cut(self, offsets: dict[int, T]) -> dict[int, T]:
        return {p: one for p, one in offsets.items() if p < self._known or not self.answers}


def test_a_broker_that_has_not_heard_of_the_topic_yet_does_not_stop_the_consumer(world: World) -> None:
    """Any broker may answer a member like this, and the topic may be new."""
    world.send(("a", "a"))
    with consuming(world) as consumer:
        world.fail_next("poll", TopicNotFound("There is no such topic.", topic=TOPIC), times=3)
        assert drain(consumer, 1) == ["a"]
        eventually(lambda: not consumer.stats.trouble and not world._state._failures["poll"], 20)


def test_an_outage_is_survived_and_said(world: World, caplog: pytest.LogCaptureFixture) -> None:
    world.send(("a", "a1"))
    with consuming(world) as consumer:
        first = take(consumer)
        world.disconnect()
        eventually(lambda: consumer.stats.trouble)
        assert "the consumer of q continues despite: No broker answers" in caplog.text
        first.ack()
        world.reconnect()
        world.send(("a", "a2"))
        assert drain(consumer, 1) == ["a2"]
        assert consumer.stats.trouble == ""


def test_a_trouble_that_is_over_is_no_longer_told_though_nothing_comes(world: World) -> None:
    with consuming(world) as consumer:
        settled_up(world, consumer)
        world.disconnect()
        eventually(lambda: consumer.stats.trouble)
        world.reconnect()
        eventually(lambda: not consumer.stats.trouble)


def test_a_topic_created_anew_during_an_outage_is_noticed_when_it_is_over(world: World) -> None:
    with consuming(world) as consumer:
        settled_up(world, consumer)
        world.disconnect()
        eventually(lambda: consumer.stats.trouble)
        consumer._thread._monitor._topic_id = "another"
        world.reconnect()
        with pytest.raises(TopicRecreated):
            take(consumer)


def test_a_look_that_fails_is_not_repeated_at_every_turn(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        take(consumer)  # so that its loop runs often
        world.fail_next("topics.describe", TransportError("busy", code="LEADER_NOT_AVAILABLE", retriable=True), 1000)
        consumer._thread._monitor.hasten()
        eventually(lambda: "busy" in consumer.stats.trouble)
        assert consumer.acquire(0.3) is None
        assert len(world._state._failures["topics.describe"]) > 990


def test_after_a_look_that_took_its_time_and_failed_there_is_a_pause(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    now = [1000.0]
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor.time", SimpleNamespace(monotonic=lambda: now[0]))
    monitor = GroupMonitor(world, QueueDefinition(name="q", topic=TOPIC, key_header=None), "refuse")

    def slow(topic: str, timeout: float) -> TopicDescription:
        now[0] += timeout
        raise TransportError("no answer", code="_TIMED_OUT", retriable=True)

    monkeypatch.setattr(world.topics, "describe", slow)
    monitor.hasten()
    assert monitor.is_due(now[0])
    with pytest.raises(TransportError):
        monitor.observe(now[0], [0])
    monitor.hasten()
    assert not monitor.is_due(now[0])
    assert monitor.is_due(now[0] + 1.0)


def test_an_error_that_does_not_pass_stops_the_consumer_and_comes_out_of_every_call(world: World) -> None:
    world.send(("a", "a"))
    with consuming(world) as consumer:
        held = take(consumer)
        world.fail_next("poll", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
        for _ in range(2):
            with pytest.raises(Unauthorized):
                take(consumer)
        eventually(lambda: held.state is MessageState.LOST)
        with pytest.raises(LockLost):
            held.ack()


def test_an_error_of_another_kind_comes_out_as_reader_failed_with_its_cause(world: World) -> None:
    with consuming(world) as consumer:
        world.fail_next("poll", ZeroDivisionError("oops"))
        with pytest.raises(ReaderFailed, match="oops") as caught:
            take(consumer)
        assert isinstance(caught.value.__cause__, ZeroDivisionError)


def test_a_closed_consumer_refuses_and_can_be_closed_again(world: World) -> None:
    with consuming(world) as consumer:
        consumer.close()
        with pytest.raises(Closed):
            consumer.acquire(0)
        assert list(consumer) == []
        consumer.close()


def test_close_wakes_whoever_waits_for_a_message(world: World) -> None:
    seen: list[Any] = []
    with consuming(world) as consumer:
        thread = threading.Thread(target=lambda: seen.append(list(consumer)))
        thread.start()
        eventually(lambda: consumer.stats.partitions == (0,))
        consumer.close()
        thread.join(5)
    assert seen == [[]]


@pytest.mark.parametrize(
    "options",
    [{"max_in_work": 0}, {"commit_interval": -1}, {"revoke_grace": 100}],
    ids=lambda options: next(iter(options)),
)
def test_an_option_out_of_range_is_named(world: World, options: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match=next(iter(options))):
        Consumer(world, QueueDefinition(name="q", topic=TOPIC, key_header=None), TEXT, **options)


def test_the_thread_polls_every_millisecond_for_a_waiting_caller_but_not_in_an_outage(world: World) -> None:
    world.send(("a", "1"), ("b", "1"))
    with consuming(world) as consumer:
        first, second = take(consumer), take(consumer)
        (member,) = eventually(lambda: world.members)
        polls: list[float] = []
        outage = threading.Event()
        poll = member.poll

        def watched(timeout: float) -> Any:
            polls.append(timeout)
            if outage.is_set():
                raise TransportError("no broker answers", code="_ALL_BROKERS_DOWN", retriable=True)
            return poll(timeout)

        member.poll = watched  # type: ignore[method-assign]
        eventually(lambda: polls[-3:] == [0.005] * 3)  # nobody waits
        first.ack(wait=True, timeout=20)
        assert 0.001 in polls
        outage.set()
        eventually(lambda: consumer._shared.core.obstacles.in_trouble)
        with ThreadPoolExecutor(1) as pool:
            waiting = pool.submit(second.ack, wait=True, timeout=20)
            eventually(lambda: consumer._shared.core.is_urgent(consumer._shared.clock()))
            polls.clear()
            eventually(lambda: len(polls) > 20)
            assert set(polls) == {0.005}
            outage.clear()
            waiting.result(20)
