"""Many queues in one process: what they share, and how they stay out of each other's way."""

from __future__ import annotations

import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

import psutil
import pytest
from confluent_kafka.admin import AdminClient

from lvq_kafka.errors import Closed
from lvq_kafka.kafka import ClientConfig, KafkaLog, asking
from lvq_kafka.kafka.questions import Questions
from lvq_kafka.ports import Commit
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually


@pytest.fixture
def servers() -> Iterator[str]:
    with closing(MockCluster()) as cluster:
        cluster.create_topic("t", 1)
        yield cluster.bootstrap_servers


def threads() -> int:
    return psutil.Process().num_threads()


def test_logs_of_one_configuration_share_a_connection_for_questions(servers: str) -> None:
    with ExitStack() as opened:
        first = opened.enter_context(closing(KafkaLog(servers)))
        assert first.describe_topic("t").partitions == 1
        before = threads()
        others = [opened.enter_context(closing(KafkaLog(ClientConfig(servers)))) for _ in range(10)]
        assert [log.describe_topic("t").partitions for log in others] == [1] * 10
        assert threads() == before
        first.close()
        with pytest.raises(Closed):
            first.describe_topic("t")
        assert others[0].describe_topic("t").partitions == 1, "closed is only who was closed"
        with closing(KafkaLog(ClientConfig(servers, {"client.id": "another"}))) as log:
            assert log.describe_topic("t").partitions == 1
            assert threads() > before, "who shows another face to the cluster has a connection of its own"
    eventually(lambda: threads() < before)


def clients_of(questions: Questions, *, harmless: bool) -> AdminClient:
    asked: list[AdminClient] = []

    def ask(client: AdminClient, timeout: float) -> list[Future[None]]:
        asked.append(client)
        answer: Future[None] = Future()
        answer.set_result(None)
        return [answer]

    questions.ask(ask, "ask", time.monotonic() + 10, harmless=harmless)
    [client] = asked
    return client


def test_a_change_which_may_wait_at_a_broker_has_a_connection_of_its_own(servers: str) -> None:
    config = ClientConfig(servers)
    with closing(Questions(config)) as one, closing(Questions(config)) as other:
        asking_client = clients_of(one, harmless=True)
        assert clients_of(other, harmless=True) is asking_client
        changing = clients_of(one, harmless=False)
        assert changing is not asking_client
        assert clients_of(other, harmless=False) not in (asking_client, changing)


@contextmanager
def asked_about(servers: str, *groups: str) -> Iterator[KafkaLog]:
    with closing(KafkaLog(servers)) as log:
        for group in groups:
            log.commit(group, "t", {0: Commit(3)})
        yield log


def test_a_group_that_is_asked_about_no_more_takes_no_connection(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(KafkaLog(servers)) as log:
        log.describe_topic("t")
        before = threads()
        monkeypatch.setattr(asking, "_IDLE", 0.05)
        for _ in range(2):  # the second time all that has ended begins again
            assert log.committed("g", "t") == {}
            eventually(lambda: threads() <= before)


def test_groups_that_are_asked_about_in_turn_keep_their_connections(servers: str) -> None:
    with asked_about(servers, "one", "two") as log:
        for group in ("one", "two"):
            assert log.committed(group, "t", decided=False) == {0: Commit(3)}
        before = threads()
        kept = {group: kept.consumer for group, kept in log._groups._by_now._kept.items()}
        for group in ("one", "two"):
            assert log.committed(group, "t", decided=False) == {0: Commit(3)}
        assert {group: kept.consumer for group, kept in log._groups._by_now._kept.items()} == kept
        assert threads() == before
        log.close()
        with pytest.raises(Closed):
            log.committed("one", "t", decided=False)


def test_who_asks_about_a_group_without_an_answer_holds_up_nobody_who_asks_about_another(servers: str) -> None:
    with asked_about(servers, "healthy") as log:
        sick = log._groups._decided._of("sick")
        with sick.lock:
            waiting = Thread(target=lambda: log.committed("sick", "t", timeout=10))
            waiting.start()
            assert log.committed("healthy", "t", timeout=5) == {0: Commit(3)}
            assert waiting.is_alive()
        waiting.join()
