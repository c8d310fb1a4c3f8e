"""Commits of groups: reading them, and committing for a group without members."""

from __future__ import annotations

from contextlib import closing

import pytest
from confluent_kafka import TopicPartition

from lvq_kafka.cluster import Commit, TopicDescription
from lvq_kafka.errors import BrokerUnavailable, TransportError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.kafka.admin_requests import AdminRequests
from tests.unit.kafka.mock_cluster import OFFSET_COMMIT, OFFSET_FETCH, MockCluster


def test_a_request_queued_after_unanswered_ones_waits_no_longer_than_asked_to() -> None:
    with closing(KafkaCluster("127.0.0.1:1")) as cluster:
        cluster.groups._metadata.describe = lambda topic, deadline: TopicDescription(topic, "id", 1, 1)  # type: ignore[method-assign]
        with (
            cluster.groups._decided._of("g").lock,
            pytest.raises(BrokerUnavailable, match="earlier requests are still waiting") as caught,
        ):
            cluster.groups.committed("g", "t", timeout=0.05)
        assert caught.value.retriable


def test_a_coordinator_that_was_late_is_not_taken_for_one_that_waits_for_a_transaction() -> None:
    with closing(MockCluster()) as mock, closing(KafkaCluster(mock.bootstrap_servers)) as cluster:
        mock.create_topic("t")
        cluster.groups.commit("g", "t", {0: Commit(7)})
        assert cluster.groups.committed("g", "t") == {0: Commit(7)}
        mock.delay_next(OFFSET_FETCH, 2)
        with pytest.raises(BrokerUnavailable) as caught:
            cluster.groups.committed("g", "t", timeout=0.5)
        assert caught.value.retriable
        assert cluster.groups.committed("g", "t") == {0: Commit(7)}


def test_the_right_to_commit_is_checked_again_where_no_answer_comes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The first group of a cluster finds its coordinator only after the offsets topic has been created."""
    monkeypatch.setattr(AdminRequests, "_ATTEMPT", 0.2)
    with closing(MockCluster()) as mock, closing(KafkaCluster(mock.bootstrap_servers)) as cluster:
        mock.create_topic("t")
        mock.delay_next(OFFSET_COMMIT, 5)
        cluster.groups.check_may_commit("g", "t", timeout=4)
        assert cluster.groups.committed("g", "t") == {}


def test_a_commit_that_is_not_there_when_it_is_read_back_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    """A coordinator can accept the commit of one partition and answer for all."""
    with closing(MockCluster()) as mock, closing(KafkaCluster(mock.bootstrap_servers)) as cluster:
        mock.create_topic("t", 3)
        commits = dict.fromkeys(range(3), Commit(7))
        stored = [TopicPartition("t", partition, 6 if partition == 1 else 7) for partition in commits]
        monkeypatch.setattr(cluster.groups._by_now, "fetch", lambda *asked: stored)
        with pytest.raises(TransportError, match=r"does not hold what was committed for partitions \[1\]") as caught:
            cluster.groups.commit("g", "t", commits)
        assert caught.value.retriable
        monkeypatch.undo()
        cluster.groups.commit("g", "t", commits)
        assert cluster.groups.committed("g", "t") == commits
