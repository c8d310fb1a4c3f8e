"""Many queues in one process: shared resources, and independence."""

from __future__ import annotations

import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import Future
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

import pytest
from confluent_kafka.admin import AdminClient

from lvq_kafka.cluster import Commit
from lvq_kafka.errors import Closed
from lvq_kafka.kafka import ClientConfig, KafkaCluster, admin_requests, offset_fetch
from lvq_kafka.kafka.admin_requests import AdminRequests
from lvq_kafka.kafka.connect import Health, open_admin
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually


@pytest.fixture
def servers() -> Iterator[str]:
    with closing(MockCluster()) as mock:
        mock.create_topic("t", 1)
        yield mock.bootstrap_servers


@pytest.fixture
def opened(monkeypatch: pytest.MonkeyPatch) -> list[ClientConfig]:
    """Return a list that collects the configurations of all admin clients as they are opened."""
    configs: list[ClientConfig] = []

    def opening(config: ClientConfig, health: Health) -> AdminClient:
        configs.append(config)
        return open_admin(config, health)

    monkeypatch.setattr(admin_requests, "open_admin", opening)
    return configs


def test_logs_of_one_configuration_share_a_connection_for_questions(servers: str, opened: list[ClientConfig]) -> None:
    with ExitStack() as at_the_end:
        logs = [at_the_end.enter_context(closing(KafkaCluster(ClientConfig(servers)))) for _ in range(10)]
        assert [cluster.topics.describe("t").partitions for cluster in logs] == [1] * 10
        assert len(opened) == 1
        logs[0].close()
        with pytest.raises(Closed):
            logs[0].topics.describe("t")
        assert logs[1].topics.describe("t").partitions == 1, "closed is only who was closed"
        other = ClientConfig(servers, {"client.id": "another"})
        with closing(KafkaCluster(other)) as cluster:
            assert cluster.topics.describe("t").partitions == 1
        assert opened == [ClientConfig(servers), other], "who shows another face to the cluster has another connection"
    with closing(KafkaCluster(servers)) as cluster:
        assert cluster.topics.describe("t").partitions == 1
    assert len(opened) == 3, "nobody had the first one any more"


def test_ten_idle_queues_take_hardly_more_threads_and_descriptors_than_one(servers: str) -> None:
    """In a process of its own, because threads of other tests come and go here. A client's do, too, but only a few."""
    program = f"""
import psutil
from lvq_kafka import LastValueQueue
me, queues = psutil.Process(), []
def taken():
    return me.num_threads(), me.num_fds()
before = taken()
for number in range(10):
    queues.append(LastValueQueue("t", key_header=None, bootstrap_servers={servers!r}))
    assert queues[-1].cluster.topics.describe("t").partitions == 1
    first = taken() if number == 0 else first
for now, one, none in zip(taken(), first, before):
    assert now - none < 2 * (one - none), (now, one, none)
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60)
    assert ran.returncode == 0, ran.stderr


def client_of(asker: AdminRequests, *, harmless: bool) -> AdminClient:
    asked: list[AdminClient] = []

    def ask(client: AdminClient, timeout: float) -> list[Future[None]]:
        asked.append(client)
        answer: Future[None] = Future()
        answer.set_result(None)
        return [answer]

    asker.ask(ask, "ask", time.monotonic() + 10, harmless=harmless)
    [client] = asked
    return client


def test_a_change_which_may_wait_at_a_broker_has_a_connection_of_its_own(servers: str) -> None:
    config = ClientConfig(servers)
    with closing(AdminRequests(config)) as one, closing(AdminRequests(config)) as other:
        asking_client = client_of(one, harmless=True)
        assert client_of(other, harmless=True) is asking_client
        changing = client_of(one, harmless=False)
        assert changing is not asking_client
        assert client_of(other, harmless=False) not in (asking_client, changing)


@contextmanager
def asked_about(servers: str, *groups: str) -> Iterator[KafkaCluster]:
    with closing(KafkaCluster(servers)) as cluster:
        for group in groups:
            cluster.groups.commit(group, "t", {0: Commit(3)})
        yield cluster


def test_a_group_that_is_asked_about_no_more_takes_no_connection(servers: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with closing(KafkaCluster(servers)) as cluster:
        monkeypatch.setattr(offset_fetch, "_IDLE", 0.05)
        for _ in range(2):  # the second time, everything that ended starts again
            assert cluster.groups.committed("g", "t") == {}
            kept = cluster.groups._decided._of("g")
            assert cluster.groups.committed("g", "t") == {}
            eventually(lambda: not cluster.groups._decided._kept)
            assert kept.consumer is None


def test_where_the_system_has_no_more_threads_groups_are_asked_about_all_the_same_and_let_go_of_later(
    servers: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    class NoMore(Thread):
        def start(self) -> None:
            raise RuntimeError("can't start new thread")

    monkeypatch.setattr(offset_fetch, "_housekeeper", offset_fetch._Housekeeper())
    with closing(KafkaCluster(servers)) as cluster:
        monkeypatch.setattr(offset_fetch, "_IDLE", 0.05)
        with monkeypatch.context() as patched:
            patched.setattr(offset_fetch, "Thread", NoMore)
            assert cluster.groups.committed("g", "t") == {}
        assert cluster.groups.committed("g", "t") == {}
        eventually(lambda: not cluster.groups._decided._kept)


def test_groups_that_are_asked_about_in_turn_keep_their_connections(servers: str) -> None:
    with asked_about(servers, "one", "two") as cluster:
        for group in ("one", "two"):
            assert cluster.groups.committed(group, "t", decided=False) == {0: Commit(3)}
        kept = {group: kept.consumer for group, kept in cluster.groups._by_now._kept.items()}
        for group in ("one", "two"):
            assert cluster.groups.committed(group, "t", decided=False) == {0: Commit(3)}
        assert {group: kept.consumer for group, kept in cluster.groups._by_now._kept.items()} == kept
        assert len(kept) == 2
        cluster.close()
        with pytest.raises(Closed):
            cluster.groups.committed("one", "t", decided=False)


def test_a_request_about_a_group_without_an_answer_holds_up_none_about_another(servers: str) -> None:
    with asked_about(servers, "healthy") as cluster:
        sick = cluster.groups._decided._of("sick")
        with sick.lock:
            waiting = Thread(target=lambda: cluster.groups.committed("sick", "t", timeout=10))
            waiting.start()
            assert cluster.groups.committed("healthy", "t", timeout=5) == {0: Commit(3)}
            assert waiting.is_alive()
        waiting.join()
