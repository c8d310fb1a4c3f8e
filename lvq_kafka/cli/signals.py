"""Signals that end a run. Which one has come is noted, since what a handler raises may be hidden.

A handler of Python's runs wherever the client looks at a Python object. It then makes a TypeError or a SystemError of
the KeyboardInterrupt: ``expected header key to be unicode string``, ``returned a result with an exception set``. A
`threading.Condition` makes a RuntimeError of it at moments: ``cannot release un-acquired lock``.
"""

from __future__ import annotations

import signal
import sys
from types import FrameType

__all__ = ["ended_by", "heed_signals"]

_ended_by: int | None = None


def heed_signals() -> None:
    """From here on Ctrl-C raises `KeyboardInterrupt` and SIGTERM `SystemExit`, so that all is closed on the way out."""
    if signal.getsignal(signal.SIGINT) is signal.default_int_handler:  # else it is ignored, as in the background
        signal.signal(signal.SIGINT, _end)
    signal.signal(signal.SIGTERM, _end)


def ended_by() -> int | None:
    """The signal that has come, if one has."""
    return _ended_by


def _end(number: int, frame: FrameType | None) -> None:
    global _ended_by
    _ended_by = number
    if number == signal.SIGINT:
        raise KeyboardInterrupt
    sys.exit(128 + number)
