"""The progress of a download that takes long, for a person at a terminal."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

__all__ = ["shown"]

DELAY = 1.0
"""Seconds until something is shown, and between two changes of it."""


@contextmanager
def shown(what: str) -> Iterator[Callable[[str, int, int], None]]:
    """Yield a function that shows the current step, the number of jars done, and their total.

    It shows a bar if stderr is a terminal, or lines if rich is not installed; elsewhere, and at first, nothing.
    """
    if sys.stderr is None or not sys.stderr.isatty():
        yield lambda *_: None
        return
    with ExitStack() as stack:
        show: Callable[[str, int, int], None] | None = None
        due = time.monotonic() + DELAY

        def report(doing: str, done: int, total: int) -> None:
            nonlocal show, due
            now = time.monotonic()
            if now >= due or doing.startswith("waiting"):  # for another process, which may have just begun
                show, due = show or _open(stack), now + DELAY
                show(f"{doing}: {what}", done, total)

        yield report


def _open(stack: ExitStack) -> Callable[[str, int, int], None]:
    try:
        from rich.console import Console
        from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn
    except ModuleNotFoundError:
        return _line
    columns = (TextColumn("{task.description}", markup=False), BarColumn(), MofNCompleteColumn())
    bar = stack.enter_context(Progress(*columns, console=Console(stderr=True), transient=True))
    task = bar.add_task("")
    return lambda doing, done, total: bar.update(task, description=doing, completed=done, total=total)


def _line(doing: str, done: int, total: int) -> None:
    sys.stderr.write(f"{doing}: {done} of {total}\n")
