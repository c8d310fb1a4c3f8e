"""Export of a queue's snapshot, to keep or to load elsewhere.

The name of the file says its form: Parquet and Arrow have the columns of `lvq_kafka.tabular.arrow_rows`, and CSV those
of `lvq_kafka.csv_lines`. Everything else is JSON lines in UTF-8, of which the first describes the export::

    {"lvq_export": 1, "queue": "prices", "topic": "prices", "topic_id": "N1JBasJFSeGqrj2PxtgWpg",
     "key_header": "ticker", "offsets": {"0": 42}, "as_of": 1732205001.5, "state": "caught-up",
     "format": "bytes", "values": 5}

``lvq_export`` is the version of this format. ``offsets`` is the cut through the log, the next offset of each partition:
every record below it is included, and none at or above it. A view's snapshot and Spark's hold the same rows at the same
cut (G8). ``topic_id`` distinguishes the topic from another one of the same name. ``key_header`` is null if the record
key itself is the key. ``format`` is the format of the values, and ``values`` the number of lines that follow: one for
each key, in queue order, as documented in `lvq_kafka.json_lines`. ``selection`` is present if only some keys are
exported: the keys, prefixes, headers and partitions that were asked for.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import click

from lvq_kafka.cli.commands.read import read_timeout
from lvq_kafka.cli.common_options import command, format_option, queue_argument, selection_options
from lvq_kafka.cli.exit_codes import BAD_DATA, Complaint, complain_of_unread
from lvq_kafka.cli.offset_spec import in_words
from lvq_kafka.cli.output import count
from lvq_kafka.codecs import form_of
from lvq_kafka.core.facts import Format
from lvq_kafka.core.text.quoting import printable
from lvq_kafka.csv_lines import CSV_HEAD, csv_line
from lvq_kafka.json_lines import is_unread, to_line, value_line

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation, QueueChoice
    from lvq_kafka.reading.entries import Entry
    from lvq_kafka.reading.selection import SelectionOptions
    from lvq_kafka.reading.snapshot import Snapshot
    from lvq_kafka.tabular.arrow_files import ArrowForm

__all__ = ["export"]


@command(
    "export",
    examples=[
        "lvq export prices prices.jsonl",
        "lvq export prices prices.parquet --format json",
        "lvq export prices prices.arrow --columns key,value,expires",
        "lvq export prices | gzip > prices.jsonl.gz",
    ],
)
@queue_argument
@click.argument("file", required=False, default="-")
@selection_options
@click.option("--columns", metavar="NAMES", help="The columns of a .parquet or .arrow, separated by commas.")
@format_option
@read_timeout
def export(
    invocation: Invocation,
    choice: QueueChoice,
    *,
    file: str,
    selection: SelectionOptions[Any],
    columns: str | None,
    form: Format | None,
    timeout: float,
) -> None:
    """Write a snapshot of the current values.

    It is one consistent cut through the log.

    FILE may end in .parquet, .arrow or .csv. Otherwise the export is JSON lines, and the first describes it:

    \b
      {"lvq_export": 1, "queue": …,
       "topic": …, "topic_id": …,
       "key_header": …,
       "offsets": {"0": 42},
       "as_of": 1732205001.5,
       "state": "caught-up",
       "format": "bytes", "values": 5}

    Every record below the offsets is included, none above, and no value that had expired at the time as_of, in seconds
    since the epoch. Then one line follows for each key, as browse writes it, in queue order. Parquet and Arrow have the
    same in their metadata, under lvq, and the fields of JSON values as fields of their column. Without FILE, or with -,
    the export goes to stdout; a FILE appears once it is complete. put --from-jsonl reads JSON lines back. A CSV has no
    place for the cut and the state: stderr gets a line with them.
    """
    ending = Path(file).suffix.lower()
    arrow: ArrowForm | None = "parquet" if ending == ".parquet" else "arrow" if ending == ".arrow" else None
    if columns is not None and arrow is None:
        raise click.UsageError("--columns is for a FILE that ends in .parquet or .arrow.")
    queue = invocation.open(choice, form, create=True)
    form = form_of(queue.value_codec)
    with invocation.view(queue, timeout, **selection) as view:
        snapshot = view.snapshot()
    done = _Exported()
    with (
        _opened(file) as target,
        invocation.out.waiting(lambda: f"writing {done.written:,} of {len(snapshot):,}"),
    ):
        if arrow is not None:
            named = None if columns is None else [name.strip() for name in columns.split(",")]
            _write_arrow(snapshot, target, arrow, named, done)
        elif ending == ".csv":
            target.write(CSV_HEAD)
            _write_lines(snapshot, target, csv_line, form, done)
        else:
            target.write(to_line(_export_header(queue.key_header, snapshot, form, selection)))
            _write_lines(snapshot, target, lambda entry: value_line(entry, form), form, done)
    if file != "-":
        cut = f"{snapshot.status.state} {in_words(snapshot.offsets)}"
        said = f"{count(done.written, 'value')} of {queue.name} in {file}, {cut}"
        if ending == ".csv" and not invocation.out.person:
            click.echo(printable(said), err=True)  # a CSV has no place for it
        else:
            invocation.out.note(said)
    complain_of_unread(done.unread, form)
    if done.unnamed:
        keys = "key is" if done.unnamed == 1 else "keys are"
        raise Complaint(f"{done.unnamed:,} {keys} not UTF-8, and null; --columns key_raw,… has the bytes.", BAD_DATA)


@dataclass
class _Exported:
    """The numbers of an export that is being written."""

    written: int = 0
    unread: int = 0
    """The values that could not be decoded."""
    unnamed: int = 0
    """The keys that a column of text cannot hold."""


def _write_lines(
    snapshot: Snapshot[Any], target: BinaryIO, line: Callable[[Entry[Any]], bytes], form: Format, done: _Exported
) -> None:
    for entry in snapshot.iter_entries():
        target.write(line(entry))
        done.written += 1
        done.unread += is_unread(entry.value, form)


def _write_arrow(
    snapshot: Snapshot[Any], target: BinaryIO, form: ArrowForm, columns: list[str] | None, done: _Exported
) -> None:
    reader = snapshot.to_arrow(columns)
    from lvq_kafka.tabular.arrow_files import write_batches

    for batch in write_batches(reader, target, form):
        done.written += batch.num_rows
        counted = {name: batch.column(name).null_count for name in batch.schema.names}
        done.unread += batch.num_rows - counted.get("value_raw", batch.num_rows)
        done.unnamed += counted.get("key", 0) if "key_raw" not in counted else 0


def _export_header(
    key_header: str | None, snapshot: Snapshot[Any], form: Format, selection: SelectionOptions[Any]
) -> dict[str, Any]:
    header = {
        "lvq_export": 1,
        "queue": snapshot.queue,
        "topic": snapshot.topic,
        "topic_id": snapshot.topic_id,
        "key_header": key_header,
        "offsets": snapshot.about["offsets"],
        "as_of": snapshot.as_of,
        "state": snapshot.status.state,
        "format": form,
        "values": len(snapshot),
    }
    return header | ({"selection": selection} if selection else {})


@contextmanager
def _opened(file: str) -> Iterator[BinaryIO]:
    """Open the target of an export, behind links.

    A regular file gets its name once it is complete.
    """
    path = Path(os.path.realpath(file))
    if file == "-":
        yield sys.stdout.buffer
    elif path.exists() and not path.is_file():
        with path.open("wb") as pipe:
            yield pipe
    else:
        partial = path.with_name(f".{path.name}.{os.getpid()}.part")
        try:
            with partial.open("wb") as data:
                yield data
            partial.replace(path)
        except OSError as error:
            if error.filename == str(partial):
                error.filename = file  # the name that the user knows
            raise
        finally:
            with suppress(OSError):
                partial.unlink(missing_ok=True)
