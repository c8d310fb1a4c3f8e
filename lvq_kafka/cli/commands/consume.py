"""Consuming: take messages, pass them on, remove them."""

from __future__ import annotations

import errno
import json
import os
import signal
import subprocess
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Literal

import click

from lvq_kafka.cli.common_options import Seconds, WholeNumber, command, format_option
from lvq_kafka.cli.completing import complete_queues
from lvq_kafka.cli.exit_codes import COMMAND_FAILED, NOTHING, Complaint, complain_of_unread, print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.output import Output
from lvq_kafka.cli.output import count as counted
from lvq_kafka.codecs import form_of
from lvq_kafka.core.facts import Format
from lvq_kafka.core.text.quoting import brief
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.errors import LockLost
from lvq_kafka.json_lines import delivery_line, is_unread

if TYPE_CHECKING:
    from lvq_kafka.consuming.consumer import Consumer
    from lvq_kafka.consuming.delivery import Delivery

    Handle = Callable[[Delivery[Any]], bool]
    """A function that handles and settles a message, and returns whether it counts as done."""

__all__ = ["consume"]

OnFailure = Literal["stop", "retry", "reject"]

_RETRY_PAUSE = 1.0  # seconds between two attempts at a message
_INTERRUPTED = (-signal.SIGINT, 128 + signal.SIGINT)  # exit status after Ctrl-C, which ends us as well
_CANNOT_RUN = 126  # the status that shells use for it
_LOOK = 0.5  # seconds until a worker that waits for a message notices that another one has failed


_SHARED = "All consumers of a queue share one record of what was consumed. "
_SELECTING = {
    **dict.fromkeys(
        ("-k", "--key", "--prefix", "-H", "--header", "--selector", "--partition"),
        f"{_SHARED}Declare another queue on the topic with --selector, and consume that, or read with lvq browse.",
    ),
    **dict.fromkeys(
        ("--replay", "--updates-only"),
        f"{_SHARED}Declare another queue on the topic with --start, and consume that, or read with lvq browse.",
    ),
}
"""Options that select among a queue's messages (R27)."""


@command(
    "consume",
    elsewhere=_SELECTING,
    examples=[
        "lvq consume prices",
        "lvq consume prices --count 1 --timeout 5",
        "lvq consume orders --exec './handle.sh \"$LVQ_KEY\"'",
        "lvq consume orders --exec ./handle.sh --workers 8 --on-failure retry --max-deliveries 5 --dead-letters bad",
    ],
)
@click.argument("queue", shell_complete=complete_queues)
@click.option("-n", "--count", type=WholeNumber(min=1), help="Stop after this many messages.  [default: never]")
@click.option(
    "--timeout",
    type=Seconds(min=0),
    metavar="SECONDS",
    help="Stop when none has arrived for this long.  [default: never]",
)
@click.option("--exec", "run", metavar="COMMAND", help="Run a shell command for each message instead of writing it.")
@click.option(
    "--on-failure",
    type=click.Choice(["stop", "retry", "reject"]),
    default="stop",
    show_default=True,
    help="When COMMAND fails: stop; retry, with a newer value if there is one; or reject the message.",
)
@click.option(
    "--workers",
    type=WholeNumber(min=1),
    default=1,
    show_default=True,
    help="How many COMMANDs may run at once; never more than one per key.",
)
@click.option(
    "--max-deliveries",
    type=WholeNumber(min=1),
    help="How often a message may be delivered. The next attempt rejects it instead. Deliveries are counted over all "
    "runs and consumers.  [default: without limit]",
)
@click.option(
    "--dead-letters",
    metavar="TOPIC",
    help="The topic that rejected messages go to. Headers say what became of them. It has to exist: lvq declare TOPIC "
    "--record-key creates one that keeps the newest dead letter of each key.  [default: nowhere]",
)
@click.option(
    "--lock-timeout",
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds to settle a delivery in. After that, the message is delivered again.  [default: without limit]",
)
@click.option(
    "--auto-reclaim",
    type=Seconds(min=0, min_open=True),
    metavar="SECONDS",
    help="Seconds between deletions from the topic of what all its queues have consumed, for good.  [default: never]",
)
@click.option(
    "--page-directory",
    metavar="DIRECTORY",
    help="The directory for values beyond the limits of a queue whose policy is disk.  [default: TMPDIR, or /tmp]",
)
@format_option
def consume(
    invocation: Invocation,
    queue: str,
    *,
    count: int | None,
    timeout: float | None,
    run: str | None,
    on_failure: OnFailure,
    workers: int,
    max_deliveries: int | None,
    dead_letters: str | None,
    lock_timeout: float | None,
    auto_reclaim: float | None,
    page_directory: str | None,
    form: Format | None,
) -> None:
    """Take messages and remove them.

    Runs until Ctrl-C and shares the queue with its other consumers. A message is removed once it has been written to
    stdout, or once COMMAND has exited with 0. COMMAND gets the value on stdin, and LVQ_KEY, LVQ_POSITION,
    LVQ_TIMESTAMP, LVQ_DELIVERY_COUNT and LVQ_HEADERS (JSON) in its environment. A message that was not removed is
    delivered again, here or to another consumer. A rejected message goes to the dead letter topic, if there is one.

    Exits with 1 if fewer than --count messages, or without --count none at all, arrived before --timeout.
    """
    if run is None and workers > 1:
        raise click.UsageError("--workers goes with --exec.")
    opened = invocation.open(QueueChoice(queue), form, create=True)
    form = form_of(opened.value_codec)
    most = max_deliveries or opened.definition.max_deliveries
    handle = _Printer(invocation.out, form, opened.key_header) if run is None else _Runner(run, on_failure, most)
    with opened.consumer(
        undecodable="raw",
        max_deliveries=max_deliveries,
        durable_counts=max_deliveries is not None,
        dead_letters=dead_letters,
        lock_timeout=lock_timeout,
        auto_reclaim=auto_reclaim,
        page_directory=page_directory,
    ) as consumer:
        team = _Team(consumer, handle, workers, count, timeout)
        invocation.out.note("waiting for messages; Ctrl-C stops")
        try:
            team.run()
        finally:
            invocation.out.note(f"{counted(team.done, 'message')} consumed")
    if isinstance(handle, _Printer):
        complain_of_unread(handle.unread, form)
    if team.done < (count or 1):
        raise Complaint(f"no {'further ' if team.done else ''}message arrived within {timeout:g} s.", NOTHING)


