"""Common parts of the jobs in ``spark/jobs``: options, session, result and exit code."""

from __future__ import annotations

import argparse
import json
import os
import re
import sys
import time
import traceback
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NoReturn

from pyspark.sql import SparkSession

from lvq_kafka import errors
from lvq_kafka.errors import ConfigError, LVQError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.queue import LastValueQueue
from lvq_spark.session.remote import spark_errors
from lvq_spark.session.task_failures import OURS, crash

if TYPE_CHECKING:
    from lvq_spark.store import Version

__all__ = [
    "EXIT_CODES",
    "Work",
    "add_reading_options",
    "add_refresh_options",
    "add_store_options",
    "facts",
    "job_parser",
    "main",
    "open_queue",
]

USAGE, CLUSTER, QUEUE, DATA, TASK, FAULT = 2, 3, 4, 5, 6, 70

EXIT_CODES: Mapping[int, str] = {
    0: "done; the last line of standard output is the result, as JSON",
    USAGE: "a wrong option, configuration, file or table",
    CLUSTER: "the Kafka cluster cannot be reached, refuses, or took too long",
    QUEUE: "no such queue or topic, or it is unsuitable",
    DATA: "data that is gone, or that cannot be read or written",
    TASK: "Spark failed for another reason",
    FAULT: "a bug in the job",
}
"""The meaning of each exit code. Those up to 5 are the same as for the command ``lvq``."""

_BY_ERROR: tuple[tuple[tuple[type[BaseException], ...], int], ...] = (
    # From specific to general: MessageTooLarge is also a failed delivery, which is a transport error.
    ((errors.CodecError, errors.DataLoss, errors.KeyMismatch, errors.MissingKey, errors.MessageTooLarge), DATA),
    ((errors.StoreFailed,), DATA),
    ((errors.QueueError, errors.TopicError), QUEUE),
    ((errors.CatchUpTimeout, errors.OutcomeUnknown, errors.TransportError), CLUSTER),
    ((errors.SpillFailed, errors.TaskOutOfMemory), TASK),
    ((ConfigError, OSError), USAGE),
)

Work = Callable[["SparkSession", LastValueQueue[Any], argparse.Namespace], Mapping[str, object]]
"""The work of a job, which returns the result to print."""


def job_parser(description: str, *examples: str) -> argparse.ArgumentParser:
    """Return a parser with the options of every job: the queue, and how to reach it.

    Passwords are not options: they would show in the process list, and in Spark's own pages.
    """
    shown = "\n".join(f"  spark-submit {example}" for example in examples)
    codes = "\n".join(f"  {code:<4}{meaning}" for code, meaning in EXIT_CODES.items())
    parser = argparse.ArgumentParser(
        formatter_class=argparse.RawDescriptionHelpFormatter,
        description=description,
        epilog=f"examples:\n{shown}\n\nexit codes:\n{codes}",
    )
    parser.add_argument("queue", help="the queue's name or, with --bare, a topic's")
    parser.add_argument("--bare", action="store_true", help="QUEUE is any compacted topic, not a declared queue")
    parser.add_argument("--key-header", metavar="NAME", help="with --bare: the message header that holds the key")
    parser.add_argument(
        "-b", "--bootstrap-servers", metavar="HOST:PORT,...", help="brokers [env: LVQ_BOOTSTRAP_SERVERS]"
    )
    parser.add_argument(
        "--config",
        metavar="FILE",
        help="client properties, name=value per line; the place for passwords [env: LVQ_CONFIG, LVQ_SASL_PASSWORD, "
        "LVQ_SASL_PASSWORD_FILE, ...]",
    )
    return parser


def add_refresh_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of jobs that build on an existing version."""
    parser.add_argument(
        "--on-stale",
        choices=["rebuild", "fail"],
        default="rebuild",
        help="what to do if nothing can be built on the newest version: read the whole log, or fail (default: rebuild)",
    )


def add_reading_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of jobs that pin their own cut and read it."""
    parser.add_argument(
        "--consistency",
        choices=["pinned", "atleast"],
        default="pinned",
        help="what to do with keys whose record in the cut was compacted away: fail, or take the newer one",
    )
    parser.add_argument(
        "--slices",
        metavar="N",
        type=int,
        default=1,
        help="how many tasks read each partition, each for a part of its keys; more if a task runs out of memory "
        "(default: 1)",
    )


def add_store_options(parser: argparse.ArgumentParser) -> None:
    """Add the options of jobs that keep a store up to date."""
    parser.add_argument("--store", metavar="PATH", required=True, help="a directory for this store alone")
    add_refresh_options(parser)
    parser.add_argument("--keep", metavar="N", type=int, default=3, help="versions to keep at least (default: 3)")
    parser.add_argument(
        "--grace",
        metavar="SECONDS",
        type=float,
        default=3600.0,
        help="seconds to keep a version after the next one is written; longer than any job reads it (default: 3600)",
    )


