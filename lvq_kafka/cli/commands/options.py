"""``lvq options``: the names that options of a queue have in each system."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import click

from lvq_kafka.cli.common_options import Command, output_options
from lvq_kafka.core.queue.option_names import (
    OPTION_NAMES,
    SYSTEMS,
    Fixed,
    Mapped,
    OptionName,
    explanation,
    option_named,
    spellings,
    unknown_option,
)
from lvq_kafka.core.text.quoting import shell_word

if TYPE_CHECKING:
    from lvq_kafka.cli.invocation import Invocation

__all__ = ["options"]

_NARROW = 60  # columns of a terminal


@click.command(
    "options",
    cls=Command,
    examples=["lvq options", "lvq options last-value-key", "lvq options | jq -r 'select(.here == \"refused\").name'"],
)
@click.argument("name", required=False)
@output_options
@click.pass_obj
def options(invocation: Invocation, name: str | None) -> None:
    """List the options of queues, by their names here and in other systems.

    NAME is one of them, in any case and with any separators.
    """
    rows = list(OPTION_NAMES)
    if name is not None:
        row = option_named(name)
        if row is None:
            raise unknown_option(name)
        rows = [row]
    if not invocation.out.person:
        for row in rows:
            invocation.out.row(_as_row(row))
    elif name is not None:
        _say_one(invocation, rows[0])
    else:
        _say_all(invocation, rows)


def _as_row(row: OptionName) -> dict[str, Any]:
    meaning = row.meaning
    shared: dict[str, Any] = {
        "name": row.name,
        "systems": list(row.systems),
        "here": row.here,
        "meaning": explanation(row),
        "spellings": [each.name for each in spellings(row)],
    }
    if isinstance(meaning, Mapped):
        return {**shared, "sets": meaning.sets, "values": meaning.values, "example": meaning.example}
    return {**shared, "accepts": None if meaning.accepts is None else list(meaning.accepts), "reason": meaning.reason}


def _say_one(invocation: Invocation, row: OptionName) -> None:
    from rich.text import Text

    said = Text.assemble((row.name, "bold cyan"), f"  {_in(row)}\n{explanation(row)}")
    others = [f"{each.name} ({_in(each)})" for each in spellings(row) if each is not row]
    if others:
        said.append(f"\n\n{'For the same reason' if isinstance(row.meaning, Fixed) else 'For the same'}:\n")
        said.append("\n".join(f"  {other}" for other in others))
    if isinstance(row.meaning, Mapped):
        typed = shell_word(f"{row.name}={row.meaning.example}")
        said.append(f"\n\nExample:\n  lvq declare QUEUE -o {typed}")
    invocation.out.say(said)


def _say_all(invocation: Invocation, rows: list[OptionName]) -> None:
    from rich.text import Text

    from lvq_kafka.cli.table import plain_table

    if invocation.out.console.width < _NARROW:  # in columns, no name would be whole
        for row in rows:
            name = Text.assemble((row.name, "bold cyan"), (f"  {_in(row)}", "dim"))
            invocation.out.say(name.append(f"\n{explanation(row)}\n"))
        return
    table = plain_table()
    for head, style in (("OPTION", "bold cyan"), ("IN", ""), ("HERE", "")):
        table.add_column(head, style=style, overflow="fold")
    for row in rows:
        table.add_row(*(Text(cell) for cell in (row.name, _in(row), explanation(row))))
    invocation.out.say(table)


def _in(row: OptionName) -> str:
    return ", ".join(SYSTEMS[system] for system in row.systems)
