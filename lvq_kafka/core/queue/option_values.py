"""Values of options, given as text or as values of JSON.

A reader takes the name of an option as it was typed, and the value. It returns what the option asks for; None says that
it asks for nothing, such as no limit.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping
from contextlib import suppress
from typing import Any

from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import brief, listed
from lvq_kafka.core.text.validation import text
from lvq_kafka.core.timing.ttl import check_ttl
from lvq_kafka.errors import ConfigError

__all__ = [
    "NO",
    "REPLAY_PERIOD",
    "SELECTORS",
    "YES",
    "OptionReader",
    "as_given",
    "attempts",
    "boolean",
    "default_filters",
    "destination",
    "duration",
    "group_name",
    "limit_of_bytes",
    "limit_of_messages",
    "limit_or_none",
    "name_of_header",
    "number",
    "one_of",
    "part_of",
    "policy",
    "switch",
    "whole_number",
    "word",
    "word_in_small_letters",
]

OptionReader = Callable[[str, object], Any]

YES, NO = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
"""The words for true and for false, in any case."""

_UNITS = {"": 1, "K": 1 << 10, "M": 1 << 20, "G": 1 << 30}
_NUMBER = re.compile(r"(-?\d{1,18})\s*([KMG]?)i?B?", re.IGNORECASE)

REPLAY_PERIOD = "x-qpid-replay-period"
"""The replay period among the arguments of a subscription, and the filters of Broker-J."""

SELECTORS = ("x-filter-jms-selector", "x-apache-selector")
"""The selector among them."""

_FILTERS = {REPLAY_PERIOD: "replay_period", **dict.fromkeys(SELECTORS, "selector")}


def word(value: object) -> str:
    """Return a value as text, without quotation marks from an address or a shell."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    said = str(value).strip()
    return said[1:-1].strip() if _is_quoted(said) else said


def _is_quoted(said: str) -> bool:
    return len(said) > 1 and said[0] == said[-1] and said[0] in "'\""


def as_given(option: str, value: object) -> object:
    """Return the value as it is; the definition checks it."""
    return value


def boolean(option: str, value: object) -> bool:
    """Convert the value of an option to true or false (R3).

    Raises:
        ConfigError: it is neither.
    """
    said = word(value).lower()
    if said in YES:
        return True
    if said in NO:
        return False
    raise ConfigError(f"`{option}` is neither true nor false.", options={option: value})


def switch(on: object, off: object = None) -> OptionReader:
    """Return a reader of a boolean that stands for one of two other values."""
    return lambda option, value: on if boolean(option, value) else off


def number(option: str, value: object) -> float:
    """Convert the value of an option to a number.

    Raises:
        ConfigError: it is not a number.
    """
    try:
        return float(word(value))
    except ValueError:
        raise ConfigError(f"`{option}` is not a number.", options={option: value}) from None


def whole_number(option: str, value: object) -> int:
    """Convert the value of an option to a whole number.

    Raises:
        ConfigError: it is not a whole number.
    """
    try:
        return int(word(value))
    except ValueError:
        raise ConfigError(f"`{option}` is not a whole number.", options={option: value}) from None


def attempts(option: str, value: object) -> int | None:
    """Read how often a message may be delivered; 0 and negative numbers stand for no limit.

    Raises:
        ConfigError: it is not a whole number.
    """
    most = whole_number(option, value)
    return None if most <= 0 else most


def duration(unit: float, off: float | None = None) -> OptionReader:
    """Return a reader of times to live, in seconds.

    Args:
        unit: the milliseconds of one unit: 1, or 1000.
        off: this number and those below it stand for no limit.
    """

    def read(option: str, value: object) -> float | None:
        said = number(option, value)
        if off is not None and said <= off:
            return None
        try:
            check_ttl(option, said, milliseconds=unit == 1)
        except ConfigError as error:
            raise error.of_options({option: (option, value)}) from None
        return said * unit / 1000

    return read


def part_of(whole: int) -> OptionReader:
    """Return a reader of a part of the limits, where ``whole`` is all of them."""

    def read(option: str, value: object) -> float:
        part = number(option, value) / whole
        if not 0 < part <= 1:
            raise ConfigError(f"`{option}` must be above 0, and up to {whole}.", options={option: value})
        return part

    return read


def limit_of_messages(option: str, value: object) -> int | None:
    """Read a limit of messages; a negative one stands for none.

    Raises:
        ConfigError: it is not a whole number, or 0.
    """
    return _limit(option, value, "")


def limit_of_bytes(option: str, value: object) -> int | None:
    """Read a limit of bytes, which may have a unit such as K or MB.

    A negative one stands for none.

    Raises:
        ConfigError: it is not a number of bytes, or 0.
    """
    return _limit(option, value, " of bytes")


def limit_or_none(read: OptionReader) -> OptionReader:
    """Return a reader of limits for which 0 stands for none, too."""
    return lambda option, value: None if word(value) == "0" else read(option, value)


