"""A consumer that hands nothing out, and what the log says of it."""

from __future__ import annotations

import pytest

from lvq_kafka.consuming.custody import Custody
from lvq_kafka.consuming.holdings import Limits
from lvq_kafka.consuming.standstill import Standstill
from lvq_kafka.core.commit_map import CommitMap
from lvq_kafka.core.commits import Answer
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.ledger import Ledger
from lvq_kafka.core.records import Fetch, Record, RecordBatch
from tests.unit.consuming.world import World, consuming
from tests.waiting import eventually


class Watched:
    """A consumer that may hold two messages, looked at second by second."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.custody = Custody(QueueDefinition(name="q", topic="t", key_header=None), Limits(max_in_work=2))
        self.now = 0.0
        self._standstill = Standstill("q", self.custody, self.now)
        self._caplog = caplog

    def assign(self) -> None:
        self.custody.assign({0: CommitMap(0)}, {0: 0}, {0: 0}, epochs={0: -1}, tag=bytes(8))
        records = [Record(0, offset, 0, b"%d" % offset, b"v") for offset in range(100)]
        self.custody.read(Fetch(RecordBatch.of(records), {0: 100}))
        flight = self.custody.next_commit()
        assert flight is not None
        self.custody.answered(flight, Answer.STORED)

    def wait(self, seconds: int) -> str:
        """What is logged meanwhile."""
        self._caplog.clear()
        for _ in range(seconds):
            self.now += 1
            self._standstill.look(self.now)
        return self._caplog.text


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(caplog)


def test_a_consumer_too_many_says_once_that_it_has_no_partition(watched: Watched) -> None:
    assert watched.wait(14) == ""
    assert "no partition for 15 s" in watched.wait(1)
    assert watched.wait(100) == ""


def test_one_that_loses_its_partitions_says_so_when_it_has_had_none_for_as_long(watched: Watched) -> None:
    watched.assign()
    assert watched.wait(100) == ""
    watched.custody.forget([0])
    assert watched.wait(14) == ""
    assert "no partition" in watched.wait(1)


def test_who_forgets_to_settle_is_told_once(watched: Watched) -> None:
    watched.assign()
    assert len(watched.custody.take(5)[0]) == 2
    assert watched.wait(30) == ""
    assert "all 2 messages that may be in work (max_in_work) are held" in watched.wait(1)
    assert watched.wait(100) == ""


def test_work_that_goes_on_and_messages_that_do_not_come_are_no_standstill(watched: Watched) -> None:
    watched.assign()
    held, _ = watched.custody.take(2)
    for _ in range(20):
        assert watched.wait(20) == ""
        watched.custody.settle(Ledger.ack, held.pop())
        held += watched.custody.take(1)[0]
    watched.custody.settle(Ledger.ack, held.pop())
    assert watched.wait(100) == ""


def test_a_consumer_looks_at_itself(
    world: World, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("lvq_kafka.consuming.standstill._PARTITIONLESS", 0.3)
    with consuming(world) as first:
        eventually(lambda: first.stats.partitions)
        with consuming(world):
            eventually(lambda: "has had no partition" in caplog.text)
