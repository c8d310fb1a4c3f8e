"""Times, and points in a log, as given on the command line."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime
from typing import TYPE_CHECKING

import click

from lvq_kafka.cli.common_options import pair

if TYPE_CHECKING:
    from lvq_kafka.managing.management import Point

__all__ = ["in_words", "offsets_by_partition", "point", "seconds_since_the_epoch"]

_A_TIME = "a time, in seconds since the epoch or like 2026-08-01T12:30"
_NAMED: Mapping[str, Point] = {"earliest": "earliest", "latest": "latest"}


def point(ctx: click.Context, param: click.Parameter, given: str | None) -> Point | None:
    """Parse a point in a log: earliest, latest, or a time."""
    if given is None or given in _NAMED:
        return None if given is None else _NAMED[given]
    try:
        return _timestamp(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is neither earliest, latest nor {_A_TIME}.", ctx, param) from None


def seconds_since_the_epoch(ctx: click.Context, param: click.Parameter, given: str | None) -> float | None:
    """Parse a time."""
    try:
        return None if given is None else _timestamp(given)
    except ValueError:
        raise click.BadParameter(f"{given!r} is not {_A_TIME}.", ctx, param) from None


def _timestamp(given: str) -> float:
    """Return a time in seconds since the epoch; without a time zone, it is a local one.

    Raises:
        ValueError: it is not a time.
    """
    try:
        return _time(given).timestamp()
    except (OverflowError, OSError) as error:  # years that no calendar has
        raise ValueError from error


def _time(given: str) -> datetime:
    try:
        seconds = float(given)
    except ValueError:
        return datetime.fromisoformat(given)
    return datetime.fromtimestamp(seconds).astimezone()


def offsets_by_partition(ctx: click.Context, param: click.Parameter, given: Sequence[str]) -> dict[int, int]:
    """Parse options of the form PARTITION=OFFSET."""
    pairs = pair(ctx, param, given)
    try:
        return {int(partition): int(offset) for partition, offset in pairs}
    except ValueError:
        raise click.BadParameter("Give a partition and an offset as numbers: 0=120.", ctx, param) from None


def in_words(point: Point | None) -> str:
    """Describe a point in words."""
    if isinstance(point, dict):
        return "at " + ", ".join(f"offset {offset} of partition {partition}" for partition, offset in point.items())
    if isinstance(point, float):
        return f"at {datetime.fromtimestamp(point).astimezone().isoformat(sep=' ', timespec='milliseconds')}"
    return f"at its {'beginning' if point == 'earliest' else 'end'}"
