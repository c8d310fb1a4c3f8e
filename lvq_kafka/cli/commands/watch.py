"""The live board."""

from __future__ import annotations

from typing import Any

import click

from lvq_kafka.cli.commands.read import write_events
from lvq_kafka.cli.common_options import (
    command,
    format_option,
    queue_argument,
    selection_options,
    stream_options,
    timeout_option,
)
from lvq_kafka.cli.invocation import Invocation, QueueChoice, events_of
from lvq_kafka.cli.json_lines import Format, event_line
from lvq_kafka.reading.selection import SelectionOptions

__all__ = ["watch"]


@command(
    "watch",
    examples=["lvq watch prices", "lvq watch orders --format json --sort recent", "lvq watch prices | jq -c ."],
)
@queue_argument
@selection_options
@stream_options
@click.option(
    "--sort",
    type=click.Choice(["key", "recent"]),
    default="key",
    show_default=True,
    help="Sort order of the board.",
)
@format_option
@timeout_option(60.0, "Time limit for reading the queue.")
def watch(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    selection: SelectionOptions[Any],
    stream: dict[str, Any],
    sort: str,
    form: Format,
    timeout: float,
) -> None:
    """Watch current values change.

    Runs until Ctrl-C. On a terminal it shows a board, where changes flash; JSON objects (--format json) get a column
    for each field. A terminal that can only write line by line (TERM=dumb) gets rows, as from browse --follow. Piped,
    it writes the current values, end-of-dump, and every change. Consumed values are still shown.
    """
    out = invocation.out
    queue = invocation.open(choice, form)
    with invocation.browser(
        queue, default_filters=False, hide_consumed=False, catch_up_timeout=timeout, **selection, **stream
    ) as browser:
        if out.person and out.console.is_dumb_terminal:  # it cannot redraw
            write_events(out, browser, form, queue.key_header, following=True)
            return
        if out.person:
            from lvq_kafka.cli.board import Board

            Board(queue.name, by_recency=sort == "recent").show(out.console, browser)
            return
        for event in events_of(browser, out.flush):
            out.raw(event_line(event, form))
