"""Reasons not to build on a version (R18): it is rebuilt or refused, and the reason is given."""

from __future__ import annotations

import errno
import os
import re
import threading
import traceback
from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager, closing
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from confluent_kafka import Producer
from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
from pyspark.errors import PythonException

from lvq_kafka import LastValueQueue
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    CatchUpTimeout,
    ConfigError,
    DataLoss,
    KeyMismatch,
    LVQError,
    OffsetsExpired,
    OutcomeUnknown,
    QueueMismatch,
    QueueNotDeclared,
    StoreFailed,
    TopicMismatch,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from lvq_kafka.testing.compaction import force_compaction
from lvq_spark import pin, snapshot, task_errors
from lvq_spark.scan.scanning import Scan, connected
from lvq_spark.store import read_version, refresh, versions
from lvq_spark.store.guards import aged, epochs_of, log_state, overdue, pinned_at, quiet, unfit
from lvq_spark.store.layout.builder import horizon
from lvq_spark.store.layout.spark_delta import STORED
from lvq_spark.store.manifest import Version
from lvq_spark.store.storage import LocalStorage, storage_errors
from lvq_spark.store.versions import Store
from tests.integration.test_leader_epochs import cut
from tests.spark.overtaking import Overtaken
from tests.spark.test_store_refresh import DAY, append, values
from tests.spark.test_store_versions import VERSION, rewrite
from tests.waiting import eventually

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]


# -- judging a version, without a broker -------------------------------------------------------------------------------


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[Any]:
    memory_cluster.topics.create(
        "t", partitions=2, config={"cleanup.policy": "compact", "delete.retention.ms": "60000"}
    )
    for partition, count in ((0, 3), (1, 5)):
        for n in range(count):
            memory_cluster.write("t", b"k%d" % n, b"v", partition=partition)
    return LastValueQueue("t", key_header=None, cluster=memory_cluster)


def base(queue: LastValueQueue[Any], **changes: Any) -> Version:
    """Return a version of the queue's current state."""
    log = log_state(queue, 10.0)
    facts = {"topic": "t", "topic_id": log.topic_id, "key_header": None, "key_mismatch": "record", "schema": STORED}
    seen = {"start": log.start, "end": log.end, "epochs": log.epochs, "pinned": log.at}
    return replace(VERSION, **{**facts, **seen, **changes})


def judged(queue: LastValueQueue[Any], version: Version) -> LVQError | None:
    return unfit(version, queue, log_state(queue, 10.0), 10.0)


def test_a_version_of_this_log_can_be_built_upon(queue: LastValueQueue[Any], memory_cluster: MemoryCluster) -> None:
    version = base(queue)
    memory_cluster.write("t", b"new", b"v", partition=1)
    assert judged(queue, version) is None


@pytest.mark.parametrize(
    ("changes", "error", "said"),
    [
        ({"topic_id": "another"}, TopicRecreated, "re-created"),
        ({"end": {0: 3}}, TopicMismatch, "has 2 partitions; it had 1 when version 7 was made"),
        ({"end": {0: 3, 1: 6}}, DataLoss, "partition 1 of t ends at offset 5, but .* up to offset 6.* truncated"),
        ({"key_header": "ticker"}, QueueMismatch, "made with key_header 'ticker', not None"),
        ({"key_mismatch": "fail"}, QueueMismatch, "key_mismatch 'fail', not 'record'"),
        ({"topic": "elsewhere"}, QueueMismatch, "topic 'elsewhere', not 't'"),
        ({"schema": "key binary"}, QueueMismatch, "columns 'key binary'"),
    ],
)
def test_a_version_of_another_log_or_queue_is_not_built_upon(
    queue: LastValueQueue[Any], changes: dict[str, Any], error: type[LVQError], said: str
) -> None:
    found = judged(queue, base(queue, **changes))
    assert type(found) is error
    assert re.search(said, str(found))


