"""Scheduled messages in Spark: one that is not due at the time of a cut is not shown, and hides nothing (R11)."""

from __future__ import annotations

import logging
import random
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import pytest

from lvq_kafka import LastValueQueue, Ttl
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.earlier_terms import EarlierTerms
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.time_rule import TimeRule
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError, KeyMismatch
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.testing import MemoryCluster
from lvq_spark import SnapshotSpec, pin
from lvq_spark.rules.scheduling import NotDue
from lvq_spark.scan.filters import DueFilter, KnownCut
from lvq_spark.scan.scanning import Scan
from lvq_spark.scan.task_metrics import TaskMetrics
from lvq_spark.source.planning import plan
from lvq_spark.source.source_options import SourceOptions

if TYPE_CHECKING:
    pass

BEGUN = 1_000_000.0
HEADERS: list[list[tuple[str, bytes | None]] | None] = [
    None,
    [],
    [("other", b"1000005000")],
    *([(NOT_BEFORE_HEADER, b"%d" % round((BEGUN + ahead) * 1000))] for ahead in (-60, 0, 0.001, 2, 9.999, 10, 11, 60)),
    *([(NOT_BEFORE_HEADER, said)] for said in (b"0", b"0001000005000", b"9" * 15)),
    *([(NOT_BEFORE_HEADER, said)] for said in (None, b"", b"-1", b"1.5", b"1\n", b"\xff", b"9" * 16, b"9" * 400)),
    [(NOT_BEFORE_HEADER, "\u0663".encode())],
    [(NOT_BEFORE_HEADER, b"1000009000"), ("other", None), (NOT_BEFORE_HEADER, b"1000003000")],
    [(NOT_BEFORE_HEADER, b"1000009000"), (NOT_BEFORE_HEADER, b"soon")],
    [(NOT_BEFORE_HEADER, b"soon"), (NOT_BEFORE_HEADER, b"1000009000")],
]


def at(seconds: float) -> list[tuple[str, bytes | None]]:
    """Return the header of a message that counts this many seconds after the beginning."""
    return [(NOT_BEFORE_HEADER, b"%d" % round((BEGUN + seconds) * 1000))]


def queue_on(cluster: MemoryCluster, max_delay: float | None = 10.0, **options: Any) -> LastValueQueue[bytes]:
    return LastValueQueue("t", **{"key_header": None, **options}, max_delay=max_delay, cluster=cluster)


@pytest.fixture
def now() -> list[float]:
    return [BEGUN]


@pytest.fixture
def cluster(now: list[float]) -> MemoryCluster:
    cluster = MemoryCluster(clock=lambda: now[0])
    cluster.topics.create("t", partitions=1, config={"cleanup.policy": "compact", "delete.retention.ms": "86400000"})
    return cluster


def rows(
    cluster: MemoryCluster, spec: SnapshotSpec, *, metrics: TaskMetrics | None = None, **options: Any
) -> list[dict[str, Any]]:
    scan = Scan(spec, ClientConfig("nowhere:1"), patience=10.0, **options)
    return [row for batch in scan.rows_of(cluster, 0, metrics=metrics) for row in batch.to_pylist()]


def values(cluster: MemoryCluster, spec: SnapshotSpec, **options: Any) -> dict[bytes, bytes | None]:
    return {row["key"]: row["value"] for row in rows(cluster, spec, **options)}


def naive(records: list[Record], max_delay: float, as_of: float, ttl: Ttl | None = None) -> dict[bytes | None, Record]:
    """Return the current record of each key, by the words of R11, R8 and R10."""
    now, found = round(as_of * 1000), dict[bytes | None, Record]()
    for record in records:
        due = record.timestamp
        for name, said in record.headers:
            if name == NOT_BEFORE_HEADER:
                readable = said is not None and said.isdigit() and len(said) < 16
                due = min(int(said or 0), record.timestamp + round(max_delay * 1000)) if readable else record.timestamp
        if max(due, record.timestamp) <= now:
            found[record.key] = record
    expiry_times = ExpiryTimes.of(ttl)
    return {
        key: record
        for key, record in found.items()
        if record.value is not None
        and (expiry_times is None or expiry_times.expiry(record.timestamp, record.headers) >= now)
    }


