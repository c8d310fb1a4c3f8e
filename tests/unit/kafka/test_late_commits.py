"""The consumer on librdkafka's mock cluster: commits that the client resends by itself, after newer ones.

It does so with a commit that is refused for now. Later ones are stored first, and then the older one overwrites them.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

import pytest
from confluent_kafka import KafkaError

from lvq_kafka.cluster import Answered, Commit
from lvq_kafka.consuming.consumer_thread import ConsumerThread
from lvq_kafka.errors import LockLost
from tests.unit.kafka.mock_cluster import OFFSET_COMMIT
from tests.unit.kafka.mock_queue import SOCIAL, NewQueue, Verdicts, take, whatever_its_mood
from tests.waiting import eventually

both_protocols = pytest.mark.parametrize("protocol", ["classic", "consumer"])
refusals = pytest.mark.parametrize(
    "code",
    [KafkaError.COORDINATOR_LOAD_IN_PROGRESS, KafkaError.COORDINATOR_NOT_AVAILABLE, KafkaError.REQUEST_TIMED_OUT],
    ids=["loading", "moving", "timed-out"],
)


@both_protocols
@refusals
def test_g11_a_close_waits_for_the_commit_that_is_on_its_way_before_it_sends_the_last(
    new_queue: NewQueue, protocol: str, code: int
) -> None:
    queue = new_queue()
    queue.send(*"abcd")
    consumer = queue.open(protocol)
    held = [take(consumer) for _ in range(4)]
    member = queue.member()
    member.stand_still()
    verdicts = [Verdicts(queue, held[0], held[0].ack())]
    send = member.commit_async

    def send_and_be_closed(commits: Mapping[int, Commit], answered: Answered) -> None:
        send(commits, answered)
        consumer._thread._stop.set()
        verdicts.extend(Verdicts(queue, one, one.ack()) for one in held[1:])

    member.commit_async = send_and_be_closed  # type: ignore[method-assign]
    queue.mock.fail_next(OFFSET_COMMIT, code)
    member.go_on()
    consumer.close(20)
    for verdict in verdicts:
        verdict.durable_once()
    assert queue.stored()[0].base == 4


@both_protocols
@refusals
@whatever_its_mood
def test_g11_nothing_is_called_durable_at_a_revocation_while_an_older_commit_is_on_its_way(
    new_queue: NewQueue, monkeypatch: pytest.MonkeyPatch, protocol: str, code: int
) -> None:
    queue = new_queue(2)
    queue.send(*(f"k{number}" for number in range(12)))
    first = queue.open(protocol, SOCIAL[protocol])
    held = [take(first) for _ in range(12)]
    verdicts: list[Verdicts] = []
    revoked = ConsumerThread.revoked

    def revoked_after_a_commit(engine: ConsumerThread, partitions: Collection[int]) -> None:
        if not verdicts:
            mine = [one for one in held if one.position.partition in partitions]
            queue.mock.fail_next(OFFSET_COMMIT, code)
            verdicts.append(Verdicts(queue, mine[0], mine[0].ack()))
            engine._commits.send()
            verdicts.extend(Verdicts(queue, one, one.ack()) for one in mine[1:])
        revoked(engine, list(partitions))

    monkeypatch.setattr(ConsumerThread, "revoked", revoked_after_a_commit)
    second = queue.open(protocol, SOCIAL[protocol])
    eventually(lambda: len(second.stats.partitions) == len(first.stats.partitions) == 1, 60)
    for verdict in verdicts:
        eventually(lambda verdict=verdict: verdict.told, 20)
        assert isinstance(verdict.told[0][0], LockLost)
    (moved,) = second.stats.partitions
    stored = queue.stored()[moved]
    rest = [one for one in held if one.position.partition == moved and not stored.done(one.position.offset)]
    assert sorted(take(second).value for _ in rest) == sorted(one.value for one in rest)
