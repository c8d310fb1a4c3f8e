"""Values as the rows of a table that grows, for people."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any

from rich.cells import cell_len, set_cell_size
from rich.table import Table
from rich.text import Text

from lvq_kafka.cli.output import printable, printable_key, printable_value
from lvq_kafka.cli.rows import how_gone
from lvq_kafka.core.headers import UNKEYED_HEADER
from lvq_kafka.entries import Deleted, EndOfDump, Event

if TYPE_CHECKING:
    from rich.console import Console

    from lvq_kafka.cli.rows import Valued

__all__ = ["ValueTable", "clock", "plain_table"]

_LOOK_AHEAD = 200  # rows that are looked at for the widths of the columns before the first is written
_KEY_WIDTH = (8, 40)
_GAP = "  "


class ValueTable:
    """Writes values as rows, in columns as wide as the first rows need; what is too long is cut off.

    Args:
        key_header: the header that is the key, which the key's own column shows already, as it does that there is none.
    """

    def __init__(self, console: Console, *, key_header: str | None) -> None:
        self._console = console
        self._key_header = key_header
        self._waiting: list[Valued] = []
        self._widths: tuple[int, int, int] | None = None  # key, time, position

    def add(self, event: Event[Any] | Valued) -> None:
        """Take a row, a deletion, or the end of the dump."""
        if isinstance(event, EndOfDump):
            self.flush()
            return
        if isinstance(event, Deleted):
            self.flush()
            how = how_gone(event)
            if how == "deleted":
                self._write(event.key, Text(how, "red"), time.time(), "", key_style="strike")
            else:
                self._write(event.key, Text(how, "dim"), time.time(), "")
            return
        self._waiting.append(event)
        if self._widths is not None or len(self._waiting) >= _LOOK_AHEAD:
            self.flush()

    def flush(self) -> None:
        """Write what is waiting."""
        if self._widths is None and self._waiting:
            self._measure(self._waiting)
        waiting, self._waiting = self._waiting, []
        for item in waiting:
            value = Text(printable_value(item.value))
            for name, data in item.headers:
                if name not in (self._key_header, UNKEYED_HEADER):
                    said = "" if data is None else printable_value(data)
                    value.append(f"{_GAP}{printable(name)}={said}", "dim")
            self._write(item.key, value, item.timestamp, _place(item))

    def _measure(self, items: list[Valued]) -> None:
        low, high = _KEY_WIDTH
        key = min(high, max(low, *(cell_len(printable_key(item.key)) for item in items)))
        when = max(len(clock(item.timestamp)) for item in items)
        place = max(len("AT"), *(len(_place(item)) for item in items))
        self._widths = (key, when, place)
        room = self._room
        head = f"{'KEY':<{key}}{_GAP}{set_cell_size('VALUE', room)}{_GAP}{'TIME':<{when}}{_GAP}{'AT':>{place}}"
        self._console.print(Text(head, "bold dim"), no_wrap=True, overflow="crop")

    @property
    def _room(self) -> int:
        """What is left for the value."""
        assert self._widths is not None
        return max(10, self._console.width - sum(self._widths) - 3 * len(_GAP))

    def _write(self, key: str, value: Text, timestamp: float, place: str, *, key_style: str = "") -> None:
        if self._widths is None:
            self._widths = (20, 8, 6)
        key_width, when_width, place_width = self._widths
        longer = max(
            0, len(place) - place_width
        )  # offsets grow; what follows may need more room than what was measured
        value.truncate(max(1, self._room - longer), overflow="ellipsis", pad=True)
        line = Text.assemble(
            (_fit(printable_key(key), key_width), f"bold cyan {key_style}".strip()),
            _GAP,
            value,
            _GAP,
            (f"{clock(timestamp):<{when_width}}", "dim"),
            _GAP,
            (f"{place:>{place_width}}", "dim"),
        )
        self._console.print(line, no_wrap=True, overflow="crop")


def plain_table() -> Table:
    """A table without lines, as rows of values look."""
    return Table(box=None, header_style="bold dim", pad_edge=False, padding=(0, 2, 0, 0))


def _fit(text: str, width: int) -> str:
    return set_cell_size(text, width) if cell_len(text) <= width else set_cell_size(text, width - 1) + "…"


def _place(item: Valued) -> str:
    return f"{item.position.partition}/{item.position.offset}"


def clock(timestamp: float) -> str:
    """A moment in local time: the time of today, with the date for another day."""
    moment = time.localtime(timestamp)
    today = moment[:3] == time.localtime()[:3]
    return time.strftime("%H:%M:%S" if today else "%Y-%m-%d %H:%M", moment)
