"""A consumer that hands nothing out: it says why, in its stats and once in the log."""

from __future__ import annotations

from collections.abc import Mapping

import pytest

from lvq_kafka.consuming.group_monitor import Observation
from lvq_kafka.consuming.idle_warnings import IdleWarnings
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.runtime.unclosed import Unclosed
from tests.unit.consuming.world import TOPIC, World, consuming, settled_up, take
from tests.waiting import eventually


class Watched:
    """A consumer that may hold two messages, checked second by second."""

    def __init__(self, caplog: pytest.LogCaptureFixture) -> None:
        self.now = 0.0
        self.shared = SharedState(
            QueueDefinition(name="q", topic="t", key_header=None), ConsumerLimits(max_in_work=2), lambda: self.now
        )
        self._idle_warnings = IdleWarnings("q", self.shared, self.now, Unclosed("q", "id"))
        self._caplog = caplog

    def assign(self) -> None:
        with self.shared as core:
            core.assign({0: CommitMap(0)}, {0: 0}, {0: 0}, self.now, epochs={0: -1}, tag=bytes(8))
        records = [Record(0, offset, 0, b"%d" % offset, b"v") for offset in range(100)]
        self.shared.read(Fetch(RecordBatch.of(records), {0: 100}))
        self.commit()

    def commit(self) -> None:
        """Let the group accept a commit."""
        with self.shared as core:
            core.commits.renew(core.partitions)
            flight = core.next_commit(self.now)
            assert flight is not None
            core.answered(flight, Answer.STORED)

    def wait(self, seconds: int, *, committing: bool = True) -> str:
        """Let this many seconds pass, and return what is logged."""
        self._caplog.clear()
        for _ in range(seconds):
            self.now += 1
            if committing and self.shared.core.partitions:
                self.commit()
            self._idle_warnings.check(self.now)
        return self._caplog.text

    def see(self, end: int = 100, stable: int = 100, members: int = 1) -> None:
        self._idle_warnings.saw(self.now, Observation({0: end}, {0: stable}, 1000.0, members))

    @property
    def trouble(self) -> str:
        return self.shared.stats.trouble


@pytest.fixture
def watched(caplog: pytest.LogCaptureFixture) -> Watched:
    return Watched(caplog)


def test_g5_a_consumer_without_a_partition_says_so_within_seconds_and_once_in_the_log(watched: Watched) -> None:
    watched.see()
    assert watched.wait(5) == ""
    assert "has had no partition for 5 s" in watched.wait(1)
    assert "rebalancing" in watched.trouble
    assert "session.timeout.ms" in watched.trouble
    assert watched.wait(100) == ""
    assert "for 105 s" in watched.trouble
    watched.assign()
    watched.wait(1)
    assert watched.trouble == ""


def test_g5_a_consumer_too_many_says_that_there_are_more_members_than_partitions(watched: Watched) -> None:
    watched.see(members=2)
    assert "it has no partition (2 members, 1 partition: 1 stands by)" in watched.wait(6)
    assert "workers (consumer.run(handle, workers=8))" in watched.trouble
    assert "sessions (consumer.session())" in watched.trouble
    assert "declare a queue on more partitions" in watched.trouble
    assert watched.shared.stats.standby
    assert watched.wait(100) == "", "once"
    watched.assign()
    assert not watched.shared.stats.standby, "at once, before the next check"


def test_a_consumer_that_waits_for_a_rebalance_does_not_stand_by(watched: Watched) -> None:
    watched.see(members=1)
    watched.wait(6)
    assert not watched.shared.stats.standby


def test_one_that_loses_its_partitions_says_so_when_it_has_had_none_for_as_long(watched: Watched) -> None:
    watched.assign()
    assert watched.wait(100) == ""
    with watched.shared as core:
        core.forget([0])
    assert watched.wait(5) == ""
    assert "no partition" in watched.wait(1)


def test_g5_messages_that_wait_while_the_group_accepts_no_commit_are_told_of(watched: Watched) -> None:
    watched.assign()
    assert watched.wait(int(LEASE), committing=False) == ""
    assert "the group has accepted no commit for 7 s" in watched.wait(3, committing=False)
    assert "rebalancing" in watched.trouble
    watched.wait(1)
    assert watched.trouble == ""


def test_g5_a_commit_that_is_not_answered_is_told_of(watched: Watched) -> None:
    """As in a rebalance. With durable counts nothing is handed out until then, lease or not."""
    watched.assign()
    with watched.shared as core:
        core.commits.renew([0])
        flight = core.next_commit(watched.now)
    assert flight is not None
    assert watched.wait(2, committing=False) == ""
    assert "has not answered a commit for 3 s" in watched.wait(1, committing=False)
    with watched.shared as core:
        core.answered(flight, Answer.STORED)
    watched.wait(1)
    assert watched.trouble == ""


