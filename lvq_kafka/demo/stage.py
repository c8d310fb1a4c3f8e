"""Output of the tour: headings, lines, and checks that decide the exit status."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.padding import Padding
from rich.table import Table

__all__ = ["Stage"]


class Stage:
    """Prints the scenes and keeps the score."""

    def __init__(self, console: Console) -> None:
        self.console = console
        self.failed: list[str] = []
        self._scene = 0
        self._checks = 0

    @contextmanager
    def scene(self, title: str) -> Iterator[None]:
        """Print a scene's heading and, at its end, the time it took."""
        self._scene += 1
        self.console.print()
        self.console.rule(f"[bold]{self._scene}  {title}", align="left", style="cyan")
        begun = time.monotonic()
        yield
        self.console.print(f"   [dim]{time.monotonic() - begun:.1f} s[/dim]")

    def say(self, text: str) -> None:
        """Print a line about what happens."""
        self.console.print(f"   {text}")

    def show(self, table: Table) -> None:
        """Print a table."""
        self.console.print(Padding(table, (0, 0, 0, 3), expand=False))

    def check(self, holds: bool, claim: str) -> None:
        """Print a claim; if it does not hold, the tour fails."""
        self._checks += 1
        if holds:
            self.console.print(f" [green]✓[/green] {claim}")
        else:
            self.failed.append(claim)
            self.console.print(f" [red bold]✗ {claim}[/red bold]")

    def finish(self) -> int:
        """Print the result; return the exit status."""
        self.console.print()
        if self.failed:
            self.console.print(f"[red bold]{len(self.failed)} of {self._checks} checks failed.[/red bold]")
            return 1
        self.console.print(f"[green bold]All {self._checks} checks passed.[/green bold]")
        return 0
