"""The contract of `lvq_kafka.cluster.Cluster`, on the in-memory cluster. The same tests run on a real broker."""

from __future__ import annotations

import pytest

from lvq_kafka.cluster import Cluster
from lvq_kafka.testing import MemoryCluster
from tests.contract.appending import AppendingContract
from tests.contract.cleaning import CleaningContract
from tests.contract.groups import GroupsContract
from tests.contract.harness import Faults
from tests.contract.outages import Outage, OutagesContract
from tests.contract.reading import ReadingContract
from tests.contract.topics import TopicsContract
from tests.contract.transactions import TransactionsContract


@pytest.fixture
def cluster() -> Cluster:
    return MemoryCluster()


@pytest.fixture
def another_cluster() -> Cluster:
    return MemoryCluster()


@pytest.fixture
def faults(cluster: MemoryCluster) -> Faults:
    return cluster


@pytest.fixture
def outage(cluster: MemoryCluster) -> Outage:
    return cluster


@pytest.fixture
def topic() -> str:
    return "prices"


@pytest.fixture
def group() -> str:
    return "lvq.prices"


class TestAppending(AppendingContract):
    pass


class TestCleaning(CleaningContract):
    pass


class TestGroups(GroupsContract):
    pass


class TestOutages(OutagesContract):
    pass


class TestReading(ReadingContract):
    pass


class TestTopics(TopicsContract):
    pass


class TestTransactions(TransactionsContract):
    pass
