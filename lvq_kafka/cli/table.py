"""A growing table of values, for people."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.segment import Segment, Segments
from rich.table import Table
from rich.text import Text

from lvq_kafka.cli.printable import printable_key, printable_text, printable_value
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.json_lines import how_gone
from lvq_kafka.reading.entries import Deleted, EndOfDump, Event

if TYPE_CHECKING:
    from rich.console import Console

    from lvq_kafka.json_lines import Valued

__all__ = ["ValueTable", "clock", "fitted_table", "plain_table"]

_TOGETHER = 200  # rows written at once; the first batch determines the column widths
_KEY_WIDTH = (8, 40)
_LEAST_ROOM = 20  # terminal columns for a value before other columns give way
_GAP = "  "


class ValueTable:
    """A table of values. The first rows set the column widths; longer text is cut off.

    Args:
        key_header: the header that holds the key. The key column already shows it, or that there is none, so a row's
            headers omit it.
    """

    def __init__(self, console: Console, *, key_header: str | None) -> None:
        self._console = console
        self._key_header = key_header
        self._waiting: list[Valued | Deleted] = []
        self._widths: tuple[int, int, int] | None = None  # key, time, position
        self._lines: list[Segment] = []

    def add(self, event: Event[Any] | Valued) -> None:
        """Add a row, a deletion, or the end of the dump. Rows may be buffered until `flush`."""
        if isinstance(event, EndOfDump):
            self.flush()
            return
        self._waiting.append(event)
        if len(self._waiting) >= _TOGETHER:
            self.flush()

    def flush(self) -> None:
        """Write the buffered rows."""
        if self._widths is None and self._waiting:
            self._measure([item for item in self._waiting if not isinstance(item, Deleted)])
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            if isinstance(item, Deleted):
                how = how_gone(item)
                told, struck = ("red", "strike") if how == "deleted" else ("dim", "")
                self._write(item.key, how, "", time.time(), "", style=told, key_style=struck)
            else:
                self._write(item.key, printable_value(item.value), self._headers(item), item.timestamp, _place(item))
        lines, self._lines = self._lines, []
        if lines:
            self._console.print(Segments(lines), end="", crop=False)

    def _headers(self, item: Valued) -> str:
        shown = [
            f"{_GAP}{printable_text(name)}={'' if data is None else printable_value(data)}"
            for name, data in item.headers
            if name not in (self._key_header, UNKEYED_HEADER)
        ]
        return "".join(shown)

    def _measure(self, items: list[Valued]) -> None:
        if not items:
            self._lay_out(20, 8, 6)
            return
        low, high = _KEY_WIDTH
        key = min(high, max(low, *(cell_len(printable_key(item.key)) for item in items)))
        when = max(len(clock(item.timestamp)) for item in items)
        place = max(len("AT"), *(len(_place(item)) for item in items))
        key, _, _ = self._lay_out(key, when, place)
        style = "bold dim"
        self._line((_fit("KEY", key), style), [(_fit("VALUE", self._room), style)], "TIME", "AT", style=style)

    def _lay_out(self, key: int, when: int, place: int) -> tuple[int, int, int]:
        """Choose the widths; if there is little room, omit the positions, then the times."""
        self._widths = (key, when, place)
        if self._room < _LEAST_ROOM:
            self._widths = (key, when, 0)
        if self._room < _LEAST_ROOM:
            self._widths = (key, 0, 0)
        if self._room < _LEAST_ROOM:
            self._widths = (min(key, max(_KEY_WIDTH[0], self._console.width // 3)), 0, 0)
        return self._widths

    @property
    def _room(self) -> int:
        """The width left for the value."""
        assert self._widths is not None
        return max(1, self._console.width - sum(width + len(_GAP) for width in self._widths if width))

    def _write(
        self, key: str, value: str, headers: str, timestamp: float, place: str, *, style: str = "", key_style: str = ""
    ) -> None:
        assert self._widths is not None
        key_width, when_width, place_width = self._widths
        when = clock(timestamp)
        # Offsets grow and days end: later rows may need more room than was measured.
        longer = max(0, len(place) - place_width) if place_width else 0
        longer += max(0, len(when) - when_width) if when_width else 0
        text = _fit(value + headers, max(1, self._room - longer))
        shown = _fit_key(printable_key(key), key_width)
        parts = [(text[: len(value)], style), (text[len(value) :], "dim")]
        self._line((shown, f"bold cyan {key_style}".strip()), parts, when, place, style="dim")

    def _line(
        self, key: tuple[str, str], value: Sequence[tuple[str, str]], when: str, place: str, *, style: str
    ) -> None:
        """Assemble a line. Rich's `Text` would take a fifth of a millisecond for it."""
        assert self._widths is not None
        _, when_width, place_width = self._widths
        parts = [key, (_GAP, ""), *value]
        if when_width:
            parts.append((f"{_GAP}{when:<{when_width}}", style))
        if place_width:
            parts.append((f"{_GAP}{place:>{place_width}}", style))
        get_style = self._console.get_style
        self._lines += [Segment(text, get_style(name) if name else None) for text, name in parts if text]
        self._lines.append(Segment.line())


def plain_table() -> Table:
    """Return a table without lines, in the style of the rows of values."""
    return Table(box=None, header_style="bold dim", pad_edge=False, padding=(0, 2, 0, 0))


def fitted_table(
    width: int, rows: Sequence[Mapping[str, str]], *, gives_way: Sequence[str], numbers: bool = False
) -> tuple[Table, list[str]]:
    """Return a table of these rows, without the columns that do not fit the terminal width.

    Args:
        width: the width of the terminal.
        rows: the rows, as cells by column head.
        gives_way: the columns that may be left out, the least important first.
        numbers: whether cells are right-aligned.

    Returns:
        The table, and the heads of the columns that were left out.
    """
    widths = {head: max(len(head), *(cell_len(row[head]) for row in rows)) for head in rows[0]}
    left_out: list[str] = []
    while sum(widths.values()) + len(_GAP) * (len(widths) - 1) > width and len(left_out) < len(gives_way):
        left_out.append(gives_way[len(left_out)])
        del widths[left_out[-1]]
    table = plain_table()
    for number, head in enumerate(widths):
        table.add_column(
            head,
            style="" if number or numbers else "bold cyan",
            justify="right" if numbers else "left",
            overflow="fold",  # a truncated name is useless
        )
    for row in rows:
        table.add_row(*(Text(row[head]) for head in widths))
    return table, left_out


def _fit(text: str, width: int) -> str:
    if text.isascii():  # like most: one column per character
        return f"{text[: width - 1]}…" if len(text) > width else text.ljust(width)
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _fit_key(text: str, width: int) -> str:
    """Fit a key into a column: what is left out is its middle, as many keys begin alike."""
    if cell_len(text) <= width or width < _KEY_WIDTH[0]:
        return _fit(text, width)
    end, room = "", (width - 1) // 2
    for character in reversed(text):
        if cell_len(character + end) > room:
            break
        end = character + end
    return f"{set_cell_size(text, width - 1 - cell_len(end))}…{end}"


def _place(item: Valued) -> str:
    return f"{item.position.partition}/{item.position.offset}"


def clock(timestamp: float) -> str:
    """Format a time as local time, with the date unless it is today."""
    return _clock(int(timestamp // 1), time.localtime()[:3])


@lru_cache(1024)
def _clock(second: int, today: tuple[int, ...]) -> str:
    moment = time.localtime(second)
    return time.strftime("%H:%M:%S" if moment[:3] == today else "%Y-%m-%d %H:%M", moment)
