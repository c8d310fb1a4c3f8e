"""Answers to queries of SQL, with the cuts and states that they are of (R49)."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import SqlError
from lvq_kafka.reading.html_tables import html_table
from lvq_kafka.tabular.arrow_types import RecordBatchReader

__all__ = ["SqlAnswer", "doubt_of"]


class SqlAnswer:
    """The rows that answer a query. Iterate over it for tuples, as often as you like.

    ``columns`` are their names; they may repeat. ``about`` has the cut and the state of each queue, by its name; see
    `Snapshot.about`.
    """

    def __init__(self, table: Any, about: Mapping[str, Mapping[str, Any]]) -> None:
        self._table = table
        self.columns: list[str] = list(table.column_names)
        self.about: dict[str, dict[str, Any]] = {queue: dict(said) for queue, said in about.items()}

    @property
    def doubts(self) -> list[str]:
        """The reasons why these rows may not be the current ones, in words.

        There are none if all queues were caught up.
        """
        return [doubt for said in self.about.values() if (doubt := doubt_of(said))]

    def __len__(self) -> int:
        """Return the number of rows."""
        rows: int = self._table.num_rows
        return rows

    def __iter__(self) -> Iterator[tuple[Any, ...]]:
        """Yield the rows.

        Raises:
            SqlError: a value is beyond what Python can hold, such as a date after the year 9999.
        """
        for batch in self._table.to_batches():
            yield from zip(*map(_cells, self.columns, batch.columns))

    def to_arrow(self) -> RecordBatchReader:
        """Return the rows as a stream of Arrow record batches."""
        return self._table.to_reader()

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        """Return the rows as an Arrow C stream, for pandas, polars and others."""
        return self._table.__arrow_c_stream__(requested_schema)

    def _repr_html_(self) -> str:
        """Return the first rows as HTML, for notebooks."""
        said = self.doubts or ["current"]
        cuts = [f"{queue} at {about['offsets']}" for queue, about in self.about.items()]
        head = f"{len(self):,} row{'' if len(self) == 1 else 's'}"
        return html_table(head, [*said, *cuts], self.columns, self, len(self))

    def __repr__(self) -> str:
        of = "; ".join(f"{queue} at {said['offsets']}, {said['state']}" for queue, said in self.about.items())
        return f"<SqlAnswer of {of}: {len(self)} rows>"


def _cells(name: str, column: Any) -> list[Any]:
    try:
        cells: list[Any] = column.to_pylist()
    except (OverflowError, ValueError) as error:
        raise SqlError(
            f"The column {quoted(name)} has a value of the type {column.type} that Python cannot hold: {error}.",
            hint="Cast it to VARCHAR in the query.",
        ) from error
    return cells


def doubt_of(said: Mapping[str, Any]) -> str:
    """Return why the values of a cut may not be the current ones; empty if they are."""
    if not said["complete"]:
        return f"{said['queue']} is not complete yet: it is {said['state']}"
    if said["state"] != "caught-up":
        return (
            f"{said['queue']} may not be current: it is {said['state']}, and was last heard of {said['age']:.0f} s ago"
        )
    return ""
