"""The clock for absences, leases and locks."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable
from functools import partial

__all__ = ["uptime"]


def _choose() -> Callable[[], float]:
    if hasattr(time, "CLOCK_BOOTTIME"):  # the monotonic clocks of Linux and FreeBSD exclude sleep
        return partial(time.clock_gettime, time.CLOCK_BOOTTIME)
    if sys.platform == "darwin":  # Python's monotonic clock stops during sleep there; the system's does not
        return partial(time.clock_gettime, time.CLOCK_MONOTONIC)
    return time.monotonic  # includes sleep on Windows; elsewhere, sleep cannot be measured


uptime: Callable[[], float] = _choose()
"""Seconds, never set back. Includes time asleep if the system has such a clock."""
