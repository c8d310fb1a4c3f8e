"""The fold in memory and in a file of a store, driven with the same histories: they hold and report the same."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.composed_fold import ComposedFold
from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.latest.fold import Changes
from lvq_kafka.core.latest.index_rules import IndexRules
from lvq_kafka.core.latest.memory_tables import IN_MEMORY
from lvq_kafka.core.latest.selected_values import StrayKeys
from lvq_kafka.core.latest.tables import NewestRecords, Tables
from lvq_kafka.core.log.records import Headers, Record, RecordBatch
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.ranking import Order
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from lvq_kafka.storing.stored_tables import StoredTables
from lvq_kafka.storing.value_file import ValueFile, open_file
from tests.rules import rules

LONG = b"l" * 480
KEYS = [b"", b"a", b"b", b"\xff\x00", LONG, LONG + b"b", LONG + b"a", b"l" * 462, b"l" * 463]
OUT = b"out"
STEPS = ["read"] * 4 + ["again", "pass", "ask", "reopen", "lose", "grow", "cut"]

Draw = tuple[int, int, bytes, bytes | None, bytes | None, int | None, Headers]
"""Partition, time since the record before, key, value, TTL, delay, and other headers."""

draws = st.tuples(
    st.integers(0, 2),
    st.integers(0, 900),
    st.sampled_from(KEYS),
    st.sampled_from([None, b"", b"1", b"x" * 5000, OUT, OUT]),
    st.sampled_from([None, None, b"1", b"500", b"5000", b"soon"]),
    st.sampled_from([None, None, None, 0, 255, 700, 1500, -50]),
    st.sampled_from([(), (("k", b"a"),), (("n\udce9", None), ("x", b"")), (("k", b""), ("k", b"b"))]),
)


@st.composite
def queues(draw: st.DrawFn) -> QueueRules:
    return rules(
        key_header=draw(st.sampled_from([None, "k"])),
        key_mismatch=draw(st.sampled_from(["record", "header"])),
        ttl=draw(st.sampled_from([None, None, Ttl(), Ttl(default=0.6), Ttl(minimum=0.2, maximum=0.9)])),
        max_delay=draw(st.sampled_from([None, None, 2.0])),
        order=draw(st.sampled_from(["tail", "in-place"])),
        groups=draw(st.sampled_from([None, Groups(placement="group")])),
    )


def apply_to_both(memory: ComposedFold, disk: OnDisk, records: Sequence[Record], *, selecting: bool) -> None:
    changed = memory.store.apply(batch_of(records, selecting=selecting))
    assert changed == disk.fold.store.apply(batch_of(records, selecting=selecting))
    assert list(memory.store.deselected) == list(disk.fold.store.deselected)


class Log:
    """A log of some partitions, which grows."""

    def __init__(self, partitions: int) -> None:
        self.ends = [0] * partitions
        self.now = 10_000
        self.written: list[Record] = []

    def write(self, drawn: Sequence[Draw]) -> list[Record]:
        found = []
        for partition, later, key, value, ttl, delay, headers in drawn:
            self.now += later
            at = partition % len(self.ends)
            if delay is not None:
                headers += ((NOT_BEFORE_HEADER, b"%d" % (self.now + delay)),)
            if ttl is not None:
                headers += ((TTL_HEADER, ttl),)
            found.append(Record(at, self.ends[at], self.now, key, value, headers))
            self.ends[at] += 1
        self.written += found
        return found


def batch_of(records: Sequence[Record], *, selecting: bool) -> RecordBatch:
    batch = RecordBatch.of(records)
    if selecting:
        batch.values = [UNSELECTED if value == OUT else value for value in batch.values]
    return batch


class OnDisk:
    """A fold in a file, which is written after each step."""

    def __init__(self, path: Path, queue: QueueRules, partitions: int, *, selecting: bool) -> None:
        self._path, self._queue, self.partitions, self._selecting = path, queue, partitions, selecting
        self.file: ValueFile
        self.open()
        self.commit()

    def _compose(self, tables: Tables) -> ComposedFold:
        return compose(self._queue, self.partitions, selecting=self._selecting, tables=tables)

    def open(self) -> None:
        self.file = open_file(self._path, (1 << 24,))
        self.file.reserve(1 << 16)  # before any write
        self.fold = self._compose(StoredTables(self.file, IndexRules()))
        if (note := self.file.noted("fold")) is not None:
            self.fold.recall(note)

    def commit(self) -> None:
        self.file.note("fold", self.fold.note())
        self.file.commit()

    def reopen(self) -> None:
        del self.fold, self.file  # which closes it
        self.open()

    def lose(self, batch: RecordBatch) -> None:
        """Fold a batch, and be killed before it counts."""
        self.fold.store.apply(batch)
        self.file.abort()
        self.open()


def compose(queue: QueueRules, partitions: int, *, selecting: bool, tables: Tables = IN_MEMORY) -> ComposedFold:
    strays = StrayKeys() if selecting else None
    return ComposedFold.of(queue, partitions, retention=86_400, strays=strays, several=partitions > 1, tables=tables)


def content(table: NewestRecords, orders: Sequence[Order]) -> dict[Order, list[Record]]:
    return {order: list(table.records(order)) for order in orders}


def assert_same(memory: ComposedFold, disk: ComposedFold, orders: Sequence[Order]) -> None:
    mine, other = memory.store.table, disk.store.table
    assert content(mine, orders) == content(other, orders)
    assert len(mine) == len(other)
    for order in orders:
        assert list(mine.keys(order)) == list(other.keys(order))
    assert set(mine.keys("in-place")) == set(other.keys("in-place"))
    keys = list(mine.keys())
    assert list(mine.headers(keys)) == list(other.headers(keys))
    assert mine.newest([*KEYS, b"none"]) == other.newest([*KEYS, b"none"])
    all_keys, records = list(mine.keys()), {record.key: record for record in mine.records()}
    for start in (b"", b"a", LONG, LONG + b"b"):
        for stop in (None, b"b", LONG, LONG + b"az", b"\xff"):
            keys = mine.key_range(start, stop)
            assert keys == other.key_range(start, stop) == sorted(k for k in all_keys if in_range(k, start, stop))
            scans = mine.scan(start, stop), other.scan(start, stop)
            assert [len(scan) for scan in scans] == [len(keys)] * 2
            assert [list(scan.keys()) for scan in scans] == [keys] * 2
            assert list(scans[0].records()) == list(scans[1].records()) == list(map(records.__getitem__, keys))
            assert list(scans[0].headers()) == list(scans[1].headers()) == list(zip(keys, mine.headers(keys)))
            assert [list(table.scan(start, stop, 2).keys()) for table in (mine, other)] == [keys[:2]] * 2
    assert asdict(memory.store.stats) == asdict(disk.store.stats)
    assert memory.store.progress.positions == disk.store.progress.positions
    assert sorted(memory.store.split_keys) == sorted(disk.store.split_keys)
    assert memory.store.needs_reread == disk.store.needs_reread


def in_range(key: bytes, start: bytes, stop: bytes | None) -> bool:
    return start <= key and (stop is None or key < stop)


def sets(changes: Changes | None) -> tuple[set[bytes], ...] | None:
    return None if changes is None else tuple(map(set, changes))


@given(st.data(), queues(), st.integers(1, 3), st.booleans())
def test_a_store_holds_and_reports_what_memory_does(
    data: st.DataObject, queue: QueueRules, partitions: int, selecting: bool
) -> None:
    """Whatever the options and the batches, as time passes, partitions are added, and processes end or are killed."""
    log, memory = Log(partitions), compose(queue, partitions, selecting=selecting)
    with TemporaryDirectory(prefix="lvq-stores-") as folder:
        disk = OnDisk(Path(folder) / "values.lmdb", queue, partitions, selecting=selecting)
        now, cut, scans = log.now, None, []
        orders: list[Order] = ["tail", "in-place"]
        steps = data.draw(st.lists(st.sampled_from(STEPS), max_size=12))
        for step in steps:
            if step == "read":
                records = log.write(data.draw(st.lists(draws, max_size=8)))
                apply_to_both(memory, disk, records, selecting=selecting)
            elif step == "again":
                apply_to_both(memory, disk, log.written[-3:], selecting=selecting)
            elif step == "pass":
                now = max(now, log.now) + data.draw(st.sampled_from([0, 1, 255, 700, 3000]))
                while True:
                    passed = memory.store.pass_time(now)
                    assert sets(passed) == sets(disk.fold.store.pass_time(now))
                    if passed is None:
                        break
            elif step == "ask":
                now, key = max(now, log.now), data.draw(st.sampled_from(KEYS))
                assert sets(memory.store.pass_time(now, key)) == sets(disk.fold.store.pass_time(now, key))
                assert memory.store.table.record(key) == disk.fold.store.table.record(key)
                assert memory.store.table.value(key) == disk.fold.store.table.value(key)
                assert (key in memory.store.table) == (key in disk.fold.store.table)
            elif step == "reopen":
                if cut is None:  # which would keep the file open
                    disk.reopen()
                    disk.fold.store.pass_time(now)
                    memory.store.pass_time(now)
            elif step == "lose":
                disk.lose(batch_of(log.written[-5:], selecting=selecting))
                more = log.write(data.draw(st.lists(draws, max_size=4)))
                disk.lose(batch_of(more, selecting=selecting))
                disk.fold.store.pass_time(now)
                memory.store.pass_time(now)
                apply_to_both(memory, disk, more, selecting=selecting)
            elif step == "grow" and len(log.ends) < 3:
                orders = ["tail"]  # keys that get their value from another partition at once enter in any order
                log.ends.append(0)
                disk.partitions = len(log.ends)
                assert set(memory.store.grow(len(log.ends))) == set(disk.fold.store.grow(len(log.ends)))
            elif step == "cut":
                cut = disk.fold.store.table.copy(), content(memory.store.table.copy(), orders)
                scans = [fold.store.table.scan(b"", None) for fold in (memory, disk.fold)]
                scanned = list(scans[0].records())
            disk.commit()
            assert_same(memory, disk.fold, orders)
            if cut is not None:
                assert content(cut[0], list(cut[1])) == cut[1]
                assert [list(scan.records()) for scan in scans] == [scanned] * 2
        del cut, scans
