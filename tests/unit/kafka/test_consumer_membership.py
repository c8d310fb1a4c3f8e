"""The consumer on librdkafka's mock cluster: partitions that move, and members that are removed from their group.

Limits of the mock, and workarounds: a member of the new protocol that starts over with its old id does not always hear
of its partitions, as it would from a broker. So its session is short here, and another member continues. The mock also
has its moods: see ``mock_queue.py``.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import pytest
from confluent_kafka import KafkaError

from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LockLost
from tests.unit.kafka.mock_cluster import (
    CONSUMER_GROUP_HEARTBEAT,
    HEARTBEAT,
    JOIN_GROUP,
    LEAVE_GROUP,
    OFFSET_COMMIT,
)
from tests.unit.kafka.mock_queue import SOCIAL, NewQueue, Verdicts, take, whatever_its_mood
from tests.waiting import eventually

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])

HASTY: Mapping[str, Mapping[str, int]] = {
    "classic": {"session.timeout.ms": 2500, "max.poll.interval.ms": 2500},
    "consumer": {"max.poll.interval.ms": 1500},
}
"""Milliseconds without a poll after which a member is removed."""
BEATS = {"classic": 6, "consumer": 18}
"""Numbers of heartbeats that take longer than that: two a second by the client's clock, or ten as the mock asks."""
BEAT = {"classic": HEARTBEAT, "consumer": CONSUMER_GROUP_HEARTBEAT}


@both_protocols
def test_slow_handlers_do_not_cost_the_membership(new_queue: NewQueue, protocol: str) -> None:
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open(protocol, HASTY[protocol])
    held = take(consumer)
    joins, beats = queue.mock.requests(JOIN_GROUP), queue.mock.requests(BEAT[protocol])
    eventually(lambda: queue.mock.requests(BEAT[protocol]) >= beats + BEATS[protocol], 60)
    assert held.state is MessageState.ACQUIRED
    assert queue.member().gone == []
    assert queue.mock.requests(JOIN_GROUP) == joins
    held.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 1


def test_a_thread_that_stood_still_loses_all_locks_and_commits_nothing_of_them(new_queue: NewQueue) -> None:
    queue = new_queue()
    queue.send("a", "b")
    consumer = queue.open(properties=HASTY["classic"])
    member = queue.member()
    acked, held = take(consumer), take(consumer)
    queue.mock.requests(LEAVE_GROUP)
    member.stand_still()
    verdicts = Verdicts(queue, acked, acked.ack())
    eventually(lambda: queue.mock.requests(LEAVE_GROUP), 20)
    assert verdicts.told == []
    member.go_on()
    eventually(lambda: verdicts.told, 20)
    [(error, stored)] = verdicts.told
    assert isinstance(error, LockLost)
    assert not stored
    assert held.state is MessageState.LOST
    assert member.gone == [[0]]
    again = [take(consumer), take(consumer)]
    assert [delivery.value for delivery in again] == ["a", "b"]
    assert {commits[0].offset for commits in member.said} == {0}
    assert queue.stored()[0].base == 0
    for delivery in again:
        delivery.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 2


def test_in_the_new_protocol_too_whoever_stood_still_alone_loses_all_and_begins_anew(new_queue: NewQueue) -> None:
    """The client leaves the group by itself, and nobody joins meanwhile."""
    queue = new_queue()
    queue.mock.set_session(2000)
    queue.send("a", "b")
    consumer = queue.open("consumer", HASTY["consumer"])
    member = queue.member()
    acked, held = take(consumer), take(consumer)
    member.stand_still()
    said = len(member.said)
    eventually(is_unchanged(lambda: queue.mock.requests(CONSUMER_GROUP_HEARTBEAT)), 60)
    verdicts = Verdicts(queue, acked, acked.ack())
    assert verdicts.told == []
    member.go_on()
    eventually(lambda: verdicts.told, 20)
    [(error, stored)] = verdicts.told
    assert isinstance(error, LockLost)
    assert not stored
    assert held.state is MessageState.LOST
    assert member.gone == [[0]]
    assert len(member.said) == said
    assert queue.stored()[0].base == 0
    consumer.close()
    again = queue.open("consumer")
    for value in ("a", "b"):
        delivery = take(again, 30)
        assert delivery.value == value
        delivery.ack(wait=True, timeout=20)
    assert queue.stored()[0].base == 2


