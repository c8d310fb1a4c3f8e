"""A live board of current values."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from rich.console import Console, Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from lvq_kafka.cli.leaders import Leaders
from lvq_kafka.cli.output import count
from lvq_kafka.cli.printable import printable_key, printable_text, printable_value
from lvq_kafka.cli.table import plain_table
from lvq_kafka.core.text.quoting import printable
from lvq_kafka.json_lines import how_gone
from lvq_kafka.reading.entries import Deleted, EndOfDump, Entry, Event

if TYPE_CHECKING:
    from lvq_kafka.core.latest.catch_up import State
    from lvq_kafka.reading.browser import Browser

__all__ = ["Board"]

_FRAME = 0.1  # seconds between two frames of a board that changes
_STILL = 1.0  # and of one that does not: ages still advance
_BRIGHT, _GLOW = 0.5, 2.0  # seconds that a change is highlighted, and stays visible
_RATE_OVER = 5.0  # the window for the rate of changes, in seconds
_COLUMNS = 8
_WIDEST = 60
_PLAIN = "value"

_ARROWS = {"up": ("▲", "green"), "down": ("▼", "red"), "other": ("●", "yellow"), "": (" ", "")}


@dataclass(slots=True)
class _Cell:
    text: str
    moved: str = ""  # the direction of the last change: up, down, other
    at: float = 0.0  # its time, by the monotonic clock

    def next(self, text: str, now: float) -> _Cell:
        return self if text == self.text else _Cell(text, _movement(self.text, text), now)

    def render(self, text: str, now: float) -> Text:
        """Render the cell at a given time; ``text`` is its own text, aligned with its column."""
        arrow, colour = _ARROWS[self.moved]
        age = now - self.at
        bright = f"bold black on {colour}" if colour and age < _BRIGHT else colour if age < _GLOW else ""
        return Text.assemble((text, bright), " ", (arrow, colour if age < _GLOW else "dim"))


@dataclass(slots=True)
class _Row:
    cells: dict[str, _Cell]
    timestamp: float
    at: float
    gone: str = ""
    """The reason why the value is gone, in a word; empty while it is there."""


@dataclass
class Board:
    """Current values by key, with recent changes highlighted.

    Args:
        name: the title.
        by_recency: sort by time of change, newest first, instead of by key.
    """

    name: str
    by_recency: bool = False
    _rows: dict[str, _Row] = field(default_factory=dict)
    _gone: dict[str, float] = field(default_factory=dict)  # keys without a value, and until when they are still shown
    _rate: deque[tuple[float, int]] = field(default_factory=deque)
    _widths: dict[str, int] = field(default_factory=dict)
    _leaders: Leaders = field(init=False)
    _live: bool = False  # whether the initial values have all arrived

    def __post_init__(self) -> None:
        self._leaders = Leaders(self._rows, self._newest_first if self.by_recency else str)

    def _newest_first(self, key: str) -> tuple[float, str]:
        return -self._rows[key].timestamp, key

    def show(self, console: Console, browser: Browser[Any]) -> None:
        """Show the board until the browser closes, usually at Ctrl-C."""
        with Live(console=console, auto_refresh=False) as live:
            shown = 0.0
            while browser.state != "closed":
                came = self._apply_events(browser, time.monotonic() + _FRAME)
                now = time.monotonic()
                lit = any(now - at < _GLOW + 2 * _FRAME for at, _ in self._rate)
                if came or lit or now - shown > _STILL:
                    shown = now
                    live.update(self.picture(now, _state(browser.state), console.width, console.height), refresh=True)

    def _apply_events(self, browser: Browser[Any], until: float) -> bool:
        """Apply events until then; return whether there were any."""
        came, changed = False, 0
        while (left := until - time.monotonic()) > 0:
            event = browser.poll(left)
            if event is None:
                break
            came = True
            changed += self._live  # events before the end of the dump are not changes
            self.apply(event, time.monotonic())
        if changed:
            self._rate.append((time.monotonic(), changed))
        return came

    def apply(self, event: Event[Any], now: float) -> None:
        """Apply an event; ``now`` is by the monotonic clock."""
        if isinstance(event, EndOfDump):
            self._live = True
        elif isinstance(event, Deleted):
            row = self._rows.get(event.key)
            if row is not None:
                row.gone = how_gone(event)
                self._gone[event.key] = now + _GLOW
        else:
            self._put(event, now)

    def _put(self, entry: Entry[Any], now: float) -> None:
        before = self._rows.get(entry.key)
        texts = self._texts(entry.value)
        if before is not None and not before.gone:
            cells = {
                name: before.cells[name].next(text, now) if name in before.cells else _Cell(text, "other", now)
                for name, text in texts.items()
            }
        elif self._live:
            cells = {name: _Cell(text, "other", now) for name, text in texts.items()}
        else:
            cells = {name: _Cell(text) for name, text in texts.items()}
        self._rows[entry.key] = _Row(cells, entry.timestamp, now)
        self._gone.pop(entry.key, None)
        self._leaders.changed(entry.key)

    def _texts(self, value: Any) -> dict[str, str]:
        if isinstance(value, Mapping):
            return {printable_text(str(name)): printable_value(part) for name, part in value.items()}
        return {_PLAIN: printable_value(value)}

    # ---------------------------------------------------------------- rendering

    def picture(self, now: float, state: Text, width: int, height: int) -> Group:
        """Render the board at a given time, for a terminal of that size."""
        for key in [key for key, until in self._gone.items() if until < now]:
            del self._rows[key], self._gone[key]
            self._leaders.changed(key)
        room = max(1, height - 6)
        keys = self._leaders.first(room if len(self._rows) <= room else room - 1)
        head = Text.assemble((printable(self.name), "bold"), "   ", self._summary(now), ("  ·  ", "dim"), state, "\n")
        left = len(self._rows) - len(keys)
        parts: list[Table | Text] = [head, self._table(keys, now, width)]
        if left:
            parts.append(Text(f" … and {count(left, 'more key')}", "dim"))
        return Group(*parts)

    def _summary(self, now: float) -> Text:
        while self._rate and now - self._rate[0][0] > _RATE_OVER:
            self._rate.popleft()
        rate = sum(changes for _, changes in self._rate) / _RATE_OVER
        return Text(f"{count(len(self._rows) - len(self._gone), 'value')}  ·  {rate:,.1f} changes/s", "dim")

    def _table(self, keys: Iterable[str], now: float, width: int) -> Table:
        rows = [(key, self._rows[key]) for key in keys]
        names = list(dict.fromkeys(name for _, row in rows for name in row.cells))[:_COLUMNS]
        most = max(8, width // (len(names) + 1))
        table = plain_table()
        keyed = [printable_key(key) for key, _ in rows]
        table.add_column("KEY", style="bold cyan", no_wrap=True, min_width=min(self._width("", keyed), most))
        columns = []
        for name in names:
            head, *texts = _aligned(
                name.upper(), [row.cells[name].text if name in row.cells else "" for _, row in rows]
            )
            table.add_column(
                Text(head), no_wrap=True, overflow="ellipsis", min_width=min(self._width(name, texts) + 2, most)
            )
            columns.append((name, texts))
        table.add_column("AGE", style="dim", justify="right", no_wrap=True, min_width=7)
        wall = time.time()
        for at, (_, row) in enumerate(rows):
            cells = [row.cells[name].render(texts[at], now) if name in row.cells else "" for name, texts in columns]
            age = Text(row.gone, "red") if row.gone else Text(_age(wall - row.timestamp))
            style = "strike dim" if row.gone else ""
            table.add_row(Text(keyed[at], style), *cells, age, style=style)
        return table

    def _width(self, name: str, texts: Iterable[str]) -> int:
        """Return the widest the column has ever been, so that columns do not jump."""
        widest = max((len(text) for text in texts), default=0)
        self._widths[name] = min(_WIDEST, max(self._widths.get(name, 0), widest))
        return self._widths[name]


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def _aligned(head: str, texts: list[str]) -> list[str]:
    """Return a column's head and texts; numbers are aligned by their decimal points."""
    if not all(text == "" or _number(text) is not None for text in texts):
        return [head, *texts]
    parts = [text.partition(".") for text in texts]
    whole = max((len(before) for before, _, _ in parts), default=0)
    rest = max((len(point + after) for _, point, after in parts), default=0)
    return [
        head.rjust(whole + rest),
        *(before.rjust(whole) + (point + after).ljust(rest) for before, point, after in parts),
    ]


def _movement(before: str, after: str) -> str:
    old, new = _number(before), _number(after)
    if old is None or new is None or old == new:
        return "other"
    return "up" if new > old else "down"


def _state(state: State) -> Text:
    if state == "caught-up":
        return Text("live", "green")
    if state == "disconnected":
        return Text("no contact with the cluster; still trying", "bold red")
    if state == "blocked":
        return Text("an open transaction hides later records", "yellow")
    return Text(state, "yellow")


def _age(seconds: float) -> str:
    seconds = max(0.0, seconds)
    for size, unit in ((86_400, "d"), (3_600, "h"), (60, "min")):
        if seconds >= size:
            return f"{seconds // size:.0f} {unit}"
    return f"{seconds:.0f} s"
