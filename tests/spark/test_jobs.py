"""The jobs that ``spark-submit`` runs: the effect of their options, and how they end."""

from __future__ import annotations

import importlib.util
import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from datetime import datetime
from pathlib import Path
from types import ModuleType
from typing import TYPE_CHECKING, Any
from unittest.mock import ANY, MagicMock, call

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError, DataLoss, MissingKey, QueueNotDeclared, TopicNotFound
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.kafka_topics import KafkaTopics
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import submitting
from lvq_spark.schema import SNAPSHOT_COLUMNS
from lvq_spark.store import read_version
from lvq_spark.submitting import EXIT_CODES, main
from lvq_spark.writing.publishing import Published
from tests.spark.cluster import JOBS

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
NAMES = ["merge", "publish", "refresh", "snapshot"]


def job(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"job_{name}", JOBS / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def run(name: str, spark: SparkSession, queue: LastValueQueue[Any], *arguments: str | Path) -> dict[str, Any]:
    """Run the job in a session that stays open, and return what it would print."""
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
    assert {int(p): offset for p, offset in result["end"].items()} == queue.cluster.logs.end_offsets(queue.topic)
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
    for columns, message in (
        ("ofset", r"no column ofset\. Did you mean offset\?"),
        ("key,key", "twice"),
        ("", "no column"),
    ):
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
        queue.cluster.topics.delete(queue.topic)  # any request for it fails from here
        with pytest.raises(
            ConfigError, match=rf"{target} already exists\. --mode overwrite .*, --mode append"
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


def test_a_store_is_refreshed_from_what_is_new(spark: SparkSession, make_queue: MakeQueue, tmp_path: Path) -> None:
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
    second = run("refresh", spark, queue, "--store", store)
    assert (second["version"], second["kind"], second["rows"]) == (2, "delta", 9)
    assert values(read_version(spark, str(store))) == {
        **{f"k{n}": "1" for n in range(10) if n != 2},
        "k1": "2",
    }


# -- the effect of options ---------------------------------------------------------------------------------------------


def chain() -> MagicMock:
    """Return a Spark reader or writer whose every method returns itself."""
    found = MagicMock()
    for method in ("format", "foreachBatch", "mode", "option", "queryName", "trigger"):
        getattr(found, method).return_value = found
    return found


def told(module: ModuleType, spark: MagicMock, *arguments: str, properties: Mapping[str, str] | None = None) -> None:
    """Let a job work on a topic of two partitions, without Spark or Kafka."""
    cluster = MagicMock(
        spec=KafkaCluster, config=ClientConfig("broker:9092", properties or {}), topics=MagicMock(spec=KafkaTopics)
    )
    cluster.topics.describe.return_value.partitions = 2
    queue: LastValueQueue[Any] = LastValueQueue("prices", key_header=None, cluster=cluster)
    module.work(spark, queue, module.parser().parse_args(["prices", "--bare", *arguments]))


@pytest.mark.parametrize(
    ("flags", "cut", "read", "mode"),
    [
        ("", {}, {}, "error"),
        ("--group billing", {"group": "billing"}, {}, "error"),
        ("--as-of 2026-11-22", {"as_of": datetime(2026, 11, 22)}, {}, "error"),
        ("--as-of-policy warn", {"as_of_policy": "warn"}, {}, "error"),
        ("--columns key,offset", {}, {"columns": ("key", "offset")}, "error"),
        ("--consistency atleast", {}, {"consistency": "atleast"}, "error"),
        ("--slices 4", {}, {"slices": 4}, "error"),
        ("--selector size>1", {}, {"selector": "size>1"}, "error"),
        ("--mode append", {}, {}, "append"),
        ("--mode overwrite", {}, {}, "overwrite"),
    ],
)
def test_the_options_of_a_snapshot_go_to_its_cut_its_reader_or_its_writer(
    monkeypatch: pytest.MonkeyPatch, flags: str, cut: dict[str, Any], read: dict[str, Any], mode: str
) -> None:
    module, spark, writer = job("snapshot"), MagicMock(), chain()
    for name in ("Observation", "functions.count", "functions.lit"):
        monkeypatch.setattr(f"pyspark.sql.{name}", MagicMock())  # the real ones need a session
    monkeypatch.setattr(module, "pin", MagicMock())
    monkeypatch.setattr(module, "snapshot", MagicMock())
    module.snapshot.return_value.observe.return_value.write = writer
    spark.catalog.tableExists.return_value = False
    told(module, spark, "--table", "lake.prices", "--format", "orc", *flags.split())
    assert module.pin.call_args.kwargs == {"as_of": None, "as_of_policy": "fail", "group": None, **cut}
    spec = module.pin.return_value
    usual = {"spec": spec, "consistency": "pinned", "slices": 1, "selector": None}
    expected = {"columns": SNAPSHOT_COLUMNS, **usual, **read}
    assert module.snapshot.call_args.kwargs == expected
    assert writer.method_calls == [call.format("orc"), call.mode(mode), call.saveAsTable("lake.prices")]


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ("", {}),
        ("--on-stale fail", {"on_stale": "fail"}),
        ("--consistency atleast", {"consistency": "atleast"}),
        ("--keep 7", {"keep": 7}),
        ("--grace 1.5", {"grace": 1.5}),
        ("--slices 4", {"slices": 4}),
    ],
)
def test_the_options_of_a_refresh_go_to_it(monkeypatch: pytest.MonkeyPatch, flags: str, given: dict[str, Any]) -> None:
    module, spark = job("refresh"), MagicMock()
    monkeypatch.setattr(module, "refresh", MagicMock())
    told(module, spark, "--store", "/store", *flags.split())
    expected = {"on_stale": "rebuild", "consistency": "pinned", "slices": 1, "keep": 3, "grace": 3600.0, **given}
    module.refresh.assert_called_once_with(spark, ANY, "/store", **expected)


