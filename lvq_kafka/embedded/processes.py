"""Process identities that survive the reuse of process ids."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Self

__all__ = ["ProcessIdentity"]

_PROC = Path("/proc")  # Linux has it; elsewhere ps is used
_PAUSE = 0.05


@dataclass(frozen=True, slots=True)
class ProcessIdentity:
    """A process, identified by its id and its start time.

    The start time, in a platform-specific notation, distinguishes it from a later process with the same id.
    """

    pid: int
    started: str

    @classmethod
    def of(cls, pid: int | None) -> Self | None:
        """Return the identity of the process that has this id now, if there is one."""
        started = _start_time(pid) if pid is not None else None
        return cls(pid, started) if pid is not None and started is not None else None

    @property
    def alive(self) -> bool:
        """True while the process runs."""
        return _start_time(self.pid) == self.started

    def send(self, number: signal.Signals) -> None:
        """Send the process a signal, if it still runs."""
        if self.alive:
            with contextlib.suppress(ProcessLookupError):
                os.kill(self.pid, number)

    def wait(self, timeout: float) -> bool:
        """Wait at most ``timeout`` seconds for the process to end; return whether it has."""
        deadline = time.monotonic() + timeout
        while self.alive and time.monotonic() < deadline:
            time.sleep(_PAUSE)
        return not self.alive


def _start_time(pid: int) -> str | None:
    """Return when a process started; None if there is no such process or it is a zombie."""
    if _PROC.is_dir():
        try:
            stat = (_PROC / str(pid) / "stat").read_text(encoding="utf-8", errors="replace")
        except OSError:
            return None
        fields = stat.rpartition(")")[2].split()  # the name before it may hold anything
        return None if fields[0] in "ZX" else fields[19]
    answer = subprocess.run(["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    state, _, started = answer.stdout.strip().partition(" ")
    return None if not state or state.startswith("Z") else started.strip()
