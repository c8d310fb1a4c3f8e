"""What the library logs, on stderr."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.core.quoting import printable

__all__ = ["logs_shown"]

_LINES = "\n\t"  # of a traceback
_CLIENT = "lvq_kafka.client"  # the client's own log, which repeats what our errors say


class Debuggable(Protocol):
    """Knows whether everything is to be shown."""

    debug: bool


class _Stderr(logging.Handler):
    """Writes warnings as lines of ``lvq``, and with ``--debug`` everything. Errors reach the user by themselves."""

    def __init__(self, session: Debuggable) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._invocation = session

    def emit(self, record: logging.LogRecord) -> None:
        if self._invocation.debug:
            sys.stderr.write(f"{printable(self.format(record), keep=_LINES)}\n")
        elif record.levelno == logging.WARNING and record.name != _CLIENT:
            print_problem(record.getMessage(), warning=True)


@contextmanager
def logs_shown(session: Debuggable) -> Iterator[None]:
    """Show the library's log on stderr meanwhile, and what it warns its caller of, each a line of ``lvq``.

    Whether all of the log is shown is decided line by line: --debug may come late.
    """
    logger = logging.getLogger("lvq_kafka")
    before, handler = logger.level, _Stderr(session)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("always", UserWarning)
            warnings.showwarning = _show
            yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)


def _show(message: Warning | str, *_: object, **__: object) -> None:
    """As `warnings.showwarning`, without the place in the source, which says nothing to one who typed a command."""
    print_problem(str(message), warning=True)
