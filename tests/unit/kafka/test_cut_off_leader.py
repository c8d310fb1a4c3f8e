"""A leader that is cut off from the other brokers, and does not know that there is a new one."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager

import pytest

from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import KafkaCluster
from tests.fake_broker import FakeLeaders

OLD, NEW, BYSTANDER = 1, 2, 3
PATIENCE = 100.0  # seconds: the client chooses by chance whom it asks, and again after a second


@contextmanager
def elected(before: Mapping[int, int], after: Mapping[int, int], nodes: int = 3) -> Iterator[FakeLeaders]:
    """Yield a cluster whose first node was cut off before these leaders were elected."""
    with FakeLeaders(after, nodes=nodes) as leaders:
        leaders.cut_off[OLD] = before
        leaders.ends.update({OLD: 10, NEW: 83, BYSTANDER: 47})
        yield leaders


def test_g1_the_end_of_a_log_comes_from_the_leader_that_others_know() -> None:
    """The only broker that the client knows at first is the one that is cut off."""
    with elected({0: OLD}, {0: NEW}) as leaders:
        address = leaders.bootstrap_servers.partition(",")[0]
        for servers in (address, leaders.bootstrap_servers):
            with closing(KafkaCluster(servers)) as cluster:
                for stable in (False, True):
                    assert cluster.logs.end_offsets("t", partitions=1, stable=stable, timeout=PATIENCE) == {0: 83}
        assert set(leaders.asked) == {NEW}


def test_g1_the_ends_of_partitions_that_all_brokers_lead_come_from_what_others_know() -> None:
    with (
        elected({0: OLD, 1: NEW, 2: BYSTANDER}, {0: BYSTANDER, 1: NEW, 2: BYSTANDER}) as leaders,
        closing(KafkaCluster(leaders.bootstrap_servers)) as cluster,
    ):
        assert cluster.logs.end_offsets("t", partitions=3, timeout=PATIENCE) == {0: 47, 1: 83, 2: 47}


def test_a_leader_that_all_others_know_is_asked_once() -> None:
    with (
        elected({0: OLD, 1: NEW}, {0: OLD, 1: NEW}) as leaders,
        closing(KafkaCluster(leaders.bootstrap_servers)) as cluster,
    ):
        for _ in range(3):
            assert cluster.logs.end_offsets("t", partitions=2, timeout=PATIENCE) == {0: 10, 1: 83}
        assert sorted(leaders.asked) == [OLD] * 3 + [NEW] * 3


def test_a_broker_that_has_no_others_is_believed() -> None:
    with elected({0: OLD}, {0: OLD}, nodes=1) as leaders, closing(KafkaCluster(leaders.bootstrap_servers)) as cluster:
        assert cluster.logs.end_offsets("t", partitions=1, timeout=PATIENCE) == {0: 10}


def test_g5_a_leader_of_whom_no_other_broker_speaks_is_not_believed() -> None:
    with elected({0: OLD}, {0: OLD}) as leaders, closing(KafkaCluster(leaders.bootstrap_servers)) as cluster:
        leaders.stop(NEW)
        leaders.stop(BYSTANDER)
        with pytest.raises(TransportError, match="no broker but the leader says so") as caught:
            cluster.logs.end_offsets("t", partitions=1, timeout=1.0)
        assert caught.value.retriable