def facts(version: Version) -> dict[str, object]:
    """Return what a job reports about a version, whether it is new or was there before."""
    return {
        "version": version.number,
        "kind": version.kind,
        "reasons": version.reasons,
        "rows": version.rows,
        "upserts": version.upserts,
        "deletes": version.deletes,
        "topic": version.topic,
        "topic_id": version.topic_id,
        "end": dict(version.end),
        "committed": version.committed.isoformat(),
    }


def main(parser: argparse.ArgumentParser, work: Work, arguments: Sequence[str] | None = None) -> NoReturn:
    """Run a job in the session that ``spark-submit`` prepared, and exit.

    Print its result, and exit with its code.
    """
    options = parser.parse_args(arguments)
    if options.key_header is not None and not options.bare:
        parser.error("--key-header goes with --bare; a declared queue knows its own.")
    started = time.monotonic()
    try:
        result = _run(work, options)
    except Exception as error:  # noqa: BLE001  # every failure ends the job with a code and one line
        code, reason = _judged(error)
        if code == FAULT:
            traceback.print_exc()
        sys.stderr.write(f"{parser.prog}: {reason}\n")
        sys.exit(code)
    seconds = round(time.monotonic() - started, 3)
    print(json.dumps({"queue": options.queue, **result, "seconds": seconds}), flush=True)  # noqa: T201
    sys.exit(0)


def _run(work: Work, options: argparse.Namespace) -> Mapping[str, object]:
    try:
        from pyspark.sql import SparkSession
    except ImportError:
        raise ConfigError("pyspark is not installed.", hint="Run the job with spark-submit.") from None
    with open_queue(options) as queue:  # first, since a missing queue is found at once
        spark = SparkSession.builder.getOrCreate()
        try:
            return work(spark, queue, options)
        finally:
            spark.stop()


@contextmanager
def open_queue(options: argparse.Namespace) -> Iterator[LastValueQueue[Any]]:
    """Open the queue that the options name.

    Options override the environment, and the environment overrides the file.

    Raises:
        ConfigError: nothing names a cluster.
        QueueNotDeclared: there is no queue of that name.
    """
    environ = dict(os.environ)
    if options.config is not None:
        environ["LVQ_CONFIG"] = options.config
    if options.bootstrap_servers is not None:
        environ["LVQ_BOOTSTRAP_SERVERS"] = options.bootstrap_servers
        environ.pop("LVQ_BOOTSTRAP_SERVERS_FILE", None)
    with closing(KafkaCluster(ClientConfig.from_env(environ))) as cluster:
        if options.bare:
            yield LastValueQueue(options.queue, key_header=options.key_header, cluster=cluster)
        else:
            yield LastValueQueue.open(options.queue, cluster=cluster)


# ---------------------------------------------------------------- how it ends


def _judged(error: BaseException) -> tuple[int, str]:
    """Return the exit code for an error, and the reason in one line."""
    if isinstance(error, LVQError | OSError):
        code = next((code for kinds, code in _BY_ERROR if isinstance(error, kinds)), FAULT)
        return code, " ".join(str(error).split())
    from pyspark.errors import AnalysisException, IllegalArgumentException

    if not isinstance(error, spark_errors()):
        return FAULT, _first_line(error)
    if found := _judged_elsewhere(str(error)):
        return found
    # For example an existing table, a missing column, an impossible number of files, or an unknown format.
    wrong = isinstance(error, AnalysisException | IllegalArgumentException) or "[DATA_SOURCE_NOT_FOUND]" in str(error)
    return (USAGE if wrong else TASK), _first_line(error)


def _judged_elsewhere(text: str) -> tuple[int, str] | None:
    """Judge a task's error in the text of Spark's error; None if it contains none."""
    found = OURS.search(text)
    if found is None and (crashed := crash(text)):
        return _judged(crashed)
    if found is None and ("Traceback" in text or "An exception" in text):
        found = re.search(r"^(\w+): (.+)$", text, re.MULTILINE)
    if found is None:
        return None
    kind = getattr(errors, found[1], None)
    code = TASK
    if isinstance(kind, type):
        code = next((code for kinds, code in _BY_ERROR if issubclass(kind, kinds)), TASK)
    return code, f"{found[1]}: {found[2]}"


def _first_line(error: BaseException) -> str:
    lines = [line.strip(" :") for line in str(error).splitlines() if line.strip()]
    if len(lines) > 1 and lines[0].startswith("An error occurred while calling"):  # from py4j; the next line is Java's
        return lines[1]
    return lines[0] if lines else type(error).__name__
