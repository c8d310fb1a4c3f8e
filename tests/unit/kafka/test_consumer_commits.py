"""The consumer on librdkafka's mock cluster: commits that are refused, lost, or not answered.

Limits of the mock, and workarounds:

- It has no limit for a commit's text, and no errors for single partitions of a commit. It answers the whole request
  with that error; the test first stores by hand what a broker would have stored.
- A member of the new protocol that starts over with its old id does not always get its partitions again, as it would
  from a broker. So these tests only check that its holders lose everything. ``test_consumer_membership.py`` checks that
  the next member continues; its sessions really expire.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Collection, Mapping
from contextlib import suppress

import pytest
from confluent_kafka import KafkaError

from lvq_kafka.cluster import Answered, Commit
from lvq_kafka.consuming.consumer_thread import ConsumerThread
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import AlreadySettled, LockLost
from tests.cable import Cable
from tests.unit.kafka.mock_cluster import CONSUMER_GROUP_HEARTBEAT, FIND_COORDINATOR, OFFSET_COMMIT
from tests.unit.kafka.mock_queue import SHORT_SESSION, SOCIAL, TOPIC, NewQueue, Verdicts, take, whatever_its_mood
from tests.waiting import eventually

REFUSALS = {
    "rebalance": KafkaError.REBALANCE_IN_PROGRESS,
    "epoch": KafkaError.STALE_MEMBER_EPOCH,
    "moved": KafkaError.NOT_COORDINATOR,
    "loading": KafkaError.COORDINATOR_LOAD_IN_PROGRESS,
    "timed-out": KafkaError.REQUEST_TIMED_OUT,
    "connection": KafkaError._TRANSPORT,
}


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@pytest.mark.parametrize("code", REFUSALS.values(), ids=REFUSALS.keys())
def test_a_commit_that_is_refused_for_now_ends_no_lock_and_is_said_again(
    new_queue: NewQueue, protocol: str, code: int
) -> None:
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open(protocol)
    first, second = take(consumer), take(consumer)
    queue.mock.fail_next(OFFSET_COMMIT, code, code)
    verdicts = Verdicts(queue, first, first.ack())
    verdicts.durable_once()
    assert second.state is MessageState.ACQUIRED
    second.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 2
    assert (consumer.stats.delivered, consumer.stats.trouble) == (2, "")
    verdicts.durable_once()


@pytest.mark.parametrize(
    ("protocol", "code"),
    [
        ("classic", KafkaError.ILLEGAL_GENERATION),
        ("classic", KafkaError.UNKNOWN_MEMBER_ID),
        ("consumer", KafkaError.ILLEGAL_GENERATION),
    ],
)
def test_a_commit_that_says_we_were_put_out_ends_all_locks_and_the_messages_come_again(
    new_queue: NewQueue, protocol: str, code: int
) -> None:
    """The client believes it without asking: it gives up all partitions and joins again."""
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open(protocol, SHORT_SESSION if protocol == "classic" else {})
    first, second = take(consumer), take(consumer)
    queue.mock.fail_next(OFFSET_COMMIT, code)
    verdicts = Verdicts(queue, first, first.ack())
    eventually(lambda: verdicts.told, 20)
    [(error, stored)] = verdicts.told
    assert isinstance(error, LockLost)
    assert not stored
    with pytest.raises(LockLost):
        second.ack()
    assert queue.stored()[0].base == 0
    if protocol == "consumer":
        return  # the mock may never give it partitions again
    again = [take(consumer), take(consumer)]
    assert [delivery.value for delivery in again] == ["a", "b"]
    for delivery in again:
        delivery.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 2
    assert len(verdicts.told) == 1


def test_in_the_new_protocol_only_a_heartbeat_says_that_a_member_is_unknown(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open("consumer")
    first, second = take(consumer), take(consumer)
    queue.mock.fail_next(OFFSET_COMMIT, *[KafkaError.UNKNOWN_MEMBER_ID] * 1000)
    verdicts = Verdicts(queue, first, first.ack())
    eventually(lambda: consumer.stats.commits > 1, 20)
    assert (verdicts.told, second.state) == ([], MessageState.ACQUIRED)
    queue.mock.fail_next(CONSUMER_GROUP_HEARTBEAT, KafkaError.UNKNOWN_MEMBER_ID)
    eventually(lambda: verdicts.told, 20)
    [(error, stored)] = verdicts.told
    assert isinstance(error, LockLost)
    assert not stored
    assert second.state is MessageState.LOST
    queue.mock.fail_no_more(OFFSET_COMMIT)


def test_a_text_that_is_too_long_is_shortened_and_every_ack_becomes_durable(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send(*(f"k{number}" for number in range(60)))
    consumer = queue.open()
    held = [take(consumer) for _ in range(60)]
    limit = consumer._shared.core.ledger.capacity.limit
    queue.mock.fail_next(OFFSET_COMMIT, KafkaError.OFFSET_METADATA_TOO_LARGE)
    for delivery in held[1::2]:
        last = delivery.ack()
    verdicts = Verdicts(queue, held[-1], last)
    eventually(lambda: consumer._shared.core.ledger.capacity.limit < limit, 20)
    for delivery in held[::2]:
        delivery.ack()
    verdicts.durable_once()
    eventually(lambda: queue.stored()[0].base == 60, 20)


def test_of_a_commit_that_is_too_long_nothing_is_believed_though_a_part_of_it_is_stored(new_queue: NewQueue) -> None:
    """A broker stores the partitions whose texts fit, but the client reports all of them as refused."""
    queue = new_queue(2)
    queue.send(*(f"k{number}" for number in range(6)))
    consumer = queue.open()
    held = [take(consumer) for _ in range(6)]
    first = next(delivery for delivery in held if delivery.position.partition == 0)
    other = next(delivery for delivery in held if delivery.position.partition == 1)
    member = queue.member()
    commit_async = member.commit_async
    told: list[Verdicts] = []
    partly: list[bool] = []

    def store_a_part(commits: Mapping[int, Commit], answered: Answered) -> None:
        del member.commit_async  # type: ignore[method-assign]
        member.commit({0: commits[0]})
        partly.append(set(commits) == {0, 1} and queue.holds(first) and not queue.holds(other))
        queue.mock.fail_next(OFFSET_COMMIT, KafkaError.OFFSET_METADATA_TOO_LARGE)
        commit_async(commits, lambda outcome: (answered(outcome), partly.append(not any(one.told for one in told)))[0])

    with consumer._shared._changed:  # so that one commit has both
        member.commit_async = store_a_part  # type: ignore[method-assign]
        settlements = [first.ack(), other.ack()]
        for delivery, settlement in zip((first, other), settlements):
            told.append(Verdicts(queue, delivery, settlement))
    for one in told:
        one.durable_once()
    assert partly == [True, True]
    assert len(member.said) >= 3


def test_a_commit_that_is_stored_and_not_answered_is_not_called_durable_until_the_next_is(
    new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.commit_sender._ANSWER", 0.3)
    for look in ("_LOOK", "_REREAD"):
        monkeypatch.setattr(f"lvq_kafka.consuming.group_monitor.{look}", 0.5)
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open()
    first, second = take(consumer), take(consumer)
    queue.mock.delay_next(OFFSET_COMMIT, 60)  # no other request on this connection is answered earlier
    verdicts = Verdicts(queue, first, first.ack())
    eventually(lambda: queue.holds(first), 20)
    eventually(lambda: consumer.stats.commits > 1, 20)  # the first is given up and repeated
    others = Verdicts(queue, second, second.ack())
    assert verdicts.told == []
    queue.mock.down()
    queue.mock.up()
    # The client may resend the abandoned commit after newer ones. Then the newest is written again: at once on the late
    # answer or, if that is lost as well, after a look at the group's commits.
    eventually(lambda: others.told and verdicts.told, 20)
    assert others.told[0][0] is verdicts.told[0][0] is None
    eventually(lambda: queue.stored()[0].base == 2, 20)


def test_a_connection_that_breaks_with_a_commit_on_its_way_loses_no_ack(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send(*"abcdefgh")
    consumer = queue.open(commit_interval=0.0)
    verdicts = []
    for _ in range(8):
        queue.mock.fail_next(OFFSET_COMMIT, KafkaError._TRANSPORT)
        delivery = take(consumer)
        verdicts.append(Verdicts(queue, delivery, delivery.ack()))
    for one in verdicts:
        one.durable_once()
    assert queue.stored()[0].base == 8
    assert consumer.stats.lost == 0


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
@whatever_its_mood
def test_a_commit_on_its_way_at_a_revocation_is_not_stored_behind_the_next_owners(
    new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The client keeps it until it knows the coordinator, and then sends it with its membership of that time."""
    queue = new_queue(2)
    queue.send(*(f"k{number}" for number in range(6)))
    first = queue.open(protocol, SOCIAL[protocol])
    held = [take(first) for _ in range(6)]
    on_its_way: list[bool] = []
    revoked = ConsumerThread.revoked

    def revoked_with_a_commit_on_its_way(engine: ConsumerThread, partitions: Collection[int]) -> None:
        if not on_its_way:
            queue.mock.fail_next(OFFSET_COMMIT, KafkaError.NOT_COORDINATOR)
            queue.mock.fail_next(FIND_COORDINATOR, *[KafkaError.COORDINATOR_NOT_AVAILABLE] * 4)
            for partition in (0, 1):
                next(one for one in held if one.position.partition == partition).ack().future()
            engine._commits.send()
            on_its_way.append(engine._commits._flight is not None)
        revoked(engine, list(partitions))

    monkeypatch.setattr(ConsumerThread, "revoked", revoked_with_a_commit_on_its_way)
    second = queue.open(protocol, SOCIAL[protocol])
    eventually(lambda: second.stats.partitions, 60)
    assert on_its_way == [True]
    theirs = take(second, 60)
    with suppress(LockLost):
        theirs.ack(wait=True, timeout=30)
    for delivery in held:
        with suppress(LockLost, AlreadySettled):
            delivery.ack().future()
    queue.consume_rest(first, second)
    eventually(lambda: not first._thread._commits._flight, 60)
    assert {partition: said.base for partition, said in queue.stored().items()} == queue.cluster.logs.end_offsets(TOPIC)


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_a_commit_on_its_way_when_all_is_lost_is_not_stored_behind_the_next_owners(
    new_queue: NewQueue, protocol: str
) -> None:
    """It arrives long after the group has given its partitions to another member."""
    queue = new_queue()
    queue.mock.set_session(3000)
    queue.send("a", "b")
    with Cable(queue.mock.bootstrap_servers) as cable:
        first = queue.open(protocol, SOCIAL[protocol], servers=cable.bootstrap_servers)
        acked = take(first)
        cable.cut()
        verdicts = Verdicts(queue, acked, acked.ack())
        eventually(lambda: first._thread._commits._flight)
        second = queue.open(protocol, SOCIAL[protocol])
        for _ in range(2):
            take(second, 30).ack(wait=True, timeout=20)
        stored = queue.stored()
        cable.mend()
        eventually(lambda: verdicts.told, 60)
        queue.send("c")
        second.close()
        delivery = take(first, 60)
        assert delivery.value == "c"
        assert queue.stored()[0].covers(stored[0])
        queue.close()


