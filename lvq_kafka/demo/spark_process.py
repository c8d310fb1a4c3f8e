"""The Spark of the tour: a process that starts early, and can be ended at any moment.

It is no thread of the tour. A Ctrl-C that arrives while the main thread imports a module can leave Python's import lock
held; a thread that imports PySpark would then wait for it forever.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from typing import Any, Self

from lvq_kafka.errors import StateError

__all__ = ["SparkProcess"]

_COMMAND = (sys.executable, "-m", "lvq_kafka.demo.spark_rows")
_PATIENCE = 5.0  # seconds for the kernel to end killed processes


class SparkProcess:
    """A process with a Spark session, which starts at once and answers one question.

    Leaving the block kills it together with its JVM, however far the start has got, and removes its temporary files.
    """

    def __init__(self) -> None:
        self._folder = tempfile.TemporaryDirectory(prefix="lvq-demo-spark-", ignore_cleanup_errors=True)
        self._output = tempfile.TemporaryFile()  # noqa: SIM115  # closed at the end of the block
        self._process = subprocess.Popen(
            _COMMAND,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._output,
            text=True,
            env={**os.environ, "TMPDIR": self._folder.name},
            process_group=0,  # Ctrl-C is for the tour, which ends them
        )

    def rows(self, bootstrap_servers: str, queue: str, end: Mapping[int, int]) -> list[dict[str, Any]]:
        """Return the rows of a snapshot of the queue, up to these offsets.

        Raises:
            StateError: the process has ended without an answer; its output is then on stderr.
        """
        question = json.dumps({"bootstrap_servers": bootstrap_servers, "queue": queue, "end": dict(end)})
        answer, _ = self._process.communicate(question + "\n")
        if self._process.returncode:
            self._output.seek(0)
            sys.stderr.write(self._output.read().decode(errors="replace"))
            raise StateError(
                f"The Spark of the tour ended with status {self._process.returncode}.", hint="Its output is above."
            )
        rows: list[dict[str, Any]] = json.loads(answer)
        return rows

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with suppress(BrokenPipeError):
                    pipe.close()
        self._process.wait(_PATIENCE)
        self._output.close()
        self._folder.cleanup()
