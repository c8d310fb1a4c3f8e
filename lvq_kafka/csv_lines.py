"""The CSV that ``lvq export`` and ``lvq serve`` write (RFC 4180).

It is UTF-8, with one line for each value. Its columns are ``key``, ``value``, ``position`` and ``timestamp``, as in
`lvq_kafka.json_lines`. A value that is neither text nor bytes is the text of its JSON. Cells that are not UTF-8 are
base64, and the column ``base64`` names them.
"""

from __future__ import annotations

import csv
import io

from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.json_lines import Valued, shown, to_json

__all__ = ["CSV_HEAD", "csv_line"]


def _line(*cells: str) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode("utf-8", "backslashreplace")


CSV_HEAD = _line("key", "value", "position", "timestamp", "base64")
"""The first line, with the names of the columns."""


def csv_line(item: Valued) -> bytes:
    """Return the line for a value."""
    value = item.value
    if not isinstance(value, bytes | str):
        value = to_json(value)
    cells = {"key": shown(encode_key(item.key)), "value": shown(value) if isinstance(value, bytes) else value}
    coded = [name for name, cell in cells.items() if isinstance(cell, dict)]
    written = [cell if isinstance(cell, str) else cell["base64"] for cell in cells.values()]
    return _line(*written, str(item.position), repr(item.timestamp), " ".join(coded))
