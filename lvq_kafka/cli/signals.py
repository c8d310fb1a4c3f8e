"""Signals that end a run.

The signal is recorded, because the exception that its handler raises may be masked.

A Python signal handler can run whenever the client uses a Python object. The client then turns the KeyboardInterrupt
into a TypeError or a SystemError: ``expected header key to be unicode string``, ``returned a result with an exception
set``. A `threading.Condition` can turn it into a RuntimeError: ``cannot release un-acquired lock``.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

__all__ = ["ended_by", "heed_signals"]

_ended_by: int | None = None


def heed_signals() -> None:
    """Make Ctrl-C raise `KeyboardInterrupt` and SIGTERM raise `SystemExit`.

    Everything is then closed on the way out.
    """
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # otherwise it is ignored, as in the background
        signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGTERM, _end)


def ended_by() -> int | None:
    """Return the signal that has arrived, if any."""
    return _ended_by


def _end(number: int, frame: FrameType | None) -> None:
    global _ended_by
    _ended_by = number
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
