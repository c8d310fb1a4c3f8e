"""The consumer processes of a run, and what is done to them."""

from __future__ import annotations

import itertools
import random
import resource
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

from tests.running import ROOT
from tests.torture.worker import Orders

__all__ = ["Member", "Members"]


@dataclass(eq=False)
class Member:
    """A process that consumes."""

    name: str
    slot: int
    orders: Orders
    journal: Path
    errors: Path
    process: subprocess.Popen[bytes]
    stops: list[tuple[float, float]] = field(default_factory=list)
    """When it stood still, from and to."""
    stopped: float | None = None
    killed: float = float("inf")
    """When it was killed, at the earliest."""
    sent_away: bool = False

    @property
    def runs(self) -> bool:
        """Return whether it is at work: not on its way out, nor standing still."""
        return self.process.poll() is None and self.stopped is None and not self.sent_away

    @property
    def failed(self) -> bool:
        """Return whether it ended by itself, or not as it should. It may be sent away before it can listen."""
        ends = (None, 0, -signal.SIGTERM) if self.sent_away else (None,)
        return self.killed == float("inf") and self.process.poll() not in ends

    def stop(self) -> None:
        """Have it stand still."""
        self.stopped = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Let it go on."""
        if self.stopped is not None:
            self.process.send_signal(signal.SIGCONT)
            self.stops.append((self.stopped, time.monotonic()))
            self.stopped = None

    def kill(self) -> None:
        """End it, whatever it is at."""
        if self.stopped is not None:
            self.stops.append((self.stopped, time.monotonic()))
            self.stopped = None
        self.killed = time.monotonic()
        self.process.kill()
        self.process.wait()

    def say_where(self) -> None:
        """Have it write to its standard error where all of its threads are."""
        self.process.send_signal(signal.SIGUSR1)

    def send_away(self) -> None:
        """Have it leave in an orderly way, if it is still there."""
        self.sent_away = True
        self.process.send_signal(signal.SIGTERM)  # does nothing to one that has ended


class Members:
    """All processes there ever were. Each place (slot) is taken by one after the other.

    Args:
        module: what a process runs.
        orders: gives a process its orders, by its name and slot, and the path of its journal.
    """

    def __init__(self, module: str, directory: Path, orders: Callable[[str, int, str], Orders]) -> None:
        self._module = module
        self._directory = directory
        self._orders = orders
        self._numbers = itertools.count(1)
        self.all: list[Member] = []

    def add(self, slot: int) -> Member:
        """Start one."""
        name = f"{slot}.{next(self._numbers)}"
        journal, errors = self._directory / f"{name}.jsonl", self._directory / f"{name}.err"
        orders = self._orders(name, slot, str(journal))
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, orders.text()],
                cwd=ROOT,
                stdin=subprocess.PIPE,  # its end tells them that we are gone
                stdout=stderr,
                stderr=stderr,
            )
        member = Member(name, slot, orders, journal, errors, process)
        self.all.append(member)
        return member

    def present(self) -> Iterator[Member]:
        """Return the members whose process has not ended."""
        return (member for member in self.all if member.process.poll() is None)

    def progress(self) -> int:
        """Return how much all have written down, in bytes."""
        return sum(member.journal.stat().st_size for member in self.all if member.journal.exists())

    def memory(self) -> int:
        """Bytes that the largest of those at work has in memory."""
        return max((_resident(member.process.pid) for member in self.all if member.runs), default=0)

    def one(self, chance: random.Random) -> Member | None:
        """One that is at work, at random."""
        running = [member for member in self.all if member.runs]
        return chance.choice(running) if running else None

    def failed(self) -> list[str]:
        """Return those that ended otherwise than by us, and their last words."""
        return [
            f"{member.name} ended with status {member.process.returncode}: {_tail(member.errors)}"
            for member in self.all
            if member.failed
        ]

    def close(self) -> None:
        """Leave no process behind."""
        for member in self.all:
            if member.process.poll() is None:
                member.kill()
            if member.process.stdin is not None:
                member.process.stdin.close()


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended, or this is no Linux
        return 0
    return pages * resource.getpagesize()


def _tail(path: Path) -> str:
    return " | ".join(path.read_text(errors="replace").strip().splitlines()[-3:])
