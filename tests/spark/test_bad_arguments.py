"""Invalid arguments: an error names each before Spark or the cluster is asked anything."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import pytest

import lvq_spark
from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing import MemoryCluster

SPARK: Any = type("Session", (), {"version": "4.1.0"})()

CASES: list[tuple[str, str, list[Any], Callable[[LastValueQueue[Any], Any], object]]] = [
    ("refresh", "spark", [None, 5], lambda q, x: lvq_spark.refresh(x, q, "/nowhere")),
    ("refresh", "keep", ["3", None, 0, 1.5], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", keep=x)),
    ("refresh", "grace", ["3", None, -1, math.nan], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", grace=x)),
    ("refresh", "timeout", ["3", None, math.nan], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", timeout=x)),
    ("refresh", "queue", [None, "prices"], lambda q, x: lvq_spark.refresh(SPARK, x, "/nowhere")),
    ("upsert", "keep", ["3"], lambda q, x: lvq_spark.upsert(q, "/nowhere", keep=x)),
    ("upsert", "on_stale", [None, "stop"], lambda q, x: lvq_spark.upsert(q, "/nowhere", on_stale=x)),
    ("upsert", "queue", [None], lambda q, x: lvq_spark.upsert(x, "/nowhere")),
    ("merge_each", "queue", [None], lambda q, x: lvq_spark.merge_each(x, "t")),
    ("merge", "timeout", ["3"], lambda q, x: lvq_spark.merge(SPARK, q, "t", timeout=x)),
    ("merge_each", "timeout", ["3"], lambda q, x: lvq_spark.merge_each(q, "t", timeout=x)),
    ("merge_each", "consistency", [None], lambda q, x: lvq_spark.merge_each(q, "t", consistency=x)),
    ("snapshot", "queue", [None], lambda q, x: lvq_spark.snapshot(SPARK, x)),
    ("snapshot", "columns", [None, 5, "key"], lambda q, x: lvq_spark.snapshot(SPARK, q, columns=x)),
    ("choose_engine", "spec", [None, {}], lambda q, x: lvq_spark.choose_engine(SPARK, x)),
    ("merge", "table", [None, 5], lambda q, x: lvq_spark.merge(SPARK, q, x)),
    ("read_merged", "table", [None, 5], lambda q, x: lvq_spark.read_merged(SPARK, x)),
    ("read_merged", "spark", [None, 5], lambda q, x: lvq_spark.read_merged(x, "t")),
    ("decode", "df", [None, 5], lambda q, x: lvq_spark.decode(x, "json")),
    ("SchemaRegistry", "url", [None, 5, b"http://a"], lambda q, x: lvq_spark.SchemaRegistry(x)),
    ("pin", "queue", [None, "prices"], lambda q, x: lvq_spark.pin(x)),
    ("pin", "start", [5, "x", {0: "3"}], lambda q, x: lvq_spark.pin(q, start=x)),
    ("pin", "end", [5, "x", {0: 1.5}], lambda q, x: lvq_spark.pin(q, end=x)),
    ("pin", "at_rest", ["x", -1, math.nan], lambda q, x: lvq_spark.pin(q, at_rest=x)),
    ("pin", "as_of_policy", [None, "x"], lambda q, x: lvq_spark.pin(q, as_of_policy=x)),
    ("pin", "on_foreign_commits", [None, "x"], lambda q, x: lvq_spark.pin(q, on_foreign_commits=x)),
    ("pin", "timeout", ["3", None, math.nan], lambda q, x: lvq_spark.pin(q, timeout=x)),
    ("publish", "df", [None, 5], lambda q, x: lvq_spark.publish(x, q)),
    ("publish", "timeout", ["3", None], lambda q, x: lvq_spark.publish(SPARK, q, timeout=x)),
]


@pytest.mark.parametrize(
    "call",
    [
        lvq_spark.pin,
        lambda queue: lvq_spark.snapshot(SPARK, queue),
        lambda queue: lvq_spark.refresh(SPARK, queue, "/nowhere"),
        lambda queue: lvq_spark.upsert(queue, "/nowhere"),
        lambda queue: lvq_spark.merge_each(queue, "t"),
    ],
)
def test_a_standard_queue_is_refused_and_the_error_names_sparks_own_source(
    memory_cluster: MemoryCluster, call: Callable[[LastValueQueue[Any]], object]
) -> None:
    queue = LastValueQueue.declare("jobs", key_header=None, conflate=False, cluster=memory_cluster)
    with pytest.raises(ConfigError, match=r'jobs is a standard queue.*format\("kafka"\)') as caught:
        call(queue)
    assert caught.value.options == ("queue", "conflate")


@pytest.mark.parametrize(
    ("option", "bad", "call"),
    [
        pytest.param(option, one, call, id=f"{name}({option}={one!r})")
        for name, option, bad, call in CASES
        for one in bad
    ],
)
def test_an_argument_that_is_none_is_refused_by_name(
    memory_cluster: MemoryCluster, option: str, bad: Any, call: Callable[[LastValueQueue[Any], Any], object]
) -> None:
    queue = LastValueQueue.declare("prices", key_header="k", cluster=memory_cluster)
    with pytest.raises(ConfigError) as caught:
        call(queue, bad)
    assert caught.value.options == (option,)
