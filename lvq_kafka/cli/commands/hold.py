"""The command that keeps a queue in a store for other processes."""

from __future__ import annotations

import time
from contextlib import closing
from threading import Event
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import command, queue_argument, selection_options
from lvq_kafka.core.text.quoting import printable

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation, QueueChoice
    from lvq_kafka.cli.output import Output
    from lvq_kafka.reading.selection import SelectionOptions
    from lvq_kafka.reading.view import View

__all__ = ["hold"]

_LOOK = 0.2  # seconds between two looks at the state
_PROGRESS = 10.0  # seconds between two lines about progress


@command(
    "hold",
    examples=[
        "lvq hold prices --store /var/lib/prices",
        "lvq hold prices --store /var/lib/prices --prefix EU.",
    ],
)
@queue_argument
@click.option(
    "--store",
    required=True,
    metavar="DIRECTORY",
    help="Where to keep the values. It is created if it does not exist.",
)
@selection_options
def hold(invocation: Invocation, choice: QueueChoice, *, store: str, selection: SelectionOptions[Any]) -> None:
    """Keep the current values in a store, for other processes to attach.

    Programs on this machine read the store with lvq_kafka.attach, without a connection to the cluster. Writes its state
    whenever that changes, and its progress while it reads.

    Runs until Ctrl-C or SIGTERM, and then makes the store durable. A store has one holder at a time.
    """
    queue, never = invocation.open(choice, create=True), Event()
    with closing(queue.view(store=store, undecodable="raw", **selection)) as view:
        view.start()
        said, due = "", 0.0
        while view.state not in ("failed", "closed"):
            state, now = view.state, time.monotonic()
            if state != said or (now >= due and state in ("catching-up", "stale")):
                _report(invocation.out, queue.name, store, view)
                said, due = state, now + _PROGRESS
            never.wait(_LOOK)
        if view.failure is not None:
            raise view.failure


def _report(out: Output, queue: str, store: str, view: View[Any]) -> None:
    status = view.status
    done, total = status.progress
    if out.person:
        trouble = f": {status.trouble}" if status.trouble else ""
        out.say(printable(f"{queue} in {store}: {status.state}, {done:,} of {total:,} offsets read{trouble}"))
    else:
        row: dict[str, object] = {"queue": queue, "store": store, "state": status.state, "lag": status.lag}
        row |= {"read": done, "to_read": total}
        out.row(row if status.trouble is None else {**row, "trouble": str(status.trouble)})
    out.flush()
