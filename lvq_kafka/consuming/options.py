"""What the options of consuming may be."""

from __future__ import annotations

from lvq_kafka.errors import ConfigError

__all__ = ["at_least_one", "seconds"]


def at_least_one(**options: int | None) -> None:
    """Numbers from 1 on, or None.

    Raises:
        ConfigError: one is less.
    """
    for option, value in options.items():
        if value is not None and value < 1:
            raise ConfigError(f"{option}={value!r} is out of range.", options=[option], hint="At least 1.")


def seconds(**options: float) -> None:
    """Seconds from 0 to 60.

    Raises:
        ConfigError: one is not.
    """
    for option, value in options.items():
        if not 0 <= value <= 60:
            raise ConfigError(f"{option}={value!r} is out of range.", options=[option], hint="0 to 60 seconds.")
