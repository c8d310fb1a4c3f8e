"""Queries of SQL over rows, by a DuckDB that can only read them."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from typing import Any

import duckdb
import pyarrow as pa

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError, LVQError, SqlError
from lvq_kafka.tabular.arrow_rows import ArrowRows

__all__ = ["answered"]

_CLOSED: Mapping[str, str | bool | int | float | list[str]] = {
    "enable_external_access": "false",  # no files, no network, no other databases
    "allow_community_extensions": "false",
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "temp_directory": "",  # by default, one in the working directory
}

_LOCKED = (
    "SET python_enable_replacements = false",  # otherwise a name may be that of a variable in a caller's frame
    "SET TimeZone = 'UTC'",
    "SET lock_configuration = true",
)

_TEXTS = ("bit", "time with time zone")
"""The types that Arrow has none for: bits would become bytes, and times would lose their offset."""

_READING = ("SELECT", "EXPLAIN")

ONLY_ONE = "queue"
"""The further name of a single table."""


class _ScannedRows:
    """Rows as DuckDB asks for them: a new stream for each scan."""

    def __init__(self, rows: ArrowRows[Any], failed: Callable[[LVQError], object]) -> None:
        self._rows = rows
        self._failed = failed

    def __arrow_c_stream__(self, requested_schema: object = None) -> object:
        return self._rows.reader(self._failed).__arrow_c_stream__(requested_schema)


def answered(
    query: str, parameters: Sequence[Any] | Mapping[str, Any] | None, tables: Mapping[str, ArrowRows[Any]]
) -> pa.Table:
    """Return the answer to a query.

    Args:
        query: one ``SELECT``.
        parameters: the values of its parameters.
        tables: the rows of each table, by name.

    Raises:
        SqlError: it cannot be answered; see `SqlError`.
        ConfigError: the query is no text, or the parameters are neither a list nor by name.
        LVQError: rows could not be read.
    """
    if not isinstance(query, str):
        raise ConfigError(f"query={quoted(query)} is not text.", options=["query"])
    if isinstance(parameters, str | bytes) or not isinstance(parameters, Sequence | Mapping | None):
        raise ConfigError(
            f"parameters={quoted(parameters)} is neither a list nor a mapping.",
            options=["parameters"],
            hint="Give a list for ?, or a mapping for $name.",
        )
    failures: list[LVQError] = []
    try:
        with closing(duckdb.connect(":memory:", config=dict(_CLOSED))) as database:
            for name, rows in tables.items():
                database.register(name, _ScannedRows(rows, failures.append))
            if len(tables) == 1 and ONLY_ONE not in tables:
                (only,) = tables.values()
                database.register(ONLY_ONE, _ScannedRows(only, failures.append))
            for statement in _LOCKED:
                database.execute(statement)
            _check_reads(database, query)
            try:
                return _exact(database.sql(query, params=parameters)).to_arrow_table()
            except (duckdb.BinderException, duckdb.CatalogException):
                database.execute(query, parameters)  # fails likewise, and says where
                raise
    except duckdb.Error as error:
        for failure in failures:
            raise failure from None
        raise SqlError(_words(str(error))) from error


def _exact(found: duckdb.DuckDBPyRelation) -> duckdb.DuckDBPyRelation:
    """Return the rows of a query, with text for what Arrow would hold otherwise."""
    if not any(kind.id in _TEXTS for kind in found.types):
        return found
    columns = []
    for place, (name, kind) in enumerate(zip(found.columns, found.types), 1):
        given = name.replace('"', '""')
        columns.append(f'#{place}{"::VARCHAR" if kind.id in _TEXTS else ""} AS "{given}"')
    return found.project(", ".join(columns))


def _check_reads(database: duckdb.DuckDBPyConnection, query: str) -> None:
    """Check that this is one query that reads.

    Raises:
        SqlError: it is none, more than one, or something else.
    """
    statements = database.extract_statements(query)
    if len(statements) != 1:
        raise SqlError(
            "There is no query." if not statements else "There are several queries.", hint="Give one SELECT."
        )
    kind = statements[0].type.name
    if kind not in _READING:
        raise SqlError(f"A queue can only be read, and this is {kind}.", hint="Give a SELECT.")


def _words(text: str) -> str:
    """Return DuckDB's words for an error, with the place in the query indented as an excerpt."""
    said, _, place = text.partition("\n\nLINE ")
    _, colon, rest = said.partition("Error: ")
    reason = rest if colon else said
    excerpt = "".join(f"\n    {line}" for line in f"LINE {place}".splitlines()) if place else ""
    return f"{reason.strip()}{excerpt}"