class _Team:
    """Workers that take and handle messages, each in a thread; a single one uses this thread."""

    def __init__(
        self, consumer: Consumer[Any], handle: Handle, workers: int, count: int | None, timeout: float | None
    ) -> None:
        from lvq_kafka.consuming.workers import ThreadGroup

        self._consumer = consumer
        self._handle = handle
        self._count = count
        self._timeout = timeout
        self.done = 0
        """The number of messages that are done."""
        self._begun = 0
        self._lock = threading.Lock()
        self._threads = ThreadGroup(f"lvq-consume-{consumer.name}", workers, self._work)
        self._alone = workers == 1

    def run(self) -> None:
        """Work until there are enough messages, or no more arrive."""
        if self._alone:
            self._work()
        else:
            self._threads.run()

    def _work(self) -> None:
        while not self._threads.stop.is_set() and self._claim_next():
            delivery = self._acquire()
            done = delivery is not None and self._handle(delivery)
            with self._lock:
                self.done += done
                self._begun -= not done
            if delivery is None:
                return

    def _claim_next(self) -> bool:
        with self._lock:
            enough = self._count is not None and self._begun >= self._count
            self._begun += not enough
            return not enough

    def _acquire(self) -> Delivery[Any] | None:
        """Return the next message, or None if none arrives in time or another worker has failed."""
        deadline = float("inf") if self._timeout is None else time.monotonic() + self._timeout
        while not self._threads.stop.is_set():
            left = max(0.0, deadline - time.monotonic())
            delivery = self._consumer.acquire(min(left, _LOOK))
            if delivery is not None or left <= _LOOK:
                return delivery
        return None


class _Printer:
    """Writes each message, and acks it once it is flushed."""

    def __init__(self, out: Output, form: Format, key_header: str | None) -> None:
        self.unread = 0
        self._out = out
        self._form = form
        self._table = out.table(key_header=key_header) if out.person else None

    def __call__(self, delivery: Delivery[Any]) -> bool:
        with delivery:
            if self._table is not None:
                self._table.add(delivery)
                self._table.flush()
            else:
                self._out.raw(delivery_line(delivery, self._form))
            self._out.flush()
        self.unread += is_unread(delivery.value, self._form)
        return True


class _Runner:
    """Runs a command for each message, and acks it if the command exits with 0."""

    def __init__(self, command: str, on_failure: OnFailure, max_deliveries: int | None) -> None:
        self._command = command
        self._on_failure = on_failure
        self._max_deliveries = max_deliveries

    def __call__(self, delivery: Delivery[Any]) -> bool:
        with delivery:
            try:
                status = self._run(delivery)
            except OSError as error:
                if error.errno != errno.E2BIG:
                    raise
                status = _CANNOT_RUN  # its key or headers do not fit into an environment, and never will
                what = f"the command for the message at {delivery.position} could not be run: {error.strerror}"
            else:
                what = f"the command exited with {status} for {brief(delivery.key)} at {delivery.position}"
            if status in _INTERRUPTED:
                raise KeyboardInterrupt
            rejected = status != 0 and self._give_up(delivery, what)
        if status == 0:
            return delivery.state is not MessageState.LOST  # otherwise another consumer or worker has it
        if self._on_failure == "stop":
            now = "was rejected after its last delivery" if rejected else "is still in the queue"
            raise Complaint(f"{what}; the message {now}.", COMMAND_FAILED)
        if not rejected:
            print_problem(f"{what}; retrying", warning=True)
            threading.Event().wait(_RETRY_PAUSE)
        return rejected

    def _give_up(self, delivery: Delivery[Any], what: str) -> bool:
        """Reject or release the message; return whether it was rejected."""
        last = self._max_deliveries is not None and delivery.delivery_count >= self._max_deliveries
        rejected = last or self._on_failure == "reject"
        with suppress(LockLost):  # then another consumer has it and will handle it
            if rejected:
                delivery.reject(what)  # the library logs a warning
            else:
                delivery.release()
        return rejected

    def _run(self, delivery: Delivery[Any]) -> int:
        headers = {name: None if data is None else data.decode("utf-8", "replace") for name, data in delivery.headers}
        facts = {
            "LVQ_KEY": delivery.key.replace("\0", "\\0"),  # an environment cannot hold NUL
            "LVQ_POSITION": str(delivery.position),
            "LVQ_TIMESTAMP": f"{delivery.timestamp:.3f}",
            "LVQ_DELIVERY_COUNT": str(delivery.delivery_count),
            "LVQ_HEADERS": json.dumps(headers),
        }
        return subprocess.run(
            ["/bin/sh", "-c", self._command], input=delivery.raw, env={**os.environ, **facts}, check=False
        ).returncode