def is_unchanged(count: Callable[[], int], seconds: float = 1.0) -> Callable[[], bool]:
    """Return a condition: the count has not changed for this long."""
    seen = [(count(), time.monotonic())]

    def look() -> bool:
        if count() != seen[-1][0]:
            seen.append((count(), time.monotonic()))
        return time.monotonic() - seen[-1][1] > seconds

    return look


@both_protocols
def test_an_ack_of_a_member_that_was_put_out_does_not_touch_the_work_of_the_next(
    new_queue: NewQueue, protocol: str
) -> None:
    queue = new_queue()
    queue.mock.set_session(2000)
    queue.send("a", "b")
    first = queue.open(protocol, HASTY[protocol])
    member = queue.member()
    acked, held = take(first), take(first)
    member.stand_still()
    second = queue.open(protocol, SOCIAL[protocol])
    theirs = [take(second, 30), take(second)]  # the group has removed the first, which stood still for too long
    assert [one.value for one in theirs] == ["a", "b"]
    theirs[1].ack(wait=True, timeout=20)  # before the first joins again: after that, the mock's mood decides
    before = queue.mock.requests(OFFSET_COMMIT)
    verdicts = Verdicts(queue, acked, acked.ack())
    member.go_on()
    eventually(lambda: verdicts.told, 20)
    [(error, stored)] = verdicts.told
    assert isinstance(error, LockLost)
    assert not stored
    with pytest.raises(LockLost):
        held.ack()
    assert member.gone == [[0]]
    assert queue.mock.requests(OFFSET_COMMIT) == before
    assert [queue.holds(one) for one in theirs] == [False, True]


@both_protocols
@whatever_its_mood
def test_a_member_that_comes_takes_some_partitions_and_the_others_stay_with_their_locks(
    new_queue: NewQueue, protocol: str
) -> None:
    """Eager rebalancing would take all partitions from everybody."""
    queue = new_queue(2)
    queue.send(*(f"k{number}" for number in range(6)))
    first = queue.open(protocol, SOCIAL[protocol])
    held = [take(first) for _ in range(6)]
    done = [next(one for one in held if one.position.partition == partition) for partition in (0, 1)]
    verdicts = [Verdicts(queue, one, one.ack()) for one in done]
    second = queue.open(protocol, SOCIAL[protocol])
    eventually(lambda: len(second.stats.partitions) == len(first.stats.partitions) == 1, 60)
    (moved,) = second.stats.partitions
    assert queue.member().gone == [[moved]]
    assert any(said[moved].offset > 0 for said in queue.member().said if moved in said)
    kept = [one for one in held if one.position.partition != moved and one.state is MessageState.ACQUIRED]
    assert kept
    for delivery in kept:
        delivery.ack(wait=True, timeout=20)
    verdicts[1 - moved].durable_once()
    # The mock's mood decides whether the group accepts the commit of the revocation.
    eventually(lambda: verdicts[moved].told, 20)
    assert verdicts[moved].told[0][1] or isinstance(verdicts[moved].told[0][0], LockLost)
    for delivery in held:
        assert (delivery.state is MessageState.LOST) == (delivery.position.partition == moved and delivery not in done)
    rest = [one.value for one in held if one.position.partition == moved and not queue.holds(one)]
    assert sorted(take(second).value for _ in rest) == sorted(rest)


@whatever_its_mood
def test_a_commit_that_the_group_refuses_at_the_revocation_is_not_called_durable(new_queue: NewQueue) -> None:
    queue = new_queue(2)
    queue.send(*(f"k{number}" for number in range(6)))
    first = queue.open(properties=SOCIAL["classic"])
    held = [take(first) for _ in range(6)]
    queue.mock.fail_next(OFFSET_COMMIT, *[KafkaError.REBALANCE_IN_PROGRESS] * 1000)
    verdicts = [Verdicts(queue, one, one.ack()) for one in held]
    second = queue.open(properties=SOCIAL["classic"])
    eventually(lambda: len(second.stats.partitions) == len(first.stats.partitions) == 1, 60)
    (moved,) = second.stats.partitions
    queue.mock.fail_no_more(OFFSET_COMMIT)
    for one, verdict in zip(held, verdicts):
        if one.position.partition != moved:
            verdict.durable_once()
            continue
        eventually(lambda verdict=verdict: verdict.told, 20)
        assert isinstance(verdict.told[0][0], LockLost)
    lost = [one.value for one in held if one.position.partition == moved]
    assert lost
    assert [take(second).value for _ in lost] == lost
