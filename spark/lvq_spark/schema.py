"""The available columns, with their Spark types."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence

from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.errors import ConfigError

__all__ = [
    "EXPIRES",
    "GROUP",
    "ON_REQUEST",
    "PRIORITY",
    "SCHEMA",
    "SNAPSHOT_COLUMNS",
    "SORT_KEY",
    "TYPES",
    "check_columns",
    "ddl",
    "quoted",
]

EXPIRES = "expires"
"""The column with the time after which a row no longer counts (R10); null if it never expires."""

PRIORITY = "priority"
"""The column with the priority of a row (R20): 0 to 9, and 4 if its message says none."""

SORT_KEY = "sort_key"
"""The column with the text by which a row is sorted (R20); null if its message has none, which comes first."""

GROUP = "group"
"""The column with the group of a row (R36); null if it has none."""

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp_ltz",  # plain `timestamp` means whatever the session says
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "deleted": "boolean",
    EXPIRES: "timestamp_ltz",
    PRIORITY: "int",
    SORT_KEY: "string",
    GROUP: "binary",
}
"""All columns that can be requested.

Names, order and types are those of Spark's Kafka connector; ``deleted`` and those after it are ours.
"""

SNAPSHOT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""The columns of a snapshot that asks for none; those `ON_REQUEST` are there, too."""

ON_REQUEST = (EXPIRES, PRIORITY, SORT_KEY, GROUP)
"""The further columns of a snapshot."""


def ddl(columns: Iterable[str]) -> str:
    """Return the schema of some of the columns."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def quoted(name: str) -> str:
    """Quote a column's name for Spark, so that it is one name whatever it contains."""
    return f"`{name.replace('`', '``')}`"


SCHEMA = ddl(SNAPSHOT_COLUMNS)
"""The schema of a snapshot.

Names, order and types are those of Spark's Kafka connector, without ``timestampType``.
"""


def check_columns(option: str, names: Sequence[str], there: Collection[str]) -> tuple[str, ...]:
    """Check the requested columns, and return them.

    Args:
        option: the option that requests them, for messages.
        names: the requested names.
        there: the available names.

    Raises:
        ConfigError: a name is unknown (the error names the nearest), is given twice, or none is given.
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"{option}={names!r} is not a list.", options=[option], hint=f"Give a list: [{names!r}].")
    for name in names:
        if name not in there:
            near = nearest(str(name), there, alike=0.5)
            meant = f"Did you mean {near[0]}? " if near else ""
            raise ConfigError(
                f"There is no column {name}.", options=[option], hint=f"{meant}The columns are {', '.join(there)}."
            )
    if not names or len(set(names)) < len(names):
        raise ConfigError(
            f"{option} names {'a column twice' if names else 'no column'}.",
            options=[option],
            hint=f"The columns are {', '.join(there)}.",
        )
    return tuple(names)
