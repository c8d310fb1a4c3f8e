"""Contestants run in processes of their own, and say on standard output what they have measured."""

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
    """Start ``python -m tests.benchmarks.<module>``, with a directory of ``packages`` of its own if it needs one."""
    command = [sys.executable, "-m", f"tests.benchmarks.{module}", *map(str, arguments)]
    environment = {**os.environ, "PYTHONPATH": str(packages)} if packages else None
    # what goes wrong shows on stderr
    return subprocess.Popen(command, cwd=ROOT, stdin=stdin, stdout=subprocess.PIPE, text=True, env=environment)


def wait_ready(child: subprocess.Popen[str]) -> None:
    """Wait for a child to say that it is ready."""
    assert child.stdout is not None
    if child.stdout.readline().strip() != "ready":
        raise RuntimeError(f"{' '.join(map(str, child.args))} does not get ready")  # type: ignore[arg-type]


def result(child: subprocess.Popen[str], timeout: float = 300.0) -> dict[str, Any]:
    """The result of a child that has been started: the last line it says."""
    try:
        output, _ = child.communicate(timeout=timeout)
    finally:
        child.kill()
    if child.returncode != 0:
        raise RuntimeError(f"{' '.join(map(str, child.args))} failed")  # type: ignore[arg-type]
    found: dict[str, Any] = json.loads(output.splitlines()[-1])
    return found


def say(measured: dict[str, Any]) -> None:
    """Hand a result to the parent."""
    print(json.dumps(measured), flush=True)


def memory_in_use() -> int:
    """Resident bytes, once Python and the C library have given back what they do not need any more."""
    gc.collect()
    with contextlib.suppress(AttributeError):  # glibc has it
        ctypes.CDLL(None).malloc_trim(0)
    return int(psutil.Process().memory_info().rss)


def peak_memory() -> int:
    """The most bytes that were resident at any time, which getrusage does not tell: it begins with the parent's."""
    status = Path("/proc/self/status")
    if not status.exists():
        return memory_in_use()
    [line] = [line for line in status.read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) * 1024
