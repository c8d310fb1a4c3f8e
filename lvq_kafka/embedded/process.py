"""The parent's side of the supervisor: run the JVM, signal it, notice its end."""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Sequence
from pathlib import Path
from typing import IO

__all__ = ["SupervisedProcess"]

# Run as a file, isolated and without site-packages: it starts in hundredths of a second.
_SUPERVISOR = Path(__file__).with_name("supervisor.py")


class SupervisedProcess:
    """A restartable child process that never outlives this program, however that ends.

    The child works in ``directory`` and writes to ``log``. With ``remove``, the directory is deleted by :meth:`close`
    or when this program ends. ``promote`` is a pair of paths: the first is renamed to the second when the child has
    ended after a SIGTERM. A detached child has ``grace`` seconds to end once its supervisor is terminated.
    """

    def __init__(
        self, *, log: Path, directory: Path, remove: bool, grace: float, promote: tuple[Path, Path] | None
    ) -> None:
        settings = {
            "log": str(log),
            "directory": str(directory),
            "remove": remove,
            "grace": grace,
            "promote": [str(path) for path in promote] if promote else None,
        }
        with log.open("ab") as errors:
            self._supervisor = subprocess.Popen(
                [sys.executable, "-I", "-S", str(_SUPERVISOR), json.dumps(settings)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=errors,
                start_new_session=True,  # Ctrl-C and a closed terminal reach this program, which then stops the child
            )
        self._lock = threading.RLock()
        self._pending = b""
        self._pid: int | None = None
        self._exit: int | None = None
        self._sent = 0  # signals
        self._supervised = True

    @property
    def pid(self) -> int | None:
        """The child's process id while it runs."""
        return None if self.ended else self._pid

    @property
    def supervisor_pid(self) -> int:
        """The supervisor's process id."""
        return self._supervisor.pid

    @property
    def ended(self) -> bool:
        """True when the last child has ended."""
        self._read(0)
        return self._exit is not None

    @property
    def ending(self) -> str:
        """The way the last child ended, in words; empty while it runs."""
        if not self.ended or self._exit is None:
            return ""
        return f"exit code {self._exit}" if self._exit >= 0 else f"by {signal.Signals(-self._exit).name}"

    def run(self, command: Sequence[str]) -> None:
        """Start ``command``. If that fails, the exit code is 127, and the log says why."""
        with self._lock:
            self._pid = self._exit = None
            self._send({"run": list(command)})
            while not self._read(None):
                pass

    def signal(self, name: str) -> None:
        """Send the child a signal, named without SIG; after STOP, return once it has stopped.

        Do nothing if the child has ended.
        """
        with self._lock:
            before = self._sent
            self._send({"signal": name})
            while self._sent == before and self._supervised:
                self._read(None)

    def wait(self, timeout: float) -> bool:
        """Wait for the child to end; return whether it has."""
        deadline = time.monotonic() + timeout
        while not self.ended and (left := deadline - time.monotonic()) > 0:
            self._read(left)
        return self.ended

    def detach(self) -> None:
        """Let the child and its supervisor outlive this program."""
        self._send({"detach": True})
        self._close_pipes()
        # If it ends before this program does, it must not remain as a zombie.
        threading.Thread(target=self._supervisor.wait, name="lvq-detached", daemon=True).start()

    def close(self) -> None:
        """Kill the child if it runs, and end its supervisor.

        Files to be removed are gone when this returns.
        """
        self._close_pipes()
        self._supervisor.wait()

    def _close_pipes(self) -> None:
        self._supervised = False
        for pipe in (self._supervisor.stdin, self._supervisor.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()

    def _send(self, order: dict[str, object]) -> None:
        assert self._supervisor.stdin is not None
        with self._lock, contextlib.suppress(OSError, ValueError):  # _read notices that it is gone
            self._supervisor.stdin.write(json.dumps(order).encode() + b"\n")
            self._supervisor.stdin.flush()

    def _read(self, timeout: float | None) -> bool:
        """Process the supervisor's reports; return whether any came within ``timeout`` seconds."""
        stdout = self._supervisor.stdout
        assert stdout is not None
        if not _readable(stdout, timeout):
            return False
        with self._lock:
            if not _readable(stdout, 0):  # another thread has read it
                return False
            data = os.read(stdout.fileno(), 65536)
            if not data:  # the supervisor itself was killed; on Linux the kernel has then killed the child
                self._exit = -9 if self._exit is None else self._exit
                self._supervised = False
                return True
            *lines, self._pending = (self._pending + data).split(b"\n")
            for line in lines:
                report = json.loads(line)
                if "sent" in report:
                    self._sent += 1
                else:
                    self._pid, self._exit = report.get("pid", self._pid), report.get("exit")
            return bool(lines)


def _readable(pipe: IO[bytes], timeout: float | None) -> bool:
    if pipe.closed:
        return False
    with selectors.DefaultSelector() as selector:  # unlike select(), it takes any descriptor
        selector.register(pipe, selectors.EVENT_READ)
        return bool(selector.select(timeout))
