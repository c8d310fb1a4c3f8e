"""The board: live prices, and a slow browser that joins late."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from threading import Thread

from rich.live import Live
from rich.table import Table

from lvq_kafka import Deleted, EndOfDump, LastValueQueue, Producer, View
from lvq_kafka.demo.stage import Stage
from lvq_kafka.demo.ticks import Tick
from lvq_kafka.reading.entries import Event

__all__ = ["LateBrowser", "play"]

FRAME = 0.08  # seconds between two frames of the board


class LateBrowser:
    """A slow browser that joins midway, on its own thread."""

    def __init__(self, queue: LastValueQueue[str], pause: float) -> None:
        self.dump: dict[str, str] = {}
        self.updates = 0
        self.latest: dict[str, str] = {}
        self.saw_end_of_dump = False
        self._pause = pause
        self._browser = queue.browser().open()
        self._thread = Thread(target=self._read, name="late-browser", daemon=True)
        self._thread.start()

    def _read(self) -> None:
        for event in self._browser:
            self._note(event)
            time.sleep(self._pause)

    def _note(self, event: Event[str]) -> None:
        if isinstance(event, EndOfDump):
            self.saw_end_of_dump = True
            self.dump = dict(self.latest)
        elif isinstance(event, Deleted):
            self.latest.pop(event.key, None)
        else:
            self.updates += self.saw_end_of_dump
            self.latest[event.key] = event.value

    def has_seen(self, values: dict[str, str], timeout: float) -> bool:
        """Return whether it holds exactly these values before the timeout."""
        deadline = time.monotonic() + timeout
        while self.latest != values and time.monotonic() < deadline:
            time.sleep(0.01)
        return self.latest == values

    def close(self) -> None:
        """Close the browser."""
        self._browser.close()
        self._thread.join(10.0)


def play(
    stage: Stage,
    opened: ExitStack,
    queue: LastValueQueue[str],
    producer: Producer[str],
    ticks: Sequence[Tick],
    seconds: float,
) -> tuple[View[str], LateBrowser]:
    """Replay ticks over some seconds with a live board; a browser joins halfway.

    Both the view and the browser are returned open.
    """
    view = opened.enter_context(queue.view(metadata_interval=1.0))
    joined: list[LateBrowser] = []
    sender = Thread(target=_send, args=(producer, ticks, seconds), name="ticks", daemon=True)
    shown: dict[str, float] = {}
    begun = time.monotonic()
    with _pictures(stage) as show:
        sender.start()
        while sender.is_alive():
            show(_board(view, shown))
            if not joined and time.monotonic() - begun > seconds / 2:
                joined.append(opened.enter_context(closing(LateBrowser(queue, pause=0.05))))
            time.sleep(FRAME)
        view.barrier()
        show(_board(view, shown))
    return view, joined[0] if joined else opened.enter_context(closing(LateBrowser(queue, pause=0.05)))


@contextmanager
def _pictures(stage: Stage) -> Iterator[Callable[[Table], object]]:
    """Show each picture in place of the previous one; in a file, show only the last."""
    console = stage.console
    if console.is_terminal and not console.is_dumb_terminal:
        with Live(console=console, refresh_per_second=12, redirect_stderr=False) as live:
            yield live.update
        return
    pictures: deque[Table] = deque(maxlen=1)
    yield pictures.append
    stage.show(pictures[0])


def _send(producer: Producer[str], ticks: Sequence[Tick], seconds: float) -> None:
    begun = time.monotonic()
    for count, tick in enumerate(ticks):
        producer.put(tick.ticker, tick.close, headers={"date": tick.date})
        ahead = begun + seconds * count / len(ticks) - time.monotonic()
        if ahead > 0.01:
            time.sleep(ahead)
    producer.flush()


def _board(view: View[str], shown: dict[str, float]) -> Table:
    table = Table(title=f"prices · {view.state} · lag {view.lag}", title_justify="left", header_style="bold")
    for name, justify in (("ticker", "left"), ("close", "right"), ("", "left"), ("day", "left"), ("position", "left")):
        table.add_column(name, justify="right" if justify == "right" else "left")
    for entry in view.scan():
        price = float(entry.value)
        before = shown.get(entry.key, price)
        arrow = "[green]▲[/green]" if price > before else "[red]▼[/red]" if price < before else " "
        shown[entry.key] = price
        table.add_row(f"[bold]{entry.key}[/bold]", f"{price:.2f}", arrow, entry.header("date"), str(entry.position))
    return table