def test_g5_an_open_transaction_that_hides_what_follows_is_told_of_by_partition_and_time(watched: Watched) -> None:
    watched.assign()
    watched.see(end=103)
    assert watched.wait(4) == ""
    watched.see(end=140)
    assert "a transaction open since offset 100 has hidden later records in partition 0 for 5 s" in watched.wait(1)
    assert "kafka-transactions.sh" in watched.trouble
    assert watched.wait(10) == ""
    assert "for 15 s" in watched.trouble
    watched.shared.read(Fetch(RecordBatch(), {0: 140}))
    watched.wait(1)
    assert watched.trouble == "", "at once, before the next look"


def test_transactions_that_come_and_go_are_no_standstill(watched: Watched) -> None:
    watched.assign()
    for number in range(100, 120):
        watched.shared.read(Fetch(RecordBatch(), {0: number}))
        watched.see(end=number + 2, stable=number)
        assert watched.wait(3) == ""


def test_g5_a_partition_that_is_not_read_on_is_told_of(watched: Watched) -> None:
    watched.assign()
    watched.see(end=120, stable=120)
    assert watched.wait(9) == ""
    assert "reading partition 0 makes no progress: it has been at offset 100 of 120" in watched.wait(1)


def test_a_trouble_with_the_cluster_goes_before_what_follows_from_it(watched: Watched) -> None:
    watched.wait(6)
    watched.shared.report("reading", BrokerUnavailable("Nobody answers.", code="_TRANSPORT", retriable=True))
    assert watched.trouble == "Nobody answers."
    watched.shared.core.obstacles.clear("reading")
    assert "no partition" in watched.trouble


def test_a_caller_that_forgets_to_settle_is_warned_once(watched: Watched) -> None:
    watched.assign()
    assert len(watched.shared.acquire(5)[0]) == 2
    assert watched.wait(30) == ""
    assert "all 2 messages that may be in work (max_in_work) are held" in watched.wait(2)
    assert "Settle each" in watched.trouble
    assert watched.wait(100) == ""


def test_work_that_goes_on_and_messages_that_do_not_come_are_no_standstill(watched: Watched) -> None:
    watched.assign()
    held, _ = watched.shared.acquire(2)
    for _ in range(20):
        assert watched.wait(20) == ""
        watched.shared.apply(Ledger.ack, held.pop())
        held += watched.shared.acquire(1)[0]
    watched.shared.apply(Ledger.ack, held.pop())
    assert watched.wait(100) == ""


@pytest.fixture
def brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Shorten the library's delays from seconds to fractions of one."""
    fast: Mapping[str, float] = {
        "group_monitor._LOOK": 0.05,
        "group_monitor._LOOK_AGAIN": 0.05,
        "idle_warnings._PARTITIONLESS": 0.3,
        "idle_warnings._BLOCKED": 0.3,
        "idle_warnings._TURN": 0.01,
    }
    for name, seconds in fast.items():
        monkeypatch.setattr(f"lvq_kafka.consuming.{name}", seconds)


@pytest.mark.usefixtures("brisk")
def test_g5_a_spare_consumer_says_that_others_have_all_partitions(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    with consuming(world) as first:
        eventually(lambda: first.stats.partitions)
        with consuming(world) as spare:
            eventually(lambda: "2 members, 1 partition: 1 stands by" in spare.stats.trouble)
            assert spare.stats.standby
            assert not first.stats.standby
            assert caplog.text.count("stands still") == 1
            first.close()
            eventually(lambda: spare.stats.partitions and not spare.stats.trouble)
            assert not spare.stats.standby


@pytest.mark.usefixtures("brisk")
def test_g5_a_consumer_behind_an_open_transaction_says_so_until_it_is_decided(world: World) -> None:
    world.send(("a", "a1"))
    writer = world.writer(transactional_id="t")
    with consuming(world) as consumer:
        take(consumer).ack()
        settled_up(world, consumer)
        writer.begin_transaction()
        writer.append(TOPIC, b"b", b"b1")
        world.send(("c", "c1"))
        eventually(lambda: "open since offset 1 has hidden later records in partition 0" in consumer.stats.trouble)
        writer.commit_transaction()
        assert {take(consumer).value, take(consumer).value} == {"b1", "c1"}
        eventually(lambda: consumer.stats.trouble == "")


@pytest.mark.usefixtures("brisk")
def test_g5_a_consumer_that_is_cut_off_says_so_though_its_member_hears_nothing(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A connection that was cut silently: the client has nothing to report until its requests time out."""
    with consuming(world) as consumer:
        settled_up(world, consumer)
        lost = BrokerUnavailable("Nobody answers.", code="_TIMED_OUT", retriable=True)
        world.fail_next("logs.end_offsets", lost, times=100_000)
        eventually(lambda: consumer.stats.trouble == "Nobody answers.")
        world._state._failures.clear()
        eventually(lambda: consumer.stats.trouble == "")
