"""Scheduled messages in readers against the rule (R11), for any log, batching, and moments at which time passes."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.latest.fold import LatestValues
from lvq_kafka.core.latest.scheduled_values import ScheduledValues
from lvq_kafka.core.latest.selected_values import SelectedValues, StrayKeys
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, DueTimes
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from tests.rules import rules

KEYS = [b"", b"a", b"b", b"c", b"dd"]
LONGEST = 2_000  # ms
OUT = b"out"
TTLS = [None, None, Ttl(), Ttl(default=0.6), Ttl(minimum=0.2, maximum=0.9)]

Draw = tuple[int, int, bytes, bytes | None, int | bytes | None, bytes | None]
"""Partition, time since the record before, key, value, delay (or an unreadable time) and TTL."""

values = st.sampled_from([None, b"", b"1", b"2", OUT, OUT])
delays = st.sampled_from([None, None, -50, 0, 1, 255, 700, 1500, 1_000_000, b"soon"])
ttls = st.sampled_from([None, b"1", b"500", b"5000"])
records: st.SearchStrategy[list[Draw]] = st.lists(
    st.tuples(st.integers(0, 2), st.integers(0, 900), st.sampled_from(KEYS), values, delays, ttls), max_size=30
)


def log(draws: Sequence[Draw], partitions: int) -> list[Record]:
    found, ends, now = [], [0] * partitions, 10_000
    for partition, later, key, value, delay, ttl in draws:
        now += later
        at = partition % partitions
        headers: Headers = () if ttl is None else ((TTL_HEADER, ttl),)
        if delay is not None:
            headers += ((NOT_BEFORE_HEADER, delay if isinstance(delay, bytes) else b"%d" % (now + delay)),)
        found.append(Record(at, ends[at], now, key, value, headers))
        ends[at] += 1
    return found


def due(record: Record) -> int:
    """Work out by the wording of the rule when a record is due."""
    said = dict(record.headers).get(NOT_BEFORE_HEADER)
    if said is None or not said.isdigit():
        return record.timestamp
    return max(record.timestamp, min(int(said), record.timestamp + LONGEST))


@dataclass
class Rule:
    """The rule, applied naively to all that was read."""

    partitions: int
    ttl: Ttl | None

    def newest(self, read: Sequence[Record], now: int) -> dict[tuple[int, bytes], Record]:
        """Return the record with the highest offset among those due, by partition and key."""
        newest: dict[tuple[int, bytes], Record] = {}
        for record in read:
            if due(record) <= now:
                assert record.key is not None
                newest[record.partition, record.key] = record
        return newest

    def winners(self, read: Sequence[Record], now: int) -> dict[bytes, Record]:
        """Return the record that wins the contest of partitions, by key (R14)."""
        rivals: dict[bytes, list[Record]] = {}
        for (_, key), record in self.newest(read, now).items():
            rivals.setdefault(key, []).append(record)
        return {
            key: max(
                all_, key=lambda r: (r.partition == home_partition(key, self.partitions), r.timestamp, r.partition)
            )
            for key, all_ in rivals.items()
        }

    def current(self, read: Sequence[Record], now: int) -> dict[bytes, Record]:
        """Return the current values at a time."""
        judge = ExpiryTimes.of(self.ttl)
        return {
            key: record
            for key, record in self.winners(read, now).items()
            if record.value is not None and (judge is None or judge.expiry(record.timestamp, record.headers) >= now)
        }

    def scheduled(self, read: Sequence[Record], now: int) -> int:
        """Count the messages that are not due and have no newer record that is."""
        newest = self.newest(read, now)
        return sum(
            due(one) > now and ((at := (one.partition, one.key or b"")) not in newest or newest[at].offset < one.offset)
            for one in read
            if one.value is not None
        )


def queue(ttl: Ttl | None = None) -> QueueRules:
    return rules(ttl=ttl, max_delay=LONGEST / 1000)


def fold(partitions: int, ttl: Ttl | None) -> ScheduledValues:
    values = LatestValues(partitions, queue(ttl), tombstone_memory=1 << 60)
    return ScheduledValues(values, queue(ttl), DueTimes(LONGEST / 1000))


def pass_all(store: ScheduledValues, now: int) -> set[bytes]:
    """Let time pass; return the keys that were reported."""
    told: set[bytes] = set()
    while (passed := store.pass_time(now)) is not None:
        told.update(passed.touched, passed.deselected, passed.expired)
    return told


@given(records, st.integers(1, 3), st.sampled_from(TTLS), st.data())
def test_s114_s115_s116_r11_at_any_moment_there_are_the_values_that_the_rule_says(
    draws: list[Draw], partitions: int, ttl: Ttl | None, data: st.DataObject
) -> None:
    """However it is batched, read again or asked; nothing comes back; all changes are reported."""
    written, rule = log(draws, partitions), Rule(partitions, ttl)
    store = fold(partitions, ttl)
    at, now = 0, 10_000
    shown: dict[bytes, Record] = {}
    past: dict[tuple[int, bytes], int] = {}  # the highest offset that was current
    while at < len(written) or data.draw(st.booleans()):
        size = data.draw(st.integers(0, 6))
        now = max([now, *(record.timestamp for record in written[at : at + size])])
        batch = written[at : at + size]
        again = data.draw(st.sampled_from([0, 0, 3]))
        told = set(store.apply(RecordBatch.of(batch)))
        at += size
        told |= set(store.apply(RecordBatch.of(written[max(0, at - again) : at])))
        now += data.draw(st.sampled_from([0, 0, 1, 200, 700, 3000]))
        expected = rule.current(written[:at], now)
        for key in data.draw(st.lists(st.sampled_from(KEYS), max_size=2)):  # right, however much is still to be done
            if (passed := store.pass_time(now, key)) is not None:
                told.update(passed.touched, passed.deselected, passed.expired)
            assert store.table.record(key) == expected.get(key)
            assert (key in store.table) == (key in expected)
        told |= pass_all(store, now)
        found = {record.key: record for record in store.table.records() if record.key is not None}
        assert found == expected
        assert {key for key in shown.keys() | found.keys() if shown.get(key) != found.get(key)} <= told
        shown = found
        for key, record in found.items():
            assert record.offset >= past.get((record.partition, key), 0), "it has come back"
            past[record.partition, key] = record.offset
        stats = store.stats
        assert stats.added - stats.replaced - stats.deleted - stats.expired == len(store.table)
        assert stats.scheduled == rule.scheduled(written[:at], now)


@given(records, st.lists(st.tuples(st.integers(1, 8), st.integers(0, 1500)), max_size=12), st.sampled_from([1, 3]))
def test_with_a_selection_the_rule_comes_first(
    draws: list[Draw], steps: list[tuple[int, int]], partitions: int
) -> None:
    """A value that is not selected hides the one before from the moment it is due, and never reports too little."""
    written, rule, strays = log(draws, partitions), Rule(partitions, None), StrayKeys()
    for _ in range(10):  # readings
        values = LatestValues(partitions, tombstone_memory=1 << 60)
        selected = SelectedValues(values, queue(), strays, several=partitions > 1)
        store = ScheduledValues(selected, queue(), DueTimes(LONGEST / 1000))
        at, now = 0, 10_000
        shown: set[bytes] = set()
        for size, later in [*steps, (len(written), 0), (0, LONGEST + 1)]:
            batch = RecordBatch.of(written[at : at + size])
            batch.values = [UNSELECTED if value == OUT else value for value in batch.values]
            now = max([now, *batch.timestamps])
            changed, left = set(store.apply(batch)), set(store.deselected)
            now, at = now + later, at + size
            while (passed := store.pass_time(now)) is not None:
                assert not set(passed.touched) & set(passed.deselected)
                changed |= set(passed.touched)
                left |= set(passed.deselected)
            if store.needs_reread:
                break
            winners = rule.winners(written[:at], now)
            expected = {key: one for key, one in winners.items() if one.value not in (None, OUT)}
            assert {record.key: record for record in store.table.records()} == expected
            assert shown ^ expected.keys() <= changed | left
            assert left - expected.keys() <= shown | changed | left
            shown = set(expected)
        if not store.needs_reread:
            return
    raise AssertionError("the doubts do not end")


def marked(batch: RecordBatch, condition: Callable[[bytes | None], bool]) -> RecordBatch:
    batch.values = [value if condition(value) else UNSELECTED for value in batch.values]
    return batch


def test_s115_a_value_that_is_not_selected_takes_effect_when_it_is_due() -> None:
    selected = SelectedValues(LatestValues(1), queue(), StrayKeys(), several=False)
    store = ScheduledValues(selected, queue(), DueTimes(LONGEST / 1000))
    store.pass_time(0)
    store.apply(RecordBatch.of([Record(0, 0, 0, b"a", b"1")]))
    later = ((NOT_BEFORE_HEADER, b"100"),)
    store.apply(marked(RecordBatch.of([Record(0, 1, 0, b"a", OUT, later)]), lambda value: value != OUT))
    assert store.pass_time(99) is None
    assert store.table.value(b"a") == b"1"
    passed = store.pass_time(100)
    assert passed is not None
    assert list(passed.deselected) == [b"a"]
    assert b"a" not in store.table
    store.apply(marked(RecordBatch.of([Record(0, 2, 0, b"a", OUT, ((NOT_BEFORE_HEADER, b"500"),))]), lambda _: False))
    store.apply(RecordBatch.of([Record(0, 3, 100, b"a", b"2")]))
    assert (store.stats.added, store.stats.scheduled) == (2, 0), "the one between never was a value"


def test_a_line_of_many_scheduled_values_of_one_key_costs_no_more_than_their_number() -> None:
    """Each becomes current in turn."""
    store, count = fold(1, None), 20_000
    store.pass_time(0)
    headers = [((NOT_BEFORE_HEADER, b"%d" % (1 + at % LONGEST)),) for at in range(count)]
    for at in range(0, count, 1000):
        batch = [Record(0, one, 0, b"a", b"%d" % one, headers[one]) for one in range(at, at + 1000)]
        store.apply(RecordBatch.of(batch))
    assert store.stats.scheduled == count
    for now in (1, 500, 1999):
        pass_all(store, now)
        newest = store.table.record(b"a")
        assert newest is not None
        assert newest.offset == count - LONGEST + now - 1
    store.apply(RecordBatch.of([Record(0, count, 0, b"a", None)]))
    assert store.stats.scheduled == 0
    assert pass_all(store, LONGEST) == set()
    assert b"a" not in store.table


def test_entries_of_what_was_superseded_do_not_pile_up() -> None:
    store, later = fold(1, None), ((NOT_BEFORE_HEADER, b"1000"),)
    store.pass_time(0)
    for at in range(0, 40_000, 1000):
        batch = [Record(0, at + one, 0, b"a", b"1", later if one < 999 else ()) for one in range(1000)]
        store.apply(RecordBatch.of(batch))
    assert store.stats.scheduled == 0
    assert len(store._scheduled._aside._queue) < 6000  # type: ignore[attr-defined]
