"""Programs that end: each runs in a process of its own, from its first line to the end of its interpreter.

The processes are forks of one that has imported the library, so a program costs milliseconds.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from textwrap import dedent

__all__ = ["Ended", "Programs", "programs"]

_NURSERY = """
import json, os, runpy, signal, sys
import lvq_kafka, lvq_kafka.kafka.writer, lvq_kafka.testing

def begin(file, arguments):
    os.dup2(os.open(file + ".out", os.O_WRONLY | os.O_CREAT), 1)
    os.dup2(os.open(file + ".err", os.O_WRONLY | os.O_CREAT), 2)
    os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
    signal.alarm(60)  # ends what hangs
    sys.argv[:] = [file, *arguments]
    runpy.run_path(file, run_name="__main__")

for line in sys.stdin:
    file, arguments = json.loads(line)
    child = os.fork()
    if not child:
        begin(file, arguments)
        break
    print(os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]), flush=True)
"""


@dataclass(frozen=True, slots=True)
class Ended:
    """The end of a program."""

    code: int
    output: str
    errors: str


class Programs:
    """Runs programs, one after the other."""

    def __init__(self, nursery: subprocess.Popen[str]) -> None:
        self._nursery = nursery

    def run(self, folder: Path, before: str, program: str, *arguments: str) -> Ended:
        """Run a program to its end, after the lines ``before`` it."""
        file = folder / "program.py"
        file.write_text(before + dedent(program))
        assert self._nursery.stdin is not None
        assert self._nursery.stdout is not None
        self._nursery.stdin.write(json.dumps([str(file), arguments]) + "\n")
        self._nursery.stdin.flush()
        code = int(self._nursery.stdout.readline())
        output, errors = (Path(f"{file}.{stream}").read_text() for stream in ("out", "err"))
        return Ended(code, output, errors)


@contextmanager
def programs() -> Iterator[Programs]:
    """Start the process that all programs are forks of."""
    command = [sys.executable, "-W", "ignore", "-c", _NURSERY]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, start_new_session=True
    ) as nursery:
        try:
            yield Programs(nursery)
        finally:
            os.killpg(nursery.pid, signal.SIGKILL)  # also what a program that hung has left
