"""R18: a reader that resumes by the rule of `Absence` keeps no deleted key, on a log cleaned as in Kafka."""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.log.absence import Absence
from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from tests.effort import examples

RETENTION = 10.0


@dataclass
class Log:
    """A partition. The first cleaning at least `RETENTION` after a delete was first cleaned removes the delete."""

    records: list[Record] = field(default_factory=list)
    end: int = 0
    hidden: int | None = None  # start of an open transaction
    cleaned: dict[int, float] = field(default_factory=dict)

    @property
    def stable(self) -> int:
        return self.end if self.hidden is None else self.hidden

    def write(self, key: bytes, value: bytes | None) -> None:
        self.records.append(Record(0, self.end, 0, key, value))
        self.end += 1

    def clean(self, now: float) -> None:
        """Clean all records below the last stable offset, except the last one, which is in the active segment."""
        below = [record for record in self.records if record.offset < min(self.stable, self.end - 1)]
        newest = {record.key: record.offset for record in below}
        gone = {record.offset for record in below if newest[record.key] != record.offset}
        for record in below:
            last = record.value is None and record.offset not in gone
            if last and now >= self.cleaned.setdefault(record.offset, now) + RETENTION:
                gone.add(record.offset)
        self.records = [record for record in self.records if record.offset not in gone]

    def read(self, position: int, most: int) -> Fetch:
        found = [record for record in self.records if position <= record.offset < self.stable]
        end = found[most].offset if len(found) > most else max(position, self.stable)
        return Fetch(RecordBatch.of(found[:most]), {0: end})

    @property
    def current(self) -> dict[bytes, bytes]:
        table: dict[bytes, bytes] = {}
        for record in self.records:
            if record.offset < self.stable:
                fold(table, record)
        return table


def fold(table: dict[bytes, bytes], record: Record) -> None:
    assert record.key is not None
    if record.value is None:
        table.pop(record.key, None)
    else:
        table[record.key] = record.value


KEYS = st.sampled_from([b"a", b"b", b"c"])
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("put"), KEYS),
        st.tuples(st.just("delete"), KEYS),
        st.tuples(st.just("clean"), st.none()),
        st.tuples(st.just("pass"), st.sampled_from([0.5, 2.0, 8.0, 12.0])),
        st.tuples(st.just("read"), st.integers(1, 3)),
        st.tuples(st.just("ask"), st.none()),  # for the end of the log; the answer comes some steps later
        st.tuples(st.just("tell"), st.none()),
        st.tuples(st.just("hide"), st.none()),
        st.tuples(st.just("show"), st.none()),
    ),
    max_size=60,
)


class Reader:
    """A reader that folds records, and starts over if it was absent too long."""

    def __init__(self, absence: type[Absence]) -> None:
        self._kind = absence
        self.lapses = 0
        self.start(0.0)

    def start(self, now: float) -> None:
        self.table: dict[bytes, bytes] = {}
        self.position = 0
        self.absence = self._kind(RETENTION)
        self.absence.track(now, {0: 0})

    def read(self, now: float, log: Log, most: int) -> None:
        fetch = log.read(self.position, most)
        if self.absence.read(now, fetch) is not None:
            self.lapses += 1
            self.start(now)
            return
        for record in fetch.batch:
            fold(self.table, record)
        self.position = fetch.positions[0]


def follow(steps: list[tuple[str, object]], absence: type[Absence] = Absence) -> Reader:
    now, log, reader = 0.0, Log(), Reader(absence)
    asked: list[tuple[float, int]] = []
    for number, (step, what) in enumerate(steps):
        now += 0.01
        if step == "put":
            log.write(what, b"%d" % number)  # type: ignore[arg-type]
        elif step == "delete":
            log.write(what, None)  # type: ignore[arg-type]
        elif step == "clean":
            log.clean(now)
        elif step == "pass":
            now += what  # type: ignore[operator]
        elif step == "read":
            reader.read(now, log, what)  # type: ignore[arg-type]
        elif step == "ask":
            asked.append((now, log.stable))
        elif step == "tell" and asked:
            then, end = asked.pop(0)
            reader.absence.ended(then, {0: end})
        elif step == "hide" and log.hidden is None:
            log.hidden = log.end
        elif step == "show":
            log.hidden = None
        if reader.position == log.stable:
            assert reader.table == log.current, f"after step {number}"
    return reader


@given(STEPS)
@settings(max_examples=examples(400), deadline=None)
def test_r18_a_reader_at_the_end_of_the_log_holds_no_deleted_key(steps: list[tuple[str, object]]) -> None:
    follow(steps)


class Trusting(Absence):
    """An absence without the rule."""

    @property
    def trusted(self) -> float:
        return math.inf


class Hasty(Absence):
    """An absence that treats a reported end as reached."""

    def ended(self, then: float, ends: object) -> None:
        super().ended(then, {0: 0})


AWAY = [("put", b"a"), ("put", b"b"), ("read", 3)]
GONE = [("delete", b"a"), ("put", b"b"), ("put", b"c"), ("clean", None), ("pass", 12.0), ("clean", None)]


def test_r18_the_model_finds_what_a_reader_without_the_rule_keeps() -> None:
    steps = [*AWAY, *GONE, ("read", 3)]
    assert follow(steps).lapses == 1
    with pytest.raises(AssertionError):
        follow(steps, Trusting)


def test_r18_the_model_finds_what_a_reader_keeps_that_takes_a_look_for_a_read() -> None:
    steps = [*AWAY, *GONE[:4], ("pass", 8.0), ("ask", None), ("tell", None), ("pass", 8.0), ("clean", None)]
    assert follow([*steps, ("read", 3)]).lapses == 1
    with pytest.raises(AssertionError):
        follow([*steps, ("read", 3)], Hasty)


def test_r18_a_reader_that_looks_often_enough_is_never_late() -> None:
    steps: list[tuple[str, object]] = list(AWAY)
    for _ in range(5):
        steps += [("ask", None), ("pass", 8.0), ("put", b"a"), ("clean", None), ("tell", None), ("read", 3)]
    assert follow(steps).lapses == 0
