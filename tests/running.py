"""Running programs in tests without a guessed timeout: they may run as long as they print."""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import IO

__all__ = ["ROOT", "Done", "run_while_it_speaks"]

ROOT = Path(__file__).resolve().parents[1]

Done = subprocess.CompletedProcess[str]


def run_while_it_speaks(
    command: Sequence[str], *, environment: Mapping[str, str] | None = None, silence: float = 300.0
) -> Done:
    """Run a program from the project's folder. It may take any time, as long as it keeps printing.

    The calling test needs ``pytest.mark.timeout(0)``: this function is its limit.

    Args:
        silence: seconds without output after which the program counts as hung, and is killed with all its children.

    Raises:
        AssertionError: the program hung; the message has its output.
    """
    environment = {**(os.environ if environment is None else environment), "PYTHONUNBUFFERED": "1"}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True
    )
    heard = [_Listener(pipe) for pipe in (process.stdout, process.stderr) if pipe is not None]
    try:
        while process.poll() is None:
            left = max(one.last for one in heard) + silence - time.monotonic()
            if left <= 0:
                raise AssertionError(f"{command[0]} has said nothing for {silence:g} s, after:\n{heard[0]}\n{heard[1]}")
            try:
                process.wait(min(left, 1.0))
            except subprocess.TimeoutExpired:
                continue
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        for one in heard:
            one.thread.join(10)  # a process that it left behind can hold a pipe open
    return Done(list(command), process.returncode, str(heard[0]), str(heard[1]))


class _Listener:
    """Collects the output from a pipe."""

    def __init__(self, pipe: IO[bytes]) -> None:
        self.last = time.monotonic()
        self._said = bytearray()
        self._pipe = pipe
        self.thread = threading.Thread(target=self._listen, daemon=True)
        self.thread.start()

    def __str__(self) -> str:
        return self._said.decode(errors="replace")

    def _listen(self) -> None:
        with self._pipe:
            while some := os.read(self._pipe.fileno(), 1 << 16):
                self._said += some
                self.last = time.monotonic()