def test_a_log_that_begins_behind_the_version_is_told(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    version = base(queue, end={0: 1, 1: 5})
    memory_cluster.delete_records("t", 0, 1)
    assert judged(queue, version) is None
    memory_cluster.delete_records("t", 0, 2)
    assert isinstance(judged(queue, version), DataLoss)


def test_a_version_of_a_topic_that_is_not_compacted_does_not_grow_too_old(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    long_ago = datetime.now(UTC) - timedelta(days=9)
    version = base(queue, pinned=long_ago)
    memory_cluster.write("t", b"new", b"v", partition=1)
    assert isinstance(judged(queue, version), DataLoss)
    memory_cluster.topics.alter_config("t", {"cleanup.policy": "delete"})
    log = log_state(queue, 10.0)
    assert judged(queue, version) is None
    assert overdue(replace(log, at=long_ago), "refresh") is None
    assert not quiet(base(queue, pinned=long_ago), log)
    assert horizon(log, ALWAYS) == 0, "no delete is forgotten"


def test_r14_deletes_are_remembered_longer_where_messages_may_be_scheduled(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    log = log_state(queue, 10.0)
    assert horizon(log, ALWAYS) - horizon(log, TimeRule(max_delay=60.0)) == 60_000


def test_a_log_that_was_cut_and_has_grown_again_is_told(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    version = base(queue)
    memory_cluster.elect("t", 1)
    assert judged(queue, version) is None, "another leader is nothing bad"
    memory_cluster.elect("t", 1, end=4)
    for n in range(3):
        memory_cluster.write("t", b"other%d" % n, b"v", partition=1)
    found = judged(queue, version)
    assert isinstance(found, DataLoss)
    assert re.search("has lost records that version 7 was read from.* partition 1", str(found))
    assert judged(queue, replace(version, epochs={})) is None, "offsets alone do not tell"
    memory_cluster.write("t", b"k", b"v", partition=0)
    assert epochs_of(queue, log_state(queue, 10.0), version.end) == {0: 0, 1: 2}


def test_the_epoch_of_a_cut_beyond_the_look_is_known_only_where_the_leader_has_stayed(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    log = log_state(queue, 10.0)
    for partition in (0, 1):
        memory_cluster.write("t", b"k", b"v", partition=partition)
    assert epochs_of(queue, log, {0: 4, 1: 6}) == {0: 0, 1: 0}
    memory_cluster.elect("t", 0)
    assert epochs_of(queue, log, {0: 4, 1: 6}) == {1: 0}
    assert epochs_of(queue, log, {0: 3, 1: 6}) == {0: 0, 1: 0}


def test_a_version_older_than_deletes_are_kept_is_told_unless_nothing_was_written_since(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    old = base(queue, pinned=datetime.now(UTC) - timedelta(seconds=100))
    assert judged(queue, old) is None
    memory_cluster.write("t", b"k", None, partition=1)
    found = judged(queue, old)
    assert isinstance(found, DataLoss)
    assert re.search(r"1\d\d s old, but t keeps deletes for 60 s", str(found))
    young = replace(old, pinned=datetime.now(UTC) - timedelta(seconds=20))
    assert judged(queue, young) is None
    log = log_state(queue, 10.0)
    assert aged(young, log, log.at + timedelta(seconds=41)) is not None, "it is judged again when all is read"


def test_settings_that_may_not_be_read_are_taken_for_kafka_s_own(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    memory_cluster.fail_next("topics.config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
    assert log_state(queue, 10.0).retention == 86_400.0


def test_a_cut_is_as_old_as_what_was_written_behind_it(
    queue: LastValueQueue[Any], memory_cluster: MemoryCluster
) -> None:
    log = log_state(queue, 10.0)
    assert pinned_at(queue, log, log.end) == log.at
    late = replace(log, at=datetime.now(UTC) + timedelta(seconds=650))  # all records are old by then
    assert pinned_at(queue, late, {0: 2, 1: 5}) == late.at - timedelta(seconds=3600)
    ages = replace(log, at=datetime.now(UTC) + timedelta(days=30))
    assert pinned_at(queue, ages, {0: 3, 1: 4}) == datetime.fromtimestamp(0, UTC)


# -- the effect on a refresh -------------------------------------------------------------------------------------------


def recreate(queue: LastValueQueue[bytes], partitions: int, config: Mapping[str, str]) -> None:
    queue.cluster.topics.delete(queue.topic)

    def created() -> bool:
        return queue.cluster.topics.create(queue.topic, partitions=partitions, config=config)

    eventually(created, 20)


def test_a_topic_that_was_created_again_is_read_anew_or_refused(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    refresh(spark, queue, path)
    recreate(queue, 1, {"cleanup.policy": "compact"})
    append(queue, ("c", "1"), ("d", "1"), ("e", "1"))
    with pytest.raises(TopicRecreated, match=r"re-created\. Refresh with on_stale='rebuild'"):
        refresh(spark, queue, path, on_stale="fail")
    assert len(versions(spark, path)) == 1
    version = refresh(spark, queue, path)
    (reason,) = version.reasons
    assert (version.kind, version.number) == ("full", 2)
    assert reason.endswith("it was re-created.")
    assert reason in caplog.text
    assert set(values(collect(read_version(spark, path)))) == {"c", "d", "e"}
    assert versions(spark, path)[-1].reasons == (reason,)


def test_added_partitions_and_damaged_files_are_reasons_to_read_anew(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path
) -> None:
    queue, path = make_queue(2), str(tmp_path)
    append(queue, *[(f"k{n}", "1") for n in range(20)])
    first = refresh(spark, queue, path)
    (tmp_path / first.files[0].name).unlink()
    with pytest.raises(DataLoss, match="Version 1 is damaged"):
        refresh(spark, queue, path, on_stale="fail")
    (reason,) = refresh(spark, queue, path).reasons
    assert reason == f"Version 1 is damaged: file://{tmp_path}/{first.files[0].name} is missing."
    queue.cluster.topics.add_partitions(queue.topic, 5)
    append(queue, *[(f"k{n}", "2") for n in range(20)])
    version = refresh(spark, queue, path)
    assert (version.kind, version.partitions) == ("full", 5)
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


def test_a_delete_that_the_log_has_dropped_is_not_missed(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    lvq_broker: ProvidedBroker,
    tmp_path: Path,
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", None))
    force_compaction(lvq_broker.bootstrap_servers, queue.topic, drop_tombstones=True)
    queue.cluster.topics.alter_config(queue.topic, {"delete.retention.ms": "0"})
    with pytest.raises(DataLoss, match="keeps deletes for 0 s"):
        refresh(spark, queue, path, on_stale="fail")
    with pytest.raises(DataLoss, match=r"Reading .* took .* keeps deletes for 0 s"):
        refresh(spark, queue, path)
    queue.cluster.topics.alter_config(queue.topic, DAY)
    manifest = tmp_path / "versions" / "0000000001.json"
    long_ago = (datetime.now(UTC) - timedelta(days=2)).isoformat()
    rewrite(manifest, pinned=long_ago)
    version = refresh(spark, queue, path)
    assert (version.kind, len(version.reasons)) == ("full", 1)
    assert values(collect(read_version(spark, path))) == {"b": "1"}


def test_a_version_that_grows_too_old_while_the_delta_is_read_is_given_up(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, path = make_queue(config=DAY), str(tmp_path)
    append(queue, ("a", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", "2"))
    times = [datetime.now(UTC), datetime.now(UTC) + timedelta(days=2)]
    monkeypatch.setattr("lvq_spark.store.layout.builder.now", lambda: times.pop(0) if len(times) > 1 else times[0])
    with pytest.raises(DataLoss, match="Version 1 is 172"):
        refresh(spark, queue, path, on_stale="fail")
    assert Store(LocalStorage(path)).numbers() == [1]
    assert len([name for name in LocalStorage(path).names("") if name.startswith("v2-")]) == 0


def test_a_record_that_compaction_has_taken_out_of_the_delta_is_a_reason(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, lvq_broker: ProvidedBroker, tmp_path: Path
) -> None:
    """A record after the cut superseded that of the delta: the store must not keep the older value from its base."""
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    refresh(spark, queue, path)
    append(queue, ("b", "2"), ("a", "2"), ("b", "3"))
    force_compaction(lvq_broker.bootstrap_servers, queue.topic)
    queue.cluster.topics.alter_config(queue.topic, DAY)
    with pytest.raises(DataLoss, match="compaction has removed the record"):
        refresh(spark, queue, path, end={0: 4}, on_stale="fail")
    with pytest.raises(DataLoss, match="compaction has removed the record"):
        refresh(spark, queue, path, end={0: 4})
    version = refresh(spark, queue, path, end={0: 4}, consistency="atleast")
    assert version.kind == "delta"
    assert values(collect(read_version(spark, path))) == {"a": "2", "b": "3"}
    assert refresh(spark, queue, path).kind == "delta"
    assert values(collect(read_version(spark, path))) == {"a": "2", "b": "3"}


def test_a_delta_that_may_have_been_overtaken_is_tried_with_a_later_cut_before_all_is_read(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A key right after the cut looks like one that was in it if markers leave holes."""
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("a", "2"))
    refresh(spark, queue, path)
    overtaken = Overtaken(queue)
    overtaken.transaction("a")
    monkeypatch.setattr("lvq_spark.store.incremental.pin", overtaken)
    overtaken.overtakes = {1}
    version = refresh(spark, queue, path, on_stale="fail")
    assert (version.kind, version.end, len(overtaken.cuts)) == ("delta", overtaken.cuts[1].end, 2)
    assert values(collect(read_version(spark, path))) == {"a": "3", "new1": "3"}
    overtaken.overtakes = {3, 4}
    overtaken.transaction("b")
    version = refresh(spark, queue, path)
    assert (version.kind, len(version.reasons), len(overtaken.cuts)) == ("full", 1, 5)
    assert values(collect(read_version(spark, path))) == {"a": "3", "b": "3", "new1": "3", "new3": "3", "new4": "3"}
    overtaken.overtakes = {6}
    overtaken.transaction("c")
    with pytest.raises(DataLoss, match="among them b'new6'"):
        refresh(spark, queue, path, end=queue.cluster.logs.end_offsets(queue.topic), on_stale="fail")
    assert len(overtaken.cuts) == 6, "a cut that was asked for stays as it is"
    overtaken.close()


def test_partitions_that_are_added_between_the_look_and_the_cut_are_a_reason(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, path = make_queue(2), str(tmp_path)
    total = 2

    def grown(*args: Any, **options: Any) -> Any:
        nonlocal total
        total += 1
        queue.cluster.topics.add_partitions(queue.topic, total)
        append(queue, *[(f"k{n}", str(total)) for n in range(20)])
        return pin(*args, **options)

    monkeypatch.setattr("lvq_spark.store.incremental.pin", grown)
    assert refresh(spark, queue, path).partitions == 3
    with pytest.raises(TopicMismatch, match="has 4 partitions; it had 3 when version 1 was made"):
        refresh(spark, queue, path, on_stale="fail")
    version = refresh(spark, queue, path)
    assert (version.kind, version.partitions, len(version.reasons)) == ("full", 5, 1)
    assert values(collect(read_version(spark, path))) == {f"k{n}": "5" for n in range(20)}
    monkeypatch.undo()
    assert refresh(spark, queue, path).kind in ("delta", "full")
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue))


# -- errors of tasks ---------------------------------------------------------------------------------------------------


def test_the_error_of_a_failing_task_comes_out_as_it_is(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    queue = make_queue(config={"cleanup.policy": "delete"})  # a compacted topic takes no record without a key
    assert isinstance(queue.cluster, KafkaCluster)
    foreign = Producer({"bootstrap.servers": queue.cluster.config.bootstrap_servers})
    foreign.produce(queue.topic, b"without a key")
    assert foreign.flush(20) == 0
    with pytest.raises(KeyMismatch, match=f"{queue.topic}/0/0 has no key") as caught:
        refresh(spark, queue, str(tmp_path))
    assert caught.value.__cause__ is not None


@pytest.mark.parametrize(
    "error",
    [
        AuthenticationFailed("refused", code="_AUTHENTICATION"),
        BrokerUnavailable("away", code="_TRANSPORT", retriable=True),
        CatchUpTimeout("stuck"),
        ConfigError("wrong", options=["lvq.strays"]),
        DataLoss("gone", hint="Rebuild."),
        LVQError("whatever"),
        KeyMismatch("differs", position=Position("t", 0, 1)),
        QueueMismatch("another", queue="q", differences={"key_header": ("a", "b")}),
        QueueNotDeclared("not there", queue="q"),
        TopicMismatch("more", topic="t", settings={"partitions": ("2", "3")}),
        TopicNotFound("not there", topic="t"),
        TopicRecreated("another", topic="t"),
        TransportError("broken", code="_FAIL"),
        Unauthorized("Cannot read topic 't'.", code="TOPIC_AUTHORIZATION_FAILED", hint="Ask for an ACL."),
    ],
    ids=lambda error: type(error).__name__,
)
def test_every_error_that_a_task_may_raise_keeps_its_type_and_its_message(error: LVQError) -> None:
    try:
        raise error from OSError("beneath")
    except LVQError:
        text = f"An exception was thrown from the Python worker.\n{traceback.format_exc()}\n\tat java.base/of.Java(1)"
    with pytest.raises(LVQError) as caught, task_errors():
        raise PythonException(text)
    assert type(caught.value) is type(error)
    assert str(caught.value) == str(error)
    assert getattr(caught.value, "retriable", None) == getattr(error, "retriable", None)
    repr(vars(caught.value))


def test_a_version_that_is_pruned_while_somebody_reads_it_is_told_with_what_helps(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("lvq_spark.store.layout.builder.OVERLAY", 0.0)
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"))
    first = refresh(spark, queue, path)
    manifest = tmp_path / "versions" / "0000000001.json"
    kept = manifest.read_bytes()
    frame = read_version(spark, path)
    append(queue, ("a", "2"))
    refresh(spark, queue, path, keep=1, grace=0.0)
    assert not (tmp_path / first.data).exists()
    said = rf"{first.data}/\S+\.parquet is gone: .* pruned before it was read\. .*keep.*grace"
    with pytest.raises(DataLoss, match=said) as caught, task_errors():
        frame.collect()
    assert isinstance(caught.value.__cause__, Py4JJavaError)
    manifest.write_bytes(kept)  # as if it was pruned between reading its manifest and its files
    with pytest.raises(DataLoss, match=said):
        read_version(spark, path, 1)


def test_an_error_that_says_more_than_its_text_is_one_of_the_class_above_it() -> None:
    error = OffsetsExpired("Partitions 1 and 3 are not known.", queue="q", partitions=(1, 3))
    with pytest.raises(QueueNotDeclared, match="Partitions 1 and 3") as caught, task_errors():
        raise PythonException(f"Traceback\nlvq_kafka.errors.OffsetsExpired: {error}\n")
    assert type(caught.value) is QueueNotDeclared


def test_an_error_of_others_passes_unchanged() -> None:
    with pytest.raises(PythonException, match="lacks a package"), task_errors():
        raise PythonException("ImportError: it lacks a package")
    with pytest.raises(PythonException), task_errors():
        raise PythonException("lvq_kafka.errors.OfANewerLibrary: what is it?")


# -- crashes and races -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("overlay", [0.0, 1000.0])
@pytest.mark.parametrize(
    ("step", "where", "after", "there"),
    [
        ("files", "v2-", False, False),
        ("create", "versions/", False, False),
        ("create", "versions/", True, True),
        ("delete", "versions/", False, True),
    ],
)
def test_a_refresh_that_is_killed_leaves_the_old_version_or_the_whole_new_one(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    killed: Callable[..., AbstractContextManager[None]],
    step: str,
    where: str,
    after: bool,
    there: bool,
    overlay: float,
) -> None:
    monkeypatch.setattr("lvq_spark.store.layout.builder.OVERLAY", overlay)
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", "2"), ("b", None), ("c", "1"))
    old, new = {"a": "1", "b": "1"}, {"a": "2", "c": "1"}
    with killed(step, where, after=after):
        refresh(spark, queue, path, keep=1, grace=0.0)
    assert values(collect(read_version(spark, path))) == (new if there else old)
    version = refresh(spark, queue, path, keep=1, grace=0.0)
    assert version.number == 2
    assert values(collect(read_version(spark, path))) == new
    folders = {file.name.partition("/")[0] for file in version.files}
    assert len(folders) == (2 if overlay else 1)
    assert set(LocalStorage(path).names("")) == {"versions", *folders}, "nothing is left behind"


@pytest.mark.parametrize(
    ("overlay", "step", "where"),
    [(0.0, "create", "versions/"), (0.0, "crc32", "v2-"), (1000.0, "create", "v2-")],
    ids=["manifest", "after Spark's files", "a file of the driver"],
)
def test_a_refresh_that_fails_leaves_no_files_of_its_own_and_says_what_is_full(
    spark: SparkSession,
    make_queue: MakeQueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    step: str,
    where: str,
    overlay: float,
) -> None:
    monkeypatch.setattr("lvq_spark.store.layout.builder.OVERLAY", overlay)
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"), ("b", "1"))
    first = refresh(spark, queue, path)
    append(queue, ("a", "2"))
    another = "v2-0123456789ab"
    LocalStorage(path).create(f"{another}/part-0.parquet", b"of an attempt that is at work")
    real, failed = getattr(LocalStorage, step), []

    def full(storage: LocalStorage, name: str, *args: object) -> object:
        if name.startswith(where):
            failed.append(name)
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(tmp_path / name))
        return real(storage, name, *args)

    with monkeypatch.context() as patched:
        patched.setattr(LocalStorage, step, full)
        with pytest.raises(StoreFailed, match=r"No space left on device.*Make room there") as error:
            refresh(spark, queue, path)
    assert (len(failed), error.value.path) == (1, f"file://{tmp_path}")
    assert set(LocalStorage(path).names("")) == {"versions", first.data, another}
    assert refresh(spark, queue, path).number == 2


def test_a_file_where_a_store_should_be_is_an_error_that_names_the_path(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path
) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    queue = make_queue()
    for call in (
        lambda: refresh(spark, queue, file),
        lambda: refresh(spark, queue, file / "below"),
        lambda: versions(spark, file),
        lambda: read_version(spark, file),
    ):
        with pytest.raises(ConfigError, match=f"{file}.* cannot be the directory of a store") as error:
            call()
        assert error.value.options == ("path",)
    with pytest.raises(ConfigError, match=f"{file} cannot be"), storage_errors(f"file:{file}"):
        spark.range(1).write.parquet(f"{file}/v1-0123456789ab")
    said = r"cannot be read or written: No space left on device\. Make"
    with pytest.raises(StoreFailed, match=said), storage_errors("file:/s"):
        raise PythonException("Caused by: java.io.IOException: No space left on device\n\tat java.base/sun.nio")


def test_r18_a_damaged_manifest_has_the_store_rebuilt_from_the_log_and_readers_told(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    queue, path = make_queue(), tmp_path / "store"
    append(queue, ("a", "1"))
    first = refresh(spark, queue, path)
    append(queue, ("a", "2"))
    refresh(spark, queue, path)
    manifest = path / "versions" / "0000000002.json"
    manifest.write_bytes(manifest.read_bytes().replace(b'"rows": 1', b'"rows": 9'))
    said = r"versions/0000000002\.json is not a version's manifest, or is damaged"
    for wanted in ({}, {"version": 2}, {"as_of": datetime.now(UTC)}):
        with pytest.raises(DataLoss, match=rf"{said}\. Refresh the store"):
            read_version(spark, path, **wanted)
    assert versions(spark, path) == [first]
    assert values(collect(read_version(spark, path, 1))) == {"a": "1"}
    with pytest.raises(DataLoss, match=rf"The newest version is lost: .*{said}\. Refresh with on_stale='rebuild'"):
        refresh(spark, queue, path, on_stale="fail")
    caplog.clear()
    refresh(spark, queue, path, keep=1, grace=0.0)
    (warning,) = [record.message for record in caplog.records if record.levelname == "WARNING"]
    assert re.search(f"{path} is rebuilt from the log: The newest version is lost: .*{said}", warning)
    (version,) = versions(spark, path)
    assert (version.number, version.kind, len(version.reasons)) == (3, "full", 1)
    assert values(collect(read_version(spark, path))) == {"a": "2"}
    assert set(LocalStorage(str(path)).names("")) == {"versions", version.data}, "its files are gone, too"


def test_of_two_refreshes_at_once_one_writes_and_the_other_finds_it_written(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"))
    both_have_written, commit = threading.Barrier(2, timeout=120), Store.commit

    def together(store: Store, version: Version) -> bool:
        both_have_written.wait()
        return commit(store, version)

    monkeypatch.setattr(Store, "commit", together)
    results: list[Version] = []
    threads = [threading.Thread(target=lambda: results.append(refresh(spark, queue, path))) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert results[0] == results[1]
    assert versions(spark, path) == results[:1]
    assert set(LocalStorage(path).names("")) == {"versions", results[0].data}, "the other's files are gone"


def test_a_refresh_that_was_overtaken_goes_on_from_the_winner_and_loses_nothing(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue, path = make_queue(), str(tmp_path)
    append(queue, ("a", "1"))
    refresh(spark, queue, path)
    append(queue, ("a", "2"))
    commit, others = Store.commit, []

    def overtaken(store: Store, version: Version) -> bool:
        monkeypatch.setattr(Store, "commit", commit)
        append(queue, ("b", "1"))
        others.append(refresh(spark, queue, path, end={0: 2}))
        append(queue, ("a", None))
        return commit(store, version)

    monkeypatch.setattr(Store, "commit", overtaken)
    mine = refresh(spark, queue, path)
    assert [other.number for other in others] == [2]
    assert (mine.number, mine.base, mine.read_from, mine.end) == (3, 2, {0: 2}, {0: 4})
    assert values(collect(read_version(spark, path))) == {"b": "1"}


def test_a_refresh_that_is_always_overtaken_gives_up(
    spark: SparkSession, make_queue: MakeQueue, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queue = make_queue()
    monkeypatch.setattr("lvq_spark.store.refreshing.ATTEMPTS", 1)
    monkeypatch.setattr(Store, "commit", lambda *_: False)
    with pytest.raises(OutcomeUnknown, match="1 times in a row"):
        refresh(spark, queue, str(tmp_path))


def test_a_failure_to_delete_old_versions_does_not_undo_the_new_one(
    spark: SparkSession,
    make_queue: MakeQueue,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    def denied(*_: object) -> None:
        raise PermissionError("not yours")

    monkeypatch.setattr(Store, "clean", denied)
    assert refresh(spark, make_queue(), str(tmp_path)).number == 1
    assert "could not be deleted: not yours" in caplog.text


def test_a_queue_in_memory_is_refused(spark: SparkSession, queue: LastValueQueue[Any], tmp_path: Path) -> None:
    with pytest.raises(LVQError, match="is on a MemoryCluster"):
        refresh(spark, queue, str(tmp_path))


def test_a_store_is_rebuilt_when_its_log_was_cut_and_has_grown_again(
    spark: SparkSession, collect: Collect, tmp_path: Path
) -> None:
    with EmbeddedBroker() as broker, closing(KafkaCluster(broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        queue = LastValueQueue("prices", key_header=None, cluster=cluster)
        for n in range(20):
            append(queue, (f"k{n}", "1"))
        first = refresh(spark, queue, str(tmp_path / "store"))
        broker.kill()
        broker.restart()
        append(queue, ("k0", "2"))
        second = refresh(spark, queue, str(tmp_path / "store"), timeout=30)
        assert (second.kind, second.rows) == ("delta", 20)
        assert second.epochs[0] > first.epochs[0], "another leader is no reason to rebuild"
        broker.kill()
        cut(broker, "prices")
        broker.restart()
        for n in range(30):
            append(queue, (f"new{n}", "3"))
        assert cluster.logs.end_offsets("prices")[0] > second.end[0]
        with pytest.raises(DataLoss, match="has lost records"):
            refresh(spark, queue, str(tmp_path / "store"), on_stale="fail", timeout=30)
        third = refresh(spark, queue, str(tmp_path / "store"), timeout=30)
        assert third.kind == "full"
        assert "has lost records that version 2 was read from" in third.reasons[0]
        rows = collect(read_version(spark, str(tmp_path / "store")))
        assert rows == collect(snapshot(spark, queue))
        assert b"k19" not in rows


def test_an_unclean_leader_election_under_a_pinned_cut_is_data_loss(
    spark: SparkSession, collect: Collect, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A log that has become shorter is not waited for.

    Once it has grown again, a snapshot fails, and a refresh whose version is below the lost records takes another cut.
    """
    path = str(tmp_path / "store")
    with EmbeddedBroker() as broker, closing(KafkaCluster(broker.bootstrap_servers)) as cluster:
        cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
        queue = LastValueQueue("prices", key_header=None, cluster=cluster)
        for n in range(20):
            append(queue, (f"k{n:02}", "1"))
        refresh(spark, queue, path)
        for n in range(20, 40):
            append(queue, (f"k{n:02}", "1"))
        spec = pin(queue)
        frames = [snapshot(spark, queue, spec=spec, slices=slices) for slices in (1, 3)]

        def elected_once_pinned(*args: Any, **options: Any) -> Any:
            monkeypatch.undo()
            pinned = pin(*args, **options)
            broker.kill()
            cut(broker, "prices")
            broker.restart()
            eventually(lambda: cluster.logs.stable_ends("prices")[0].offset == 20, timeout=30)
            with (
                connected(cluster.config) as connection,
                pytest.raises(DataLoss, match="ends at offset 20, before offset 40"),
            ):
                list(Scan(spec, cluster.config).rows_of(connection, 0))
            for n in range(30):
                append(queue, (f"new{n}", "2"))
            assert pinned.end[0] < cluster.logs.end_offsets("prices")[0]
            return pinned

        monkeypatch.setattr("lvq_spark.store.incremental.pin", elected_once_pinned)
        version = refresh(spark, queue, path, on_stale="fail", timeout=30)
        assert (version.kind, version.read_from, version.end) == ("delta", {0: 20}, {0: 50})
        rows = collect(read_version(spark, path))
        assert set(values(rows)) == {f"k{n:02}" for n in range(20)} | {f"new{n}" for n in range(30)}
        assert rows == collect(snapshot(spark, queue))
        for frame in frames:
            with pytest.raises(DataLoss, match=r"partition 0.*truncation"), task_errors():
                frame.collect()
