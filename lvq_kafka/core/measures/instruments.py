"""The shape of a metric: its names, its unit, and how it is read from statistics."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Literal, NamedTuple

__all__ = [
    "Collected",
    "Instrument",
    "InstrumentKind",
    "Readings",
    "Sample",
    "parts",
    "prometheus_label",
    "prometheus_name",
    "single",
]

InstrumentKind = Literal["counter", "sum", "greatest"]
"""The kind of a metric, which says how those of several clients are one:

- ``counter``: only grows; the sum;
- ``sum``: goes up and down; the sum;
- ``greatest``: goes up and down; the greatest, such as the lag of the slowest reader.
"""

Readings = Mapping[tuple[str, ...], float | None]
"""Values by the values of an instrument's own attributes. None is unknown, and is not reported."""

_SUFFIXES = {"s": "seconds", "By": "bytes"}
"""The units that are part of a name in Prometheus; those in braces are not."""


@dataclass(frozen=True, slots=True)
class Instrument:
    """A metric.

    Args:
        name: its name in OpenTelemetry.
        kind: what its values are.
        unit: its unit, as UCUM writes it; ``{message}`` for a number of messages.
        description: what it is.
        read: reads it from the facts of one client or queue.
        attributes: the names of the attributes that tell its readings apart.
        constant: attributes that have one value.
    """

    name: str
    kind: InstrumentKind
    unit: str
    description: str
    read: Callable[[Any], Readings]
    attributes: tuple[str, ...] = ()
    constant: Mapping[str, str] = field(default_factory=dict)


class Sample(NamedTuple):
    """One value of an instrument."""

    attributes: Mapping[str, str]
    value: float


Collected = Sequence[tuple[Instrument, Sequence[Sample]]]
"""The values of instruments, in the order of the tables."""


def single(path: str) -> Callable[[Any], Readings]:
    """Return a function that reads a number at a path of attributes.

    The number of a sequence is its length; that of a truth value is 0 or 1.
    """
    find = attrgetter(path)
    return lambda facts: {(): _number(find(facts))}


def parts(**paths: str) -> Callable[[Any], Readings]:
    """Return a function that reads several numbers, by the value of one attribute."""
    finders = {name: attrgetter(path) for name, path in paths.items()}
    return lambda facts: {(name,): _number(find(facts)) for name, find in finders.items()}


def _number(found: Any) -> float | None:
    if found is None:
        return None
    return float(found if isinstance(found, int | float) else bool(found) if isinstance(found, str) else len(found))


def prometheus_name(instrument: Instrument) -> str:
    """Return the name of an instrument in Prometheus, as OpenTelemetry translates it."""
    name = re.sub(r"\W", "_", instrument.name)
    suffix = _SUFFIXES.get(instrument.unit)
    if suffix is not None and not name.endswith(f"_{suffix}"):
        name = f"{name}_{suffix}"
    return f"{name}_total" if instrument.kind == "counter" else name


def prometheus_label(attribute: str) -> str:
    """Return the name of an attribute in Prometheus."""
    return re.sub(r"\W", "_", attribute)
