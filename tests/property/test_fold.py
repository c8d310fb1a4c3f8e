"""The fold against a naive dict, for any log, batching, replay, legal compaction and interleaving."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.message_groups import Groups, Placement
from tests.rules import rules

KEYS = [b"", b"a", b"b", b"c", b"dd", b"\xff\x00"]
headers: st.SearchStrategy[Headers] = st.sampled_from(
    [(), (("k", b"a"),), (("k", b"b"), ("x", None)), (("x", b""), ("x", b"2"))]
)


Step = tuple[int, int, bytes, bytes | None, Headers]
"""How many offsets further a record is, its time, key, value and headers."""

placements: st.SearchStrategy[Placement] = st.sampled_from(["key", "group"])
values = st.one_of(st.none(), st.just(b""), st.binary(min_size=1, max_size=2))
steps = st.lists(
    st.tuples(st.integers(1, 3), st.integers(0, 9), st.sampled_from(KEYS), values, headers), max_size=25
)  # created once, because creating strategies takes longer than drawing


@st.composite
def logs(draw: st.DrawFn, partitions: int = 1, steps: st.SearchStrategy[list[Step]] = steps) -> list[list[Record]]:
    """Draw a log for each partition, with offset gaps, timestamps out of order, deletes, and keys anywhere."""
    result = []
    for partition in range(partitions):
        offset, log = 0, []
        for further, timestamp, key, value, own_headers in draw(steps):
            offset += further
            log.append(Record(partition, offset, timestamp, key, value, own_headers))
        result.append(log)
    return result


def expected(partition_logs: Sequence[Sequence[Record]], placement: Placement = "key") -> dict[bytes, Record]:
    """Apply the rule naively: of the newest records per partition, prefer home, then the time, then the partition.

    By group, no partition is home.
    """
    homes = placement == "key"
    candidates: dict[bytes, list[Record]] = {}
    for log in partition_logs:
        newest = {record.key: record for record in log if record.key is not None}
        for key, record in newest.items():
            candidates.setdefault(key, []).append(record)
    winners = {
        key: max(
            records,
            key=lambda r: (
                homes and r.partition == home_partition(key, len(partition_logs)),
                r.timestamp,
                r.partition,
            ),
        )
        for key, records in candidates.items()
    }
    return {key: record for key, record in winners.items() if record.value is not None}


def in_place(log: Sequence[Record]) -> list[bytes]:
    """Return the keys in order of arrival. An update keeps its place, and a delete gives it up."""
    order: dict[bytes, None] = {}
    for record in log:
        assert record.key is not None
        if record.value is None:
            order.pop(record.key, None)
        else:
            order[record.key] = None
    return list(order)


def content(latest: LatestValues) -> dict[bytes, Record]:
    return {record.key: record for record in latest.table.records() if record.key is not None}


def feed(data: st.DataObject, latest: LatestValues, partition_logs: Sequence[Sequence[Record]]) -> None:
    """Apply the logs in batches of any size, with partitions interleaved and some batches repeated."""
    at = [0] * len(partition_logs)
    pieces = st.lists(st.tuples(st.integers(0, len(partition_logs) - 1), st.integers(1, 8)), min_size=1, max_size=4)
    turns = st.tuples(pieces, st.booleans())
    while any(position < len(log) for position, log in zip(at, partition_logs)):
        batch = []
        turn, again = data.draw(turns)
        for partition, count in turn:
            batch += partition_logs[partition][at[partition] : at[partition] + count]
            at[partition] += count
        latest.apply(RecordBatch.of(batch))
        if batch and again:
            latest.apply(RecordBatch.of(batch))
        assert latest.stats.added - latest.stats.replaced - latest.stats.deleted == len(latest.table)


@given(data=st.data(), partition_logs=logs())
def test_the_fold_of_any_log_equals_a_naive_dict(data: st.DataObject, partition_logs: list[list[Record]]) -> None:
    latest = LatestValues(1, rules(key_header="k"))
    feed(data, latest, partition_logs)
    assert content(latest) == expected(partition_logs)
    assert [record.offset for record in latest.table.records()] == sorted(
        record.offset for record in content(latest).values()
    )
    assert latest.table.keys("in-place") == in_place(partition_logs[0])
    if partition_logs[0]:
        assert latest.progress.positions == {0: partition_logs[0][-1].offset + 1}


@given(data=st.data(), partition_logs=logs(partitions=3), placement=placements)
def test_keys_in_several_partitions_have_one_current_value_whatever_the_order_of_reading(
    data: st.DataObject, partition_logs: list[list[Record]], placement: Placement
) -> None:
    latest = LatestValues(3, rules(groups=Groups(placement=placement)))
    feed(data, latest, partition_logs)
    assert content(latest) == expected(partition_logs, placement)


@given(data=st.data(), log=logs())
def test_the_fold_of_a_log_equals_the_fold_of_any_legal_compaction_of_it(
    data: st.DataObject, log: list[list[Record]]
) -> None:
    newest = {record.key: record.offset for record in log[0]}
    compacted = [record for record in log[0] if newest[record.key] == record.offset or data.draw(st.booleans())]
    # A delete may go once all older records of its key are gone.
    compacted = [
        record
        for record in compacted
        if record.value is not None
        or any(other.key == record.key and other.offset < record.offset for other in compacted)
        or data.draw(st.booleans())
    ]
    latest = LatestValues(1)
    feed(data, latest, [compacted])
    assert content(latest) == expected(log)


@given(data=st.data(), partition_logs=logs(partitions=3))
def test_the_fold_of_several_partitions_equals_that_of_any_compaction_that_keeps_deletes(
    data: st.DataObject, partition_logs: list[list[Record]]
) -> None:
    """A delete hides the key's values in other partitions only until it is compacted away (R14)."""
    compacted = []
    for log in partition_logs:
        newest = {record.key: record.offset for record in log}
        compacted.append([record for record in log if newest[record.key] == record.offset or data.draw(st.booleans())])
    latest = LatestValues(3)
    feed(data, latest, compacted)
    assert content(latest) == expected(partition_logs)


@given(data=st.data(), partition_logs=logs(partitions=2))
def test_a_grown_topic_moves_keys_home_without_reading_again(
    data: st.DataObject, partition_logs: list[list[Record]]
) -> None:
    latest = LatestValues(1)
    feed(data, latest, partition_logs[:1])
    latest.grow(2)
    for record in partition_logs[1]:
        latest.apply(RecordBatch.of([record]))
    # Deletes read while there was one partition were not kept, so later records of their keys are uncontested.
    forgotten = {record.key for record in partition_logs[0] if record.value is None}
    shown, told = content(latest), expected(partition_logs)
    assert {k: r for k, r in shown.items() if k not in forgotten} == {
        k: r for k, r in told.items() if k not in forgotten
    }
    assert told.keys() <= shown.keys()


@given(st.lists(st.tuples(st.integers(0, 40), st.booleans()), max_size=400))
def test_compaction_of_the_columns_loses_nothing(operations: list[tuple[int, bool]]) -> None:
    latest, model = LatestValues(1), {}
    for offset, (number, keep) in enumerate(operations * 40):
        key = b"%d" % number
        record = Record(0, offset, offset, key, b"v%d" % offset if keep else None, (("own", key),))
        latest.apply(RecordBatch.of([record]))
        if keep:
            model[key] = record
        else:
            model.pop(key, None)
    assert content(latest) == model
