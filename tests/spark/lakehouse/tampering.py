"""Tables that others have created, extended or changed, and random histories in which they do.

This is not named as a test module: `tests/spark/test_lakehouse.py` runs it, in a Python with a Spark that both formats
support.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import ConfigError, DataLoss
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import snapshot
from lvq_spark.store import Version
from lvq_spark.store.layout.layers import STORED
from lvq_spark.store.manifest import encode
from lvq_spark.store.merged_table import MergedTable, read_merged
from lvq_spark.store.merging import merge
from tests.spark.lakehouse.formats import Delta, Format, Iceberg
from tests.spark.lakehouse.histories import History
from tests.spark.lakehouse.merging import roles, two_at_once
from tests.spark.test_store_refresh import append, values

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]


@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_a_first_merge_needs_an_isolation_that_lets_one_pass_and_later_ones_do_not(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def isolated(level: str) -> None:
        spark.sql(f"ALTER TABLE {table} SET TBLPROPERTIES ('write.merge.isolation-level'='{level}')")

    queue = make_queue()
    append(queue, ("a", "1"), ("b", "1"))
    spark.sql(f"CREATE TABLE {table} ({STORED}) USING iceberg TBLPROPERTIES ('write.merge.mode'='merge-on-read')")
    isolated("snapshot")
    with pytest.raises(ConfigError, match=r"isolation-level=snapshot: two .* ALTER TABLE \S+ SET") as error:
        merge(spark, queue, table)
    assert error.value.options == ("table",)
    isolated("serializable")
    merge(spark, queue, table)
    isolated("snapshot")
    append(queue, ("a", "2"), ("c", "1"))
    (one, other), commits = two_at_once(spark, queue, table, monkeypatch)
    assert (one, one.number, commits.count(None)) == (other, 2, 1)
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))
    assert roles(spark, table) == {"current": 3, "state": 1}


@pytest.mark.thorough
@pytest.mark.parametrize("table", ["iceberg"], indirect=True)
def test_two_first_merges_that_have_both_passed_are_told(
    spark: SparkSession, make_queue: MakeQueue, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"), ("b", "1"))
    spark.sql(
        f"CREATE TABLE {table} ({STORED}) USING iceberg TBLPROPERTIES "
        "('write.merge.mode'='merge-on-read', 'write.merge.isolation-level'='snapshot')"
    )
    with monkeypatch.context() as patched:
        patched.setattr(MergedTable, "check_isolation", lambda _: None)
        with pytest.raises(ConfigError, match=f"more than one state.*DELETE FROM {table}"):
            two_at_once(spark, queue, table, patched)
    with pytest.raises(ConfigError, match="more than one state"):
        merge(spark, queue, table)


@pytest.mark.thorough
def test_names_may_be_quoted_and_written_as_sql_allows(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, lvq_topic: str, tmp_path: Path
) -> None:
    queue = make_queue()
    path = f"`{tmp_path}/a path, v1.5/`"
    names = [f"`ice`.`db`.`{lvq_topic} v1.5`"] if table.startswith("ice") else [f"`delta`.{path}", f"DELTA.{path}"]
    for number, name in enumerate(names, 1):
        append(queue, ("a", str(number)))
        assert merge(spark, queue, name).number == number
        assert collect(read_merged(spark, name)) == collect(snapshot(spark, queue))


@pytest.mark.thorough
def test_columns_of_others_stay_theirs(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, lvq_topic: str, tmp_path: Path
) -> None:
    queue = make_queue()
    append(queue, ("a", "1"), ("b", "1"))
    merge(spark, queue, table)
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (note string)")
    spark.sql(f"UPDATE {table} SET note = 'seen' WHERE lvq_role = 'current'")
    append(queue, ("a", "2"), ("c", "1"))
    assert merge(spark, queue, table).kind == "delta"
    assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))
    assert read_merged(spark, table).columns == snapshot(spark, queue).columns
    queue.cluster.topics.add_partitions(queue.topic, 2)
    assert merge(spark, queue, table).kind == "full"
    notes = spark.table(table).where("lvq_role = 'current'").selectExpr("string(key)", "note").collect()
    assert {row[0]: row[1] for row in notes} == {"a": "seen", "b": "seen", "c": None}
    using = "iceberg" if table.startswith("ice") else "delta"
    other = f"ice.db.other_{lvq_topic.replace('-', '_')}" if using == "iceberg" else f"delta.`{tmp_path}/other`"
    spark.sql(f"CREATE TABLE {other} ({STORED}, note string NOT NULL) USING {using}")
    with pytest.raises(ConfigError, match=r"has NOT NULL columns .*: note") as error:
        merge(spark, queue, other)
    assert error.value.options == ("table",)


def test_rows_that_others_have_changed_are_found_and_all_is_merged_with_the_whole_log(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, table: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    append(queue, *((key, "1") for key in "abcd"))

    def as_before(version: Version) -> bytes:
        document = json.loads(encode(version))
        return json.dumps({name: said for name, said in document.items() if name not in ("places", "crc32")}).encode()

    with monkeypatch.context() as patched:
        patched.setattr("lvq_spark.store.merged_table.encode", as_before)
        merge(spark, queue, table)
    append(queue, ("a", "2"))
    assert merge(spark, queue, table).kind == "delta", "what an earlier version left is as good"
    changes = (
        (f"INSERT INTO {table} SELECT * FROM {table} WHERE key = X'62'", "5 rows for readers .* left 4 and 0"),
        (f"UPDATE {table} SET offset = 900 WHERE key = X'62'", "left 4 and 0, of other records"),
        (f"INSERT INTO {table} (key, partition, lvq_role) VALUES (X'00', null, null)", "and 1 others"),
        (f"DELETE FROM {table} WHERE key = X'63'", "3 rows"),
    )
    for change, said in changes[:2] if table.startswith("ice") else changes[2:]:
        spark.sql(change)
        append(queue, ("d", said[:1]))
        with pytest.raises(DataLoss, match=f"Something other than a merge changed .*{said}.*on_stale='rebuild'"):
            merge(spark, queue, table, on_stale="fail")
        version = merge(spark, queue, table)
        assert (version.kind, len(version.reasons)) == ("full", 1)
        assert collect(read_merged(spark, table)) == collect(snapshot(spark, queue))
        assert roles(spark, table) == {"current": 4, "state": 1}
    assert merge(spark, queue, table) == version
    assert values(collect(read_merged(spark, table)))["a"] == "2"


@pytest.mark.parametrize("table", ["delta", "iceberg"])
def test_random_histories_are_as_the_plain_truth_has_them(
    spark: SparkSession, lvq_cluster: KafkaCluster, lvq_topic: str, tmp_path: Path, table: str
) -> None:
    """A short run; ``make prove-lakehouse`` runs for minutes."""
    place: Format = Iceberg(spark, lvq_topic) if table == "iceberg" else Delta(spark, tmp_path, lvq_topic)
    history = History(spark, lvq_cluster, place, lvq_topic, 3)
    for step in ("merge", "transaction", "alter", "two_at_once", "dies", "go_back", "batch"):
        history.take(step)
    assert history.counts["full merge"] >= 2
