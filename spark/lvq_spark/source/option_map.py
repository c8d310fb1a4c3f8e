"""Typed access to Spark's option map.

Every value is text, names are case-insensitive, and an unknown option is an error.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping
from typing import TypeVar

from lvq_kafka.core.text.nearest import nearest
from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka.properties import COMMON, CONSUMER_ONLY

__all__ = ["OptionMap", "merged"]

T = TypeVar("T")

_OURS = "lvq."
_NUMBER = re.compile("[0-9]{1,18}")  # what fits into 64 bits
_SIZE = re.compile(r"([0-9]{1,18})\s*([kmg]?)(i?b)?", re.IGNORECASE)
_UNITS = {"": 0, "k": 10, "m": 20, "g": 30}


class OptionMap:
    """The options as given, with methods that parse them.

    Args:
        options: Spark's option map.
        known: all names that exist, in their usual spelling.
        refused: names that users know from elsewhere, and why they make no sense here.

    Raises:
        ConfigError: an option is refused or unknown; the error names the nearest, or all if none is near.
    """

    def __init__(self, options: Mapping[str, str], known: Collection[str], refused: Mapping[str, str]) -> None:
        self._values = {name.lower(): str(value) for name, value in options.items()}
        self._known = {name.lower(): name for name in known}
        refusals = {name.lower(): (name, why) for name, why in refused.items()}
        for name in self._values:
            if name in refusals:
                written, why = refusals[name]
                raise ConfigError(f"{written} cannot be set: {why}", options=[written])
            if name not in self._known and not name.startswith("kafka."):
                raise ConfigError(
                    f"The format lvq has no option {name}.", options=[name], hint=_meant(name, self._known)
                )

    def has(self, name: str) -> bool:
        """Return whether the option was given."""
        return name.lower() in self._values

    def client_properties(self) -> dict[str, str]:
        """Return the options that begin with ``kafka.``, without that prefix."""
        begin = len("kafka.")
        return {name[begin:]: value for name, value in self._values.items() if name.startswith("kafka.")}

    def one_of(self, *names: str) -> str | None:
        """Return the one of these options that was given; None if none was.

        Raises:
            ConfigError: more than one was given.
        """
        given = [name for name in names if self.has(name)]
        if len(given) > 1:
            raise ConfigError(f"{given[0]} and {given[1]} are both given.", options=given)
        return given[0] if given else None

    def text(self, name: str, default: str = "") -> str:
        """Return a text that is not empty, or the default."""
        value = self._values.get(name.lower(), default).strip()
        if not value and self.has(name):
            raise ConfigError(f"{name} is empty.", options=[name])
        return value

    def choice(self, name: str, choices: Collection[T], default: T) -> T:
        """Return one of these words."""
        words = {str(word).lower(): word for word in choices}
        said = self.text(name, str(default))
        if said.lower() not in words:
            raise ConfigError(f"{name} is {said!r}, not one of {', '.join(map(str, choices))}.", options=[name])
        return words[said.lower()]

    def boolean(self, name: str, default: bool) -> bool:
        """Return a boolean, given as ``true`` or ``false``."""
        return self.choice(name, ("true", "false"), str(default).lower()) == "true"

    def number(self, name: str) -> int | None:
        """Return a whole number above 0; None if it is not given."""
        return self._parsed(name, lambda said: int(said) if _NUMBER.fullmatch(said) else 0, "a whole number above 0")

    def size(self, name: str, default: int) -> int:
        """Return a number of bytes, with ``k``, ``m`` or ``g`` for powers of 1024."""
        return self._parsed(name, _bytes, "a number of bytes above 0, such as 8388608 or 8m") or default

    def _parsed(self, name: str, parse: Callable[[str], int], what: str) -> int | None:
        if not self.has(name):
            return None
        said = self.text(name)
        value = parse(said)
        if value < 1:
            raise ConfigError(f"{name} is {said!r}, not {what}.", options=[name])
        return value


def merged(defaults: Mapping[str, str], options: Mapping[str, str]) -> dict[str, str]:
    """Merge options over defaults."""
    lower = ({name.lower(): str(value) for name, value in some.items()} for some in (defaults, options))
    return {name: value for some in lower for name, value in some.items()}


def _meant(name: str, known: Mapping[str, str]) -> str:
    if name in COMMON | CONSUMER_ONLY:
        return f"Give it as a property of the Kafka client: kafka.{name}."
    said = name.removeprefix(_OURS)  # a prefix that would make any two of our names look alike
    alike = {other: name.startswith(_OURS) == other.startswith(_OURS) for other in known}
    for first in (True, False):
        names = {other.removeprefix(_OURS): known[other] for other in known if alike[other] is first}
        if near := nearest(said, names):
            return f"Did you mean {names[near[0]]}?"
    return f"Choose one of {', '.join(known.values())}; or kafka.* for properties of the Kafka client."


def _bytes(said: str) -> int:
    found = _SIZE.fullmatch(said)
    return int(found[1]) << _UNITS[found[2].lower()] if found else 0
