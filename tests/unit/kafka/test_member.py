"""The Kafka group member on librdkafka's mock cluster: assignments that fail on the way."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from typing import Any

import pytest
from confluent_kafka import TopicPartition

from lvq_kafka.cluster import Commit
from lvq_kafka.core.consumer.lease import LEASE
from lvq_kafka.core.log.records import Fetch, Record
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.kafka.connect import open_consumer
from lvq_kafka.kafka.member import KafkaMember
from lvq_kafka.kafka.reader import KafkaReader
from lvq_kafka.kafka.writer import KafkaWriter
from tests.unit.kafka.mock_cluster import CONSUMER_GROUP_HEARTBEAT, HEARTBEAT, LIST_OFFSETS, MockCluster
from tests.waiting import eventually

LEADERLESS = TransportError("no leader", code="LEADER_NOT_AVAILABLE", retriable=True)


class Listener:
    """A listener that starts at the given offset, after the given number of failures."""

    def __init__(self, start: int, failures: int = 0) -> None:
        self.start = start
        self.failures = failures
        self.assignments: list[list[int]] = []
        self.gone: list[int] = []

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        self.assignments.append(list(partitions))
        if self.failures:
            self.failures -= 1
            raise LEADERLESS
        return dict.fromkeys(partitions, self.start)

    def revoked(self, partitions: Sequence[int]) -> None:
        self.gone += partitions

    lost = revoked


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    mock = MockCluster()
    mock.create_topic("t", 2)
    yield mock
    mock.close()


@pytest.fixture
def join(mock: MockCluster) -> Iterator[Callable[[Listener], KafkaMember]]:
    members: list[KafkaMember] = []

    def join(listener: Listener) -> KafkaMember:
        members.append(KafkaMember(ClientConfig(mock.bootstrap_servers), "g", "t", listener))
        return members[-1]

    yield join
    for member in members:
        member.close()


def test_an_assignment_that_failed_is_made_good_by_the_next_poll(
    mock: MockCluster, join: Callable[[Listener], KafkaMember]
) -> None:
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers))
    positions = [writer.append("t", b"k%d" % number, b"v").result(10) for number in range(20)]
    writer.close()
    listener = Listener(1, failures=3)
    member = join(listener)
    failures: list[TransportError] = []
    records: list[Record] = []

    def read_all() -> bool:
        try:
            records.extend(member.poll(0.1).batch)
        except TransportError as error:
            failures.append(error)
        return len(records) == 18

    eventually(read_all, 30)
    assert failures == [LEADERLESS] * 3
    assert listener.assignments == [[0, 1]] * 4
    expected = sorted((position.partition, position.offset) for position in positions if position.offset)
    assert sorted((record.partition, record.offset) for record in records) == expected
    member.commit({0: Commit(2), 1: Commit(2)})


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g10_nothing_is_passed_over_after_an_assignment_that_failed_while_leaders_are_slow(
    mock: MockCluster, protocol: str
) -> None:
    """The client must have no question for them: it would continue at their answer, although it started elsewhere."""
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers))
    for number in range(20):
        writer.append("t", b"k%d" % number, b"v").result(10)
    writer.close()
    for _ in range(2):
        mock.delay_next(LIST_OFFSETS, 0.3)
    config = ClientConfig(mock.bootstrap_servers, {"group.protocol": protocol})
    member = KafkaMember(config, "g", "t", Listener(1, failures=1))
    records: list[Record] = []

    def read_all() -> bool:
        with suppress(TransportError):
            records.extend(member.poll(0.1).batch)
        return len(records) >= 18

    eventually(read_all, 10)
    member.close()
    assert len({(record.partition, record.offset) for record in records}) == len(records) == 18


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_g10_fetched_records_are_read_again_if_their_partition_goes_and_comes_back_in_the_same_poll(
    mock: MockCluster, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The client returns the old assignment's records together with the new assignment, which starts at a commit."""
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers))
    positions = [writer.append("t", b"k%d" % number, b"v").result(10) for number in range(20)]
    writer.close()
    listener = Listener(0)
    member = KafkaMember(ClientConfig(mock.bootstrap_servers, {"group.protocol": protocol}), "g", "t", listener)
    both = [TopicPartition("t", 0), TopicPartition("t", 1)]
    moved: list[Fetch] = []
    poll_pump = member._pump.poll

    def poll_and_move(timeout: float) -> Fetch:
        fetch = poll_pump(timeout)
        if fetch.positions and not moved:
            consumer = member._client.get()
            member._on_revoke(consumer, both)
            consumer.incremental_unassign(both)
            member._on_assign(consumer, both)
            moved.append(fetch)
        return fetch

    monkeypatch.setattr(member._pump, "poll", poll_and_move)
    records: list[Record] = []

    def read_all() -> bool:
        records.extend(member.poll(0.1).batch)
        return len(records) >= len(positions)

    eventually(read_all, 30)
    member.close()
    assert len(moved[0].batch) > 0
    assert [sorted(assigned) for assigned in listener.assignments] == [[0, 1]] * 2
    for partition in (0, 1):
        written = sorted(position.offset for position in positions if position.partition == partition)
        assert [record.offset for record in records if record.partition == partition] == written


