"""Non-destructive reading: the values of keys, a dump and its updates."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import (
    Seconds,
    command,
    format_option,
    queue_argument,
    selection_options,
    stream_options,
    timeout_option,
)
from lvq_kafka.cli.exit_codes import BAD_DATA, NOTHING, Complaint, complain_of_unread, print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice, events_of
from lvq_kafka.cli.output import Output, count
from lvq_kafka.cli.printable import printable_value
from lvq_kafka.codecs import form_of
from lvq_kafka.core.facts import Format
from lvq_kafka.core.text.quoting import brief, printable
from lvq_kafka.json_lines import event_line, is_unread, to_json, to_line, value_line
from lvq_kafka.reading.entries import EndOfDump, Entry

if TYPE_CHECKING:
    from lvq_kafka.reading.browser import Browser
    from lvq_kafka.reading.selection import SelectionOptions
    from lvq_kafka.reading.view import View
    from lvq_kafka.reading.watch import Watch

__all__ = ["browse", "get", "print_blocked", "read_timeout", "write_events"]

read_timeout = timeout_option(60.0, "Time limit for reading the queue.")


@command(
    "get",
    examples=[
        "lvq get prices IBM",
        "lvq get prices IBM MSFT",
        "lvq get prices --prefix US.",
        "price=$(lvq get prices IBM --raw)",
    ],
)
@queue_argument
@click.argument("keys", nargs=-1)
@click.option("--prefix", metavar="TEXT", multiple=True, help="All keys that begin with this, sorted. Repeatable.")
@click.option("--raw", is_flag=True, help="Print bare values, one per line.")
@format_option
@read_timeout
def get(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    keys: tuple[str, ...],
    prefix: tuple[str, ...],
    raw: bool,
    form: Format | None,
    timeout: float,
) -> None:
    """Print the current values of keys.

    Exits with 1 if a key, or a prefix, has no value. A consumed value is still the current value of its key.
    """
    if not keys and not prefix:
        raise click.UsageError("Name a key, or give --prefix TEXT.")
    if keys and prefix:
        raise click.UsageError("Name keys, or give --prefix TEXT; not both.")
    out = invocation.out
    queue = invocation.open(choice, form, create=True)
    form = form_of(queue.value_codec)
    alone = len(keys) == 1
    selected: SelectionOptions[Any] = {"keys": keys} if keys else {"prefix": prefix}
    with invocation.view(queue, timeout, **selected) as view:
        found, missing = _found(view, keys) if keys else _beginning(view, prefix)
    if raw:
        for entry in found:
            out.raw(_raw(entry) + (b"" if alone else b"\n"))
    elif not out.person:
        for entry in found:
            out.raw(value_line(entry, form))
    elif alone:
        for entry in found:
            out.say(_alone(entry.value))
    else:
        table = out.table(key_header=queue.key_header)
        for entry in found:
            table.add(entry)
        table.flush()
    complain_of_unread(sum(is_unread(entry.value, form) for entry in found), form)
    if missing:
        raise Complaint(f"{queue.name} has no value for {', '.join(missing)}.", NOTHING)


def _found(view: View[Any], keys: tuple[str, ...]) -> tuple[list[Entry[Any]], list[str]]:
    """Return the entries of keys, and the keys that have none."""
    found, missing = [], []
    for key in dict.fromkeys(keys):
        try:
            found.append(view.entry(key))
        except KeyError:
            missing.append(brief(key) or "the empty key")
    return found, missing


def _beginning(view: View[Any], prefixes: tuple[str, ...]) -> tuple[list[Entry[Any]], list[str]]:
    """Return the entries of a view, sorted by key, and the prefixes that found none."""
    found = sorted(view.entries(), key=lambda entry: entry.key)
    keys = [entry.key for entry in found]
    missing = [one for one in dict.fromkeys(prefixes) if not any(key.startswith(one) for key in keys)]
    return found, [f"keys that begin with {brief(one)}" if one else "any key" for one in missing]


def _raw(entry: Entry[Any]) -> bytes:
    value = entry.value
    if isinstance(value, bytes):
        return value
    if not isinstance(value, str):
        return to_line(value).rstrip(b"\n")
    try:
        return value.encode()
    except UnicodeEncodeError:
        raise Complaint(
            f"The value of {brief(entry.key)} has an unpaired surrogate, which UTF-8 cannot encode. Omit --raw.",
            BAD_DATA,
        ) from None


def _alone(value: Any) -> Any:
    """Return a value for display on its own, over as many lines as it has."""
    if isinstance(value, bytes):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError:
            value = printable_value(value)
    if isinstance(value, str):
        from rich.text import Text

        return Text("\n".join(printable(line) for line in value.split("\n")))
    from rich.highlighter import JSONHighlighter

    return JSONHighlighter()(to_json(value, indent=2))


@command(
    "browse",
    examples=[
        "lvq browse prices",
        "lvq browse prices --follow --key IBM --key MSFT",
        "lvq browse prices --replay 60 -H exchange=NYSE",
        "lvq browse prices --selector \"price > 100 AND exchange IN ('NYSE', 'LSE')\"",
        "lvq browse prices | jq -r 'select(.event|not) | [.key, .value] | @tsv'",
    ],
)
@queue_argument
@click.option("-f", "--follow", is_flag=True, help="Follow updates until Ctrl-C.")
@click.option("--updates-only", is_flag=True, help="Skip the current values and follow updates.")
@click.option("--replay", type=Seconds(min=0), metavar="SECONDS", help="Only values that arrived in the last SECONDS.")
@selection_options
@click.option("--no-default-filters", is_flag=True, help="Ignore the filters that the queue declares for browsers.")
@stream_options
@click.option("--all", "everything", is_flag=True, help="Include messages that consumers have consumed.")
@format_option
@read_timeout
def browse(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    follow: bool,
    updates_only: bool,
    replay: float | None,
    selection: SelectionOptions[Any],
    no_default_filters: bool,
    stream: dict[str, Any],
    everything: bool,
    form: Format | None,
    timeout: float,
) -> None:
    """Read a queue without consuming.

    Prints the current values and, with --follow, updates. Each key appears once, with its newest value, in queue order.
    The line with the event "end-of-dump" says that the current values are complete, and up to which offsets. If a key's
    value is removed, its event is "deleted" or "consumed"; or "left", if it has a new value that is not selected.
    """
    if updates_only and replay:
        raise click.UsageError("--updates-only skips the values that --replay selects.")
    queue = invocation.open(choice, form, create=True)
    form = form_of(queue.value_codec)
    following = follow or updates_only
    with invocation.browser(
        queue,
        dump=not updates_only,
        replay_period=replay,
        default_filters=not no_default_filters,
        hide_consumed=not everything,
        follow=following,
        catch_up_timeout=timeout,
        **selection,
        **stream,
    ) as browser:
        unread = write_events(invocation.out, browser, form, queue.key_header, following=following)
    complain_of_unread(unread, form)


def write_events(
    out: Output, browser: Browser[Any] | Watch[Any], form: Format, key_header: str | None, *, following: bool
) -> int:
    """Write all events; return the number of values that could not be decoded."""
    table = out.table(key_header=key_header) if out.person else None

    def show() -> None:
        if table is not None:
            table.flush()
        out.flush()

    unread = values = 0
    for event in events_of(browser, show):
        if table is not None:
            table.add(event)
        else:
            out.raw(event_line(event, form))
        if isinstance(event, Entry):
            values += 1
            unread += is_unread(event.value, form)
        elif isinstance(event, EndOfDump):
            print_blocked(event)
            out.note(f"{count(values, 'value')}{'; following updates, Ctrl-C stops' if following else ''}")
    return unread


def print_blocked(end: EndOfDump) -> None:
    """Warn of each partition in which an open transaction hides records from a dump."""
    for shortfall in end.blocked:
        print_problem(f"some records are not visible: {shortfall}", warning=True)
