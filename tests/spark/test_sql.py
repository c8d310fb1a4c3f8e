"""The format ``lvq`` in SQL: tables and views, and the errors for writers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_spark import register, task_errors

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Sql = Callable[[str], list[Any]]


@pytest.fixture
def table(lvq_topic: str) -> str:
    """Return a name for the test's table."""
    return f"t_{lvq_topic.replace('-', '_')}"


@pytest.fixture
def sql(spark: SparkSession, lvq_broker: ProvidedBroker, lvq_topic: str, table: str) -> Iterator[Sql]:
    """Yield a function that runs a statement, with ``{options}`` for the test's topic, and returns the first column."""
    register(spark)
    options = f"`kafka.bootstrap.servers` '{lvq_broker.bootstrap_servers}', subscribe '{lvq_topic}'"

    def run(statement: str) -> list[Any]:
        return [row[0] for row in spark.sql(statement.format(table=table, options=options)).collect()]

    yield run
    register(spark)
    spark.sql(f"DROP TABLE IF EXISTS {table}")
    for view in (f"{table}_view", f"{table}_using"):
        spark.catalog.dropTempView(view)


def put(queue: LastValueQueue[bytes], *keys: str) -> None:
    with queue.producer() as producer:
        for key in keys:
            producer.put(key, b"1")


COUNT = "SELECT count(*) FROM {table}"


def test_each_query_on_a_table_or_a_view_of_it_has_a_cut_of_its_own(make_queue: MakeQueue, sql: Sql) -> None:
    queue = make_queue(2)
    put(queue, "a", "b", "c")
    sql("CREATE TABLE {table} USING lvq OPTIONS ({options}, includeHeaders 'true') COMMENT 'x' TBLPROPERTIES (a='b')")
    sql("CREATE TEMPORARY VIEW {table}_view AS SELECT string(key) AS key, headers FROM {table}")
    assert sql(COUNT) == sql("SELECT count(*) FROM {table}_view") == [3]
    put(queue, "d", "e")
    assert sql(COUNT) == sql("SELECT count(*) FROM {table}_view") == [5]
    assert sorted(sql("SELECT string(key) FROM {table} WITH (`lvq.keys` = 'a,e')")) == ["a", "e"]


def test_a_table_may_lie_anywhere_and_be_streamed(
    spark: SparkSession, make_queue: MakeQueue, sql: Sql, table: str, tmp_path: Path
) -> None:
    queue = make_queue()
    put(queue, "a", "b")
    sql(f"CREATE TABLE {{table}} USING lvq OPTIONS ({{options}}) LOCATION '{tmp_path}/nothing lies here'")
    assert sql(COUNT) == [2]
    seen: list[int] = []
    query = (
        spark.readStream.table(table)
        .writeStream.foreachBatch(lambda batch, _: seen.append(batch.count()))
        .option("checkpointLocation", str(tmp_path / "checkpoint"))
        .trigger(availableNow=True)
        .start()
    )
    assert query.awaitTermination(120)
    assert seen == [2]


def test_a_table_holds_no_secret_and_takes_it_from_the_session(
    spark: SparkSession, make_queue: MakeQueue, sql: Sql, lvq_broker: ProvidedBroker, lvq_topic: str
) -> None:
    put(make_queue(), "a")
    with (
        pytest.raises(ConfigError, match=r"would show kafka\.sasl\.password .* register\(spark, \{") as error,
        task_errors(),
    ):
        sql("CREATE TABLE {table} USING lvq OPTIONS ({options}, `kafka.sasl.password` 'hunter2')")
    assert "hunter2" not in str(error.value)
    register(spark, {"kafka.bootstrap.servers": lvq_broker.bootstrap_servers, "kafka.sasl.password": "hunter2"})
    sql(f"CREATE TABLE {{table}} USING lvq OPTIONS (subscribe '{lvq_topic}')")
    assert sql(COUNT) == [1]
    shown = sql("EXPLAIN EXTENDED SELECT * FROM {table}") + sql("DESCRIBE EXTENDED {table}")
    assert "hunter2" not in f"{shown}"


def test_a_table_with_columns_of_its_own_is_told_that_spark_keeps_its_options_to_itself(
    make_queue: MakeQueue, sql: Sql
) -> None:
    make_queue()
    sql("CREATE TABLE {table} (key BINARY) USING lvq OPTIONS ({options})")
    with pytest.raises(ConfigError, match=r"no options.*Create it without columns"), task_errors():
        sql(COUNT)


def test_a_temporary_view_of_the_format_keeps_the_cut_of_its_first_query(make_queue: MakeQueue, sql: Sql) -> None:
    """Spark 4.1 to 4.3 plan a Python source once per view or frame. A reader without its cut says so (`Scan`)."""
    queue = make_queue()
    put(queue, "a", "b")
    sql("CREATE TEMPORARY VIEW {table}_using USING lvq OPTIONS ({options})")
    assert sql("SELECT count(*) FROM {table}_using") == [2]
    put(queue, "c")
    assert sql("REFRESH TABLE {table}_using") == []
    assert sql("SELECT count(*) FROM {table}_using") == [2]


def test_a_write_by_the_format_is_refused_with_the_function_that_publishes(spark: SparkSession, tmp_path: Path) -> None:
    register(spark)
    said, options = r"does not write.*lvq_spark\.publish\(frame, queue\).*foreachBatch", {"topic": "prices"}
    rows = spark.range(1).selectExpr("string(id) AS key", "string(id) AS value")
    with pytest.raises(ConfigError, match=said), task_errors():
        rows.write.format("lvq").mode("append").options(**options).save()
    stream = spark.readStream.format("rate").load().selectExpr("string(value) AS key", "string(value) AS value")
    query = stream.writeStream.format("lvq").options(**options).option("checkpointLocation", str(tmp_path)).start()
    with pytest.raises(ConfigError, match=said), task_errors():
        query.awaitTermination(120)
