"""One Spark session for all tests, and a queue on the shared broker."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator, Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from typing import TYPE_CHECKING

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import Record
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import local_session
from lvq_spark.scan.task_metrics import logger as tasks_logger
from tests.spark.jars import with_jars
from tests.spark.jvm import end_jvm, stop
from tests.spark.starting import quick_start

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

TIMED_OUT = pytest.StashKey[bool]()

COMPACTED = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}


@pytest.fixture(scope="session", autouse=True)
def quick() -> Iterator[None]:
    """Make everything that Spark starts in these tests start quickly."""
    with pytest.MonkeyPatch.context() as patched:
        for name, value in quick_start(*filter(None, [os.environ.get("PYTHONPATH")])).items():
            patched.setenv(name, value)
        yield


@pytest.fixture(scope="session")
def spark() -> Iterator[SparkSession]:
    """Yield a session with Spark's Kafka connector: two tasks at a time, each with three attempts."""
    session = local_session("local[2,3]", with_jars())
    yield session
    stop(session)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(
    item: pytest.Item, call: pytest.CallInfo[None]
) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """Note that a test has timed out."""
    report = yield
    if call.excinfo is not None and "from pytest-timeout" in str(call.excinfo.value):
        item.stash[TIMED_OUT] = True
    return report


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_teardown(item: pytest.Item) -> None:
    """End the session of a test that timed out: its signal may have interrupted a call to the JVM.

    From then on each answer would be that to an earlier call. All fixtures end with it, so the next test has new ones.
    """
    if item.stash.get(TIMED_OUT, False):
        end_jvm()
        item.session._setupstate.teardown_exact(None)


@pytest.fixture(autouse=True)
def own_log_level() -> Iterator[None]:
    """Restore this process's log level: unpacking an executor's objects here sets it as on an executor."""
    level = tasks_logger.level
    yield
    tasks_logger.setLevel(level)


@pytest.fixture
def make_queue(lvq_cluster: KafkaCluster, lvq_topic: str) -> Callable[..., LastValueQueue[bytes]]:
    """Return a function that creates the test's topic and returns a queue on it."""

    def make(
        partitions: int = 1, key_header: str | None = None, config: Mapping[str, str] | None = None
    ) -> LastValueQueue[bytes]:
        lvq_cluster.topics.create(lvq_topic, partitions=partitions, config={**COMPACTED, **(config or {})})
        return LastValueQueue(lvq_topic, key_header=key_header, cluster=lvq_cluster)

    return make


@pytest.fixture
def uncommitted(lvq_topic: str) -> Callable[[LastValueQueue[bytes]], AbstractContextManager[None]]:
    """Return a context with an open transaction: a record of the key ``a`` in the test's topic, aborted at the end."""

    @contextmanager
    def uncommitted(queue: LastValueQueue[bytes]) -> Iterator[None]:
        writer = queue.cluster.writer(transactional_id=lvq_topic)
        writer.begin_transaction()
        writer.append(lvq_topic, b"a", b"never")
        writer.flush(20)
        yield
        writer.abort_transaction(20)
        writer.close()

    return uncommitted


WAYS = {
    "rebuilt": {"layout.builder.OVERLAY": 0.0},
    "overlaid by the driver": {"layout.builder.OVERLAY": 1000.0},
    "overlaid by Spark": {"layout.builder.OVERLAY": 1000.0, "driver_delta.OFFSETS": 0},
}
"""The ways in which a store applies a delta, and the limits that select them for deltas of any size."""

PARTITIONS_BY_WAY = [
    ("rebuilt", 1),
    ("overlaid by the driver", 3),
    pytest.param("overlaid by Spark", 3, marks=pytest.mark.thorough),
]
"""For tests that go through each way once, with a topic of one partition and of several."""


@pytest.fixture(params=WAYS)
def way(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> str:
    """Return each of the ways in turn."""
    for name, limit in WAYS[request.param].items():
        monkeypatch.setattr(f"lvq_spark.store.{name}", limit)
    return str(request.param)


class Crash(BaseException):
    """A simulated kill of the driver."""


@pytest.fixture
def killed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., AbstractContextManager[None]]:
    """Return a context in which the driver is killed before or after it does something to a file of a store."""
    from lvq_spark.store.storage import LocalStorage

    @contextmanager
    def killed(step: str, where: str, *, after: bool = False) -> Iterator[None]:
        real = getattr(LocalStorage, step)

        def die(storage: LocalStorage, name: str, *args: object) -> object:
            if not name.startswith(where):
                return real(storage, name, *args)
            if after:
                real(storage, name, *args)
            raise Crash

        with monkeypatch.context() as patched:
            patched.setattr(LocalStorage, step, die)
            with pytest.raises(Crash):
                yield

    return killed


@pytest.fixture
def collect() -> Callable[[DataFrame], dict[bytes, Record]]:
    """Return a function that collects a snapshot's rows as records by key, and fails if a key has two."""

    def collect(snapshot: DataFrame) -> dict[bytes, Record]:
        from pyspark.sql import functions as F  # noqa: N812  # as in all of Spark's documentation

        rows = snapshot.withColumn("timestamp", F.unix_millis("timestamp")).collect()
        found = {
            bytes(row.key): Record(
                row.partition,
                row.offset,
                row.timestamp,
                bytes(row.key),
                bytes(row.value),
                tuple((key, None if value is None else bytes(value)) for key, value in row.headers or ()),
            )
            for row in rows
        }
        assert len(found) == len(rows)
        return found

    return collect
