"""A new topic: brokers hear of it one after the other, and any of them may be asked."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka.errors import TopicNotFound, TransportError
from lvq_kafka.kafka import topic_metadata
from lvq_kafka.kafka.kafka_topics import KafkaTopics
from tests.unit.kafka.parts import topics_of

TOPIC = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(replicas=[1, 2, 3])])
SETTING = {"cleanup.policy": SimpleNamespace(value="compact")}


class Cluster:
    """A stand-in for `AdminRequests`: brokers, asked in turn; the first ones do not know the topic (yet)."""

    def __init__(self, *, ignorant: int = 0, exists: bool = False) -> None:
        self.ignorant = ignorant
        self.exists = exists
        self.asked: list[str] = []

    def ask(self, request: Callable[..., Any], doing: str, deadline: float, **how: Any) -> list[Any]:
        if doing == "describe the cluster":
            return [SimpleNamespace(brokers=[1])]
        if doing.startswith("ask who leads"):
            return [SimpleNamespace(topics={})]
        self.asked.append(doing)
        if doing.startswith("create"):
            if self.exists:
                raise TransportError("It exists.", code="TOPIC_ALREADY_EXISTS", retriable=False)
            return [None]
        if doing.startswith("delete"):
            self.ignorant = 1000
            return [None]
        if self.ignorant:
            self.ignorant -= 1
            raise TopicNotFound("There is no such topic.", topic="prices")
        if doing.startswith("read the offsets"):
            return [SimpleNamespace(offset=0, leader_epoch=0)]
        return [SETTING if "settings" in doing else TOPIC]


QUESTIONS = [lambda topics: topics.describe("prices").id, lambda topics: topics.config("prices")]


@pytest.mark.parametrize("exists", [False, True], ids=["created", "somebody else was faster"])
@pytest.mark.parametrize("question", QUESTIONS, ids=["description", "settings"])
def test_a_broker_that_has_not_heard_of_a_new_topic_yet_is_asked_again(
    question: Callable[[KafkaTopics], object], exists: bool
) -> None:
    cluster = Cluster(exists=exists)
    topics = topics_of(cluster)
    assert topics.create("prices", partitions=1, config={}) is not exists
    cluster.ignorant = 3
    assert question(topics)
    assert cluster.ignorant == 0


@pytest.mark.parametrize("question", QUESTIONS, ids=["description", "settings"])
def test_a_topic_that_is_not_there_is_missed_at_once(question: Callable[[KafkaTopics], object]) -> None:
    cluster = Cluster(ignorant=1000)
    with pytest.raises(TopicNotFound):
        question(topics_of(cluster))
    assert len(cluster.asked) == 1


def test_so_is_one_that_has_been_deleted_again() -> None:
    cluster = Cluster()
    topics = topics_of(cluster)
    topics.create("prices", partitions=1, config={})
    topics.delete("prices")
    del cluster.asked[:]
    with pytest.raises(TopicNotFound):
        topics.describe("prices")
    assert len(cluster.asked) == 1


def test_and_one_that_all_brokers_have_to_know_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    topics = topics_of(cluster)
    topics.create("prices", partitions=1, config={})
    monkeypatch.setattr(topic_metadata, "_KNOWN_EVERYWHERE", 0.0)
    cluster.ignorant = 1000
    with pytest.raises(TopicNotFound):
        topics.describe("prices")
