"""Brokers that hear of changes later than others: the answer of one of them is not final."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import closing, suppress
from types import SimpleNamespace
from typing import Any

import pytest
from confluent_kafka import KafkaError

from lvq_kafka.cluster import Commit
from lvq_kafka.errors import TopicNotFound, TransportError, Unauthorized
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.kafka.kafka_topics import KafkaTopics
from tests.unit.kafka.mock_cluster import LIST_OFFSETS, METADATA, OFFSET_COMMIT, MockCluster
from tests.unit.kafka.parts import logs_of, topics_of
from tests.unit.kafka.test_member import Listener
from tests.waiting import eventually


@pytest.fixture
def mock() -> Iterator[MockCluster]:
    with closing(MockCluster()) as mock:
        mock.create_topic("prices", 2)
        yield mock


@pytest.fixture
def cluster(mock: MockCluster) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(mock.bootstrap_servers)) as cluster:
        yield cluster


# -- leaders and coordinators that have not heard of it ---------------------------------------------------------------


def test_a_leader_that_does_not_know_its_partition_yet_is_asked_again(mock: MockCluster, cluster: KafkaCluster) -> None:
    mock.fail_next(LIST_OFFSETS, *[KafkaError.UNKNOWN_TOPIC_OR_PART] * 3)
    assert cluster.logs.end_offsets("prices") == {0: 0, 1: 0}
    mock.fail_next(LIST_OFFSETS, *[KafkaError.UNKNOWN_TOPIC_OR_PART] * 3)
    assert cluster.logs.end_offsets("prices", partitions=2) == {0: 0, 1: 0}


def test_a_coordinator_that_does_not_know_the_topic_yet_is_told_again(mock: MockCluster, cluster: KafkaCluster) -> None:
    mock.fail_next(OFFSET_COMMIT, *[KafkaError.UNKNOWN_TOPIC_OR_PART] * 3)
    cluster.groups.commit("g", "prices", {0: Commit(1), 1: Commit(2)})
    assert cluster.groups.committed("g", "prices") == {0: Commit(1), 1: Commit(2)}


@pytest.mark.parametrize(
    "question",
    [
        lambda cluster: cluster.logs.end_offsets("prices"),
        lambda cluster: cluster.logs.end_offsets("prices", partitions=2),
        lambda cluster: cluster.groups.commit("g", "prices", {0: Commit(1)}),
    ],
    ids=["ends", "ends of so many partitions", "commit"],
)
def test_a_topic_that_is_gone_is_missed_at_once(
    mock: MockCluster, cluster: KafkaCluster, question: Callable[[KafkaCluster], object]
) -> None:
    cluster.topics.describe("prices")
    mock.delete_topic("prices")
    asked = mock.requests(METADATA)
    with pytest.raises(TopicNotFound):
        question(cluster)
    assert mock.requests(METADATA) - asked < 10


def test_a_commit_for_a_partition_that_is_not_there_is_refused_at_once(
    mock: MockCluster, cluster: KafkaCluster
) -> None:
    assert mock.requests(OFFSET_COMMIT) == 0
    with pytest.raises(TopicNotFound, match="2 partitions"):
        cluster.groups.commit("g", "prices", {2: Commit(1)})
    assert mock.requests(OFFSET_COMMIT) == 0


def test_a_member_whose_broker_has_not_heard_of_the_topic_says_so_and_goes_on(
    mock: MockCluster, cluster: KafkaCluster
) -> None:
    mock.hide_topic("prices")
    listener = Listener(0)
    with closing(cluster.member("g", "prices", listener)) as member:
        said = []

        def says_so() -> bool:
            try:
                member.poll(0.1)
            except TopicNotFound as error:
                said.append(error)
            return bool(said)

        eventually(says_so, 20)
        mock.show_topic("prices")
        eventually(lambda: says_so() and listener.assignments == [[0, 1]], 20)


def test_a_commit_that_a_coordinator_refuses_since_it_has_not_heard_of_the_topic_may_be_sent_again(
    mock: MockCluster, cluster: KafkaCluster
) -> None:
    listener = Listener(0)
    with closing(cluster.member("g", "prices", listener)) as member:
        eventually(lambda: member.poll(0.1) and listener.assignments, 20)
        mock.fail_next(OFFSET_COMMIT, *[KafkaError.UNKNOWN_TOPIC_OR_PART] * 3)  # the client itself tries three times
        with pytest.raises(TransportError) as caught:
            member.commit({0: Commit(1)})
        assert caught.value.retriable
        member.commit({0: Commit(1)})
    assert cluster.groups.committed("g", "prices") == {0: Commit(1)}


# -- outdated answers about the topic ---------------------------------------------------------------------------------


def topic(topic_id: str, partitions: int) -> Any:
    return SimpleNamespace(topic_id=topic_id, partitions=[SimpleNamespace(replicas=[1, 2, 3])] * partitions)


class Brokers:
    """A stand-in for `AdminRequests`: brokers with these answers about the topic, in turn (None: no such topic)."""

    def __init__(self, *answers: Any) -> None:
        self.answers = list(answers)
        self.settings: dict[int, list[Mapping[str, str] | TransportError | None]] = {}
        """Each broker's answers about the topic's settings, in order."""
        self.asked: list[str] = []
        self.moved = 0

    def ask(self, request: Callable[..., Any], doing: str, deadline: float, **how: Any) -> list[Any]:
        if doing == "describe the cluster":
            return [SimpleNamespace(brokers=self.settings)]
        if doing.startswith("read the settings"):
            return [self.settings_at(request)]
        self.asked.append(doing.partition(" ")[0])
        if doing.startswith("describe"):
            answer = self.answers.pop(0) if len(self.answers) > 1 else self.answers[0]
            if answer is None:
                raise TopicNotFound("There is no such topic.", topic="prices")
            return [answer]
        if self.moved:
            self.moved -= 1
            raise TransportError("I do not lead it.", code="NOT_LEADER_FOR_PARTITION", retriable=True)
        return [SimpleNamespace(low_watermark=7)]

    def settings_at(self, request: Callable[..., Any]) -> Any:
        asked: list[int] = []

        def describe_configs(resources: Any, *, request_timeout: float, broker: int) -> dict[Any, Any]:
            asked.append(broker)
            return {}

        request(SimpleNamespace(describe_configs=describe_configs), 1.0)
        said = self.settings[asked[0]].pop(0)
        if isinstance(said, TransportError):
            raise said
        if said is None:
            raise TopicNotFound("There is no such topic.", topic="prices")
        return {name: SimpleNamespace(value=value) for name, value in said.items()}


def partitions(topics: KafkaTopics) -> tuple[str, int]:
    described = topics.describe("prices")
    return described.id, described.partitions


def test_partitions_do_not_become_fewer() -> None:
    topics = topics_of(Brokers(topic("a", 1), topic("a", 3), topic("a", 1)))
    assert [partitions(topics) for _ in range(3)] == [("a", 1), ("a", 3), ("a", 3)]


def test_a_topic_that_was_created_anew_may_have_fewer() -> None:
    topics = topics_of(Brokers(topic("a", 3), topic("b", 1)))
    assert [partitions(topics) for _ in range(2)] == [("a", 3), ("b", 1)]


def test_a_topic_that_was_followed_by_another_one_does_not_come_back() -> None:
    brokers = Brokers(topic("a", 3), topic("b", 1), topic("a", 3), topic("a", 3), topic("b", 2))
    topics = topics_of(brokers)
    assert [partitions(topics) for _ in range(3)] == [("a", 3), ("b", 1), ("b", 2)]


def test_a_topic_is_deleted_when_it_is_gone_or_there_is_another_one() -> None:
    for then in (None, topic("b", 1)):
        brokers = Brokers(topic("a", 1), topic("a", 1), topic("a", 1), then)
        topics = topics_of(brokers)
        topics.delete("prices")
        assert brokers.asked == ["describe", "delete", "describe", "describe", "describe"]
        brokers.answers[:0] = [topic("a", 1)] * 3
        with suppress(TopicNotFound):
            assert partitions(topics) == ("b", 1)


SILENT = TransportError("No answer.", code="_TIMED_OUT", retriable=True)
FORBIDDEN = Unauthorized("No.", code="TOPIC_AUTHORIZATION_FAILED")


def test_a_topic_created_changed_or_deleted_is_so_for_all_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    brokers = Brokers(topic("a", 1))
    topics = topics_of(brokers)
    monkeypatch.setattr(topics, "_await_partitions", lambda *_: None)
    brokers.settings = {1: [{}], 2: [None, None, {}], 3: [None, {}]}
    topics.create("prices", partitions=1, config={})
    assert not any(brokers.settings.values())
    one, two = {"min.insync.replicas": "1"}, {"min.insync.replicas": "2"}
    brokers.settings = {1: [one, two], 2: [two], 3: [one, one, two]}
    topics.alter_config("prices", two)
    assert not any(brokers.settings.values())
    brokers.answers = [topic("a", 1), None]
    brokers.settings = {1: [two, None], 2: [two, two, None], 3: [None]}
    topics.delete("prices")
    assert not any(brokers.settings.values())


@pytest.mark.parametrize("problem", [SILENT, FORBIDDEN], ids=["silent", "forbidden"])
def test_a_broker_that_does_not_say_so_is_not_waited_for(problem: TransportError) -> None:
    brokers = Brokers(topic("a", 1))
    brokers.settings = {1: [problem], 2: [problem], 3: [{"segment.ms": "5"}]}
    topics_of(brokers).alter_config("prices", {"segment.ms": "5"})
    assert not any(brokers.settings.values())


def test_a_topic_can_be_deleted_by_a_broker_that_has_not_heard_of_it() -> None:
    brokers = Brokers(None)
    topics_of(brokers).delete("prices")
    assert "delete" in brokers.asked


def test_the_leader_is_looked_up_again_before_records_are_deleted_where_it_has_moved() -> None:
    """As with `ends`, the client would forever ask the broker that it takes for the leader."""
    brokers = Brokers(topic("a", 1))
    brokers.moved = 2
    assert logs_of(brokers).delete_before("prices", {0: 7}) == {0: 7}
    assert brokers.asked == ["describe", "delete"] * 3
