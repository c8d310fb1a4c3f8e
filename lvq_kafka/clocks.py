"""The clock by which absences, leases and locks are judged."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

__all__ = ["uptime"]


def _choose() -> Callable[[], float]:
    if hasattr(time, "CLOCK_BOOTTIME"):  # Linux leaves sleep out of its monotonic clock, FreeBSD too
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # Python's monotonic clock stands still in sleep there, and the system's does not
        return partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    return time.monotonic  # counts sleep on Windows; elsewhere a suspended machine does not know how long it was away


uptime: Callable[[], float] = _choose()
"""Seconds, never set back; also those in which this machine sleeps, where the system has such a clock."""
