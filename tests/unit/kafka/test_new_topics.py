"""A topic that was just created: brokers hear of it one after the other, and any of them may be asked."""

from __future__ import annotations

from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka.errors import TopicNotFound, TransportError
from lvq_kafka.kafka import admin
from lvq_kafka.kafka.admin import KafkaAdmin

TOPIC = SimpleNamespace(topic_id="id", partitions=[SimpleNamespace(replicas=[1, 2, 3])])
SETTING = {"cleanup.policy": SimpleNamespace(value="compact")}


class Cluster:
    """Stands in for `AdminRequests`: brokers that are asked in turn, the first of which do not know the topic (yet)."""

    def __init__(self, *, ignorant: int = 0, exists: bool = False) -> None:
        self.ignorant = ignorant
        self.exists = exists
        self.asked: list[str] = []

    def ask(self, request: Callable[..., Any], doing: str, deadline: float, **how: Any) -> list[Any]:
        if doing == "describe the cluster":
            return [SimpleNamespace(brokers=[1])]
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


QUESTIONS = [lambda admin: admin.describe_topic("prices", 10).id, lambda admin: admin.topic_config("prices", 10)]


@pytest.mark.parametrize("exists", [False, True], ids=["created", "somebody else was faster"])
@pytest.mark.parametrize("question", QUESTIONS, ids=["description", "settings"])
def test_a_broker_that_has_not_heard_of_a_new_topic_yet_is_asked_again(
    question: Callable[[KafkaAdmin], object], exists: bool
) -> None:
    cluster = Cluster(exists=exists)
    kafka = KafkaAdmin(cluster)  # type: ignore[arg-type]
    assert kafka.create_topic("prices", 1, None, {}, 10) is not exists
    cluster.ignorant = 3
    assert question(kafka)
    assert cluster.ignorant == 0


@pytest.mark.parametrize("question", QUESTIONS, ids=["description", "settings"])
def test_a_topic_that_is_not_there_is_missed_at_once(question: Callable[[KafkaAdmin], object]) -> None:
    cluster = Cluster(ignorant=1000)
    with pytest.raises(TopicNotFound):
        question(KafkaAdmin(cluster))  # type: ignore[arg-type]
    assert len(cluster.asked) == 1


def test_so_is_one_that_has_been_deleted_again() -> None:
    cluster = Cluster()
    kafka = KafkaAdmin(cluster)  # type: ignore[arg-type]
    kafka.create_topic("prices", 1, None, {}, 10)
    kafka.delete_topic("prices", 10)
    del cluster.asked[:]
    with pytest.raises(TopicNotFound):
        kafka.describe_topic("prices", 10)
    assert len(cluster.asked) == 1


def test_and_one_that_all_brokers_have_to_know_by_now(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster()
    kafka = KafkaAdmin(cluster)  # type: ignore[arg-type]
    kafka.create_topic("prices", 1, None, {}, 10)
    monkeypatch.setattr(admin, "_KNOWN_EVERYWHERE", 0.0)
    cluster.ignorant = 1000
    with pytest.raises(TopicNotFound):
        kafka.describe_topic("prices", 10)