def test_a_close_during_a_commit_is_bounded(new_queue: NewQueue, caplog: pytest.LogCaptureFixture) -> None:
    queue = new_queue()
    queue.send("a")
    consumer = queue.open()
    delivery = take(consumer)
    queue.mock.delay_next(OFFSET_COMMIT, 60)
    verdicts = Verdicts(queue, delivery, delivery.ack())
    eventually(lambda: queue.holds(delivery), 20)
    began = time.monotonic()
    with caplog.at_level(logging.WARNING):
        consumer.close(0.5)
    assert time.monotonic() - began < 5
    assert "did not close within" in caplog.text
    queue.mock.down()
    queue.mock.up()
    eventually(lambda: verdicts.told, 20)
    assert verdicts.told[0][1], "it was stored all the time"


def test_a_close_commits_what_was_acked_and_not_waited_for(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open()
    take(consumer).ack()
    held = take(consumer)
    consumer.close()
    assert held.state is MessageState.LOST
    assert queue.stored()[0].base == 1


@pytest.mark.parametrize(
    ("code", "times"),
    [
        (KafkaError.COORDINATOR_LOAD_IN_PROGRESS, 4),
        (KafkaError.NOT_COORDINATOR, 3),
        (KafkaError.REQUEST_TIMED_OUT, 4),
        (KafkaError.REBALANCE_IN_PROGRESS, 2),
    ],
)
def test_a_close_whose_commit_is_refused_for_now_sends_it_again(new_queue: NewQueue, code: int, times: int) -> None:
    """It retries more often than the client does by itself."""
    queue = new_queue()
    queue.send("a")
    consumer = queue.open()
    delivery = take(consumer)
    queue.mock.fail_next(OFFSET_COMMIT, *[code] * times)
    delivery.ack()
    consumer.close()
    assert queue.stored()[0].base == 1


def test_a_close_whose_commit_is_refused_calls_nothing_durable_and_the_message_comes_again(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a")
    consumer = queue.open(properties=SHORT_SESSION)
    delivery = take(consumer)
    queue.mock.fail_next(OFFSET_COMMIT, *[KafkaError.REBALANCE_IN_PROGRESS] * 20)
    verdicts = Verdicts(queue, delivery, delivery.ack())
    consumer.close()
    [(error, stored)] = verdicts.told
    assert isinstance(error, LockLost)
    assert not stored
    queue.mock.fail_no_more(OFFSET_COMMIT)
    assert take(queue.open(properties=SHORT_SESSION)).value == "a"
