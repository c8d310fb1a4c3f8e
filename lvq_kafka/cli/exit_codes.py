"""Exit codes of ``lvq``, and the one line that explains a failure."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from itertools import groupby
from typing import TYPE_CHECKING

import click

from lvq_kafka.core.text.quoting import printable
from lvq_kafka.errors import (
    BrokerRefused,
    CatchUpTimeout,
    CodecError,
    ConfigError,
    DataLoss,
    DeliveryFailed,
    DeliveryUnknown,
    EmbeddedBrokerError,
    KeyMismatch,
    LVQError,
    MessageTooLarge,
    MissingExtra,
    MissingKey,
    OutcomeUnknown,
    QueueError,
    QueueFull,
    ReaderFailed,
    SqlError,
    TopicError,
    TransportError,
    UnencodableKey,
)

if TYPE_CHECKING:
    from lvq_kafka.core.text.wording import Spelling

__all__ = [
    "BAD_DATA",
    "COMMAND_FAILED",
    "EXIT_CODES",
    "FAULT",
    "FULL",
    "INTERRUPTED",
    "NOTHING",
    "NO_READER",
    "WRONG_QUEUE",
    "Complaint",
    "complain_of_unread",
    "describe",
    "exit_code",
    "print_notes",
    "print_problem",
]

NOTHING = 1
USAGE = 2
NO_CLUSTER = 3
WRONG_QUEUE = 4
BAD_DATA = 5
COMMAND_FAILED = 6
FULL = 7
FAULT = 70
INTERRUPTED = 130
NO_READER = 141

EXIT_CODES: Mapping[int, str] = {
    0: "done",
    NOTHING: "nothing found: no such key, no message in time, no broker running",
    USAGE: "a wrong option, configuration or file, or a package to install",
    NO_CLUSTER: "the cluster cannot be reached, refuses, or took too long; another broker refuses a bridge",
    WRONG_QUEUE: "no such queue or topic, or it is unsuitable",
    BAD_DATA: "data that cannot be read or written",
    COMMAND_FAILED: "a command of consume --exec failed; its message is still in the queue",
    FULL: "the queue is full: its limits leave no room for a message",
    FAULT: "a bug in lvq",
    INTERRUPTED: "interrupted by Ctrl-C (143: SIGTERM, 141: closed pipe)",
}
"""The meanings of the exit codes, as shown by ``lvq --help``."""

_BY_ERROR: tuple[tuple[type[BaseException] | tuple[type[BaseException], ...], int], ...] = (
    # From specific to general: a message that is too large is also a failed delivery, and a transport error.
    ((CodecError, DataLoss, KeyMismatch, MessageTooLarge, MissingKey, UnencodableKey), BAD_DATA),
    (QueueFull, FULL),
    ((QueueError, TopicError), WRONG_QUEUE),
    ((BrokerRefused, CatchUpTimeout, EmbeddedBrokerError, OutcomeUnknown, TransportError), NO_CLUSTER),
    ((ConfigError, MissingExtra, OSError, SqlError), USAGE),
    ((KeyboardInterrupt, click.Abort), INTERRUPTED),
)


class Complaint(Exception):
    """A reason for a nonzero exit code that is not an error of the library."""

    def __init__(self, message: str, code: int) -> None:
        super().__init__(message)
        self.code = code


def exit_code(error: BaseException) -> int:
    """Return the exit code for an error.

    A failed reader or delivery gets the code of its cause.
    """
    if isinstance(error, Complaint):
        return error.code
    if isinstance(error, ReaderFailed | DeliveryFailed | DeliveryUnknown) and error.__cause__ is not None:
        return exit_code(error.__cause__)
    for kind, code in _BY_ERROR:
        if isinstance(error, kind):
            return code
    return FAULT


def complain_of_unread(number: int, form: str) -> None:
    """Raise a complaint if there were values that could not be read."""
    if number:
        values = "value" if number == 1 else "values"
        raise Complaint(f"{number:,} {values} could not be read as {form}; see --format.", BAD_DATA)


def describe(error: BaseException, spell: Spelling) -> str:
    """Describe an error in one line, with options spelled by a function."""
    if isinstance(error, ReaderFailed) and error.__cause__ is not None:
        return describe(error.__cause__, spell)
    if isinstance(error, OSError) and error.strerror is not None and error.filename is not None:
        text = f"{error.filename}: {error.strerror}"
    elif exit_code(error) == FAULT:
        text = f"unexpected {type(error).__name__}: {error}; --debug shows where"
    else:
        text = error.worded(spell) if isinstance(error, LVQError) else str(error)
    return " ".join([text, *getattr(error, "__notes__", [])])


def print_notes(error: BaseException) -> None:
    """Print what else is known of an error that ends a run without a message of its own."""
    for note in getattr(error, "__notes__", []):
        print_problem(note, warning=True)


def print_problem(message: str, *, warning: bool = False) -> None:
    """Print an error or a warning on stderr: a line, and the indented ones that it quotes."""
    name = click.style("lvq: ", fg="yellow" if warning else "red", bold=True)
    lines: list[str] = []
    for indented, part in groupby(message.splitlines(), key=lambda line: line.startswith("    ")):
        text = list(part)
        lines += text if indented else [" ".join(" ".join(text).split())]
    # In one write: while a board is shown, each write becomes a separate line.
    line = "\n".join(map(printable, lines))
    click.echo(f"{name}{'warning: ' if warning else ''}{line}", file=sys.stderr)