def test_r11_a_message_counts_from_its_time_on_and_hides_nothing_before(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1")
    cluster.write("t", b"a", b"2", at(5))
    cluster.write("t", b"b", b"1", at(5))
    queue = queue_on(cluster)
    assert values(cluster, pin(queue)) == {b"a": b"1"}
    now[0] += 4.999
    assert values(cluster, pin(queue)) == {b"a": b"1"}
    now[0] = BEGUN + 5
    assert values(cluster, pin(queue)) == {b"a": b"2", b"b": b"1"}
    assert values(cluster, pin(queue, end={0: 3}, as_of=BEGUN + 1)) == {b"a": b"1"}, "a cut has a time of its own"


def test_s116_a_newer_message_that_counts_replaces_what_is_scheduled_below_it(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1", at(5))
    cluster.write("t", b"a", b"2")
    cluster.write("t", b"b", b"1", at(9))
    cluster.write("t", b"b", b"2", at(2))
    cluster.write("t", b"c", b"1", at(2))
    cluster.write("t", b"c", None)
    queue = queue_on(cluster)
    seen = []
    for seconds in (0, 2, 5, 9):
        now[0] = BEGUN + seconds
        seen.append(values(cluster, pin(queue), deletes=True))
    assert seen == [
        {b"a": b"2", b"c": None},
        *[{b"a": b"2", b"b": b"2", b"c": None}] * 3,
    ]


def test_r11_a_scheduled_delete_deletes_when_it_is_due_and_a_ttl_runs_from_the_append(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1")
    cluster.write("t", b"a", None, at(5))
    cluster.write("t", b"b", b"1")
    cluster.write("t", b"b", b"2", [*at(5), (TTL_HEADER, b"2000")])
    queue = queue_on(cluster, ttl=Ttl())
    now[0] += 4
    assert values(cluster, pin(queue)) == {b"a": b"1", b"b": b"1"}
    now[0] += 1
    assert values(cluster, pin(queue)) == {}, "one that is due after its expiry lets its key go (R8)"


def test_a_message_that_is_not_scheduled_counts_though_the_clock_of_the_driver_is_behind(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1")
    cluster.write("t", b"b", b"1", at(1))
    spec = pin(queue_on(cluster), end={0: 2}, as_of=BEGUN - 60)
    assert values(cluster, spec) == {b"a": b"1"}


def test_r22_a_queue_without_max_delay_takes_the_header_for_an_ordinary_one(cluster: MemoryCluster) -> None:
    cluster.write("t", b"a", b"1", at(5))
    spec = pin(queue_on(cluster, None))
    assert (spec.times.max_delay, spec.as_of, spec.due_by) == (None, None, None)
    (row,) = rows(cluster, spec)
    assert row["headers"] == [{"key": NOT_BEFORE_HEADER, "value": b"1000005000"}]


def test_headers_are_read_only_where_messages_may_be_scheduled(cluster: MemoryCluster) -> None:
    def headers_read(spec: SnapshotSpec) -> bool:
        return Scan(spec, ClientConfig("nowhere:1"), ("key",))._how["headers"]

    assert not headers_read(pin(queue_on(cluster, None)))
    assert headers_read(pin(queue_on(cluster)))
    assert not headers_read(replace(pin(queue_on(cluster)), as_of=None))


@pytest.mark.parametrize("memory", [1, 1 << 20])
@pytest.mark.parametrize("ttl", [None, Ttl(default=6.0)])
def test_at_any_time_there_is_the_newest_message_of_each_key_that_counts(
    cluster: MemoryCluster, now: list[float], memory: int, ttl: Ttl | None
) -> None:
    choose, records = random.Random(memory), list[Record]()
    for n in range(300):
        now[0] += choose.random() * 0.02
        key, value = b"%d" % choose.randrange(60), None if choose.random() < 0.2 else b"%d" % n
        headers = choose.choice(HEADERS) or []
        if ttl is not None and choose.random() < 0.3:
            headers = [*headers, (TTL_HEADER, b"%d" % choose.randrange(12_000))]
        cluster.write("t", key, value, headers)
        records.append(Record(0, n, int(now[0] * 1000), key, value, tuple(headers)))
    every = rows(cluster, pin(queue_on(cluster, None)), conflate=False, deletes=True)
    assert [round(row["timestamp"].timestamp() * 1000) for row in every] == [record.timestamp for record in records]
    sizes = set()
    for max_delay in (0.5, 10.0, 86_400.0):
        queue = queue_on(cluster, max_delay, ttl=ttl)
        for seconds in (0, 3, 5.5, 9.999, 12, 61, 90_000):
            as_of, end = now[0] + seconds, choose.randrange(150, 301)
            expected = naive(records[:end], max_delay, as_of := round(as_of, 3), ttl)
            found = rows(cluster, pin(queue, end={0: end}, as_of=as_of), columns=("key", "offset"), memory=memory)
            assert {row["key"]: row["offset"] for row in found} == {
                key: record.offset for key, record in expected.items()
            }
            sizes.add(len(expected))
    assert len(sizes) > 5


def test_g8_a_view_shows_the_rows_of_a_cut_at_its_offsets_and_its_time(
    cluster: MemoryCluster, now: list[float]
) -> None:
    choose, queue, sizes = random.Random(3), queue_on(cluster, ttl=Ttl(default=6.0)), set[int]()
    for n in range(120):
        now[0] += choose.random() * 0.2
        headers = choose.choice(HEADERS) or []
        cluster.write("t", b"%d" % choose.randrange(30), None if choose.random() < 0.2 else b"%d" % n, headers)
        if n % 12 == 11:
            with queue.view() as view:
                shown = view.snapshot()
            found = values(cluster, pin(queue, end=shown.offsets, as_of=shown.as_of))
            assert {entry.key.encode(): entry.value for entry in shown.entries()} == found
            sizes.add(len(found))
    assert len(sizes) > 5


def test_the_counters_say_what_does_not_count_yet_and_what_cannot_be_read(
    cluster: MemoryCluster, now: list[float], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.write("t", b"a", b"1")
    for seconds in (5, 3, 60):
        cluster.write("t", b"a", b"2", at(seconds))
    for _ in range(2):
        cluster.write("t", b"b", b"1", [(NOT_BEFORE_HEADER, b"soon")])
    metrics = TaskMetrics()
    with caplog.at_level(logging.INFO, "lvq_spark"):
        assert len(rows(cluster, pin(queue_on(cluster)), metrics=metrics)) == 2
    assert (metrics.records, metrics.rows, metrics.replaced, metrics.scheduled) == (6, 2, 1, 3)
    assert metrics.waiting == NotDue(1, 1_000_003_000)
    line, warning = caplog.records
    assert {"scheduled": "3", "malformed_times": "2"}.items() <= line.__dict__["context"].items()
    assert warning.getMessage() == (
        "t/0: the header lvq-not-before of 2 records is not a number of milliseconds, and counts as none."
    )
    assert TaskMetrics().waiting is None


def test_headers_of_records_older_than_the_longest_delay_are_not_read() -> None:
    only_times = cast("RecordBatch", SimpleNamespace(timestamps=[-1, 0, 5_000]))
    assert DueFilter(TimeRule(max_delay=10.0), 15.0).counting(only_times) is only_times
    with pytest.raises(AttributeError, match="headers"):
        DueFilter(TimeRule(max_delay=10.0), 14.999).counting(only_times)


def test_r39_records_are_set_aside_for_as_long_as_their_queue_allowed_when_they_were_appended() -> None:
    earlier = (EarlierTerms(until=2_000, max_delay=10.0), EarlierTerms(until=3_000, max_delay=None))
    times, ahead = TimeRule(max_delay=4.0, earlier=earlier), ((NOT_BEFORE_HEADER, b"90000"),)
    batch = RecordBatch.of([Record(0, at, time, b"a", b"", ahead) for at, time in enumerate([1_000, 2_500, 3_000])])
    found = DueFilter(times, 6.5)
    assert [record.offset for record in found.counting(batch)] == [1]
    assert found.scheduled == NotDue(0, 7_000)
    assert [record.offset for record in DueFilter(times, 7.0).counting(batch)] == [1, 2]


def test_r16_a_mismatch_is_an_error_before_the_message_is_due(cluster: MemoryCluster) -> None:
    cluster.write("t", b"a", b"1", [("id", b"b"), *at(5)])
    with pytest.raises(KeyMismatch):
        rows(cluster, pin(queue_on(cluster, key_header="id", key_mismatch="fail")))


def test_on_top_of_a_known_cut_there_is_what_was_written_since_and_what_has_become_due(
    cluster: MemoryCluster, now: list[float]
) -> None:
    for key, value, headers in (
        (b"known", b"1", []),
        (b"due", b"1", at(3)),
        (b"replaced", b"1", at(3)),
        (b"replaced", b"2", []),
        (b"later", b"1", at(9)),
    ):
        cluster.write("t", key, value, headers)
    known = KnownCut({0: 5}, BEGUN, TimeRule(max_delay=10.0))
    cluster.write("t", b"new", b"1")
    cluster.write("t", b"new later", b"1", at(9))
    now[0] += 3
    assert values(cluster, pin(queue_on(cluster)), known=known) == {b"due": b"1", b"new": b"1"}


# -- the options of the format -----------------------------------------------------------------------------------------


def parsed(**options: str) -> SourceOptions:
    given = {f"lvq.{name}": value for name, value in options.items()}
    return SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "subscribe": "t", **given})


def test_an_option_says_how_far_ahead_the_messages_of_a_topic_may_be_scheduled(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1")
    cluster.write("t", b"a", b"2", at(5))
    assert parsed().max_delay is None

    def shown(**options: str) -> dict[bytes, bytes | None]:
        options = {"maxDelay": "10", **options}
        source = parsed(**options)
        return values(cluster, plan(source, cluster), conflate=source.conflate)

    assert shown() == shown(asOf="1000004.999") == {b"a": b"1"}
    assert shown(asOf="1000005") == {b"a": b"2"}
    assert shown(maxDelay="0.5", asOf="1000000.5") == {b"a": b"2"}
    spec = plan(parsed(maxDelay="10", dedupe="none"), cluster)
    assert len(rows(cluster, spec, conflate=False)) == 2, "records as the log has them"


def test_a_value_kept_after_its_expiry_does_not_show_a_scheduled_one_before_it_is_due(
    cluster: MemoryCluster, now: list[float]
) -> None:
    cluster.write("t", b"a", b"1", [(TTL_HEADER, b"1000")])
    cluster.write("t", b"a", b"2", at(5))
    now[0] += 2
    for options, expected in (({}, {}), ({"expired": "keep"}, {b"a": b"1"})):
        source = parsed(**{"maxDelay": "10", "ttl": "true", **options})
        assert values(cluster, plan(source, cluster)) == expected


@pytest.mark.parametrize("said", ["soon", "0", "-1", "nan", "inf", "31536001"])
def test_a_delay_that_is_none_is_an_error_that_names_the_option(said: str) -> None:
    with pytest.raises(ConfigError) as error:
        parsed(maxDelay=said)
    assert error.value.options == ("lvq.maxDelay",)


def test_a_declared_queue_says_itself_how_far_ahead() -> None:
    with pytest.raises(ConfigError, match=r"queue and lvq\.maxDelay are both given") as error:
        SourceOptions.parse({"kafka.bootstrap.servers": "nowhere:1", "queue": "q", "lvq.maxDelay": "5"})
    assert error.value.options == ("queue", "lvq.maxDelay")
