"""Contestants in their own processes, which report their measurements on standard output."""

from __future__ import annotations

import contextlib
import ctypes
import gc
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import psutil

from tests.running import ROOT


def start(
    module: str, *arguments: object, packages: Path | None = None, stdin: int | None = None
) -> subprocess.Popen[str]:
    """Start ``python -m tests.benchmarks.<module>``, with its own directory of ``packages`` if it needs one."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(packages)} if packages else None
    # the child shares our stderr, which shows its errors
    return subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, text=True, env=environment)


def wait_ready(child: subprocess.Popen[str]) -> None:
    """Wait until a child reports that it is ready."""
    assert child.stdout is not None
    if child.stdout.readline().strip() != "ready":
        raise RuntimeError(f"{' '.join(map(str, child.args))} does not get ready")  # type: ignore[arg-type]


def result(child: subprocess.Popen[str], timeout: float = 300.0) -> dict[str, Any]:
    """Return the result of a started child: the last line it prints."""
    try:
        output, _ = child.communicate(timeout=timeout)
    finally:
        child.kill()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, child.args))} failed")  # type: ignore[arg-type]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def say(measured: dict[str, Any]) -> None:
    """Report a result to the parent."""
    print(json.dumps(measured), flush=True)


def cores(wanted: int) -> list[int | None]:
    """Return different processors for a number of processes, as far as there are enough; None for any."""
    found = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
    return [*found[:wanted]] if len(found) >= wanted else [None] * wanted


def pin(core: int | None) -> None:
    """Keep this process on a processor; None for any."""
    if core is not None:
        os.sched_setaffinity(0, {core})


def memory_in_use() -> int:
    """Return the resident bytes, after Python and the C library have freed what they no longer need."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # glibc only
        ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def peak_memory(pid: int | None = None) -> int:
    """Return the peak resident bytes of a process, by default this one.

    The operating system's own figure, getrusage, would start from the parent's peak.
    """
    if not Path("/proc/self/status").exists():
        return memory_in_use() if pid is None else int(psutil.Process(pid).memory_info().rss)
    return _status(pid, "VmHWM")


def anonymous_memory(pid: int | None = None) -> int:
    """Return the resident bytes that a process cannot give back: on Linux, all but pages of files."""
    return _status(pid, "RssAnon")


def _status(pid: int | None, name: str) -> int:
    lines = Path(f"/proc/{pid or 'self'}/status").read_text().splitlines()
    [line] = [line for line in lines if line.startswith(f"{name}:")]
    return int(line.split()[1]) * 1024