def _limit(option: str, value: object, of_bytes: str) -> int | None:
    found = _NUMBER.fullmatch(word(value))
    if found is None or (found[2] and not of_bytes):
        raise ConfigError(f"`{option}` is not a number{of_bytes}.", options={option: value})
    most = int(found[1]) * _UNITS[found[2].upper()]
    if most == 0:
        raise ConfigError(
            f"`{option}` leaves no room for any message.",
            options={option: value},
            hint="Give 1 or more; a negative number, or none, for no limit.",
        )
    return None if most < 0 else most


def name_of_header(option: str, value: object) -> str:
    """Read the name of a header, a topic or a group.

    Raises:
        ConfigError: it is not text, or is in quotation marks, which would be part of the name.
    """
    if isinstance(value, bool) or not isinstance(value, str | int):  # a fraction may have been written otherwise
        raise ConfigError(f"`{option}` is not a name.", options={option: value}, hint="Give text.")
    if _is_quoted(said := str(value)):
        raise ConfigError(f"`{option}` is in quotation marks.", options={option: value}, hint="Leave them out.")
    return said


def group_name(option: str, value: object) -> str:
    """Read the name of a group or of its header, which is not blank.

    Raises:
        ConfigError: it is blank, or not a name.
    """
    return text(option, name_of_header(option, value))


def word_in_small_letters(option: str, value: object) -> object:
    """Read a word in any case; the definition checks it."""
    return word(value).lower() if isinstance(value, str) else value


def one_of(words: Mapping[str, Any], what: str) -> OptionReader:
    """Return a reader of words, in any case, that stand for other values.

    Args:
        words: the value of each word.
        what: what they are, for errors.
    """
    values = {name.lower(): asks for name, asks in words.items()}

    def read(option: str, value: object) -> Any:
        said = word(value).lower()
        if said not in values:
            raise ConfigError(
                f"`{option}` is not {what}.", options={option: value}, hint=f"Choose one of {', '.join(words)}."
            )
        return values[said]

    return read


def policy(words: Mapping[str, str], refused: Mapping[str, str] | None = None) -> OptionReader:
    """Return a reader of policies beyond the limits, by their names in a system.

    Args:
        words: the policies that there are here.
        refused: the reasons why others are not.
    """
    reasons = {name.lower(): reason for name, reason in (refused or {}).items()}
    known = one_of({**words, **dict.fromkeys(refused or ())}, "a policy")

    def read(option: str, value: object) -> str:
        asks = known(option, value)
        if asks is None:
            raise ConfigError(
                f"`{option}` is not possible here: {reasons[word(value).lower()]}.",
                options={option: value},
                hint=f"Choose one of {', '.join(words)}.",
            )
        return str(asks)

    return read


def destination(option: str, value: object) -> str:
    """Read the name of a queue, by itself or as a binding of Broker-J has it.

    Raises:
        ConfigError: it is neither, or the binding has anything else.
    """
    binding = value
    if isinstance(value, str) and value.lstrip().startswith("{"):
        with suppress(ValueError):
            binding = read_json(value)
    if not isinstance(binding, Mapping):
        return name_of_header(option, value)
    others = {name: said for name, said in binding.items() if name != "destination" and said}
    if others or not isinstance(binding.get("destination"), str):
        raise ConfigError(
            f"`{option}` is not a binding to a queue.",
            options={option: value},
            hint='Give its name, or {"destination": NAME}; a binding has no attributes here.',
        )
    return name_of_header(option, binding["destination"])


def default_filters(option: str, value: object) -> dict[str, object]:
    """Read the default filters of a queue: those of Broker-J, or ours by name.

    Broker-J has a map from the names of filters to their type, and lists of arguments by type.

    Raises:
        ConfigError: it is not such a map, has a filter that browsers do not have, or two of one kind.
    """
    try:
        filters = read_json(value) if isinstance(value, str) else value
    except ValueError:
        filters = None
    if not isinstance(filters, Mapping):
        raise ConfigError(
            f"`{option}` is not a map of filters.",
            options={option: value},
            hint='For example {"x-qpid-replay-period": {"x-qpid-replay-period": ["60"]}}.',
        )
    found: dict[str, object] = {}
    for name, content in filters.items():
        for kind, arguments in content.items() if isinstance(content, Mapping) else ((name, content),):
            field = kind if kind in _FILTERS.values() else _FILTERS.get(kind)
            if field is None:
                raise ConfigError(
                    f"`{option}` has a filter that browsers do not have, {brief(str(kind))}.",
                    options=[option],
                    hint=f"There are {listed([*_FILTERS])}, here replay_period and selector.",
                )
            if field in found:
                raise ConfigError(
                    f"`{option}` has two filters of one kind, {brief(str(kind))}.", options=[option], hint="Give one."
                )
            argument = arguments[0] if isinstance(arguments, list) and len(arguments) == 1 else arguments
            found[field] = number(option, argument) if field == "replay_period" else argument
    return found
