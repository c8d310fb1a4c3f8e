"""The cut that a snapshot reads is fixed once, from what the cluster says, and bad ones are refused."""

from __future__ import annotations

import warnings
from typing import Any

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.errors import ConfigError, DataLoss, TopicNotFound, Unauthorized
from lvq_kafka.testing import MemoryLog
from lvq_spark import pin


@pytest.fixture
def queue(memory_log: MemoryLog) -> LastValueQueue[Any]:
    memory_log.create_topic("t", partitions=2, config={"cleanup.policy": "compact", "min.compaction.lag.ms": "1500"})
    for partition, count in ((0, 3), (1, 5)):
        for n in range(count):
            memory_log.write("t", b"k%d" % n, b"v", partition=partition)
    return LastValueQueue("t", key_header="ticker", key_mismatch="header", log=memory_log)


def test_a_cut_names_the_whole_log_of_the_moment_it_is_pinned(
    queue: LastValueQueue[Any], memory_log: MemoryLog
) -> None:
    spec = pin(queue)
    memory_log.write("t", b"k", b"later", partition=0)
    assert (spec.start, spec.end) == ({0: 0, 1: 0}, {0: 3, 1: 5})
    assert spec.topic_id == memory_log.describe_topic("t").id
    assert (spec.partitions, spec.ranges) == (2, [0, 1])
    assert (spec.key_header, spec.key_mismatch, spec.compaction_lag) == ("ticker", "header", 1.5)
    assert spec.blocked == ()


def test_a_cut_starts_where_the_log_starts(queue: LastValueQueue[Any], memory_log: MemoryLog) -> None:
    memory_log.delete_records("t", 0, 3)
    spec = pin(queue)
    assert spec.start == {0: 3, 1: 0}
    assert spec.ranges == [1]


def test_a_cut_stops_before_an_open_transaction_and_says_so(queue: LastValueQueue[Any], memory_log: MemoryLog) -> None:
    writer = memory_log.writer(transactional_id="x")
    writer.begin_transaction()
    held = writer.append("t", b"held", b"v").result().partition
    before = memory_log.end_offsets("t", stable=True)
    with pytest.warns(UserWarning, match=rf"partition {held} .* a transaction that is open"):
        spec = pin(queue)
    assert spec.end == before
    assert [(shortfall.partition, shortfall.blocked) for shortfall in spec.blocked] == [(held, True)]


def test_a_log_that_grows_while_it_is_pinned_is_not_taken_for_an_open_transaction(
    queue: LastValueQueue[Any], memory_log: MemoryLog, monkeypatch: pytest.MonkeyPatch
) -> None:
    ask = memory_log.end_offsets

    def ask_while_it_grows(topic: str, *, stable: bool = False, timeout: float = 10.0) -> dict[int, int]:
        answer = ask(topic, stable=stable, timeout=timeout)
        memory_log.write("t", b"k", b"more", partition=0)
        return answer

    monkeypatch.setattr(memory_log, "end_offsets", ask_while_it_grows)
    with warnings.catch_warnings(action="error"):
        assert pin(queue).blocked == ()


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
    with pytest.raises(ConfigError, match="partition 1 of t, start 4 is behind end 3") as error:
        pin(queue, start={0: 0, 1: 4}, end={0: 0, 1: 3})
    assert error.value.options == ("start", "end")


def test_a_cut_behind_the_end_of_the_log_is_refused(queue: LastValueQueue[Any]) -> None:
    with pytest.raises(DataLoss, match="offset 9 of partition 1 of t, which holds 0 to 5"):
        pin(queue, end={0: 3, 1: 9})


def test_a_cut_whose_records_are_deleted_is_refused(queue: LastValueQueue[Any], memory_log: MemoryLog) -> None:
    memory_log.delete_records("t", 1, 4)
    with pytest.raises(DataLoss, match="offset 3 of partition 1 of t, which holds 4 to 5"):
        pin(queue, end={0: 3, 1: 3})
    with pytest.raises(DataLoss, match="starts at offset 2 of partition 1 of t, whose log starts at 4"):
        pin(queue, start={0: 0, 1: 2})


def test_a_cut_behind_an_open_transaction_is_refused(queue: LastValueQueue[Any], memory_log: MemoryLog) -> None:
    writer = memory_log.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("t", b"held", b"v").result()
    with pytest.raises(ConfigError, match="open since offset") as error:
        pin(queue, end=memory_log.end_offsets("t"))
    assert error.value.options == ("end",)


def test_a_missing_topic_is_an_error(memory_log: MemoryLog) -> None:
    with pytest.raises(TopicNotFound):
        pin(LastValueQueue("nowhere", key_header=None, log=memory_log))


def test_a_cut_can_be_pinned_without_the_right_to_read_settings(
    queue: LastValueQueue[Any], memory_log: MemoryLog
) -> None:
    memory_log.fail_next("topic_config", Unauthorized("no", code="TOPIC_AUTHORIZATION_FAILED"))
    assert pin(queue).compaction_lag == 0.0
