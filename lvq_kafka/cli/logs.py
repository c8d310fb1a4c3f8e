"""The library's log, on stderr."""

from __future__ import annotations

import logging
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from lvq_kafka.cli.common_options import typed
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.core.text.quoting import printable
from lvq_kafka.core.text.wording import Remark
from lvq_kafka.errors import LVQError

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation

__all__ = ["logs_shown"]

_LINES = "\n\t"  # allowed in tracebacks
_CLIENT = "lvq_kafka.client"  # the client's own log, which repeats our errors


class _Stderr(logging.Handler):
    """A handler that prints warnings as lines of ``lvq``, and with ``--debug`` everything.

    Errors are reported to the user elsewhere, and so are warnings marked as ``raised``: an error says the same.
    """

    def __init__(self, invocation: Invocation) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(asctime)s %(levelname)s %(name)s: %(message)s"))
        self._invocation = invocation

    def emit(self, record: logging.LogRecord) -> None:
        if self._invocation.debug:
            sys.stderr.write(f"{printable(self.format(record), keep=_LINES)}\n")
        elif record.levelno == logging.WARNING and record.name != _CLIENT and not getattr(record, "raised", False):
            record.args = self._typed(record.args)
            print_problem(record.getMessage(), warning=True)

    def _typed(self, arguments: Any) -> Any:
        """Return the arguments of a message, with options as they are typed here."""
        if not isinstance(arguments, tuple):
            return arguments
        from lvq_kafka.core.queue.topic_settings import Finding

        spell = typed(self._invocation.running)
        return tuple(one.worded(spell) if isinstance(one, Finding | LVQError | Remark) else one for one in arguments)


@contextmanager
def logs_shown(invocation: Invocation) -> Iterator[None]:
    """Show the library's log and Python's warnings on stderr, each as a line of ``lvq``.

    Whether to show the whole log is decided line by line: --debug may be parsed late.
    """
    logger = logging.getLogger("lvq_kafka")
    before, handler = logger.level, _Stderr(invocation)
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
    """Show a warning like `warnings.showwarning`, but without its place in the source.

    That means nothing to someone who typed a command.
    """
    print_problem(str(message), warning=True)
