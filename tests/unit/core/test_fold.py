"""The fold, by examples. Its laws are in tests/property."""

from __future__ import annotations

from enum import StrEnum
from weakref import ref

import pytest

from lvq_kafka.core.latest.fold import LatestValues, Order, ReaderStats
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import UNSELECTED_HEADERS, Headers, Record, RecordBatch
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.errors import KeyMismatch
from tests.rules import rules


def put(
    offset: int, key: bytes | None, value: bytes | None = b"v", headers: Headers = (), partition: int = 0
) -> Record:
    return Record(partition, offset, 1000 + offset, key, value, headers)


def fold(*records: Record, latest: LatestValues | None = None) -> LatestValues:
    latest = LatestValues() if latest is None else latest
    latest.apply(RecordBatch.of(records))
    return latest


def test_r4_an_update_moves_to_the_tail_or_keeps_its_place() -> None:
    latest = fold(*(put(at, key) for at, key in enumerate([b"1", b"2", b"3", b"4", b"2"])))
    assert latest.table.keys() == [b"1", b"3", b"4", b"2"]
    assert latest.table.keys("in-place") == [b"1", b"2", b"3", b"4"]


def test_r8_r14_a_value_that_expired_in_another_partition_takes_nothing_with_it() -> None:
    key = next(key for key in (b"a", b"b", b"c") if home_partition(key, 2) == 0)
    latest = LatestValues(2, rules(order="in-place", ttl=Ttl()))
    fold(put(4000, key, b"home"), latest=latest)
    old = put(0, key, b"1", headers=((TTL_HEADER, b"100"),), partition=1)
    fold(old, put(3000, key, b"2", partition=1), latest=latest)
    assert latest.table.value(key) == b"home"


