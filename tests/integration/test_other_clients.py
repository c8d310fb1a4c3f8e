"""Commits that another kind of client has written over a queue's: refused or taken for what they say, and repaired.

Ours appends a NUL to what it writes and relies on it when it reads. Texts of other clients have none, and are read past
their end, by other rubbish each time; none of that may be taken for the text.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

import pytest

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.errors import CommitMapRefused
from lvq_kafka.kafka import KafkaLog
from lvq_kafka.ports import Commit
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.wire import commit_as_others_do
from tests.unit.managing import commits, consume, declare, drained, maps, put

LONGEST = 4096  # characters, by the broker's default; one more than this client can write

Write = Callable[[Mapping[int, Commit]], None]


@pytest.fixture
def queue(kafka_log: KafkaLog, topic_name: str) -> Iterator[LastValueQueue[str]]:
    """Ten messages in two partitions, and the first of each partition is acked."""
    queue = declare(kafka_log, topic_name, spec=TopicSpec(partitions=2))
    put(queue, *(f"{number}={number}" for number in range(10)))
    with queue.view() as view:
        consume(queue, *(entry.key for entry in view.entries() if entry.position.offset == 0))
    assert {partition: one.base for partition, one in maps(queue).items()} == {0: 1, 1: 1}
    yield queue
    queue.delete()


@pytest.fixture
def write(broker: ProvidedBroker, queue: LastValueQueue[str]) -> Write:
    """Commits with the queue's group."""
    return lambda told: commit_as_others_do(broker.bootstrap_servers, queue.definition.group, queue.topic, told)


@pytest.mark.parametrize(
    "text", ["x", "offset saved by hand", "x" * LONGEST, "é" * LONGEST, "with\0a NUL"], ids=lambda text: text[:5]
)
def test_a_text_of_another_kind_is_refused_and_left_alone_until_the_queue_is_repaired(
    queue: LastValueQueue[str], write: Write, text: str
) -> None:
    write({1: Commit(3, text)})
    for use in (queue.consumer, queue.stats, queue.purge):
        with pytest.raises(CommitMapRefused, match="lvq repair") as caught:
            use()
        assert (caught.value.reason, caught.value.partition) == ("foreign", 1)
    assert commits(queue)[1].offset == 3
    assert queue.stats(on_foreign_commits="ignore").depth == 10 - 1 - 3
    assert [(damage.kind, damage.partitions) for damage in queue.repair().found] == [("commit-refused", (1,))]
    assert queue.repair(dry_run=True).found == ()
    assert maps(queue)[1].base == 3
    assert len(drained(queue)) == 10 - 1 - 3


def test_offsets_without_a_text_as_the_tools_of_kafka_set_them_are_taken_for_what_is_done(
    queue: LastValueQueue[str], write: Write
) -> None:
    write({0: Commit(0), 1: Commit(2)})
    assert commits(queue) == {0: Commit(0), 1: Commit(2)}
    assert queue.repair(dry_run=True).found == ()
    assert len(drained(queue)) == 10 - 2
    assert all(any(one.topic_tag) for one in maps(queue).values()), "ours again"


@pytest.mark.parametrize("length", [0, LONGEST], ids=["as it is", "filled up to all that a broker takes"])
def test_a_copy_of_our_text_is_read_and_what_follows_it_is_not(
    queue: LastValueQueue[str], write: Write, length: int
) -> None:
    before = maps(queue)
    write({p: Commit(one.offset, one.metadata.ljust(length, "A")) for p, one in commits(queue).items()})
    assert maps(queue) == before
    assert queue.repair().found == ()
    assert queue.reset({1: 2}).before == before
    assert len(drained(queue)) == 10 - 1 - 2
