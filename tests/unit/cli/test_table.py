from __future__ import annotations

import io
import time
from typing import Any

from rich.console import Console

from lvq_kafka.cli.table import ValueTable, clock
from lvq_kafka.core.facts import Position
from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry


def entry(key: str, value: Any, headers: Any = (), timestamp: float | None = None) -> Entry[Any]:
    return Entry(key, value, Position("prices", 0, 7), time.time() if timestamp is None else timestamp, headers)


def written(*events: Any, width: int = 60) -> list[str]:
    file = io.StringIO()
    table = ValueTable(Console(file=file, width=width, force_terminal=False), key_header="ticker")
    for event in events:
        table.add(event)
    table.flush()
    return [line.rstrip() for line in file.getvalue().splitlines()]


def test_rows_stand_in_columns_under_a_head() -> None:
    head, first, second = written(entry("IBM", b"118.50"), entry("MICROSOFT", b"402.10"))
    assert head.split() == ["KEY", "VALUE", "TIME", "AT"]
    assert first.split() == ["IBM", "118.50", clock(time.time()), "0/7"]
    assert head.index("VALUE") == first.index("118.50") == second.index("402.10")


def test_no_row_is_wider_than_the_terminal() -> None:
    for line in written(entry("k" * 90, b"v" * 500), entry("株" * 50, "株" * 200), width=70):
        assert len(line) <= 70
    assert "…" in written(entry("k", b"v" * 500), width=70)[1]


def test_offsets_may_grow_longer_than_those_of_the_first_rows() -> None:
    late = Entry("IBM", b"v" * 500, Position("prices", 11, 123456789), time.time())
    row = written(entry("IBM", b"1"), EndOfDump(), late)[2]
    assert row.endswith("  11/123456789")
    assert len(row) <= 60


def test_a_moment_of_another_day_may_come_behind_moments_of_today() -> None:
    events = [entry("IBM", b"v" * 500), EndOfDump(), entry("IBM", b"v" * 500, timestamp=0.0)]
    row = written(*events, width=80)[2]
    assert row.endswith(f"{clock(0.0)}  0/7")
    assert len(row) <= 80


def test_headers_are_shown_beside_the_value_but_for_the_key_header() -> None:
    row = written(entry("IBM", b"1", (("ticker", b"IBM"), ("exchange", b"NYSE"), ("flag", None))))[1]
    assert "exchange=NYSE" in row
    assert "flag=" in row
    assert "ticker" not in row


def test_the_end_of_the_dump_writes_what_waits_and_updates_follow_at_once() -> None:
    lines = written(entry("IBM", b"1"), EndOfDump(), entry("IBM", b"2"), Deleted("IBM"))
    assert [line.split()[:2] for line in lines[1:]] == [["IBM", "1"], ["IBM", "2"], ["IBM", "deleted"]]


def test_updates_without_a_dump_have_columns_too() -> None:
    assert written(EndOfDump(), Deleted("IBM"))[0].split()[:2] == ["IBM", "deleted"]


def test_a_consumed_key_is_not_shown_as_deleted() -> None:
    (row,) = written(Deleted("IBM", consumed=True))
    assert row.split()[:2] == ["IBM", "consumed"]
    (row,) = written(Deleted("IBM", left=True))
    assert row.split()[:2] == ["IBM", "left"]


def test_a_consumed_key_is_not_struck_out() -> None:
    file = io.StringIO()
    table = ValueTable(Console(file=file, width=60, force_terminal=True), key_header="ticker")
    table.add(Deleted("IBM", consumed=True))
    table.flush()
    assert "\x1b[1;9;" not in file.getvalue()
    table.add(Deleted("IBM"))
    table.flush()
    assert "\x1b[1;9;" in file.getvalue()


def test_a_message_without_a_key_does_not_show_the_unique_one_that_it_was_given() -> None:
    head, row = written(entry(f"lvq-unkeyed:{'9' * 32}:0", b"1", (("lvq-unkeyed", b"1"),)))
    assert "lvq-unkeyed" not in row
    assert row.startswith("(no key)  1 ")
    assert head.index("VALUE") == row.index("1 ")


def test_a_moment_of_another_day_has_its_date() -> None:
    assert clock(0.0).startswith(("1970-01-01", "1969-12-31"))
    assert len(clock(time.time())) == len("12:34:56")


def test_on_a_narrow_terminal_the_value_has_room_before_all_else() -> None:
    events = [entry("IBM", b"118.50"), entry("a-rather-long-name-of-a-key", b"a value of some length"), EndOfDump()]
    for width in (16, 24, 32, 40, 48, 60, 80):
        head, first, second = written(*events, width=width)
        assert "118.50" in first, width
        assert head.index("VALUE") == first.index("118.50")
        assert all(len(line) <= width for line in (head, first, second)), width
        assert ("TIME" in head, "AT" in head) == (width >= 60, width >= 80)
    assert "a-rather-long-name-of-a-key" in written(*events, width=60)[2]


def test_updates_alone_fit_a_narrow_terminal_too() -> None:
    (row,) = written(EndOfDump(), entry("IBM", b"118.50"), width=30)[1:]
    assert row.split() == ["IBM", "118.50"]


def test_many_rows_are_written_together() -> None:
    written: list[str] = []

    class Screen(io.StringIO):
        def write(self, text: str) -> int:
            written.append(text)
            return len(text)

    table = ValueTable(Console(file=Screen(), width=60, force_terminal=True), key_header="ticker")
    for number in range(1_000):
        table.add(entry(f"k{number}", b"1"))
    table.flush()
    assert len("".join(written).splitlines()) == 1_001
    assert len(written) < 50
