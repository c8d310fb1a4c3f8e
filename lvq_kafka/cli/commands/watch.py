"""The live board."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

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
from lvq_kafka.codecs import form_of
from lvq_kafka.core.facts import Format
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.core.queue.standard import check_mapping
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.json_lines import event_line
from lvq_kafka.reading.entries import EndOfDump

if TYPE_CHECKING:
    from lvq_kafka.reading.selection import SelectionOptions

__all__ = ["watch"]


def _resume_point(ctx: click.Context, param: click.Parameter, given: str | None) -> EndOfDump | str | None:
    """Parse an end-of-dump line, the first line of an export, offsets or a token."""
    if given is None:
        return None
    try:
        text = Path(given[1:]).read_text() if given.startswith("@") else given
        if PageToken.is_one(text.strip()):
            return text.strip()
        row = read_json(text)
        offsets = row.get("offsets", row)
        return EndOfDump(
            {int(partition): int(offset) for partition, offset in offsets.items()},
            topic_id=str(row.get("topic_id", "")),
            as_of=float(row.get("as_of", 0.0)),
        )
    except (ValueError, TypeError, AttributeError, OverflowError):
        raise click.BadParameter('It is not JSON like {"0": 42}, or a line with such offsets.', ctx, param) from None


@command(
    "watch",
    examples=[
        "lvq watch prices",
        "lvq watch prices --every 1",
        "lvq watch orders --format json --sort recent",
        "lvq watch prices | jq -c .",
    ],
)
@queue_argument
@selection_options
@stream_options
@click.option(
    "--since",
    metavar="JSON",
    callback=_resume_point,
    help="Write only what has changed since these offsets: an end-of-dump line, the first line of an export, a "
    'token, or {"0": 42}; @FILE reads it from a file.',
)
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
    since: EndOfDump | None,
    sort: str,
    form: Format | None,
    timeout: float,
) -> None:
    """Watch current values change.

    Runs until Ctrl-C. On a terminal it shows a board, where changes flash; JSON objects (--format json) get a column
    for each field. A terminal that can only write line by line (TERM=dumb) gets rows, as from browse --follow. Piped,
    it writes the current values, end-of-dump, and every change. Consumed values are still shown.

    With --since it writes what has changed since an earlier end-of-dump, deletes included, and no board. It refuses to
    if some deletes may be gone from the log.
    """
    out = invocation.out
    queue = invocation.open(choice, form, create=True)
    form = form_of(queue.value_codec)
    check_mapping(queue.name, conflate=queue.definition.conflate, what="A watch")
    if since is not None:
        with invocation.view(queue, timeout, **selection) as view, view.watch(since=since, **stream) as changes:
            write_events(out, changes, form, queue.key_header, following=True)
        return
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