def test_g10_records_that_come_together_with_a_failure_of_the_listener_are_returned_before_it(
    mock: MockCluster, join: Callable[[Listener], KafkaMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The client does not return them again, and nobody would miss them: a log may have gaps."""
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers))
    positions = [writer.append("t", b"k%d" % number, b"v").result(10) for number in range(20)]
    written = sorted(position.offset for position in positions if position.partition == 0)
    writer.close()
    listener = Listener(0)
    member = join(listener)
    poll_pump = member._pump.poll
    failures: list[TransportError] = []

    def fail(partitions: Sequence[int]) -> None:
        raise LEADERLESS

    def poll_and_fail(timeout: float) -> Fetch:
        fetch = poll_pump(timeout)
        if 0 in fetch.positions and not failures:
            member._on_lost(member._client.get(), [TopicPartition("t", 1)])
        return fetch

    monkeypatch.setattr(listener, "lost", fail)
    monkeypatch.setattr(member._pump, "poll", poll_and_fail)
    offsets: list[int] = []

    def read_all() -> bool:
        try:
            offsets.extend(record.offset for record in member.poll(0.1).batch if record.partition == 0)
        except TransportError as error:
            failures.append(error)
        return bool(failures)

    eventually(read_all, 30)
    eventually(lambda: read_all() and len(offsets) >= len(written), 30)
    assert failures == [LEADERLESS]
    assert offsets == written


def test_partitions_that_were_never_begun_with_are_given_up_without_a_word(
    join: Callable[[Listener], KafkaMember],
) -> None:
    listener = Listener(0, failures=1000)
    member = join(listener)

    def has_failed() -> bool:
        try:
            member.poll(0.1)
        except TransportError as error:
            return error is LEADERLESS
        return False

    eventually(has_failed, 30)
    assert has_failed()
    member.close()
    assert listener.gone == []


def test_a_transaction_is_given_no_commit_for_partitions_that_are_not_the_members(
    join: Callable[[Listener], KafkaMember],
) -> None:
    """The broker would accept it from a member that it does not know yet, and any partition from one that it knows."""
    member = join(Listener(0))
    with pytest.raises(TransportError, match="partition 0 "):
        member.transaction_offsets({0: Commit(1)})

    def has_both() -> bool:
        member.poll(0.05)
        try:
            member.transaction_offsets({0: Commit(1), 1: Commit(1)})
        except TransportError:
            return False
        return True

    eventually(has_both, 30)
    with pytest.raises(TransportError, match="partition 7 "):
        member.transaction_offsets({0: Commit(1), 7: Commit(1)})


def test_an_assignment_of_nothing_is_not_told_as_one(join: Callable[[Listener], KafkaMember]) -> None:
    """The client calls back for it in the new protocol. Assignments are incremental, so an empty one says nothing."""
    listener = Listener(0)
    member = join(listener)
    member._on_assign(member._client.get(), [])
    member.poll(0)
    assert listener.assignments == []


@pytest.mark.parametrize("protocol", ["classic", "consumer"])
def test_one_that_is_closed_in_a_rebalance_hears_of_it_before_the_client_closes(
    mock: MockCluster, monkeypatch: pytest.MonkeyPatch, protocol: str
) -> None:
    """The client's close can deadlock when two callbacks are pending."""
    told: list[str] = []
    for name in ("_on_assign", "_on_revoke", "_on_lost"):
        original = getattr(KafkaMember, name)

        def noted(self: KafkaMember, *said: object, original: Callable[..., None] = original) -> None:
            told.append("in time" if self._client.is_open else "in close")
            original(self, *said)

        monkeypatch.setattr(KafkaMember, name, noted)
    member = KafkaMember(
        ClientConfig(mock.bootstrap_servers, {"group.protocol": protocol}), "g", "t", listener := Listener(0)
    )
    given = CONSUMER_GROUP_HEARTBEAT if protocol == "consumer" else HEARTBEAT
    eventually(lambda: mock.requests(given) > 1, 30)  # it has its partitions, but does not know yet
    assert told == []
    member.close()
    assert told == ["in time"] * 2
    assert listener.assignments == []


def test_a_session_is_as_short_as_brokers_allow_by_default_and_the_lease_ends_before_it(
    join: Callable[[Listener], KafkaMember], monkeypatch: pytest.MonkeyPatch
) -> None:
    """In the classic protocol, others stall for as long as a dead member's session outlasts their lease."""
    told: dict[str, Any] = {}

    def open_and_tell(config: Any, health: Any, owned: Any, defaults: Any) -> Any:
        told.update(defaults)
        return open_consumer(config, health, owned, defaults)

    monkeypatch.setattr("lvq_kafka.kafka.member_client.open_consumer", open_and_tell)
    join(Listener(0))
    assert told["session.timeout.ms"] == 6000 == 1000 * (LEASE + 1)


@pytest.mark.parametrize(
    ("properties", "seconds"),
    [
        ({}, 10),
        ({"session.timeout.ms": 45_000}, 49),
        ({"session.timeout.ms": 45_000, "socket.timeout.ms": 5000}, 5),
        ({"group.protocol": "consumer"}, 10),
    ],
)
def test_a_broker_that_stands_still_is_given_up_within_seconds_and_not_before_a_session_is_over(
    mock: MockCluster, monkeypatch: pytest.MonkeyPatch, properties: dict[str, Any], seconds: int
) -> None:
    """A leader that does not answer has a successor, which the client looks for when its fetch times out.

    Commits time out, too. They queue behind a JoinGroup for as long as a dead member's session.
    """
    told: dict[str, Any] = {}

    def open_and_tell(config: ClientConfig, health: Any, owned: Any, defaults: Any) -> Any:
        told.update({**defaults, **config.for_consumer(), **owned})
        return open_consumer(config, health, owned, defaults)

    for module in ("member_client", "reader"):
        monkeypatch.setattr(f"lvq_kafka.kafka.{module}.open_consumer", open_and_tell)
    config = ClientConfig(mock.bootstrap_servers, properties)
    KafkaMember(config, "g", "t", Listener(0)).close()
    assert told["socket.timeout.ms"] == 1000 * seconds
    KafkaReader(config, "t", {0: 0}).close()
    assert told["socket.timeout.ms"] == min(1000 * seconds, 10_000)
