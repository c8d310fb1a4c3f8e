"""The command that answers queries of SQL."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from datetime import date, datetime, time
from decimal import Decimal
from math import isfinite
from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.commands.read import read_timeout
from lvq_kafka.cli.common_options import command, format_option
from lvq_kafka.cli.exit_codes import print_problem
from lvq_kafka.cli.invocation import Invocation, QueueChoice
from lvq_kafka.cli.offset_spec import in_words
from lvq_kafka.cli.output import Output, count
from lvq_kafka.cli.printable import printable_text, printable_value
from lvq_kafka.core.facts import Format
from lvq_kafka.json_lines import shown

if TYPE_CHECKING:
    from lvq_kafka.reading.sql_answer import SqlAnswer

__all__ = ["sql"]


@command(
    "sql",
    examples=[
        'lvq sql "SELECT key, value.price FROM prices WHERE value.price > 100" prices --format json',
        "lvq sql \"SELECT count(*) FROM prices WHERE key LIKE 'I%'\" prices",
        'lvq sql "SELECT p.key, n.value FROM prices p JOIN names n USING (key)" prices names --format text',
    ],
)
@click.argument("query")
@click.argument("queues", metavar="QUEUE…", nargs=-1, required=True)
@format_option
@read_timeout
def sql(invocation: Invocation, query: str, queues: tuple[str, ...], *, form: Format | None, timeout: float) -> None:
    """Answer a query in the SQL of DuckDB.

    QUERY is one SELECT; it can only read. Each QUEUE is a table of its name, at one cut, with the columns key, value,
    topic, partition, offset, timestamp, headers and expires. Where values are JSON, value has its fields, as in
    value.price; a value that is not JSON is null there, with its bytes in value_raw.

    A program gets a line for each row, and a last one with the event "end-of-rows", which has the cut and the state of
    each queue.
    """
    with ExitStack() as opened:
        views = [
            opened.enter_context(invocation.view(invocation.open(QueueChoice(name), form, create=True), timeout))
            for name in queues
        ]
        answer = views[0].sql(query, *views[1:])
    if invocation.out.person:
        _show(invocation.out, answer)
    else:
        names = list(_distinct(answer.columns))
        for row in answer:
            invocation.out.row(dict(zip(names, map(_json_cell, row))))
        invocation.out.row({"event": "end-of-rows", "rows": len(answer), "queues": list(answer.about.values())})
    for doubt in answer.doubts:
        print_problem(f"{doubt}.", warning=True)


def _show(out: Output, answer: SqlAnswer) -> None:
    from rich.text import Text

    from lvq_kafka.cli.table import plain_table

    table = plain_table()
    for name in answer.columns:
        table.add_column(Text(printable_text(name)), overflow="fold")
    for row in answer:
        table.add_row(*(Text("" if cell is None else printable_value(_json_cell(cell))) for cell in row))
    out.say(table)
    cuts = "; ".join(f"{queue} {said['state']} {in_words(said['offsets'])}" for queue, said in answer.about.items())
    out.note(f"{count(len(answer), 'row')}; {cuts}")


def _distinct(names: Sequence[str]) -> Iterator[str]:
    """Yield names; one that repeats has a number."""
    seen: set[str] = set()
    for name in names:
        number, given = 0, name
        while given in seen:
            number += 1
            given = f"{name}_{number}"
        seen.add(given)
        yield given


def _json_cell(cell: Any) -> Any:
    """Return a cell as JSON has it."""
    if cell is None or isinstance(cell, bool | int | str):
        return cell
    if isinstance(cell, float):
        return cell if isfinite(cell) else None
    if isinstance(cell, bytes):
        return shown(cell)
    if isinstance(cell, Decimal):
        return _number(cell)
    if isinstance(cell, date | datetime | time):
        return cell.isoformat()
    if isinstance(cell, dict):
        return {str(name): _json_cell(part) for name, part in cell.items()}
    return list(map(_json_cell, cell)) if isinstance(cell, list | tuple) else str(cell)


def _number(number: Decimal) -> int | float | str:
    """Return a decimal number as one of JSON, or as text if that would round it."""
    if number == number.to_integral_value():
        return int(number)
    return float(number) if Decimal(repr(float(number))) == number else str(number)
