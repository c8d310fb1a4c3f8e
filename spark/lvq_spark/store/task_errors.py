"""What a task has failed with, as the error that it is: Spark hands on no more of it than its text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial

from lvq_kafka.core.records import Position
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    CatchUpTimeout,
    ConfigError,
    DataLoss,
    KeyMismatch,
    LVQError,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_spark.connector.java_errors import java_error

__all__ = ["task_errors"]


@contextmanager
def task_errors() -> Iterator[None]:
    """Errors of ours that a task has failed with, of which Spark hands on no more than the text, or of its connector.

    Raises:
        LVQError: what the task has found, with its message. Attributes that this does not tell apart are empty.
    """
    from py4j.protocol import Py4JJavaError  # type: ignore[import-untyped]
    from pyspark.errors import PySparkException

    try:
        yield
    except (PySparkException, Py4JJavaError) as error:
        # The last one: those before it are its causes.
        for name, message in reversed(_OURS.findall(str(error))):
            if name in _MAKE:
                raise _MAKE[name](message) from error
        if gone := _GONE.search(str(error)):
            raise DataLoss(
                f"{gone[1]} is gone: the version that it belongs to was pruned before it was read.",
                hint="Read a newer version. Let refresh keep more of them (keep), or keep them for longer (grace).",
            ) from error
        if found := java_error(str(error)):
            raise found from error
        raise


# Of a file as `lvq_spark.store.versions.Store` names it. It is missing when it is to be read, or when that is planned.
_GONE = re.compile(r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST|PATH_NOT_FOUND)\].*?(\S+/v\d+-[0-9a-f]{12}/\S+\.parquet)")

_OURS = re.compile(r"lvq_kafka\.errors\.(\w+): (.*)")

_MAKE: Mapping[str, Callable[[str], LVQError]] = {
    "AuthenticationFailed": partial(AuthenticationFailed, code=""),
    "BrokerUnavailable": partial(BrokerUnavailable, code="", retriable=True),
    "CatchUpTimeout": CatchUpTimeout,
    "ConfigError": ConfigError,
    "DataLoss": DataLoss,
    "KeyMismatch": partial(KeyMismatch, position=Position("", -1, -1)),
    "TopicNotFound": partial(TopicNotFound, topic=""),
    "TopicRecreated": partial(TopicRecreated, topic=""),
    "TransportError": partial(TransportError, code=""),
    "Unauthorized": partial(Unauthorized, code=""),
}
"""How to make each of the errors that reading, conflating and settling records can end with."""
