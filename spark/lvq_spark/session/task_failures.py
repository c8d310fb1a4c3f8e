"""Typed errors for failed tasks, of which Spark passes on only the text."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from lvq_kafka import errors
from lvq_kafka.core.facts import Position, Right
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
    TaskOutOfMemory,
    TopicError,
    TopicMismatch,
    TopicNotFound,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_spark.session.remote import spark_errors

__all__ = ["OURS", "REBUILT", "crash", "out_of_memory", "task_errors"]

REBUILT = "Refresh the store to rebuild it from the log. An earlier version may be intact."
"""The remedy for a damaged file of a store."""


@contextmanager
def task_errors() -> Iterator[None]:
    """Raise the library's own error if a task fails with one.

    Without it, an action on a DataFrame raises Spark's error, with ours in its text::

        with lvq_spark.task_errors():
            rows = lvq_spark.snapshot(spark, queue).collect()

    Use it for actions, since they run the tasks, and for a query's ``awaitTermination``. Errors that `snapshot`,
    `refresh` and the others raise themselves have their type anyway. A crashed Python worker is a
    `TaskOutOfMemory`, and a pruned or damaged file of a store's version is a `DataLoss`. All other errors pass
    unchanged.

    Raises:
        LVQError: the task's error, with its message; Spark's error is its ``__cause__``. Attributes that the message
            does not reveal are empty.
    """
    try:
        yield
    except spark_errors() as error:
        # The last one: those before it are its causes.
        for name, message in reversed(OURS.findall(str(error))):
            if found := _made(name, message):
                raise found from error
        if crashed := crash(str(error)):
            raise crashed from error
        if gone := _GONE.search(str(error)):
            raise DataLoss(
                f"{gone[1]} is gone: its version was pruned before it was read.",
                hint="Read a newer version. Have refresh keep more of them (keep), or keep them longer (grace).",
            ) from error
        if damaged := _DAMAGED.search(str(error)):
            raise DataLoss(
                f"{damaged[1]} is damaged and cannot be read.",
                hint=REBUILT,
            ) from error
        raise


def out_of_memory(problem: str, slices: int) -> TaskOutOfMemory:
    """Return the error for a task that needs too much memory.

    Args:
        problem: the begin of its message.
        slices: how many tasks read each partition; 1 if that is unknown.
    """
    more = max(4, 2 * slices)
    return TaskOutOfMemory(
        f"{problem} into the memory of the task's Python.",
        hint=f"Have more tasks read each partition, each for fewer of its keys: lvq.slices={more} for the format lvq, "
        f"slices={more} for snapshot, refresh and merge, --slices {more} for a job. Or raise "
        "spark.executor.memoryOverhead, lower lvq.memoryBytes, or give the topic more partitions.",
    )


def crash(text: str) -> TaskOutOfMemory | None:
    """Return the error for a worker that died, if the text of a Spark error says so.

    The kernel ends a process that takes more memory than there is, and Kafka's client ends its own if it gets none.
    """
    if _CRASHED not in text:
        return None
    return out_of_memory("A Python worker of Spark has crashed. Its rows probably did not fit", 1)


_CRASHED = "Python worker exited unexpectedly (crashed)"

# A file as `lvq_spark.store.versions.Store` names it. It may be missing at planning or at reading.
_GONE = re.compile(r"\[(?:FAILED_READ_FILE\.FILE_NOT_EXIST|PATH_NOT_FOUND)\].*?(\S+/v\d+-[0-9a-f]{12}/\S+\.parquet)")

# The same for damaged files, in the words of Spark, Parquet and Hadoop, as far as these are known.
_DAMAGED = re.compile(
    r"\[FAILED_READ_FILE\.\w+\].*?(\S+/v\d+-[0-9a-f]{12}/\S+\.parquet).*?"
    r"(?:Checksum(?:Exception| error)|CRC checksum verification failed|not a Parquet file|[Cc]ould not read footer"
    r"|[Cc]an ?not read class org\.apache\.parquet|ParquetDecodingException)",
    re.DOTALL,
)

OURS = re.compile(r"\blvq_kafka\.errors\.(\w+): (.+)$", re.MULTILINE)
"""An error of this library in the text of Spark's error, by name and message."""


def _made(name: str, message: str) -> LVQError | None:
    """Make the error of that name, or of its nearest base class that needs only a message.

    Return None if the name is unknown.
    """
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
    TaskOutOfMemory: TaskOutOfMemory,
    TopicError: partial(TopicError, topic=""),
    TopicMismatch: partial(TopicMismatch, topic="", settings={}),
    TopicNotFound: partial(TopicNotFound, topic=""),
    TopicRecreated: partial(TopicRecreated, topic=""),
    TransportError: partial(TransportError, code=""),
    Unauthorized: lambda message: Unauthorized(message, code="", missing=Right.named_in(message)),
}
"""Constructors of errors from a message.

They cover reading, conflating and settling records, and planning that.
"""