@pytest.mark.parametrize(
    ("flags", "given"),
    [("", {}), ("--on-stale fail", {"on_stale": "fail"}), ("--consistency atleast", {"consistency": "atleast"})],
)
def test_the_options_of_a_merge_go_to_it(monkeypatch: pytest.MonkeyPatch, flags: str, given: dict[str, Any]) -> None:
    module, spark = job("merge"), MagicMock()
    monkeypatch.setattr(module, "merge", MagicMock())
    told(module, spark, "--table", "lake.prices", *flags.split())
    expected = {"on_stale": "rebuild", "consistency": "pinned", "slices": 1, **given}
    module.merge.assert_called_once_with(spark, ANY, "lake.prices", **expected)


def test_a_refresh_may_go_on_until_it_is_stopped(monkeypatch: pytest.MonkeyPatch) -> None:
    module, pauses = job("refresh"), list[float]()

    def sleep(seconds: float) -> None:
        pauses.append(seconds)
        if len(pauses) >= 3:
            raise KeyboardInterrupt

    monkeypatch.setattr(module, "refresh", MagicMock())
    monkeypatch.setattr(module, "time", MagicMock(sleep=sleep))  # other threads sleep, too
    with pytest.raises(KeyboardInterrupt):
        told(module, MagicMock(), "--store", "/store", "--every", "1.5")
    assert pauses == [1.5] * 3
    assert module.refresh.call_count == 3


@pytest.mark.parametrize(
    ("flags", "given"),
    [
        ("", {}),
        ("--key ticker", {"key": "ticker"}),
        ("--value price", {"value": "price"}),
        ("--headers extra", {"headers": "extra"}),
        ("--newest at", {"newest": "at"}),
        ("--vanished delete", {"vanished": "delete"}),
        ("--ttl life", {"ttl": "life"}),
        ("--not-before due", {"not_before": "due"}),
        ("--priority urgency", {"priority": "urgency"}),
        ("--sort due", {"sort": "due"}),
        ("--group customer", {"group": "customer"}),
    ],
)
def test_the_options_of_a_publication_go_to_it(
    monkeypatch: pytest.MonkeyPatch, flags: str, given: dict[str, Any]
) -> None:
    module, spark = job("publish"), MagicMock()
    monkeypatch.setattr(module, "publish", MagicMock(return_value=Published()))
    told(module, spark, "--table", "gold.prices", *flags.split())
    spark.table.assert_called_once_with("gold.prices")
    expected = {
        "key": "key",
        "value": "value",
        "headers": None,
        "newest": None,
        "ttl": None,
        "not_before": None,
        "priority": None,
        "sort": None,
        "group": None,
        "vanished": "keep",
        **given,
    }
    module.publish.assert_called_once_with(spark.table.return_value, ANY, **expected)


# -- how they end ------------------------------------------------------------------------------------------------------


def ended(capsys: pytest.CaptureFixture[str], name: str, *arguments: str) -> tuple[int, str]:
    """Return the exit code and the last line; without a result, standard output stays empty."""
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


def test_a_mistake_found_before_spark_starts_ends_with_its_exit_code(
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
    assert judged(Py4JError(java.format("SerializationException: what is it?"))) == (
        6,
        "org.apache.spark.SparkException: Job aborted.",
    )
    assert judged(ZeroDivisionError("division by zero")) == (70, "division by zero")


def test_a_fault_shows_where_it_was(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, lvq_cluster: KafkaCluster
) -> None:
    def broken(*_: Any) -> None:
        raise ZeroDivisionError("division by zero")

    monkeypatch.setattr(submitting, "_run", broken)
    with pytest.raises(SystemExit) as end:
        main(job("refresh").parser(), lambda *_: {}, ["prices", "--store", "/nowhere"])
    assert end.value.code == 70
    assert "in broken" in capsys.readouterr().err
