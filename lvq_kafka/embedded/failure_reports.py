"""Explain why a broker died, from its log."""

from __future__ import annotations

import re
import shutil
from pathlib import Path

from lvq_kafka.embedded.cache import cache_dir
from lvq_kafka.errors import BrokerStartFailed, DiskFull, EmbeddedBrokerError

__all__ = ["MINIMUM_FREE", "address_in_use", "check_space", "explain", "keep_log"]

MINIMUM_FREE = 64 * 1024 * 1024
"""Bytes that must be free in the broker's directory before it starts."""

_FULL = 1024 * 1024  # with less than this left, a disk is full to a broker
_KEPT_LOGS = 10
_TAIL = 8_000  # characters
_NO_SPACE = "No space left on device"
_THROWN = re.compile(r"(?:Caused by: )?(?:[a-z_]\w*\.)+[A-Z]\w*(?:Exception|Error)[^:\n]*: (?P<what>[^\n]+)")

_COMPLAINTS = ("Error", "Invalid", "Unrecognized", "Unsupported", "Conflicting", "Too small", "Improperly")


def check_space(directory: Path) -> None:
    """Raise DiskFull if fewer than :data:`MINIMUM_FREE` bytes are free in ``directory``."""
    free = shutil.disk_usage(directory).free
    if free < MINIMUM_FREE:
        raise DiskFull(
            f"{directory} has {free / 1e6:.0f} MB free; the embedded broker needs at least {MINIMUM_FREE / 1e6:.0f} "
            "MB.",
            path=directory,
            hint="Free some space, or choose another directory (data_dir, or TMPDIR for temporary ones).",
        )


def explain(summary: str, *, log_path: Path, log: str, directory: Path) -> EmbeddedBrokerError:
    """Return the error for a broker that failed after writing ``log``.

    ``summary`` describes the failure as seen from outside.
    """
    # A log on the full disk cannot report that itself.
    if _NO_SPACE in log or shutil.disk_usage(directory).free < _FULL:
        return DiskFull(
            f"{summary} No space is left in its directory {directory}. Its log is in {log_path}.",
            path=directory,
            hint="Free some space, or choose another directory (data_dir, or TMPDIR for temporary ones).",
        )
    return BrokerStartFailed(f"{summary}{_quote(log)} Its log is in {log_path}.", log=log[-_TAIL:])


def _quote(log: str) -> str:
    thrown = list(_THROWN.finditer(log))
    if thrown:  # the deepest cause of the last exception is the most relevant
        return f' Kafka said: "{thrown[-1]["what"].strip()}".'
    lines = [line.strip() for line in log.splitlines() if line.strip()]
    # The JVM complains in a few lines, the first of which states the reason.
    complaints = [line for line in lines if line.startswith(_COMPLAINTS)]
    if complaints:
        return f' Java said: "{complaints[0]}".'
    return f' Its last output was: "{lines[-1]}".' if lines else ""


def address_in_use(log: str) -> bool:
    """Return whether the broker complained that a port is taken."""
    return "Address already in use" in log


def keep_log(log_path: Path) -> Path:
    """Copy a log out of a directory that will be removed; return the copy's path.

    Only the newest few copies are kept.
    """
    logs = cache_dir() / "logs"
    logs.mkdir(exist_ok=True)
    kept = logs / f"{log_path.parent.name}.log"
    shutil.copyfile(log_path, kept)
    for old in sorted(logs.glob("*.log"), key=lambda path: path.stat().st_mtime)[:-_KEPT_LOGS]:
        old.unlink(missing_ok=True)
    return kept
