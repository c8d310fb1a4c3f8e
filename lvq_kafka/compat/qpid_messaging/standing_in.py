"""Errors of this library, raised as exceptions of ``qpid.messaging``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from lvq_kafka import errors
from lvq_kafka.compat.qpid_messaging import exceptions
from lvq_kafka.compat.qpid_messaging.exceptions import MessagingError, Timeout
from lvq_kafka.errors import LVQError

__all__ = ["raised_as"]

_Table = Mapping[type[LVQError], type[MessagingError]]

_ALWAYS: _Table = {
    errors.AuthenticationFailed: exceptions.AuthenticationFailure,
    errors.Unauthorized: exceptions.UnauthorizedAccess,
}
_BY_CALL: Mapping[type[MessagingError], _Table] = {
    exceptions.ResolutionError: {
        errors.QueueNotDeclared: exceptions.NotFound,
        errors.TopicNotFound: exceptions.NotFound,
        errors.QueueMismatch: exceptions.AssertionFailed,
        errors.ConfigError: exceptions.InvalidOption,
    },
    exceptions.SendError: {
        errors.Closed: exceptions.LinkClosed,
        errors.QueueFull: exceptions.TargetCapacityExceeded,
        errors.UnencodableKey: exceptions.EncodeError,
    },
    exceptions.FetchError: {errors.Closed: exceptions.LinkClosed},
    exceptions.SessionError: {errors.Closed: exceptions.SessionClosed},
}
"""By the exception that a call raises by default, those for some errors."""


@contextmanager
def raised_as(default: type[MessagingError]) -> Iterator[None]:
    """Raise errors of this library as exceptions that stand for them.

    The error is the cause.

    Args:
        default: the exception for errors that have none of their own.
    """
    try:
        yield
    except (MessagingError, Timeout):
        raise
    except LVQError as error:
        tables = (_ALWAYS, _BY_CALL.get(default, {}))
        found = (kind for table in tables for of, kind in table.items() if isinstance(error, of))
        raise next(found, default)(text=str(error)) from error
