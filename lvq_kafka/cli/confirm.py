"""Confirmation of actions that cannot be undone."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any, TypeVar

import click

from lvq_kafka.cli.exit_codes import NOTHING, Complaint

__all__ = ["confirm", "yes_option"]

F = TypeVar("F", bound=Callable[..., Any])


def yes_option(function: F) -> F:
    """Add the option --yes, which skips the question."""
    return click.option("-y", "--yes", is_flag=True, help="Do not ask for confirmation.")(function)


def confirm(question: str, *, yes: bool, if_not: str) -> None:
    """Return if the answer is yes.

    Raises:
        Complaint: the answer is no; the message is ``if_not``.
        UsageError: stdin is not a terminal.
    """
    if yes:
        return
    if not _can_ask():
        raise click.UsageError("Cannot ask for confirmation here; give --yes.")
    if not click.confirm(question, err=True):
        raise Complaint(if_not, NOTHING)


def _can_ask() -> bool:
    return sys.stdin.isatty()
