"""Tasks that run out of memory: an error that names slices, whether Python notices or its process dies."""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

import pyarrow as pa
import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import LVQError, TaskOutOfMemory
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.testing import MemoryCluster
from lvq_spark import pin, task_errors
from lvq_spark.scan import scanning
from lvq_spark.scan.latest import Latest
from lvq_spark.scan.scanning import Scan
from lvq_spark.scan.serialization import map_in_arrow
from lvq_spark.scan.shares import Slice
from lvq_spark.session.task_failures import OURS
from lvq_spark.submitting import TASK, _judged

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

CRASHED = "Job aborted: Python worker exited unexpectedly (crashed). Consider setting 'spark...faulthandler.enabled'"


@pytest.fixture
def scan(memory_cluster: MemoryCluster) -> Scan:
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact"})
    memory_cluster.write("t", b"a", b"1")
    return Scan(pin(LastValueQueue("t", key_header=None, cluster=memory_cluster)), ClientConfig("nowhere:1"))


def fail_with(error: type[BaseException]) -> Callable[..., Any]:
    def fail(*_: object, **__: object) -> Any:
        raise error("malloc of size 64 failed")

    return fail


@pytest.mark.parametrize("error", [MemoryError, pa.ArrowMemoryError])
@pytest.mark.parametrize(("where", "what"), [(Latest, "apply"), (scanning, "to_arrow")])
def test_a_task_without_memory_says_how_to_take_less(
    memory_cluster: MemoryCluster,
    scan: Scan,
    monkeypatch: pytest.MonkeyPatch,
    where: object,
    what: str,
    error: type[BaseException],
) -> None:
    monkeypatch.setattr(where, what, fail_with(error))
    with pytest.raises(TaskOutOfMemory, match=r"^The rows of t/0 do not fit into the memory") as failed:
        list(scan.rows_of(memory_cluster, 0))
    assert isinstance(failed.value, MemoryError)
    assert all(word in str(failed.value) for word in ("lvq.slices=4", "more partitions", "memoryOverhead"))
    assert str(pickle.loads(pickle.dumps(failed.value))) == str(failed.value)


def test_a_slice_without_memory_asks_for_more_of_them(
    memory_cluster: MemoryCluster, scan: Scan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Latest, "apply", fail_with(MemoryError))
    sliced = Scan(scan.spec, scan.config, slice=Slice(0, 8))
    with pytest.raises(TaskOutOfMemory, match=r"t/0, slice 1 of 8 do not .*lvq\.slices=16 "):
        list(sliced.rows_of(memory_cluster, 0))


def test_the_error_of_a_task_comes_back_as_itself_and_so_does_that_of_a_job() -> None:
    from pyspark.errors import PySparkException

    said = "A task failed.\nlvq_kafka.errors.TaskOutOfMemory: The rows of t/0 do not fit."
    with pytest.raises(TaskOutOfMemory, match="The rows of t/0 do not fit"), task_errors():
        raise PySparkException(said)
    assert _judged(PySparkException(said)) == (TASK, "TaskOutOfMemory: The rows of t/0 do not fit.")
    code, reason = _judged(PySparkException(CRASHED))
    assert (code, "lvq.slices=4" in reason) == (TASK, True)
    assert _judged(TaskOutOfMemory("Too much."))[0] == TASK


def test_an_error_that_a_task_gave_before_its_worker_died_is_the_one_that_counts() -> None:
    from pyspark.errors import PySparkException

    said = f"{CRASHED}\nlvq_kafka.errors.LVQError: The log is damaged."
    assert OURS.search(said)
    with pytest.raises(LVQError, match="The log is damaged") as failed, task_errors():
        raise PySparkException(said)
    assert not isinstance(failed.value, TaskOutOfMemory)


@pytest.mark.parametrize("signal", ["SIGABRT", "SIGKILL"])
def test_a_worker_that_dies_says_the_same(spark: SparkSession, signal: str) -> None:
    """Kafka's client aborts if it gets no memory, and the kernel kills."""

    def die(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        import os
        import signal as signals

        os.kill(os.getpid(), getattr(signals, signal))
        yield from batches

    with pytest.raises(TaskOutOfMemory, match=r"Python worker of Spark has crashed.*lvq\.slices=4"), task_errors():
        map_in_arrow(spark.range(0, 1, 1, 1), die, "id bigint").collect()
