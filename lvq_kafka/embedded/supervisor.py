"""A small process between a Python program and the broker's JVM.

It makes sure that no JVM outlives the program. It runs as a file, with the standard library alone, and speaks JSON
lines. On its standard input it receives ``{"run": [command, ...]}``, ``{"signal": "TERM"}`` or ``{"detach": true}``; on
its standard output it reports ``{"pid": 1234}``, ``{"sent": "TERM"}`` and ``{"exit": 1}``. When its input ends, or the
program that started it is gone, it kills the JVM and removes the directory it was given. Once detached, it lives on
until the JVM ends or it receives SIGTERM.
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

__all__ = ["Supervisor", "main"]

POLL = 0.5  # seconds between two checks that the starting program still runs
FREEZE = 10.0  # seconds that a stopping process may take; it has many threads, and the machine may be busy
STOP_SIGNALS = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


class Supervisor:
    """Runs one child at a time, on command; see ``SupervisedProcess`` for the settings."""

    def __init__(
        self, *, log: Path, directory: Path, remove: bool, grace: float, promote: tuple[Path, Path] | None
    ) -> None:
        self.log = log
        self.directory = directory
        self.remove = remove
        self.grace = grace
        self.promote = promote
        self.parent: int | None = os.getppid()
        self.child: subprocess.Popen[bytes] | None = None
        self.terminated = False
        self.still = False
        self.ending = False
        self._input = b""

    def serve(self) -> None:
        """Process input and signals until the supervisor has to end."""
        wake_read, wake_write = os.pipe()
        os.set_blocking(wake_write, False)
        signal.set_wakeup_fd(wake_write, warn_on_full_buffer=False)
        for number in (signal.SIGCHLD, *STOP_SIGNALS):
            signal.signal(number, lambda *_: None)  # the wake-up descriptor carries the number
        with selectors.DefaultSelector() as selector:
            selector.register(wake_read, selectors.EVENT_READ)
            selector.register(sys.stdin.fileno(), selectors.EVENT_READ)
            while not self.ending:
                # Checked first: then anything the parent wrote before it ended is still read.
                gone = self.parent is not None and os.getppid() != self.parent
                heard = selector.select(0 if gone else POLL)
                for key, _ in heard:
                    data = os.read(key.fd, 65536)
                    if key.fd == wake_read:
                        self._on_signals(data)
                    elif not data and self.parent is None:
                        selector.unregister(key.fd)  # detached: the end of the input no longer matters
                    elif data:
                        self._on_input(data)
                    else:
                        self.ending = True
                if gone and not heard:
                    self.ending = True
        self.finish()

    def finish(self) -> None:
        """End the child, and remove the directory if requested."""
        if self.child is not None:
            if self.terminated:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    self.child.wait(self.grace)
            self.child.kill()  # does nothing if it has ended
            self._reap()
        if self.remove:
            shutil.rmtree(self.directory, ignore_errors=True)

    def _on_input(self, data: bytes) -> None:
        *lines, self._input = (self._input + data).split(b"\n")
        for line in lines:
            order = json.loads(line)
            if "run" in order:
                self._run(order["run"])
            elif "signal" in order:
                self._send(order["signal"])
                self._report({"sent": order["signal"]})
            elif "detach" in order:
                self.parent = None

    def _on_signals(self, numbers: bytes) -> None:
        if any(number in numbers for number in STOP_SIGNALS):
            self._send("TERM")
            self.ending = True
        if self.child is not None and self.child.poll() is not None:
            self._report({"exit": self._reap()})
            self.ending = self.ending or self.parent is None

    def _reap(self) -> int:
        assert self.child is not None
        code = self.child.wait()
        self.child = None
        if self.terminated and code >= 0 and self.promote is not None:  # if killed, it may have written half of it
            with contextlib.suppress(OSError):
                self.promote[0].rename(self.promote[1])
        return code

    def _run(self, command: list[str]) -> None:
        self.terminated = self.still = False
        with self.log.open("ab", buffering=0) as log:
            try:
                self.child = subprocess.Popen(
                    command,
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=log,
                    cwd=self.directory,
                    preexec_fn=_die_with_parent if sys.platform == "linux" else None,
                )
            except OSError as error:
                log.write(f"{error}\n".encode())
        self._report({"pid": self.child.pid} if self.child is not None else {"exit": 127})

    def _send(self, name: str) -> None:
        if self.child is None:
            return
        self.child.send_signal(signal.Signals[f"SIG{name}"])
        if name == "CONT":
            self.still = False
        elif name == "TERM":
            self.terminated, self.still = True, False
            self.child.send_signal(signal.SIGCONT)  # a stopped process would never see the first
        elif name == "STOP":
            self._await_stopped(self.child)

    def _await_stopped(self, child: subprocess.Popen[bytes]) -> None:
        """Wait until a child that was sent SIGSTOP has stopped.

        The system reports that only once.
        """
        deadline = time.monotonic() + FREEZE
        while child.returncode is None and not self.still and time.monotonic() < deadline:
            pid, status = os.waitpid(child.pid, os.WUNTRACED | os.WNOHANG)
            if pid and os.WIFSTOPPED(status):
                self.still = True
                return
            if pid:  # it has ended instead, which poll() would not see a second time
                child.returncode = os.waitstatus_to_exitcode(status)
            time.sleep(0.001)

    def _report(self, message: dict[str, int | str]) -> None:
        if self.parent is None:
            return
        with contextlib.suppress(OSError):  # nobody reads any longer
            os.write(sys.stdout.fileno(), json.dumps(message).encode() + b"\n")


def _die_with_parent() -> None:
    """Tell the kernel to kill the child if this process is killed (Linux only)."""
    import ctypes

    pr_set_pdeathsig = 1
    ctypes.CDLL(None).prctl(pr_set_pdeathsig, signal.SIGKILL)


def main() -> None:
    """Serve with the settings in the first argument (JSON)."""
    settings = json.loads(sys.argv[1])
    promote = settings["promote"]
    Supervisor(
        log=Path(settings["log"]),
        directory=Path(settings["directory"]),
        remove=bool(settings["remove"]),
        grace=float(settings["grace"]),
        promote=(Path(promote[0]), Path(promote[1])) if promote else None,
    ).serve()


if __name__ == "__main__":
    main()
