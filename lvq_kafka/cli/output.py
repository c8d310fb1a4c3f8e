"""Output of the commands: JSON lines for programs, readable text for people."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cached_property
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.core.text.quoting import printable

if TYPE_CHECKING:
    from rich.console import Console, RenderableType

    from lvq_kafka.cli.table import ValueTable

__all__ = ["Output", "age", "count"]

_DELAY = 1.0  # seconds of waiting before anything is shown


class Output:
    """Standard output, for a person or for a program.

    Args:
        person: whether a person reads it; by default, whether it is a terminal.
    """

    def __init__(self, person: bool | None = None) -> None:
        self._person = person
        self.json = False

    @property
    def person(self) -> bool:
        """True if a person reads the output."""
        if self.json:
            return False
        return sys.stdout.isatty() if self._person is None else self._person

    @cached_property
    def console(self) -> Console:
        """Standard output for a person."""
        from rich.console import Console

        return Console(highlight=False, soft_wrap=False)

    def table(self, *, key_header: str | None) -> ValueTable:
        """Return a table of values, written row by row."""
        from lvq_kafka.cli.table import ValueTable

        return ValueTable(self.console, key_header=key_header)

    def row(self, row: Mapping[str, Any]) -> None:
        """Write a line for a program. It may be buffered until `flush`."""
        from lvq_kafka.json_lines import to_line

        self.raw(to_line(row))

    def raw(self, data: bytes) -> None:
        """Write bytes as they are."""
        sys.stdout.buffer.write(data)

    def say(self, renderable: RenderableType) -> None:
        """Write something for a person."""
        self.console.print(renderable)

    def done(self, text: str) -> None:
        """Report to a person that something was done."""
        from rich.text import Text

        self.say(Text.assemble(("✓ ", "bold green"), printable(text)))

    def note(self, text: str) -> None:
        """Show a person something that is not data."""
        if self.person:
            click.secho(printable(text), file=sys.stderr, dim=True)

    def note_left_out(self, columns: Sequence[str]) -> None:
        """Note which columns of a table were left out for lack of room."""
        if columns:
            self.note(f"hidden for lack of space: {', '.join(columns)}; --json shows them")

    def flush(self) -> None:
        """Flush standard output."""
        sys.stdout.flush()

    @contextmanager
    def waiting(self, what: Callable[[], RenderableType]) -> Iterator[None]:
        """Show a person on stderr what a long wait is for."""
        if not sys.stderr.isatty():
            yield
            return
        from rich.console import Console
        from rich.live import Live
        from rich.spinner import Spinner
        from rich.text import Text

        begin = time.monotonic()
        spinner = Spinner("dots")

        def render() -> RenderableType:
            if time.monotonic() - begin < _DELAY:
                return ""
            said = what()
            # Rich would read a str as markup.
            spinner.update(text=Text(printable(said)) if isinstance(said, str) else said)
            return spinner

        with Live(get_renderable=render, console=Console(stderr=True), transient=True, refresh_per_second=8):
            yield


def count(number: int, noun: str) -> str:
    """Return a number with its noun: ``1 value``, ``2 values``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def age(seconds: float) -> str:
    """Return a time in its largest unit: ``42 s``, ``5 min``, ``3 h`` or ``2 d``."""
    for unit, length in (("d", 86_400), ("h", 3600), ("min", 60)):
        if seconds >= length:
            return f"{seconds // length:,.0f} {unit}"
    return f"{max(0.0, seconds) // 1:.0f} s"
