"""The CSV that ``lvq export`` and ``lvq serve`` write (RFC 4180).

It is UTF-8, with one line for each value. Its columns are ``key``, ``value``, ``position`` and ``timestamp``, as in
`lvq_kafka.json_lines`. A value that is neither text nor bytes is the text of its JSON. Cells that are not UTF-8, or
have a NUL, at which some readers end a cell, are base64, and the column ``base64`` names them. Nothing is changed in
cells that spreadsheets take for formulas, since programs read the file, too.
"""

from __future__ import annotations

import base64
import csv
import io
from contextlib import suppress

from lvq_kafka.core.log.keys import encode_key
from lvq_kafka.json_lines import Valued, to_json

__all__ = ["CSV_HEAD", "csv_line"]


def _line(*cells: str) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(cells)
    return line.getvalue().encode("utf-8")


CSV_HEAD = _line("key", "value", "position", "timestamp", "base64")
"""The first line, with the names of the columns."""


def csv_line(item: Valued) -> bytes:
    """Return the line for a value."""
    value = item.value
    if not isinstance(value, bytes | str):
        value = to_json(value)
    cells = {"key": _cell(encode_key(item.key)), "value": _cell(value)}
    coded = [name for name, (_, is_coded) in cells.items() if is_coded]
    written = [text for text, _ in cells.values()]
    return _line(*written, str(item.position), repr(item.timestamp), " ".join(coded))


def _cell(content: bytes | str) -> tuple[str, bool]:
    """Return the text of a cell, and whether that is base64."""
    data = content if isinstance(content, bytes) else content.encode("utf-8", "backslashreplace")
    with suppress(UnicodeDecodeError):
        if b"\0" not in data:
            return data.decode(), False
    return base64.b64encode(data).decode("ascii"), True
