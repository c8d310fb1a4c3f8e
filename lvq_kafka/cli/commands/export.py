"""Export of a queue's snapshot, to keep or to load elsewhere.

An export is JSON lines in UTF-8. The first line describes it::

    {"lvq_export": 1, "queue": "prices", "topic": "prices", "topic_id": "N1JBasJFSeGqrj2PxtgWpg",
     "key_header": "ticker", "offsets": {"0": 42}, "format": "bytes", "values": 5}

``lvq_export`` is the version of this format. ``offsets`` is the cut through the log, the next offset of each partition:
every record below it is included, and none at or above it. A view's snapshot and Spark's hold the same rows at the same
cut (G8). ``topic_id`` distinguishes the topic from another one of the same name. ``key_header`` is null if the record
key itself is the key. ``format`` is the format of the values, and ``values`` the number of lines that follow: one for
each key, in queue order, as documented in `lvq_kafka.json_lines`. ``selection`` is present if only some keys are
exported: the keys, prefixes, headers and partitions that were asked for.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import click

from lvq_kafka.cli.commands.read import read_timeout
from lvq_kafka.cli.common_options import command, format_option, queue_argument, selection_options
from lvq_kafka.cli.exit_codes import complain_of_unread
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.output import count
from lvq_kafka.json_lines import Format, is_unread, to_line, value_line
from lvq_kafka.reading.selection import SelectionOptions
from lvq_kafka.reading.snapshot import Snapshot

__all__ = ["export"]


@command(
    "export",
    examples=["lvq export prices prices.jsonl", "lvq export prices | gzip > prices.jsonl.gz"],
)
@queue_argument
@click.argument("file", required=False, default="-")
@selection_options
@format_option
@read_timeout
def export(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    file: str,
    selection: SelectionOptions[Any],
    form: Format,
    timeout: float,
) -> None:
    """Write a snapshot of the current values.

    It is one consistent cut through the log.

    The first line describes it:

    \b
      {"lvq_export": 1, "queue": …,
       "topic": …, "topic_id": …,
       "key_header": …,
       "offsets": {"0": 42},
       "as_of": 1732205001.5,
       "format": "bytes", "values": 5}

    Every record below the offsets is included, none above, and no value that had expired at the time as_of, in seconds
    since the epoch. Then one line follows for each key, as browse writes it, in queue order. Without FILE, or with -,
    the export goes to stdout; a FILE appears once it is complete. put --from-jsonl reads it back.
    """
    queue = invocation.open(choice, form, create=True)
    with invocation.view(queue, timeout, **selection) as view:
        snapshot = view.snapshot()
    written = unread = 0
    with (
        _opened(file, invocation) as write,
        invocation.out.waiting(lambda: f"writing {written:,} of {len(snapshot):,}"),
    ):
        write(to_line(_export_header(queue.name, queue.key_header, snapshot, form, selection)))
        for entry in snapshot.iter_entries():
            write(value_line(entry, form))
            written += 1
            unread += is_unread(entry.value, form)
    if file != "-":
        invocation.out.note(f"{count(written, 'value')} of {queue.name} in {file}")
    complain_of_unread(unread, form)


def _export_header(
    name: str, key_header: str | None, snapshot: Snapshot[Any], form: Format, selection: SelectionOptions[Any]
) -> dict[str, Any]:
    header = {
        "lvq_export": 1,
        "queue": name,
        "topic": snapshot.topic,
        "topic_id": snapshot.topic_id,
        "key_header": key_header,
        "offsets": {str(partition): offset for partition, offset in snapshot.offsets.items()},
        "as_of": snapshot.as_of,
        "format": form,
        "values": len(snapshot),
    }
    return header | ({"selection": selection} if selection else {})


@contextmanager
def _opened(file: str, invocation: Invocation) -> Iterator[Callable[[bytes], object]]:
    """Open the target of an export. A regular file gets its name once it is complete."""
    path = Path(file)
    if file == "-":
        yield invocation.out.raw
    elif path.exists() and not path.is_file():
        with path.open("wb") as pipe:
            yield pipe.write
    else:
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as data:
                yield data.write
            partial.replace(path)
        except OSError as error:
            if error.filename == str(partial):
                error.filename = file  # the name that the user knows
            raise
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
