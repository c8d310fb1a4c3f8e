"""The columns there are, as Spark takes them."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Iterable, Sequence

from lvq_kafka.errors import ConfigError

__all__ = ["SCHEMA", "SNAPSHOT_COLUMNS", "TYPES", "check_columns", "ddl", "quoted"]

TYPES = {
    "key": "binary",
    "value": "binary",
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp_ltz",  # the other word for it, `timestamp`, means what the session says
    "timestampType": "int",
    "headers": "array<struct<key: string, value: binary>>",
    "deleted": "boolean",
}
"""All that can be asked for. Names, order and types are those of Spark's Kafka connector; ``deleted`` is ours."""

SNAPSHOT_COLUMNS = ("key", "value", "topic", "partition", "offset", "timestamp", "headers")
"""Those of a snapshot."""


def ddl(columns: Iterable[str]) -> str:
    """A schema of some of the columns."""
    return ", ".join(f"{name} {TYPES[name]}" for name in columns)


def quoted(name: str) -> str:
    """A column's name as Spark looks it up: whatever is in it, it is one name."""
    return f"`{name.replace('`', '``')}`"


SCHEMA = ddl(SNAPSHOT_COLUMNS)
"""The columns of a snapshot: names, order and types are those of Spark's Kafka connector, without ``timestampType``."""


def check_columns(option: str, names: Sequence[str], there: Collection[str]) -> tuple[str, ...]:
    """The columns that are asked for, if there are such.

    Args:
        option: what asks for them, for messages.
        names: what it asks for.
        there: what there is.

    Raises:
        ConfigError: there is none of that name (the error names the nearest), one comes twice, or none is asked for.
    """
    if isinstance(names, str) or not isinstance(names, Collection):
        raise ConfigError(f"{option}={names!r} is no list.", options=[option], hint=f"Give a list: [{names!r}].")
    lower = {name.lower(): name for name in there}
    for name in names:
        if name not in there:
            near = difflib.get_close_matches(str(name).lower(), lower, 1, 0.5)
            meant = f"Is it {lower[near[0]]}? " if near else ""
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
