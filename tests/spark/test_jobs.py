"""The jobs that ``spark-submit`` runs: what they do with their options, and how they end."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError, DataLoss, MissingKey, QueueNotDeclared, TopicNotFound
from lvq_kafka.kafka import KafkaLog
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import submitting
from lvq_spark.store import read_version
from lvq_spark.submitting import EXIT_CODES, main
from tests.spark.cluster import JOBS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

pytestmark = pytest.mark.timeout(300)  # the first test starts the JVM, which takes its time on a busy machine

MakeQueue = Callable[..., LastValueQueue[bytes]]
NAMES = ["merge", "publish", "refresh", "snapshot", "stream"]


def job(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"job_{name}", JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, spark: SparkSession, queue: LastValueQueue[Any], *arguments: str | Path) -> dict[str, Any]:
    """What the job does in a session that goes on to be used, and what it would print."""
    module = job(name)
    options = module.parser().parse_args([queue.topic, "--bare", *map(str, arguments)])
    printed: dict[str, Any] = json.loads(json.dumps(module.work(spark, queue, options)))
    return printed


def values(rows: DataFrame) -> dict[str, str]:
    return {bytes(row.key).decode(): bytes(row.value).decode() for row in rows.collect()}


def test_a_snapshot_is_written_with_the_offsets_it_was_cut_at(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(partitions=2)
    with queue.producer() as producer:
        for n in range(9):
            producer.put(f"k{n % 6}", b"%d" % n)
        producer.delete("k0")
    result = run("snapshot", spark, queue, "--output", tmp_path / "out", "--files", "1")
    assert result["rows"] == 5
    assert {int(p): offset for p, offset in result["end"].items()} == queue.log.end_offsets(queue.topic)
    assert values(spark.read.parquet(str(tmp_path / "out"))) == {"k1": "7", "k2": "8", "k3": "3", "k4": "4", "k5": "5"}
    assert len(list((tmp_path / "out").glob("*.parquet"))) == 1
    past = ["--as-of", "2020-01-01T00:00:00Z", "--mode", "overwrite"]
    with pytest.raises(ConfigError, match=r"min\.compaction\.lag\.ms"):
        run("snapshot", spark, queue, "--output", tmp_path / "out", *past)
    with pytest.warns(UserWarning, match=r"min\.compaction\.lag\.ms"):
        run("snapshot", spark, queue, "--output", tmp_path / "out", *past, "--as-of-policy", "warn")
    assert values(spark.read.parquet(str(tmp_path / "out"))) == {}


def test_a_snapshot_has_the_columns_that_are_asked_for(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        producer.put("a", b"1")
    result = run("snapshot", spark, queue, "--output", tmp_path / "out", "--columns", "offset, key")
    assert result["rows"] == 1
    written = spark.read.parquet(str(tmp_path / "out"))
    assert written.columns == ["offset", "key"]
    assert written.collect() == [(0, b"a")]
    for columns, message in (("ofset", r"no column ofset\. Is it offset\?"), ("key,key", "twice"), ("", "no column")):
        with pytest.raises(SystemExit) as end:
            run("snapshot", spark, queue, "--output", tmp_path / "never", "--columns", columns)
        assert end.value.code == 2
        assert re.search(message, capsys.readouterr().err)


@pytest.mark.parametrize("option", ["--output", "--table"])
def test_a_snapshot_that_would_replace_something_ends_before_anything_is_read(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, option: str
) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        producer.put("a", b"1")
    spark.sql(f"CREATE DATABASE lvq_jobs LOCATION '{tmp_path}/tables'")
    target = {"--output": str(tmp_path / "out"), "--table": "lvq_jobs.out"}[option]
    try:
        assert run("snapshot", spark, queue, option, target)["rows"] == 1
        queue.log.delete_topic(queue.topic)  # who asks for it from now on has an error
        with pytest.raises(
            ConfigError, match=rf"{target} is there already\. --mode overwrite .*, --mode append"
        ) as error:
            run("snapshot", spark, queue, option, target)
        assert error.value.options == (option,)
        with pytest.raises(TopicNotFound):
            run("snapshot", spark, queue, option, target, "--mode", "overwrite")
    finally:
        spark.sql("DROP DATABASE lvq_jobs CASCADE")


def test_a_query_over_files_is_published(spark: SparkSession, make_queue: MakeQueue, tmp_path: Path) -> None:
    queue = make_queue()
    with queue.producer() as producer:
        producer.put("gone", b"old")
    rows = spark.createDataFrame(
        [("IBM", 118.5, 1), ("IBM", 119.0, 2), ("SAP", 90.0, 1)], "ticker string, price double, at int"
    )
    rows.write.json(str(tmp_path / "in"))
    query = "SELECT ticker, cast(price AS string) AS price, at FROM input"
    columns = ["--key", "ticker", "--value", "price", "--newest", "at"]
    files = ["--input", tmp_path / "in", "--format", "json"]
    result = run("publish", spark, queue, *files, "--query", query, *columns, "--vanished", "delete")
    assert (result["written"], result["deleted"], result["vanished"], result["ends"]) == (2, 0, 1, {"0": 4})
    with queue.view() as view:
        assert dict(view) == {"IBM": b"119.0", "SAP": b"90.0"}


def test_a_store_is_refreshed_and_the_stream_goes_on_from_it(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(partitions=2, key_header="ticker")
    store = tmp_path / "store"
    with queue.producer() as producer:
        for n in range(10):
            producer.put(f"k{n}", b"1")
    first = run("refresh", spark, queue, "--store", store)
    assert (first["version"], first["kind"], first["rows"], first["reasons"]) == (1, "full", 10, [])
    assert run("refresh", spark, queue, "--store", store)["version"] == 1, "where nothing is new it does nothing"
    with queue.producer() as producer:
        producer.put("k1", b"2")
        producer.delete("k2")
    once = ["--store", store, "--checkpoint", tmp_path / "checkpoint", "--once"]
    second = run("stream", spark, queue, *once)
    assert (second["version"], second["rows"]) == (2, 9)
    with queue.producer() as producer:
        producer.put("new", b"1")
    third = run("stream", spark, queue, *once)
    assert third["version"] == 3
    assert values(read_version(spark, str(store))) == {
        **{f"k{n}": "1" for n in range(10) if n != 2},
        "k1": "2",
        "new": "1",
    }
    last = run("refresh", spark, queue, "--store", store)
    assert last["version"] in (3, 4), "at most the offsets have moved"
    assert last["rows"] == 10


@pytest.mark.parametrize("has_checkpoint", [True, False])
def test_a_stream_goes_on_when_partitions_are_added(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, has_checkpoint: bool
) -> None:
    """By now there are keys in partitions that were their home once, and the store has rows of two partitions."""
    queue, keys = make_queue(partitions=2), [f"k{n}" for n in range(20)]
    once = ["--store", tmp_path / "store", "--checkpoint", tmp_path / "checkpoint", "--once"]

    def put(value: bytes) -> None:
        with queue.producer() as producer:
            for key in keys:
                producer.put(key, value)

    put(b"1")
    if has_checkpoint:
        run("stream", spark, queue, *once)
        put(b"2")
    else:
        run("refresh", spark, queue, *once[:2])
    queue.log.add_partitions(queue.topic, 5)
    put(b"3")
    for value in ("3", "4"):
        assert run("stream", spark, queue, *once)["rows"] == 20
        assert values(read_version(spark, str(tmp_path / "store"))) == dict.fromkeys(keys, value)
        put(b"4")


# -- how they end ------------------------------------------------------------------------------------------------------


def ended(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> tuple[int, str]:
    """The exit code, and the last line; nothing goes to standard output where there is no result."""
    with pytest.raises(SystemExit) as end:
        main(job(name).parser(), lambda *_: {}, arguments)
    captured = capsys.readouterr()
    assert captured.out == ""
    assert isinstance(end.value.code, int)
    return end.value.code, captured.err.splitlines()[-1]


@pytest.mark.parametrize("name", NAMES)
def test_the_help_has_examples_and_exit_codes_and_needs_no_session(name: str) -> None:
    said = subprocess.run([sys.executable, JOBS / f"{name}.py", "--help"], capture_output=True, text=True, timeout=60)
    assert said.returncode == 0, said.stderr
    assert f"spark-submit {name}.py prices" in said.stdout
    for code, meaning in EXIT_CODES.items():
        assert f"  {code:<4}{meaning}" in said.stdout
    assert "password" not in " ".join(part for part in said.stdout.split() if part.startswith("--"))


def test_what_is_wrong_before_spark_starts_ends_with_its_code(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    for variable in ("LVQ_CONFIG", "LVQ_BOOTSTRAP_SERVERS"):
        monkeypatch.delenv(variable, raising=False)
    code, line = ended(capsys, "refresh", "prices", "--store", "/nowhere")
    assert (code, "LVQ_BOOTSTRAP_SERVERS" in line) == (2, True)
    code, line = ended(capsys, "refresh", "prices", "--store", "/nowhere", "--key-header", "x")
    assert (code, "--bare" in line) == (2, True)
    code, line = ended(capsys, "refresh", "prices", "--store", "/nowhere", "--config", str(tmp_path / "missing"))
    assert (code, "missing: No such file" in line) == (2, True)
    (tmp_path / "client.properties").write_text("bootstrap.servers = nowhere:1\nsasl.password = hunter2\n")
    servers = lvq_broker.bootstrap_servers
    options = ["--store", "/nowhere", "--config", str(tmp_path / "client.properties"), "-b", servers]
    code, line = ended(capsys, "refresh", "never-declared", *options)
    assert (code, line.startswith("pytest: ") or "never-declared" in line) == (4, True)
    assert "hunter2" not in line


def test_errors_have_the_exit_codes_of_the_command_line_wherever_they_come_from() -> None:
    from py4j.protocol import Py4JError  # type: ignore[import-untyped]
    from pyspark.errors import AnalysisException, IllegalArgumentException, PythonException

    def judged(error: BaseException) -> tuple[int, str]:
        return submitting._judged(error)

    assert judged(ConfigError("wrong", options=["x"], hint="Do.")) == (2, "wrong Do.")
    assert judged(TopicNotFound("gone", topic="t")) == (4, "gone")
    assert judged(QueueNotDeclared("gone", queue="q"))[0] == 4
    assert judged(MissingKey("none"))[0] == 5
    assert judged(AnalysisException("[PATH_ALREADY_EXISTS] it is there"))[0] == 2
    text = f"An exception was thrown\n  File x\nlvq_kafka.errors.{DataLoss.__name__}: 3 keys are gone. Raise it.\n"
    assert judged(PythonException(text)) == (5, "DataLoss: 3 keys are gone. Raise it.")
    raised = (
        "[USER_RAISED_EXCEPTION] lvq_kafka.errors.KeyMismatch: Key and header disagree. SQLSTATE: P0001\n\tat of.Java"
    )
    assert judged(Py4JError(f"An error occurred.\n: Job aborted.\nCaused by: {raised}")) == (
        5,
        "KeyMismatch: Key and header disagree.",
    )
    assert judged(IllegalArgumentException("Number of partitions (0) must be positive."))[0] == 2
    assert judged(Py4JError("An error occurred.\n: x: [DATA_SOURCE_NOT_FOUND] Failed to find: nosuch."))[0] == 2
    assert judged(PythonException("An exception\nImportError: it lacks a package\n")) == (
        6,
        "ImportError: it lacks a package",
    )
    java = (
        "An error occurred while calling o1.save.\n: org.apache.spark.SparkException: Job aborted.\n"
        "Caused by: org.apache.kafka.common.errors.{}\n\tat java.base/of.Java(1)"
    )
    code, line = judged(Py4JError(java.format("TopicAuthorizationException: Not authorized to access topics: [t]")))
    assert code == 3
    assert "connector has failed: TopicAuthorizationException: Not authorized to access topics: [t]. Ask" in line
    assert judged(Py4JError(java.format("UnknownTopicOrPartitionException: It hosts none.")))[0] == 4
    other = (
        "An error occurred.\n: java.lang.NoSuchFieldError: TASK_ID\n\tat org.apache.spark.sql.kafka010.consumer.K.get"
    )
    code, line = judged(Py4JError(other))
    assert (code, "TASK_ID. It is of another Spark version: take yours, --packages" in line) == (2, True)
    assert judged(Py4JError(java.format("SerializationException: what is it?"))) == (
        6,
        "org.apache.spark.SparkException: Job aborted.",
    )
    assert judged(ZeroDivisionError("division by zero")) == (70, "division by zero")


def test_a_fault_shows_where_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lvq_log: KafkaLog
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(submitting, "_run", broken)
    with pytest.raises(SystemExit) as end:
        main(job("refresh").parser(), lambda *_: {}, ["prices", "--store", "/nowhere"])
    assert end.value.code == 70
    assert "in broken" in capsys.readouterr().err
