"""A pseudo-terminal for tests: it runs a program and records the output."""

from __future__ import annotations

import fcntl
import os
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

__all__ = ["Terminal", "terminal"]

_CONTROL = re.compile(r"\x1b\[[0-?]*[ -/]*[@-~]|\x1b[()][A-Z0-9]|\r")


class Terminal:
    """A program whose stdin, stdout and stderr are a terminal."""

    def __init__(self, process: subprocess.Popen[bytes], master: int) -> None:
        self.process = process
        self.raw = ""
        self._master = master

    def __repr__(self) -> str:
        """Return the text that pytest shows when an assertion fails."""
        return f"<Terminal that shows:\n{self.text}>"

    @property
    def text(self) -> str:
        """Return the output so far, without colours and cursor movements."""
        return _CONTROL.sub("", self.raw)

    def read_until(self, *wanted: str, timeout: float = 60.0) -> str:
        """Wait until the output matches each of these patterns."""
        deadline = time.monotonic() + timeout
        while not all(re.search(part, self.text, re.DOTALL) for part in wanted):
            left = deadline - time.monotonic()
            assert left > 0, f"{wanted} did not come; what came was:\n{self.text}"
            assert self._read(left), f"{wanted} did not come before the end; what came was:\n{self.text}"
        return self.text

    def type(self, text: str) -> None:
        """Send keyboard input."""
        os.write(self._master, text.encode())

    def interrupt(self, number: signal.Signals = signal.SIGINT, timeout: float = 30.0) -> int:
        """Press Ctrl-C, or send another signal, and return the exit code."""
        self.process.send_signal(number)
        return self.wait(timeout)

    def wait(self, timeout: float = 30.0) -> int:
        """Read to the end and return the exit code."""
        deadline = time.monotonic() + timeout
        while self._read(deadline - time.monotonic()):
            assert time.monotonic() < deadline, f"it did not end; what came was:\n{self.text}"
        return self.process.wait(timeout)

    def _read(self, timeout: float) -> bool:
        ready, _, _ = select.select([self._master], [], [], max(0.0, timeout))
        try:
            data = os.read(self._master, 65536) if ready else b"-"
        except OSError:  # Linux reports a closed other side like this
            data = b""
        if ready:
            self.raw += data.decode("utf-8", "replace")
        return bool(data)


@contextmanager
def terminal(
    command: Sequence[str], *, rows: int = 24, columns: int = 80, kind: str = "xterm-256color"
) -> Iterator[Terminal]:
    """Run Python with these arguments in a terminal of this size and kind."""
    master, slave = os.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", rows, columns, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES", "NO_COLOR")}
    root = Path(__file__).parents[3]
    process = subprocess.Popen(
        [sys.executable, *command],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env={**environment, "TERM": kind},
        cwd=root,
    )
    os.close(slave)
    try:
        yield Terminal(process, master)
    finally:
        process.kill()
        process.wait()
        os.close(master)
