"""What the library logs, on stderr."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Protocol

from lvq_kafka.cli.outcome import tell

__all__ = ["logs_shown"]

_CLIENT = "lvq_kafka.client"  # the client's own log, which repeats what our errors say


class Debuggable(Protocol):
    """Knows whether everything is to be shown."""

    debug: bool


class _Stderr(logging.Handler):
    """Writes warnings as lines of ``lvq``, and with ``--debug`` everything. Errors reach the user by themselves."""

    def __init__(self, session: Debuggable) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._session = session

    def emit(self, record: logging.LogRecord) -> None:
        if self._session.debug:
            sys.stderr.write(f"{self.format(record)}\n")
        elif record.levelno == logging.WARNING and record.name != _CLIENT:
            tell(record.getMessage(), warning=True)


@contextmanager
def logs_shown(session: Debuggable) -> Iterator[None]:
    """Show the library's log on stderr meanwhile. Whether all of it is decided line by line: --debug may come late."""
    logger = logging.getLogger("lvq_kafka")
    before, handler = logger.level, _Stderr(session)
    logger.addHandler(handler)
    logger.setLevel(logging.DEBUG)
    try:
        yield
    finally:
        logger.removeHandler(handler)
        logger.setLevel(before)
