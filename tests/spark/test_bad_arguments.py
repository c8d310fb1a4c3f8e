"""Invalid arguments: an error names each before Spark or the cluster is asked anything."""

from __future__ import annotations

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import pytest

import lvq_spark
from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_spark.writing.rows import newest_rows


def on_kafka(queue: LastValueQueue[Any]) -> LastValueQueue[Any]:
    """Return a queue like this on a cluster that is never asked."""
    return LastValueQueue(queue.topic, key_header=None, cluster=KafkaCluster("localhost:1"))


SPARK: Any = type("Session", (), {"version": "4.1.0", "__repr__": lambda _: "running"})()

STOPPED: Any = type(
    "Session", (), {"version": "4.1.0", "_sc": type("Context", (), {"_jsc": None})(), "__repr__": lambda _: "stopped"}
)()
FRAME: Any = type("Frame", (), {"sparkSession": SPARK, "columns": ["key", "value"]})()
NO_PATHS = [None, 5, "", b"x", "a\0b"]

CASES: list[tuple[str, str, list[Any], Callable[[LastValueQueue[Any], Any], object]]] = [
    ("refresh", "spark", [None, 5], lambda q, x: lvq_spark.refresh(x, q, "/nowhere")),
    ("refresh", "keep", ["3", None, 0, 1.5], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", keep=x)),
    ("refresh", "slices", ["3", None, 0, 1.5], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", slices=x)),
    ("merge", "slices", ["3", None, 0, 1.5], lambda q, x: lvq_spark.merge(SPARK, q, "t", slices=x)),
    ("snapshot", "slices", ["3", None, 0, 1.5], lambda q, x: lvq_spark.snapshot(SPARK, q, slices=x)),
    ("read_version", "version", ["3", 1.5], lambda q, x: lvq_spark.read_version(SPARK, "/nowhere", x)),
    ("refresh", "grace", ["3", None, -1, math.nan], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", grace=x)),
    ("refresh", "timeout", ["3", None, math.nan], lambda q, x: lvq_spark.refresh(SPARK, q, "/nowhere", timeout=x)),
    ("refresh", "queue", [None, "prices"], lambda q, x: lvq_spark.refresh(SPARK, x, "/nowhere")),
    ("merge_each", "queue", [None], lambda q, x: lvq_spark.merge_each(x, "t")),
    ("merge", "timeout", ["3"], lambda q, x: lvq_spark.merge(SPARK, q, "t", timeout=x)),
    ("merge_each", "timeout", ["3"], lambda q, x: lvq_spark.merge_each(q, "t", timeout=x)),
    ("merge_each", "consistency", [None], lambda q, x: lvq_spark.merge_each(q, "t", consistency=x)),
    ("snapshot", "queue", [None], lambda q, x: lvq_spark.snapshot(SPARK, x)),
    ("snapshot", "columns", [None, 5, "key"], lambda q, x: lvq_spark.snapshot(SPARK, q, columns=x)),
    ("merge", "table", [None, 5], lambda q, x: lvq_spark.merge(SPARK, q, x)),
    ("read_merged", "table", [None, 5], lambda q, x: lvq_spark.read_merged(SPARK, x)),
    ("read_merged", "spark", [None, 5], lambda q, x: lvq_spark.read_merged(x, "t")),
    ("decode", "df", [None, 5], lambda q, x: lvq_spark.decode(x, "json")),
    ("read_subject", "client", [None, 5, "http://a"], lambda q, x: lvq_spark.read_subject(x, "s")),
    ("pin", "queue", [None, "prices"], lambda q, x: lvq_spark.pin(x)),
    ("pin", "start", [5, "x", {0: "3"}], lambda q, x: lvq_spark.pin(q, start=x)),
    ("pin", "end", [5, "x", {0: 1.5}], lambda q, x: lvq_spark.pin(q, end=x)),
    ("pin", "at_rest", ["x", -1, math.nan], lambda q, x: lvq_spark.pin(q, at_rest=x)),
    ("pin", "as_of_policy", [None, "x"], lambda q, x: lvq_spark.pin(q, as_of_policy=x)),
    ("pin", "on_foreign_commits", [None, "x"], lambda q, x: lvq_spark.pin(q, on_foreign_commits=x)),
    ("pin", "timeout", ["3", None, math.nan], lambda q, x: lvq_spark.pin(q, timeout=x)),
    ("pin", "group", ["", "\0", 5, b"x"], lambda q, x: lvq_spark.pin(q, group=x)),
    ("register", "defaults", [5, "x"], lambda q, x: lvq_spark.register(SPARK, x)),
    ("local_session", "config", [5, "x"], lambda q, x: lvq_spark.local_session("local[1]", x)),
    ("local_session", "master", [None, ""], lambda q, x: lvq_spark.local_session(x)),
    ("refresh", "path", NO_PATHS, lambda q, x: lvq_spark.refresh(SPARK, on_kafka(q), x)),
    ("versions", "path", NO_PATHS, lambda q, x: lvq_spark.versions(SPARK, x)),
    ("read_version", "path", NO_PATHS, lambda q, x: lvq_spark.read_version(SPARK, x)),
    ("snapshot", "spark", [STOPPED], lambda q, x: lvq_spark.snapshot(x, on_kafka(q))),
    ("refresh", "spark", [STOPPED], lambda q, x: lvq_spark.refresh(x, q, "/nowhere")),
    ("versions", "spark", [STOPPED, None], lambda q, x: lvq_spark.versions(x, "/nowhere")),
    ("read_version", "spark", [STOPPED, None], lambda q, x: lvq_spark.read_version(x, "/nowhere")),
    ("register", "spark", [STOPPED, None], lambda q, x: lvq_spark.register(x)),
    ("merge", "spark", [STOPPED, None], lambda q, x: lvq_spark.merge(x, q, "t")),
    ("read_merged", "spark", [STOPPED], lambda q, x: lvq_spark.read_merged(x, "t")),
    ("read_merged", "as_of", ["x", 5], lambda q, x: lvq_spark.read_merged(SPARK, "t", as_of=x)),
    ("merge_each()", "batch", [None, 5], lambda q, x: lvq_spark.merge_each(q, "t")(x, 0)),
    ("decode", "column", [None, 5], lambda q, x: lvq_spark.decode(FRAME, "json", column=x)),
    ("publish", "key", [None, 5, ["key"]], lambda q, x: newest_rows(FRAME, x, "value", None, None)),
    ("with_rank", "df", [None, 5, SPARK], lambda q, x: lvq_spark.with_rank(x, q)),
    ("with_rank", "queue", [None], lambda q, x: lvq_spark.with_rank(FRAME, x)),
    ("group_of", "queue", [None], lambda q, x: lvq_spark.group_of(x)),
    ("read_subject", "timeout", ["3", None, -1, math.nan], lambda q, x: lvq_spark.read_subject(q, "s", timeout=x)),
    ("read_subject", "subject", [None, 5, ""], lambda q, x: lvq_spark.read_subject(q, x)),
    ("read_subject", "reader", [5, b"x"], lambda q, x: lvq_spark.read_subject(q, "s", reader=x)),
    ("ProtobufMessage", "name", [None, ""], lambda q, x: lvq_spark.ProtobufMessage(x, b"x")),
    ("publish", "df", [None, 5], lambda q, x: lvq_spark.publish(x, q)),
    ("publish", "timeout", ["3", None], lambda q, x: lvq_spark.publish(SPARK, q, timeout=x)),
]


NUMBERS = re.compile(r"\b(int|float)\b(?!, )")  # not the key of a mapping
PASSED_ON = {
    ("merge_each", "timeout"): ("merge", "timeout"),
    ("merge_each", "slices"): ("merge", "slices"),
    ("merge", "end"): ("pin", "end"),
    ("refresh", "end"): ("pin", "end"),
    ("snapshot", "start"): ("pin", "start"),
    ("snapshot", "end"): ("pin", "end"),
    ("snapshot", "timeout"): ("pin", "timeout"),
}
"""Numbers that a call passes on, by the call whose check they meet."""


def test_every_number_that_a_call_takes_is_among_the_cases() -> None:
    found = {
        (name, parameter.name)
        for name, call in ((name, getattr(lvq_spark, name)) for name in lvq_spark.__all__)
        if inspect.isfunction(call)
        for parameter in inspect.signature(call).parameters.values()
        if NUMBERS.search(str(parameter.annotation))
    }
    known = {(name, option) for name, option, *_ in CASES}
    assert {PASSED_ON.get(one, one) for one in found} <= known


@pytest.mark.parametrize(
    "call",
    [
        lvq_spark.pin,
        lambda queue: lvq_spark.snapshot(SPARK, queue),
        lambda queue: lvq_spark.refresh(SPARK, queue, "/nowhere"),
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