@pytest.mark.parametrize("partitions", [1, 3])
@pytest.mark.parametrize("holes", [False, True])
def test_r4_the_order_is_the_same_whether_keys_are_sorted_at_once_or_in_parts(
    partitions: int, holes: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    latest = LatestValues(partitions)
    for at in range(400):
        key = b"%d" % (at * 31 % 97)
        value = None if holes and at % 11 == 3 else b"v"
        latest.apply(RecordBatch.of([Record(home_partition(key, partitions), at, 1000 + at // 50, key, value)]))
    in_order = sorted(
        latest.table.records("in-place"), key=lambda record: (record.timestamp, record.partition, record.offset)
    )
    monkeypatch.setattr("lvq_kafka.core.latest.columns._PART", 8)
    assert list(latest.table.records()) == in_order
    assert latest.table.keys() == [record.key for record in in_order]
    assert [record for batch in latest.table.batches(7) for record in batch] == in_order


@pytest.mark.parametrize("order", ["tail", "in-place"])
def test_all_who_ask_for_the_keys_share_one_list_which_no_change_touches(order: Order) -> None:
    latest = fold(*(put(at, b"%d" % at) for at in range(4)))
    before = latest.table.keys(order)
    assert latest.table.keys(order) is before
    for record in (put(4, b"1"), put(5, b"9"), put(6, b"2", None)):
        fold(record, latest=latest)
        assert latest.table.keys(order) == [one.key for one in latest.table.records(order)]
    assert before == [b"0", b"1", b"2", b"3"]


def test_the_keys_in_order_cost_memory_only_while_somebody_has_them() -> None:
    latest = fold(*(put(at, b"%d" % at) for at in range(4)))
    line = ref(latest.table.keys())
    assert line() is None


def test_empty_bytes_is_a_value_and_null_a_delete() -> None:
    latest = fold(put(0, b"a", b""), put(1, b"b"), put(2, b"b", None))
    assert latest.table.value(b"a") == b""
    assert b"b" not in latest.table
    assert latest.table.value(b"b") is None


def test_r2_the_empty_key_is_a_key() -> None:
    assert fold(put(0, b"")).table.keys() == [b""]


def test_records_read_twice_change_nothing() -> None:
    latest = fold(put(0, b"a", b"1"), put(1, b"a", b"2"))
    fold(put(0, b"a", b"1"), put(1, b"a", b"2"), put(2, b"c"), latest=latest)
    assert latest.table.value(b"a") == b"2"
    assert latest.stats == ReaderStats(added=3, replaced=1, stale=2)


def test_a_deleted_key_does_not_come_back_by_a_replay() -> None:
    latest = fold(put(0, b"a", b"1"), put(1, b"a", None))
    fold(put(0, b"a", b"1"), latest=latest)
    assert len(latest.table) == 0


def test_null_keys_are_counted_and_left_out() -> None:
    latest = fold(put(0, None), put(1, b"a"))
    assert (latest.table.keys(), latest.stats.unkeyed) == ([b"a"], 1)


def test_headers_come_back_as_they_were_whatever_kind_of_text_names_them() -> None:
    class Name(StrEnum):
        TRACE = "trace"

    headers = ((Name.TRACE, b"1"), ("gone", None), ("", b""))
    latest = fold(put(0, b"a", headers=headers), put(1, b"b", headers=(("k", b"b"),)), put(2, b"c"))
    assert [record.headers for record in latest.table.records()] == [headers, (("k", b"b"),), ()]
    fold(put(3, b"a", b"2"), put(4, b"c", b"2", headers), latest=latest)
    assert [record.headers for record in latest.table.records()] == [(("k", b"b"),), (), headers]


def test_counters_tell_what_happened_within_one_batch() -> None:
    latest = fold(put(0, b"a"), put(1, b"a", None), put(2, b"a"), put(3, b"b"), put(4, b"b"), put(5, b"c", None))
    assert latest.stats == ReaderStats(added=4, replaced=1, deleted=1)
    assert len(latest.table) == 2


def test_positions_pass_records_and_what_is_no_record() -> None:
    latest = fold(put(4, b"a"))
    assert latest.progress.positions == {0: 5}
    latest.progress.advance({0: 9, 1: 2})
    latest.progress.advance({0: 3})
    assert latest.progress.positions == {0: 9, 1: 2}


@pytest.mark.parametrize(
    "headers",
    [(), (("k", b"a"),), (("k", b"a"), ("x", b"1")), (("k", b"b"), ("k", b"a")), (("other", None),)],
)
def test_headers_are_kept_exactly(headers: Headers) -> None:
    latest = LatestValues(1, rules(key_header="k"))
    fold(put(0, b"a", headers=(("z", b""),)), put(1, b"b", headers=(("k", b"b"),)), latest=latest)
    fold(put(2, b"a", headers=headers), latest=latest)
    record = latest.table.record(b"a")
    assert record is not None
    assert record.headers == headers


def test_r16_a_header_that_disagrees_is_counted_and_the_record_key_counts() -> None:
    latest = fold(put(0, b"a", headers=(("k", b"b"),)), latest=LatestValues(1, rules(key_header="k")))
    assert (latest.table.keys(), latest.stats.mismatched) == ([b"a"], 1)


def test_r16_the_header_counts_where_the_policy_says_so() -> None:
    latest = LatestValues(1, rules(key_header="k", key_mismatch="header"))
    fold(put(0, b"a", headers=(("k", b"x"), ("k", b"b"))), put(1, b"c"), latest=latest)
    assert latest.table.keys() == [b"b", b"c"]


def test_r16_a_mismatch_is_an_error_where_the_policy_says_so_and_nothing_is_applied() -> None:
    latest = LatestValues(1, rules(key_header="k", key_mismatch="fail"))
    with pytest.raises(KeyMismatch, match="t/0/1") as caught:
        fold(put(0, b"a"), put(1, b"a", headers=(("k", b"b"),)), latest=latest)
    assert caught.value.position == ("t", 0, 1)
    assert (len(latest.table), latest.progress.positions) == (0, {})


def test_r14_a_key_in_two_partitions_is_counted_and_named() -> None:
    home = home_partition(b"a", 2)
    latest = fold(put(0, b"a", partition=home), put(9, b"a", partition=1 - home), latest=LatestValues(2))
    assert (latest.split_keys, latest.stats.split, len(latest.table)) == ([b"a"], 1, 1)


def test_r14_growing_the_topic_moves_the_home() -> None:
    latest = LatestValues(1)
    key = next(key for key in (b"%d" % n for n in range(99)) if home_partition(key, 2) == 1)
    fold(put(0, key, b"old"), latest=latest)
    latest.grow(2)
    fold(put(0, key, b"new", partition=1), latest=latest)
    assert latest.table.value(key) == b"new"
    fold(put(1, key, None, partition=1), latest=latest)
    assert key not in latest.table


def test_deletes_are_forgotten_when_the_log_may_have_forgotten_them() -> None:
    latest = LatestValues(2, tombstone_memory=10)
    for offset in range(3000):
        fold(Record(0, offset, offset, b"%d" % offset, None), latest=latest)
    assert len(latest._contested) < 1200


def test_values_that_are_not_selected_are_not_forgotten_since_the_log_keeps_them() -> None:
    latest = LatestValues(2, tombstone_memory=10)
    for offset in range(3000):
        fold(Record(0, offset, offset, b"%d" % offset, None, UNSELECTED_HEADERS), latest=latest)
    assert len(latest.contested) == 3000


def test_ranges_are_in_byte_order_and_follow_changes() -> None:
    latest = fold(put(0, b"b"), put(1, b"a"), put(2, b"ba"))
    assert latest.table.key_range(b"b") == [b"b", b"ba"]
    fold(put(3, b"bb"), put(4, b"ba", None), latest=latest)
    assert latest.table.key_range(b"b", b"c") == [b"b", b"bb"]
    assert latest.table.key_range() == [b"a", b"b", b"bb"]


def test_the_newest_records_of_some_keys_come_in_columns() -> None:
    latest = fold(*(put(at, key) for at, key in enumerate([b"1", b"2", b"3", b"2"])), put(4, b"3", None))
    for keys, there in ([b"2", b"1"], [b"2", b"1"]), ([b"3", b"2", b"4"], [b"2"]), ([], []):
        batch = latest.table.newest(keys)
        assert list(batch) == [latest.table.record(key) for key in there]


def test_a_copy_does_not_follow() -> None:
    latest = fold(put(0, b"a", b"1", (("x", b"1"),)), put(1, b"b"))
    twin = latest.table.copy()
    fold(put(2, b"a", b"2"), put(3, b"b", None), put(4, b"c"), latest=latest)
    assert [record.value for record in twin.records()] == [b"1", b"v"]
    record = twin.record(b"a")
    assert record is not None
    assert record.headers == (("x", b"1"),)


def test_r8_r14_a_value_that_has_expired_by_the_time_it_is_read_hides_those_in_other_partitions() -> None:
    latest, home = LatestValues(2, rules(ttl=Ttl())), home_partition(b"a", 2)
    latest.expire(1000)
    latest.apply(
        RecordBatch.of([Record(home, 0, 10, b"a", b"1", ((TTL_HEADER, b"1"),)), Record(1 - home, 0, 20, b"a", b"2")])
    )
    assert b"a" not in latest.table
    assert latest.expire(1000) == [b"a"]
    assert len(latest.table) == 0
