from __future__ import annotations

import io
import re
import time
from typing import Any

from rich.console import Console
from rich.text import Text

from lvq_kafka.cli.board import Board
from lvq_kafka.core.facts import Position
from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry

NOW = 1000.0  # monotonic seconds


def entry(key: str, value: Any, age: float = 0.0) -> Entry[Any]:
    return Entry(key, value, Position("prices", 0, 7), time.time() - age)


def board(*events: Any, by_recency: bool = False) -> Board:
    made = Board("prices", by_recency=by_recency)
    for event in events:
        made.apply(event, NOW)
    return made


def picture(made: Board, now: float = NOW, *, colour: bool = False, height: int = 20, width: int = 80) -> str:
    file = io.StringIO()
    console = Console(file=file, width=width, force_terminal=colour, color_system="standard" if colour else None)
    console.print(made.picture(now, Text("live"), width, height))
    return file.getvalue()


def row(text: str, key: str) -> str:
    (found,) = (line for line in text.splitlines() if line.startswith(key))
    return found


def test_it_says_how_many_values_there_are_and_how_the_reader_is() -> None:
    head = picture(board(entry("IBM", b"1"), entry("MSFT", b"2"), EndOfDump())).splitlines()[0]
    assert head.startswith("prices")
    assert "2 values" in head
    assert "live" in head


def test_a_message_without_a_key_does_not_show_the_unique_one_that_it_was_given() -> None:
    text = picture(board(entry(f"lvq-unkeyed:{'9' * 32}:0", b"1"), entry("IBM", b"2"), EndOfDump()))
    assert "lvq-unkeyed" not in text
    assert row(text, "(no key)").index("1") == row(text, "IBM").index("2") == len("(no key)  ")


def test_values_of_the_beginning_are_no_changes() -> None:
    class Ended:
        """A browser that yields these events and then closes."""

        state = "caught-up"

        def __init__(self, *events: Any) -> None:
            self._events = list(events)

        def poll(self, timeout: float) -> Any:
            if self._events:
                return self._events.pop(0)
            self.state = "closed"
            return None

    def rate(*events: Any) -> str:
        file = io.StringIO()
        Board("prices").show(Console(file=file, width=80, force_terminal=True), Ended(*events))  # type: ignore[arg-type]
        return re.findall(r"([\d.]+) changes/s", file.getvalue())[-1]

    dump = [entry(f"k{number}", b"1") for number in range(20)]
    assert rate(*dump, EndOfDump()) == "0.0"
    assert rate(*dump, EndOfDump(), entry("k1", b"2"), Deleted("k2")) == "0.4"  # two within five seconds


def test_values_of_the_beginning_do_not_flash() -> None:
    text = picture(board(entry("IBM", b"118.50"), EndOfDump()))
    assert row(text, "IBM").split() == ["IBM", "118.50", "0", "s"]


def test_a_number_that_rises_or_falls_has_an_arrow_and_other_changes_a_mark() -> None:
    dump = [entry(key, b"10") for key in ("down", "same", "text", "up")]
    changes = [entry("up", b"11"), entry("down", b"9.5"), entry("text", b"x"), entry("same", b"10")]
    text = picture(board(*dump, EndOfDump(), *changes))
    assert "11 ▲" in row(text, "up")
    assert "9.5 ▼" in row(text, "down")
    assert "x ●" in row(text, "text")
    assert not {"▲", "▼", "●"} & set(row(text, "same"))


def test_a_change_is_bright_then_glows_then_rests() -> None:
    made = board(entry("IBM", b"1"), EndOfDump(), entry("IBM", b"2"))
    bright, glow, rest = (row_of(picture(made, NOW + age, colour=True)) for age in (0.1, 1.0, 3.0))
    assert "\x1b[1;30;42m2" in bright
    assert "\x1b[32m2" in glow
    assert "\x1b[32m" not in rest
    assert "▲" in rest


def row_of(text: str) -> str:
    (found,) = (line for line in text.splitlines() if "IBM" in line)
    return found


def test_decimal_points_stand_below_each_other() -> None:
    text = picture(board(entry("a", b"9.5"), entry("b", b"123.25"), entry("c", b"7"), EndOfDump()))
    assert row(text, "a").index(".") == row(text, "b").index(".")
    assert row(text, "c").index("7") == row(text, "a").index("9")
    changed = picture(board(entry("a", b"9.5"), entry("b", b"123.25"), EndOfDump(), entry("a", b"9.75")))
    assert row(changed, "a").index(".") == row(changed, "b").index(".")


def test_objects_have_a_column_for_each_field_and_only_what_changed_is_marked() -> None:
    made = board(entry("IBM", {"bid": 1.5, "venue": "NYSE"}), EndOfDump(), entry("IBM", {"bid": 1.25, "venue": "NYSE"}))
    text = picture(made)
    assert "BID" in text
    assert "VENUE" in text
    assert row(text, "IBM").count("▼") == 1
    assert "●" not in row(text, "IBM")


def test_a_deleted_key_is_struck_out_and_then_gone() -> None:
    made = board(entry("IBM", b"1"), entry("MSFT", b"2"), EndOfDump(), Deleted("IBM"), Deleted("NEVER"))
    assert "deleted" in row(picture(made), "IBM")
    assert "1 value " in picture(made)
    assert "IBM" not in picture(made, NOW + 5)
    made.apply(Deleted("MSFT", left=True), NOW)
    assert "left" in row(picture(made), "MSFT")


def test_a_key_that_comes_back_is_not_deleted_any_more() -> None:
    made = board(entry("IBM", b"1"), EndOfDump(), Deleted("IBM"), entry("IBM", b"2"))
    assert "deleted" not in picture(made)
    assert "IBM" in picture(made, NOW + 5)


def test_only_as_many_rows_as_the_terminal_has_room_for() -> None:
    made = board(*(entry(f"k{number:02}", b"1") for number in range(50)), EndOfDump())
    lines = picture(made, height=20).splitlines()
    assert len(lines) < 20
    assert row("\n".join(lines), "k00")
    assert "… and 37 more keys" in lines[-1]


def test_the_newest_come_first_when_that_is_asked_for() -> None:
    made = board(entry("old", b"1", age=90), entry("new", b"1"), entry("older", b"1", age=7200), by_recency=True)
    keys = [line.split()[0] for line in picture(made).splitlines()[3:]]
    assert keys == ["new", "old", "older"]
    assert row(picture(made), "old ").endswith("1 min")
    assert row(picture(made), "older").endswith("2 h")


def test_a_narrow_terminal_shows_keys_and_values_side_by_side() -> None:
    made = board(entry("IBM", b"118.50"), entry("a-rather-long-name-of-a-key", b"2"), EndOfDump())
    for width in (24, 30, 50):
        text = picture(made, width=width)
        assert all(len(line.rstrip()) <= width for line in text.splitlines()), width
        assert "118.50" in row(text, "IBM"), width
        assert "2" in row(text, "a-r"), width
