"""Current values and answers as HTML, for notebooks."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import islice
from typing import Any

from lvq_kafka.core.text.quoting import brief

__all__ = ["MOST_SHOWN", "html_table"]

MOST_SHOWN = 20
"""The most rows of a table in a notebook."""


def html_table(
    head: str, about: Iterable[str], columns: Sequence[str], rows: Iterable[Sequence[Any]], total: int
) -> str:
    """Return a table of the first rows.

    It holds text only: whatever is in a queue is escaped, and cut short.

    Args:
        head: what it shows.
        about: further lines. The first stands out.
        columns: the names of the columns.
        rows: the rows; no more than `MOST_SHOWN` are taken.
        total: the number of rows that there are.
    """
    first, *others = map(_text, about)
    lines = "<br>".join([f"<strong>{_text(head)}</strong>: <em>{first}</em>", *others])
    cells = "".join(
        f"<tr>{''.join(f'<td>{_text(cell)}</td>' for cell in row)}</tr>" for row in islice(rows, MOST_SHOWN)
    )
    names = "".join(f"<th>{_text(name)}</th>" for name in columns)
    rest = f"<p>the first {MOST_SHOWN} of {total:,}</p>" if total > MOST_SHOWN else ""
    return f"<p>{lines}</p><table><thead><tr>{names}</tr></thead><tbody>{cells}</tbody></table>{rest}"


def _text(cell: Any) -> str:
    if cell is None:
        return ""
    if isinstance(cell, bytes):
        try:
            cell = cell.decode()
        except UnicodeDecodeError:
            cell = repr(cell)
    return escape(brief(cell if isinstance(cell, str) else str(cell)))
