"""Looking whether a log was truncated, on librdkafka's mock cluster, while brokers are gone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from lvq_kafka.cluster import LogEnd
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import BrokerUnavailable, Unauthorized
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.kafka.reader import MessagePump
from tests.unit.kafka.mock_cluster import MockCluster
from tests.waiting import eventually

NOBODY = BrokerUnavailable("No answer from 127.0.0.1:1.", code="_ALL_BROKERS_DOWN", retriable=True)


@pytest.fixture
def cluster(mock: MockCluster) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(mock.bootstrap_servers)
    writer = cluster.writer()
    eventually(lambda: writer.append("t", b"k", b"v").exception(10) is None)
    writer.close()
    yield cluster
    cluster.close()


def failing(monkeypatch: pytest.MonkeyPatch, error: Exception, times: float) -> None:
    """Make the first polls fail, as they do while a new client knows of no other broker than one that is gone."""
    poll, left = MessagePump.poll, times

    def first_fail(self: MessagePump, timeout: float) -> Fetch:
        nonlocal left
        left -= 1
        if left >= 0:
            raise error
        return poll(self, timeout)

    monkeypatch.setattr(MessagePump, "poll", first_fail)


def test_r18_a_look_for_truncation_goes_on_when_the_first_broker_that_it_asks_is_gone(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    failing(monkeypatch, NOBODY, 3)
    assert cluster.logs.overwritten("t", {0: LogEnd(1, 0)}, timeout=60) == {}


@pytest.mark.parametrize(
    ("error", "timeout"),
    [(NOBODY, 0.5), (Unauthorized("Not allowed.", code="TOPIC_AUTHORIZATION_FAILED"), 60)],
    ids=["no answer in time", "refused"],
)
def test_r18_a_look_for_truncation_raises_the_last_error(
    cluster: KafkaCluster, monkeypatch: pytest.MonkeyPatch, error: Any, timeout: float
) -> None:
    failing(monkeypatch, error, float("inf"))
    with pytest.raises(type(error)) as caught:
        cluster.logs.overwritten("t", {0: LogEnd(1, 0)}, timeout=timeout)
    assert caught.value is error
