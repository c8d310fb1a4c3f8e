"""The cut of a snapshot: fixed once, from the cluster's answers, and refused if it is bad."""

from __future__ import annotations

import math
import time
import warnings
from dataclasses import replace
from datetime import UTC, date, datetime
from typing import Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Commit, LogEnd
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.errors import (
    CatchUpTimeout,
    CommitMapRefused,
    ConfigError,
    DataLoss,
    QueueNotDeclared,
    TopicNotFound,
    Unauthorized,
)
from lvq_kafka.testing import MemoryCluster
from lvq_spark import pin


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[Any]:
    memory_cluster.topics.create(
        "t", partitions=2, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "1500"}
    )
    for partition, count in ((0, 3), (1, 5)):
        for n in range(count):
            memory_cluster.write("t", b"k%d" % n, b"v", partition=partition)
    return LastValueQueue("t", key_header="ticker", key_mismatch="header", cluster=memory_cluster)


def test_a_cut_names_the_whole_log_of_the_moment_it_is_pinned(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    spec = pin(queue)
    memory_cluster.write("t", b"k", b"later", partition=0)
    assert (spec.start, spec.end) == ({0: 0, 1: 0}, {0: 3, 1: 5})
    assert spec.topic_id == memory_cluster.topics.describe("t").id
    assert (spec.partitions, spec.ranges) == (2, [0, 1])
    assert (spec.key_header, spec.key_mismatch, spec.compaction_lag) == ("ticker", "header", 1.5)
    assert spec.blocked == ()


def test_a_cut_starts_where_the_log_starts(queue: LastValueQueue[Any], memory_cluster: MemoryCluster) -> None:
    memory_cluster.delete_records("t", 0, 3)
    spec = pin(queue)
    assert spec.start == {0: 3, 1: 0}
    assert spec.ranges == [1]


def test_a_cut_stops_before_an_open_transaction_and_says_so(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    held = writer.append("t", b"held", b"v").result().partition
    before = memory_cluster.logs.end_offsets("t", stable=True)
    with pytest.warns(UserWarning, match=rf"partition {held} .* a transaction open"):
        spec = pin(queue)
    assert spec.end == before
    assert [(shortfall.partition, shortfall.blocked) for shortfall in spec.blocked] == [(held, True)]


def test_a_cut_can_wait_until_no_transaction_is_under_way(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It waits for open transactions, and for one that commits between two answers: the cut would have half of it."""
    first, second = memory_cluster.writer(transactional_id="1"), memory_cluster.writer(transactional_id="2")
    for writer in (first, second):
        writer.begin_transaction()
        assert {writer.append("t", b"%d" % number, b"v").result().partition for number in range(9)} == {0, 1}
    ask, steps = memory_cluster.logs.stable_ends, [first.commit_transaction, second.commit_transaction]

    def ask_while_they_commit(topic: str, *, timeout: float = 10.0) -> dict[int, LogEnd]:
        before = ask(topic, timeout=timeout)
        if steps:
            steps.pop(0)()
        return {0: before[0], 1: ask(topic, timeout=timeout)[1]}

    monkeypatch.setattr(memory_cluster.logs, "stable_ends", ask_while_they_commit)
    with warnings.catch_warnings(action="error"):
        spec = pin(queue, at_rest=10)
    assert spec.end == memory_cluster.logs.end_offsets("t")
    assert (spec.blocked, steps) == ((), [])


def test_a_topic_that_is_never_at_rest_is_an_error_that_says_what_goes_on(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    held = writer.append("t", b"held", b"v").result().partition
    with pytest.raises(CatchUpTimeout, match=rf"not at rest within 0\.1 s: partition {held} ") as caught:
        pin(queue, at_rest=0.1)
    assert [shortfall.partition for shortfall in caught.value.shortfalls] == [held]


def test_a_log_that_grows_while_it_is_pinned_is_not_taken_for_an_open_transaction(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = memory_cluster.logs.end_offsets

    def ask_while_it_grows(topic: str, *, stable: bool = False, timeout: float = 10.0) -> dict[int, int]:
        answer = ask(topic, stable=stable, timeout=timeout)
        memory_cluster.write("t", b"k", b"more", partition=0)
        return answer

    monkeypatch.setattr(memory_cluster.logs, "end_offsets", ask_while_it_grows)
    with warnings.catch_warnings(action="error"):
        assert pin(queue).blocked == ()


@pytest.mark.parametrize("question", ["topics.describe", "logs.start_offsets", "logs.end_offsets"])
def test_a_cut_has_the_same_partitions_throughout_when_some_are_added_while_it_is_pinned(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, question: str
) -> None:
    part, _, name = question.partition(".")
    asked = getattr(memory_cluster, part)
    ask = getattr(asked, name)

    def grow(*args: Any, **options: Any) -> Any:
        monkeypatch.setattr(asked, name, ask)
        answer = ask(*args, **options)
        memory_cluster.topics.add_partitions("t", 4)
        return answer

    monkeypatch.setattr(asked, name, grow)
    spec = pin(queue)
    assert spec.start.keys() == spec.end.keys() == {0, 1}
    assert (spec.partitions, spec.ranges) == (2, [0, 1])
    assert pin(queue).partitions == 4


def test_a_cut_can_be_given(queue: LastValueQueue[Any]) -> None:
    spec = pin(queue, start={0: 1, 1: 2}, end={1: 4, 0: 1})
    assert (spec.start, spec.end, spec.ranges) == ({0: 1, 1: 2}, {0: 1, 1: 4}, [1])


@pytest.mark.parametrize("option", ["start", "end"])
def test_offsets_that_do_not_fit_the_partitions_are_refused(queue: LastValueQueue[Any], option: str) -> None:
    with pytest.raises(
        ConfigError, match=rf"{option} does not fit .* lacks partition 1 and names partition 7"
    ) as error:
        pin(queue, **{option: {0: 1, 7: 1}})  # type: ignore[arg-type]
    assert error.value.options == (option,)


def test_a_start_behind_the_end_is_refused(queue: LastValueQueue[Any]) -> None:
    with pytest.raises(ConfigError, match="partition 1 of t, start 4 is beyond end 3") as error:
        pin(queue, start={0: 0, 1: 4}, end={0: 0, 1: 3})
    assert error.value.options == ("start", "end")


def test_a_cut_behind_the_end_of_the_log_is_refused(queue: LastValueQueue[Any]) -> None:
    with pytest.raises(DataLoss, match="offset 9 of partition 1 of t, which holds 0 to 5"):
        pin(queue, end={0: 3, 1: 9})


def test_a_cut_whose_records_are_deleted_is_refused(queue: LastValueQueue[Any], memory_cluster: MemoryCluster) -> None:
    memory_cluster.delete_records("t", 1, 4)
    with pytest.raises(DataLoss, match="offset 3 of partition 1 of t, which holds 4 to 5"):
        pin(queue, end={0: 3, 1: 3})
    with pytest.raises(DataLoss, match="starts at offset 2 of partition 1 of t, whose log starts at 4"):
        pin(queue, start={0: 0, 1: 2})


def test_a_cut_behind_an_open_transaction_is_refused(queue: LastValueQueue[Any], memory_cluster: MemoryCluster) -> None:
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("t", b"held", b"v").result()
    with pytest.raises(ConfigError, match="open since offset") as error:
        pin(queue, end=memory_cluster.logs.end_offsets("t"))
    assert error.value.options == ("end",)


def test_a_missing_topic_is_an_error(memory_cluster: MemoryCluster) -> None:
    with pytest.raises(TopicNotFound):
        pin(LastValueQueue("nowhere", key_header=None, cluster=memory_cluster))


def test_a_cut_can_be_pinned_without_the_right_to_read_settings(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    memory_cluster.fail_next("topics.config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
    spec = pin(queue)
    assert (spec.compaction_lag, spec.delete_retention) == (0.0, 86_400.0), "as Kafka has it by default"


@pytest.mark.parametrize(
    ("policy", "deletes", "superseded"),
    [("compact", 60.0, 1.5), ("compact,delete", 60.0, 1.5), ("delete", math.inf, math.inf)],
)
def test_a_cut_knows_how_long_deletes_and_superseded_records_are_kept(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, policy: str, deletes: float, superseded: float
) -> None:
    memory_cluster.topics.alter_config("t", {"cleanup.policy": policy, "delete.retention.ms": "60000"})
    before = time.time()
    spec = pin(queue)
    assert (spec.delete_retention, spec.compaction_lag) == (deletes, superseded)
    assert spec.pinned is not None
    assert before <= spec.pinned <= time.time()
    assert spec == replace(spec, pinned=0.0), "when it was pinned tells nothing of what it reads"


# -- as of a time ------------------------------------------------------------------------------------------------------


@pytest.fixture
def timed() -> tuple[LastValueQueue[Any], MemoryCluster]:
    """Return a queue with a record for each of the last 100 s, in two partitions.

    The topic keeps superseded records for a minute.
    """
    now = [time.time() - 100]
    cluster = MemoryCluster(clock=lambda: now[0])
    cluster.topics.create("t", partitions=2, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "60000"})
    for second in range(100):
        cluster.write("t", b"k", b"%d" % second, partition=second % 2)
        now[0] += 1
    return LastValueQueue("t", key_header=None, cluster=cluster), cluster


def test_a_cut_as_of_a_time_stops_before_the_first_record_that_is_as_young(
    timed: tuple[LastValueQueue[Any], MemoryCluster],
) -> None:
    queue, cluster = timed
    record = cluster.records("t")[40]
    moment = record.timestamp / 1000
    spec = pin(queue, as_of=moment)
    assert spec.end[record.partition] == record.offset
    assert sum(spec.end.values()) == 80
    assert pin(queue, as_of=datetime.fromtimestamp(moment, UTC)) == spec
    assert pin(queue, as_of=time.time() + 100).end == {0: 50, 1: 50}
    both = pin(queue, as_of={0: moment, 1: time.time() + 100})
    assert both.end == {0: 40, 1: 50}


def test_by_producers_clocks_the_first_record_that_is_as_young_ends_the_cut(memory_cluster: MemoryCluster) -> None:
    """Later records may be older: offsets decide which ones are before and after the cut (R5)."""
    memory_cluster.topics.create("t", partitions=1, config={"cleanup.policy": "delete"})
    for timestamp in (1_000, 3_000, 2_000, 1_500):
        memory_cluster.write("t", b"k", b"v", timestamp=timestamp)
    assert pin(LastValueQueue("t", key_header=None, cluster=memory_cluster), as_of=2.0).end == {0: 1}


def test_a_cut_of_longer_ago_than_records_are_kept_is_refused_or_warned_of(
    timed: tuple[LastValueQueue[Any], MemoryCluster],
) -> None:
    queue, cluster = timed
    with pytest.raises(ConfigError, match=r"is from 20\S+, but the topic keeps superseded records for 60 s") as error:
        pin(queue, as_of=time.time() - 90)
    assert error.value.options == ("as_of",)
    with pytest.warns(UserWarning, match="compaction may have removed some"):
        spec = pin(queue, as_of=time.time() - 90, as_of_policy="warn")
    assert 5 < sum(spec.end.values()) < 15
    cluster.topics.alter_config("t", {"cleanup.policy": "delete"})
    assert pin(queue, as_of=time.time() - 90).end, "a topic that is not compacted keeps all of them"


@pytest.mark.parametrize("moment", [1767225600000, math.nan, math.inf, "2026-01-01", date(2026, 1, 1)])
def test_a_number_that_is_no_time_in_seconds_is_refused_and_not_taken_for_one_in_the_future(
    queue: LastValueQueue[Any], moment: Any
) -> None:
    for as_of in (moment, {0: time.time(), 1: moment}):
        with pytest.raises(ConfigError, match=r"as_of=.* is not a time.* seconds since the epoch") as error:
            pin(queue, as_of=as_of)
        assert error.value.options == ("as_of",)


def test_a_cut_as_of_a_time_stops_before_an_open_transaction(timed: tuple[LastValueQueue[Any], MemoryCluster]) -> None:
    queue, cluster = timed
    writer = cluster.writer(transactional_id="x")
    writer.begin_transaction()
    held = writer.append("t", b"held", b"v").result().partition
    with pytest.warns(UserWarning, match="a transaction open"):
        spec = pin(queue, as_of=time.time() + 100)
    assert spec.end == {0: 50, 1: 50}
    assert [shortfall.partition for shortfall in spec.blocked] == [held]


# -- unconsumed records of a group -------------------------------------------------------------------------------------


def test_the_view_of_a_group_starts_where_it_stands_and_knows_what_it_has_done(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    done = CommitMap(1, (1, 2), partitions=2)
    memory_cluster.groups.commit("g", "t", {0: Commit(0, CommitMap(0).encode()), 1: Commit(1, done.encode())})
    spec = pin(queue, group="g")
    assert (spec.start, spec.end) == ({0: 0, 1: 1}, {0: 3, 1: 5})
    assert spec.done is not None
    assert [spec.done[1].done(offset) for offset in range(5)] == [True, False, True, True, False]
    memory_cluster.delete_records("t", 0, 2)
    assert pin(queue, group="g").start == {0: 2, 1: 1}
    assert pin(queue, group="g", end={0: 2, 1: 0}).ranges == []


def test_a_group_of_another_program_has_done_what_lies_below_its_offsets(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    memory_cluster.groups.commit("g", "t", {0: Commit(3), 1: Commit(2)})
    spec = pin(queue, group="g")
    assert (spec.start, spec.ranges) == ({0: 3, 1: 2}, [1])
    memory_cluster.groups.commit("g", "t", {0: Commit(3, "a note"), 1: Commit(2)})
    with pytest.raises(CommitMapRefused):
        pin(queue, group="g")
    assert pin(queue, group="g", on_foreign_commits="ignore").start == {0: 3, 1: 2}


def test_messages_consumed_while_the_cut_is_pinned_do_not_lie_beyond_its_end(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = memory_cluster.groups.committed

    def consume_and_ask(*args: Any, **options: Any) -> Any:
        memory_cluster.write("t", b"k", b"new", partition=0)
        memory_cluster.groups.commit("g", "t", {0: Commit(4), 1: Commit(0)})
        return ask(*args, **options)

    monkeypatch.setattr(memory_cluster.groups, "committed", consume_and_ask)
    spec = pin(queue, group="g")
    assert (spec.start, spec.end) == ({0: 4, 1: 0}, {0: 4, 1: 5})


@pytest.mark.parametrize("commits", [{}, {0: Commit(1)}])
def test_r17_a_group_without_its_commits_is_an_error(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, commits: dict[int, Commit]
) -> None:
    if commits:
        memory_cluster.groups.commit("g", "t", commits)
    with pytest.raises(QueueNotDeclared):
        pin(queue, group="g")


def test_options_that_say_the_same_thing_twice_are_refused(queue: LastValueQueue[Any]) -> None:
    with pytest.raises(ConfigError, match="group and start are both given"):
        pin(queue, group="g", start={0: 1, 1: 1})
    with pytest.raises(ConfigError, match="at_rest and end are both given"):
        pin(queue, at_rest=1.0, end={0: 1, 1: 1})
    with pytest.raises(ConfigError, match="at_rest and as_of are both given"):
        pin(queue, at_rest=1.0, as_of=0.0)


@pytest.mark.parametrize(("kind", "number"), [("CreateTime", 0), ("LogAppendTime", 1)])
def test_a_cut_knows_what_its_timestamps_are(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster, kind: str, number: int
) -> None:
    memory_cluster.topics.alter_config("t", {"message.timestamp.type": kind})
    assert pin(queue).timestamp_type == number
    memory_cluster.fail_next("topics.config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
    assert pin(queue).timestamp_type == -1
