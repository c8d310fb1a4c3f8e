"""Partitions that go in the same call that brings their records, and the kinds of the remaining batches."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import pytest
from confluent_kafka import Message

from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.catch_up_buffer import CatchUpBuffer
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.member import KafkaMember
from lvq_kafka.kafka.messages import MessageBatch, to_fetch
from lvq_kafka.kafka.writer import KafkaWriter
from tests.unit.kafka.mock_cluster import SYNC_GROUP, MockCluster
from tests.waiting import eventually

RECORDS = 100  # per partition; fewer than a poll takes


class FromTheBeginning:
    """A listener that starts every partition at its beginning."""

    def __init__(self) -> None:
        self.gone: list[int] = []

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        return dict.fromkeys(partitions, 0)

    def revoked(self, partitions: Sequence[int]) -> None:
        self.gone += partitions

    lost = revoked


def messages(*offsets: int, partition: int = 0) -> list[Message]:
    return [
        Message(topic="t", partition=partition, offset=at, key=b"k%d" % at, value=b"v", timestamp=(1, at))
        for at in offsets
    ]


def records_in(taken: Sequence[Message]) -> int:
    """Return how many of these are records, not client events."""
    return sum(message.error() is None for message in taken)


def late(*offsets: int) -> RecordBatch:
    """Return a batch as a member reads it."""
    return to_fetch(messages(*offsets), late=True)[0].batch


def at_once(*offsets: int) -> RecordBatch:
    """Return a batch as other logs give it."""
    return RecordBatch.of(Record(0, at, at, b"k%d" % at, b"v") for at in offsets)


@pytest.mark.parametrize("kinds", [(late, at_once), (at_once, late), (late, at_once, late)])
def test_batches_of_several_kinds_are_taken_in_in_their_order(kinds: Sequence[type]) -> None:
    ledger = Ledger()
    ledger.assign(0, CommitMap(0), 100)
    for number, kind in enumerate(kinds):
        ledger.add(kind(*range(10 * number, 10 * number + 10)))
    ledger.advance({0: 100})
    assert [item.offset for item in iter(ledger.acquire, None)] == list(range(10 * len(kinds)))


def test_the_batches_noted_are_of_one_kind() -> None:
    buffer = CatchUpBuffer()
    first, more, other = late(0, 1), late(2, 3), at_once(2, 3)
    assert buffer.suit(first, first.keys, ())
    buffer.add(first, first.keys)  # type: ignore[arg-type]
    assert buffer.suit(more, more.keys, ())
    assert not buffer.suit(other, other.keys, ())
    assert [keys for _, keys in buffer.drain()] == [[b"k0", b"k1"]]
    assert buffer.suit(other, other.keys, ())


def test_a_partition_that_goes_in_the_call_that_brings_its_records_leaves_the_rest_as_they_are(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One poll asks the client several times: it returns records, and then takes one of their partitions back."""
    mock = MockCluster()
    mock.create_topic("t", 2)
    config = ClientConfig(mock.bootstrap_servers, {"session.timeout.ms": 1500, "heartbeat.interval.ms": 100})
    first, second = KafkaMember(config, "g", "t", listener := FromTheBeginning()), None
    eventually(lambda: first.poll(0.01) and first._partitions.owned == {0, 1}, 30)  # the topic is empty
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers))
    sent = [writer.append("t", b"k%d" % number, b"v") for number in range(2 * RECORDS)]
    counts = [sum(receipt.result(10).partition == partition for receipt in sent) for partition in range(2)]
    writer.close()
    take = first._pump._consume

    def take_and_lose(most: int) -> list[Message]:
        nonlocal second
        monkeypatch.undo()
        taken: list[Message] = []
        eventually(lambda: taken.extend(take(most)) or records_in(taken) == 2 * RECORDS, 30)
        syncs = mock.requests(SYNC_GROUP)
        second = KafkaMember(config, "g", "t", FromTheBeginning())
        eventually(lambda: mock.requests(SYNC_GROUP) >= syncs + 2, 30)
        eventually(lambda: taken.extend(take(most)) or listener.gone, 30)
        return taken

    monkeypatch.setattr(first._pump, "_consume", take_and_lose)
    fetch = first.poll(0.01)
    (gone,) = listener.gone
    assert type(fetch.batch) is MessageBatch
    assert (dict(fetch.positions), dict(fetch.epochs)) == ({1 - gone: counts[1 - gone]}, {1 - gone: 0})
    assert [(record.partition, record.offset) for record in fetch.batch] == [
        (1 - gone, offset) for offset in range(counts[1 - gone])
    ]
    assert second is not None
    for member in (second, first):
        member.close()
    mock.close()
