"""The consumer on librdkafka's mock cluster: groups in a wrong state, and clusters that fail.

Limits of the mock, and workarounds:

- It has no controller by default, and describes no topic without one: the harness names one.
- It has no compaction, open transactions or retention: where a log begins later, the test has deleted its records.
- Offsets of a group do not expire: a group that holds too little was never given more.
"""

from __future__ import annotations

import time
from typing import Any

import pytest
from confluent_kafka import KafkaError

from lvq_kafka.cluster import Commit
from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import (
    CommitMapRefused,
    DataLoss,
    GroupNotFound,
    OffsetsExpired,
    TopicNotFound,
    TopicRecreated,
    Unauthorized,
)
from tests.unit.kafka.mock_cluster import LEAVE_GROUP, OFFSET_FETCH
from tests.unit.kafka.mock_queue import GROUP, SHORT_SESSION, TOPIC, NewQueue, Verdicts, take
from tests.waiting import eventually

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])


# ---------------------------------------------------------------- the group's commits


def test_a_group_that_was_never_declared_is_refused(new_queue: NewQueue) -> None:
    queue = new_queue(declared=False)
    queue.send("a")
    with pytest.raises(GroupNotFound):
        queue.open()
    assert queue.stored() == {}


def test_a_group_that_holds_only_some_of_its_partitions_is_refused(new_queue: NewQueue) -> None:
    queue = new_queue(2, declared=False)
    queue.cluster.groups.commit(GROUP, TOPIC, {0: Commit(0, CommitMap(0, partitions=2).encode())})
    with pytest.raises(OffsetsExpired):
        queue.open()
    assert list(queue.stored()) == [0]


