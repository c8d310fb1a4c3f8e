"""What a task has failed with, as the error that it is: Spark hands on no more of it than its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lvq_kafka import errors
from lvq_kafka.core.records import Position
from lvq_kafka.core.rights import Right
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    CatchUpTimeout,
    ConfigError,
    DataLoss,
    KeyMismatch,
    LVQError,
    QueueError,
    QueueMismatch,
    QueueNotDeclared,
    SpillFailed,
    TopicError,
    TopicMismatch,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_spark.connector.java_errors import java_error
from lvq_spark.remote import spark_errors

__all__ = ["OURS", "REBUILT", "raised", "task_errors"]

REBUILT = "Refresh the store: it is then rebuilt from the log. An earlier version may be whole."
"""What to do about a file of a store that is damaged."""


@contextmanager
def task_errors() -> Iterator[None]:
    """Errors of this library's in tasks, where an action on a DataFrame would raise Spark's, with ours in its text::

        with lvq_spark.task_errors():
            rows = lvq_spark.snapshot(spark, queue).collect()

    It is for actions, since it is they that run tasks, and for a query's ``awaitTermination``. What `snapshot`,
    `refresh` and the others raise themselves has its type anyway. Of what Spark's Kafka connector fails with it tells
    what it knows, too, and a file of a store's version that was pruned or damaged is a `DataLoss`. All else passes as
    it is.

    Raises:
        LVQError: what the task has found, with its message; Spark's error is its ``__cause__``. Attributes that a
            message does not tell apart are empty.
    """
    try:
        yield
    except spark_errors() as error:
        # The last one: those before it are its causes.
        for name, message in reversed(OURS.findall(str(error))):
            if found := _made(name, message):
                raise found from error
        if gone := _GONE.search(str(error)):
            raise DataLoss(
                f"{gone[1]} is gone: the version that it belongs to was pruned before it was read.",
                hint="Read a newer version. Let refresh keep more of them (keep), or keep them for longer (grace).",
            ) from error
        if damaged := _DAMAGED.search(str(error)):
            raise DataLoss(
                f"{damaged[1]} is damaged, and cannot be read.",
                hint=REBUILT,
            ) from error
        if found := java_error(str(error)):
            raise found from error
        raise


# Of a file as `lvq_spark.store.versions.Store` names it. It is missing when it is to be read, or when that is planned.
_GONE = re.compile(r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST|PATH_NOT_FOUND)\].*?(\S+/v\d+-[0-9a-f]{12}/\S+\.parquet)")

# The same with what was written otherwise, as far as it is known how Spark, Parquet and Hadoop say that.
_DAMAGED = re.compile(
    r"\[FAILED_READ_FILE\.\w+\].*?(\S+/v\d+-[0-9a-f]{12}/\S+\.parquet).*?"
    r"(?:Checksum(?:Exception| error)|CRC checksum verification failed|not a Parquet file|[Cc]ould not read footer"
    r"|[Cc]an ?not read class org\.apache\.parquet|ParquetDecodingException)",
    re.DOTALL,
)

OURS = re.compile(r"\blvq_kafka\.errors\.(\w+): (.+?)(?: SQLSTATE: \w+)?$", re.MULTILINE)
"""An error of this library's in the text of Spark's, by its name and message: as Python raises it, or as Spark's
``raise_error`` does (see `raised`), to whose text Spark adds a code.
"""


def raised(kind: type[LVQError], message: str) -> str:
    """What ``raise_error`` has to say, or to begin with, to be such an error."""
    return f"{kind.__module__}.{kind.__name__}: {message}"


def _made(name: str, message: str) -> LVQError | None:
    """The error of that name, or of the nearest class above that can be made of a message; None if it is not known."""
    kind = getattr(errors, name, None)
    if not isinstance(kind, type):
        return None
    return next((_MAKE[base](message) for base in kind.__mro__ if base in _MAKE), None)


_MAKE: Mapping[type, Callable[[str], LVQError]] = {
    AuthenticationFailed: partial(AuthenticationFailed, code=""),
    BrokerUnavailable: partial(BrokerUnavailable, code="", retriable=True),
    CatchUpTimeout: CatchUpTimeout,
    ConfigError: ConfigError,
    DataLoss: DataLoss,
    KeyMismatch: partial(KeyMismatch, position=Position("", -1, -1)),
    LVQError: LVQError,
    QueueError: partial(QueueError, queue=""),
    QueueMismatch: partial(QueueMismatch, queue="", differences={}),
    QueueNotDeclared: partial(QueueNotDeclared, queue=""),
    SpillFailed: partial(SpillFailed, path=Path()),
    TopicError: partial(TopicError, topic=""),
    TopicMismatch: partial(TopicMismatch, topic="", settings={}),
    TopicNotFound: partial(TopicNotFound, topic=""),
    TopicRecreated: partial(TopicRecreated, topic=""),
    TransportError: partial(TransportError, code=""),
    Unauthorized: lambda message: Unauthorized(message, code="", missing=Right.named_in(message)),
}
"""How to make an error of a message: those of reading, conflating and settling records, and of planning that."""
