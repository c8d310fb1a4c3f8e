"""Consuming: messages are taken, handed on, and removed."""

from __future__ import annotations

import json
import os
import subprocess
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any, Literal

import click

from lvq_kafka.cli.options import command, format_option
from lvq_kafka.cli.outcome import COMMAND_FAILED, NOTHING, Complaint, complain_of_unread, tell
from lvq_kafka.cli.output import Output, printable
from lvq_kafka.cli.output import count as counted
from lvq_kafka.cli.rows import Format, is_unread, value_row
from lvq_kafka.cli.session import QueueChoice, Session
from lvq_kafka.consumer import Consumer
from lvq_kafka.delivery import Delivery
from lvq_kafka.errors import LockLost

__all__ = ["consume"]

OnFailure = Literal["stop", "retry", "reject"]

Handle = Callable[[Delivery[Any]], bool]
"""Handles a message and says whether it is done with; the message is settled by then."""

_RETRY_PAUSE = 1.0  # seconds between two attempts at a message


@command(
    "consume",
    examples=[
        "lvq consume prices",
        "lvq consume prices --count 1 --timeout 5",
        "lvq consume orders --exec './handle.sh \"$LVQ_KEY\"'",
    ],
)
@click.argument("queue")
@click.option("-n", "--count", type=click.IntRange(min=1), help="End after so many messages.  [default: never]")
@click.option(
    "--timeout",
    type=click.FloatRange(min=0),
    metavar="SECONDS",
    help="End when none has come for so long.  [default: never]",
)
@click.option("--exec", "run", metavar="COMMAND", help="Run a shell command for each message, instead of writing it.")
@click.option(
    "--on-failure",
    type=click.Choice(["stop", "retry", "reject"]),
    default="stop",
    show_default=True,
    help="When COMMAND fails: end; try again, with a newer value if there is one; or remove the message.",
)
@format_option
def consume(
    session: Session,
    queue: str,
    *,
    count: int | None,
    timeout: float | None,
    run: str | None,
    on_failure: OnFailure,
    form: Format,
) -> None:
    """Take messages, and remove them.

    Goes on until Ctrl-C, and shares the queue with its other consumers. A message is removed when it has been written
    to stdout, or when COMMAND has ended with 0. COMMAND gets the value on stdin, and LVQ_KEY, LVQ_POSITION,
    LVQ_TIMESTAMP and LVQ_HEADERS (JSON) in its environment. Any message that was not removed comes again, here or at
    another consumer.

    Ends with 1 when fewer than --count messages, or without it none at all, came before --timeout.
    """
    opened = session.open(QueueChoice(queue), form)
    handle = _Printer(session.out, form, opened.key_header) if run is None else _Runner(run, on_failure)
    with opened.consumer(undecodable="raw") as consumer:
        done = _consume(consumer, handle, count, timeout)
    if isinstance(handle, _Printer):
        complain_of_unread(handle.unread, form)
    session.out.note(f"{counted(done, 'message')} consumed")
    if done < (count or 1):
        raise Complaint(f"no {'further ' if done else ''}message came within {timeout:g} s.", NOTHING)


def _consume(consumer: Consumer[Any], handle: Handle, count: int | None, timeout: float | None) -> int:
    done = 0
    while count is None or done < count:
        delivery = consumer.acquire(timeout)
        if delivery is None:
            break
        done += handle(delivery)
    return done


class _Printer:
    """Writes each message, and acks it when it is out."""

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
                self._out.row(value_row(delivery, self._form))
            self._out.flush()
        self.unread += is_unread(delivery.value, self._form)
        return True


class _Runner:
    """Runs a command for each message, and acks it when that ends with 0."""

    def __init__(self, command: str, on_failure: OnFailure) -> None:
        self._command = command
        self._on_failure = on_failure

    def __call__(self, delivery: Delivery[Any]) -> bool:
        with delivery:
            status = self._run(delivery)
            if status == 0:
                return True
            what = f"the command ended with {status} for {printable(delivery.key)} at {delivery.position}"
            if self._on_failure == "reject":
                with suppress(LockLost):  # then another consumer has it, and will reject it
                    delivery.reject(what)  # the library warns of it
                return True
            with suppress(LockLost):
                delivery.release()
        if self._on_failure == "stop":
            raise Complaint(f"{what}; the message is still in the queue.", COMMAND_FAILED)
        tell(f"{what}; it is tried again", warning=True)
        threading.Event().wait(_RETRY_PAUSE)
        return False

    def _run(self, delivery: Delivery[Any]) -> int:
        headers = {name: None if data is None else data.decode("utf-8", "replace") for name, data in delivery.headers}
        facts = {
            "LVQ_KEY": delivery.key.replace("\0", "\\0"),  # an environment cannot hold it
            "LVQ_POSITION": str(delivery.position),
            "LVQ_TIMESTAMP": f"{delivery.timestamp:.3f}",
            "LVQ_HEADERS": json.dumps(headers),
        }
        return subprocess.run(
            ["/bin/sh", "-c", self._command], input=delivery.raw, env={**os.environ, **facts}, check=False
        ).returncode
