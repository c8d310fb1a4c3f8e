"""The contract of `lvq_kafka.ports.Log`, on the in-memory log. The same tests run on a real broker."""

from __future__ import annotations

import pytest

from lvq_kafka.ports import Log
from lvq_kafka.testing import MemoryLog
from tests.contract.appending import AppendingContract
from tests.contract.cleaning import CleaningContract
from tests.contract.groups import GroupsContract
from tests.contract.harness import Faults
from tests.contract.outages import Outage, OutagesContract
from tests.contract.reading import ReadingContract
from tests.contract.topics import TopicsContract
from tests.contract.transactions import TransactionsContract


@pytest.fixture
def log() -> Log:
    return MemoryLog()


@pytest.fixture
def another_log() -> Log:
    return MemoryLog()


@pytest.fixture
def faults(log: MemoryLog) -> Faults:
    return log


@pytest.fixture
def outage(log: MemoryLog) -> Outage:
    return log


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