def test_reading_begins_where_the_log_does_when_that_is_beyond_what_is_done(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a", "b", "c", "d")
    queue.mock.delete_records(TOPIC, 0, 2)
    consumer = queue.open()
    delivery = take(consumer)
    assert (delivery.value, delivery.position.offset) == ("c", 2)
    delivery.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 3


@both_protocols
def test_a_log_that_ends_before_what_is_done_is_not_read_from_somewhere_else(
    new_queue: NewQueue, protocol: str
) -> None:
    queue = new_queue(declared=False)
    queue.send("a", "b")
    beyond = CommitMap(100, partitions=1)
    queue.cluster.groups.commit(GROUP, TOPIC, {0: Commit(100, beyond.encode())})
    consumer = queue.open(protocol)
    with pytest.raises(DataLoss):
        consumer.acquire(20)
    assert queue.stored()[0].base == 100


@both_protocols
@pytest.mark.parametrize("text", ["", "somebody else's", "lvq9.AAAA"])
def test_a_commit_of_something_else_is_refused_and_left_alone_or_ignored_if_one_says_so(
    new_queue: NewQueue, protocol: str, text: str
) -> None:
    queue = new_queue(declared=False)
    queue.send("a", "b")
    queue.cluster.groups.commit(GROUP, TOPIC, {0: Commit(1, text)})
    with pytest.raises(CommitMapRefused):
        queue.open(protocol)
    assert queue.cluster.groups.committed(GROUP, TOPIC) == {0: Commit(1, text)}
    consumer = queue.open(protocol, on_foreign_commits="ignore")
    delivery = take(consumer)
    assert delivery.value == "b"
    delivery.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 2, "ours again"


def test_a_commit_of_something_else_that_comes_before_an_assignment_stops_the_consumer(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a")
    consumer = queue.open(properties={"session.timeout.ms": 2500, "max.poll.interval.ms": 2500})
    take(consumer)
    member = queue.member()
    member.stand_still()
    member.commit({0: Commit(0, "somebody else's")})
    queue.mock.requests(LEAVE_GROUP)
    eventually(lambda: queue.mock.requests(LEAVE_GROUP), 20)  # it has not polled for too long
    member.go_on()
    with pytest.raises(CommitMapRefused):
        eventually(lambda: consumer.acquire(1), 20)
    assert queue.cluster.groups.committed(GROUP, TOPIC)[0].metadata == "somebody else's"


def test_errors_of_the_group_at_an_assignment_are_waited_out(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a")
    passing = (
        KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
        KafkaError.NOT_COORDINATOR,
        KafkaError.UNSTABLE_OFFSET_COMMIT,
        KafkaError._TRANSPORT,
    )
    consumer = queue.open(properties=SHORT_SESSION)
    take(consumer).ack(wait=True, timeout=20)
    consumer.close()
    queue.send("b")
    consumer = queue.open(properties=SHORT_SESSION)
    queue.mock.fail_next(OFFSET_FETCH, *passing)  # the member has yet to join
    delivery = take(consumer)
    assert delivery.value == "b"
    delivery.ack(wait=True, timeout=20)


def test_a_user_who_may_not_see_the_group_is_told(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.mock.fail_next(OFFSET_FETCH, *[KafkaError.GROUP_AUTHORIZATION_FAILED] * 20)
    with pytest.raises(Unauthorized):
        queue.open().acquire(20)
    queue.mock.fail_no_more(OFFSET_FETCH)


# ---------------------------------------------------------------- clusters that fail


@both_protocols
def test_while_no_broker_is_there_messages_stay_held_and_acks_wait(new_queue: NewQueue, protocol: str) -> None:
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open(protocol)
    first, second = take(consumer), take(consumer)
    queue.mock.down()
    verdicts = Verdicts(queue, first, first.ack())
    eventually(lambda: consumer.stats.trouble, 20)
    assert (verdicts.told, second.state) == ([], MessageState.ACQUIRED)
    queue.mock.up()
    verdicts.durable_once()
    second.ack(wait=True, timeout=20)
    queue.send("c")
    assert take(consumer).value == "c"
    assert consumer.stats.trouble == ""


def test_g5_a_cluster_that_does_not_answer_is_said_within_seconds_though_no_connection_breaks(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_queue()
    queue.send("a")
    consumer = queue.open()
    take(consumer).ack(wait=True, timeout=20)
    queue.mock.set_latency(60_000)
    eventually(lambda: "No answer" in consumer.stats.trouble, 15)
    assert caplog.text.count("continues despite") == 1
    queue.mock.set_latency(0)
    queue.mock.down()  # otherwise it would wait for the pending answers
    queue.mock.up()
    eventually(lambda: consumer.stats.trouble == "" and consumer.stats.partitions, 30)


def test_a_consumer_without_partitions_lives_though_nobody_can_say_how_many_members_there_are(
    new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The mock cannot describe groups. A broker may refuse to."""
    monkeypatch.setattr("lvq_kafka.consuming.idle_warnings._PARTITIONLESS", 0.5)
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._LOOK", 0.1)
    queue = new_queue()
    first = queue.open(properties=SHORT_SESSION)
    eventually(lambda: first.stats.partitions, 20)
    spare = queue.open(properties=SHORT_SESSION)
    eventually(lambda: "no partition" in spare.stats.trouble, 20)
    first.close()
    eventually(lambda: spare.stats.partitions and not spare.stats.trouble, 20)


@both_protocols
def test_a_coordinator_that_moves_ends_no_lock_and_loses_no_ack(new_queue: NewQueue, protocol: str) -> None:
    queue = new_queue(brokers=2)
    queue.mock.move_group(GROUP, 1)
    queue.send("a", "b", "c")
    consumer = queue.open(protocol)
    held = [take(consumer) for _ in range(3)]
    held[0].ack(wait=True, timeout=20)
    queue.mock.move_group(GROUP, 2)
    verdicts = Verdicts(queue, held[1], held[1].ack())
    verdicts.durable_once()
    held[2].ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 3
    assert consumer.stats.lost == 0


@both_protocols
def test_a_topic_that_is_deleted_stops_the_consumer_and_says_so(new_queue: NewQueue, protocol: str) -> None:
    queue = new_queue()
    queue.send("a")
    consumer = queue.open(protocol)
    delivery = take(consumer)
    queue.mock.delete_topic(TOPIC)
    with pytest.raises(TopicNotFound):
        consumer.acquire(30)
    eventually(lambda: delivery.settled)


def test_a_topic_that_is_created_anew_is_not_read_on(new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._LOOK", 0.0)
    queue = new_queue()
    queue.send("a")
    consumer = queue.open(properties=SHORT_SESSION)
    member = queue.member()
    take(consumer)
    member.stand_still()
    queue.mock.delete_topic(TOPIC)
    queue.mock.create_topic(TOPIC)
    queue.send("new")
    member.go_on()
    with pytest.raises((TopicRecreated, TopicNotFound)):
        consumer.acquire(20)
    eventually(lambda: not consumer._thread._thread.is_alive(), 20)
    assert consumer.stats.delivered == 1
    with pytest.raises((TopicRecreated, GroupNotFound)):
        queue.open(properties=SHORT_SESSION).acquire(20)


def test_waiting_for_the_cluster_is_not_taken_for_standing_still(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture
) -> None:
    queue = new_queue()
    queue.send("a")
    consumer = queue.open()
    take(consumer)
    looks = _looks(consumer)
    queue.mock.down()
    eventually(lambda: len(looks) >= 2, 30)
    assert "stood still" not in caplog.text


def test_a_coordinator_that_does_not_answer_is_not_taken_for_standing_still(
    new_queue: NewQueue, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.group_monitor._REREAD", 0.0)
    queue = new_queue()
    queue.send("a")
    consumer = queue.open()
    take(consumer)
    queue.mock.delay_next(OFFSET_FETCH, 60)
    looks = _looks(consumer)
    consumer._thread._monitor.hasten()
    eventually(lambda: len(looks) >= 2, 30)
    assert "read the commits" in caplog.text
    assert "stood still" not in caplog.text
    assert max(looks) < LEASE


def _looks(consumer: Consumer[str]) -> list[float]:
    """Return a list that collects the durations of later looks, in seconds."""
    monitor = consumer._thread._monitor
    look, taken = monitor.observe, []

    def timed(*args: Any, **options: Any) -> Any:
        began = time.monotonic()
        try:
            return look(*args, **options)
        finally:
            taken.append(time.monotonic() - began)

    monitor.observe = timed  # type: ignore[method-assign]
    return taken
