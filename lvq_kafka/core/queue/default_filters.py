"""The part of a definition with the default selection of browsers.

A selector's text is checked without a parser: a definition may hold one that only readers understand.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.core.text.quoting import abridged, brief, quoted
from lvq_kafka.core.text.validation import as_float, delays
from lvq_kafka.errors import ConfigError

__all__ = ["LONGEST_SELECTOR", "DefaultFilters", "check_selector"]


@dataclass(frozen=True, slots=True, kw_only=True, repr=False)
class DefaultFilters:
    """The selection of a browser whose caller names none.

    A filter that the caller names replaces the one of that name.

    Args:
        replay_period: seconds; see `lvq_kafka.Browser`.
        selector: a condition; see `lvq_kafka.Browser`.

    Raises:
        ConfigError: a filter is malformed.
    """

    replay_period: float | None = None
    selector: str | None = None

    __repr__ = abridged

    def __post_init__(self) -> None:
        if self.replay_period is not None:
            period = as_float(self.replay_period) * 1000
            delays(replay_period=math.inf if period == math.inf else self.replay_period)
            object.__setattr__(self, "replay_period", round(period) / 1000)  # as stored
        if self.selector is not None:
            check_selector(self.selector)

    @classmethod
    def of(cls, given: DefaultFilters | Mapping[str, Any] | None) -> DefaultFilters | None:
        """Return the filters that a caller names; None if there are none.

        Raises:
            ConfigError: a name is not that of a filter, or a filter is malformed.
        """
        if given is None or isinstance(given, DefaultFilters):
            return given
        names = [field.name for field in fields(cls)]
        if not isinstance(given, Mapping):
            raise ConfigError(
                f"default_filters={quoted(given)} is not a mapping.",
                options=["default_filters"],
                hint='For example default_filters={"replay_period": 3600.0}.',
            )
        for name in given:
            if name not in names:
                near = nearest(str(name), names)
                hint = f"Did you mean {near[0]}?" if near else f"Choose from {', '.join(names)}."
                raise ConfigError(f"{brief(str(name))} is not a filter.", options=["default_filters"], hint=hint)
        try:
            filters = cls(**given)
        except ConfigError as error:
            error.options = ("default_filters", *error.options)
            raise
        return None if filters == cls() else filters

    def to_wire(self) -> dict[str, object]:
        """Return the part of a definition's JSON: the filters that are set, with times in ms."""
        period = None if self.replay_period is None else round(self.replay_period * 1000)
        parts = {"replay_period_ms": period, "selector": self.selector}
        return {name: value for name, value in parts.items() if value is not None}

    @classmethod
    def from_wire(cls, part: object) -> DefaultFilters:
        """Parse the result of `to_wire`.

        Raises:
            ConfigError: it is something else.
        """
        if not isinstance(part, dict) or part.keys() - {"replay_period_ms", "selector"}:
            raise ConfigError(f"default_filters has {quoted(part)}.", options=["default_filters"])
        period = part.get("replay_period_ms")
        if period is not None and type(period) is not int:
            raise ConfigError(f"replay_period_ms={quoted(period)} is not a whole number.", options=["default_filters"])
        return cls(replay_period=None if period is None else as_float(period) / 1000, selector=part.get("selector"))


LONGEST_SELECTOR = 65_536
"""Characters of a selector."""


def check_selector(text: object, option: str = "selector") -> str:
    """Check that this may be the text of a selector.

    Only `lvq_kafka.selectors.selector.Selector` parses it.

    Raises:
        ConfigError: it is not text, it is empty, or it is too long.
    """
    if not isinstance(text, str):
        raise ConfigError(f"`{option}` is not text.", options={option: text}, hint="For example \"exchange = 'NYSE'\".")
    if not text.strip():
        raise ConfigError(f"`{option}` is empty.", options={option: text}, hint="Omit it to select all messages.")
    if len(text) > LONGEST_SELECTOR:
        raise ConfigError(
            f"The text of `{option}` has {len(text):,} characters; {LONGEST_SELECTOR:,} are allowed.",
            options=[option],
            hint="Select by a header that says in fewer words which messages are meant.",
        )
    return text
