"""Batches that are stored twice (G14), on brokers that judge by epochs and sequences as real ones do.

Once a broker refuses a batch because an earlier one is missing, the client gives all that is not acknowledged new
numbers. By then a leader may have stored some of it, and its answer be lost: that is stored again.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event

import pytest

from lvq_kafka.cluster import Receipt
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import DeliveryFailed, DeliveryUnknown
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.client import PropertyValue
from lvq_kafka.kafka.writer import KafkaWriter
from tests.fake_broker import INVALID_RECORD, NOT_ENOUGH_REPLICAS, Answer, Batch, FakeLeaders
from tests.waiting import eventually

SOON = 30.0  # seconds
OLD, NEW = 1, 2
"""The nodes that lead the first partition, one after the other. The second leads the other partition all the time."""
MOVED, OTHER = 0, 1
"""The partitions."""


class Election:
    """The first partition loses its leader and all its answers, and gets another one once the client sends that node
    whatever it had refused in the other partition.
    """

    def __init__(self) -> None:
        self.leaders = FakeLeaders({MOVED: OLD, OTHER: NEW}, self._take)
        self.room = 1_000
        """How many batches the new leader takes before it refuses all others."""
        self.refusal = NOT_ENOUGH_REPLICAS
        self._arrived, self._answers = Event(), Event()

    def put(self, writer: KafkaWriter, *values: bytes) -> list[Receipt]:
        """Append values, one to a batch; return their receipts once the old leader has stored all."""
        writer.append("t", b"x", b"1", None, OTHER)
        assert self._arrived.wait(SOON)
        writer.append("t", b"x", b"2", None, OTHER)  # sent while the first is unanswered, if the client may
        receipts = []
        for count, value in enumerate(values, 1):
            receipts.append(writer.append("t", b"k", value, None, MOVED))
            eventually(lambda count=count: len(self.leaders.log[MOVED]) == count, SOON)  # type: ignore[misc]
        self.leaders.leaders[MOVED] = 0
        self.leaders.disconnect(OLD)
        self._answers.set()
        return receipts

    def _take(self, node: int, batch: Batch) -> Answer:
        if node == OLD:
            return self.leaders.append(batch)._replace(lost=True)
        if batch.partition == MOVED:
            self.room -= 1
            return self.leaders.append(batch) if self.room >= 0 else Answer(self.refusal)
        if not self._answers.is_set():
            self._arrived.set()
            self._answers.wait(SOON)
            return Answer(NOT_ENOUGH_REPLICAS)
        answer = self.leaders.append(batch)
        if not answer.error:
            self.leaders.leaders[MOVED] = NEW
        return answer


@contextmanager
def election(**properties: PropertyValue) -> Iterator[tuple[Election, KafkaWriter]]:
    found = Election()
    with found.leaders:
        named = {name.replace("_", "."): value for name, value in properties.items()}
        writer = KafkaWriter(ClientConfig(found.leaders.bootstrap_servers, named))
        yield found, writer
        writer.close(0)


def test_g14_a_message_that_an_election_stores_twice_is_acknowledged_once_with_the_later_position() -> None:
    with election() as (moved, writer):
        [receipt] = moved.put(writer, b"1")
        assert receipt.result(SOON) == Position("t", MOVED, 1)
        assert moved.leaders.values(MOVED) == [b"1", b"1"]
        first, second = moved.leaders.log[MOVED]
        assert first.producer_id == second.producer_id
        assert (first.epoch, second.epoch, second.sequence) == (0, 1, 0)
        assert (writer.flush(SOON), writer.pop_failures()) == (0, [])


def test_g14_the_copies_of_what_is_stored_twice_keep_their_order() -> None:
    """So the key's older value comes back between its newer one and the copy of that."""
    with election() as (moved, writer):
        receipts = moved.put(writer, b"1", b"2")
        assert [receipt.result(SOON).offset for receipt in receipts] == [2, 3]
        assert moved.leaders.values(MOVED) == [b"1", b"2", b"1", b"2"]


def test_g14_an_older_value_stays_behind_a_newer_one_only_if_that_is_unknown() -> None:
    with election(delivery_timeout_ms=2000, batch_num_messages=1) as (moved, writer):
        moved.room = 1
        older, newer = moved.put(writer, b"1", b"2")
        assert older.result(SOON) == Position("t", MOVED, 2)
        with pytest.raises(DeliveryUnknown, match="key 'k'"):
            newer.result(SOON)
        assert moved.leaders.values(MOVED) == [b"1", b"2", b"1"]
        moved.room = 1000  # as the error says, send the key's current value again
        assert writer.append("t", b"k", b"2", None, MOVED).result(SOON) == Position("t", MOVED, 3)


def test_g14_a_message_that_is_refused_after_a_lost_answer_may_have_been_stored() -> None:
    with election(max_in_flight=1) as (moved, writer):
        moved.refusal = INVALID_RECORD
        moved.room = 0
        [receipt] = moved.put(writer, b"1")
        assert isinstance(receipt.exception(SOON), DeliveryUnknown)
        assert moved.leaders.values(MOVED) == [b"1"]
        refused = writer.append("t", b"k", b"2", None, MOVED)
        assert type(refused.exception(SOON)) is DeliveryFailed, "no answer has been lost since"


def test_g14_a_stored_message_is_recognized_as_long_as_its_numbers_are_the_same() -> None:
    """With one request at a time, no batch is refused because an earlier one is missing."""
    with election(max_in_flight=1) as (moved, writer):
        [receipt] = moved.put(writer, b"1")
        assert receipt.result(SOON) == Position("t", MOVED, 0)
        assert moved.leaders.values(MOVED) == [b"1"]
