"""The consumer processes of a run, and the accidents that happen to them."""

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
    """A consumer process."""

    name: str
    slot: int
    orders: Orders
    journal: Path
    errors: Path
    process: subprocess.Popen[bytes]
    stops: list[tuple[float, float]] = field(default_factory=list)
    """Times when it was stopped, from and to."""
    stopped: float | None = None
    killed: float = float("inf")
    """The earliest time at which it was killed."""
    sent_away: bool = False

    @property
    def runs(self) -> bool:
        """Return whether it is at work: neither leaving nor stopped."""
        return self.process.poll() is None and self.stopped is None and not self.sent_away

    @property
    def failed(self) -> bool:
        """Return whether it ended by itself, or not as it should. SIGTERM may reach it before its handler is set."""
        ends = (None, 0, -signal.SIGTERM) if self.sent_away else (None,)
        return self.killed == float("inf") and self.process.poll() not in ends

    def stop(self) -> None:
        """Freeze it."""
        self.stopped = time.monotonic()
        self.process.send_signal(signal.SIGSTOP)

    def go_on(self) -> None:
        """Resume it."""
        if self.stopped is not None:
            self.process.send_signal(signal.SIGCONT)
            self.stops.append((self.stopped, time.monotonic()))
            self.stopped = None

    def kill(self) -> None:
        """Kill it, in any state."""
        if self.stopped is not None:
            self.stops.append((self.stopped, time.monotonic()))
            self.stopped = None
        self.killed = time.monotonic()
        self.process.kill()
        self.process.wait()

    def say_where(self) -> None:
        """Make it write the stacks of all its threads to standard error."""
        self.process.send_signal(signal.SIGUSR1)

    def send_away(self) -> None:
        """Make it leave in order, if it still runs."""
        self.sent_away = True
        self.process.send_signal(signal.SIGTERM)  # has no effect after it has ended


class Members:
    """All processes of a run, also those that have ended. Each slot is taken by one after another.

    Args:
        module: the module that a process runs.
        orders: returns a process's orders by its name, its slot, and the path of its journal.
    """

    def __init__(self, module: str, directory: Path, orders: Callable[[str, int, str], Orders]) -> None:
        self._module = module
        self._directory = directory
        self._orders = orders
        self._numbers = itertools.count(1)
        self.all: list[Member] = []

    def add(self, slot: int) -> Member:
        """Start a process."""
        name = f"{slot}.{next(self._numbers)}"
        journal, errors = self._directory / f"{name}.jsonl", self._directory / f"{name}.err"
        orders = self._orders(name, slot, str(journal))
        with errors.open("wb") as stderr:
            process = subprocess.Popen(
                [sys.executable, "-m", self._module, orders.text()],
                cwd=ROOT,
                stdin=subprocess.PIPE,  # end of file means that we are gone
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
        """Return the total size of all journals, in bytes."""
        return sum(member.journal.stat().st_size for member in self.all if member.journal.exists())

    def memory(self) -> int:
        """Return the resident size of the largest process at work, in bytes."""
        return max((_resident(member.process.pid) for member in self.all if member.runs), default=0)

    def one(self, chance: random.Random) -> Member | None:
        """Return a random member at work."""
        running = [member for member in self.all if member.runs]
        return chance.choice(running) if running else None

    def failed(self) -> list[str]:
        """Return the members that ended in an unexpected way, with their last words."""
        return [
            f"{member.name} ended with status {member.process.returncode}: {_tail(member.errors)}"
            for member in self.all
            if member.failed
        ]

    def close(self) -> None:
        """Kill all remaining processes."""
        for member in self.all:
            if member.process.poll() is None:
                member.kill()
            if member.process.stdin is not None:
                member.process.stdin.close()


def _resident(pid: int) -> int:
    try:
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError):  # it has just ended, or this is not Linux
        return 0
    return pages * resource.getpagesize()


def _tail(path: Path) -> str:
    return " | ".join(path.read_text(errors="replace").strip().splitlines()[-3:])
