"""Address settings: options for queues whose topics match a pattern, as in Artemis.

They are stored by pattern in the compacted topic `SETTINGS_TOPIC`, and hold for queues that are declared later, where
the declaration says nothing. If several patterns match, the more specific one counts, option by option.
"""

from __future__ import annotations

import json
import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import product

from lvq_kafka.core.queue.option_values import boolean
from lvq_kafka.core.queue.queue_options import GivenOptions
from lvq_kafka.core.text.json_text import read_json
from lvq_kafka.core.text.quoting import abridged, brief, listed, quoted
from lvq_kafka.core.text.validation import instance, mapping
from lvq_kafka.errors import ConfigError

__all__ = [
    "ANY_WORDS",
    "DELIMITERS",
    "DYNAMIC_DURABLES",
    "ONE_WORD",
    "SETTINGS_TOPIC",
    "AddressPattern",
    "AddressSetting",
    "by_pattern",
    "given_by",
    "given_from_wire",
    "matching",
]

SETTINGS_TOPIC = "_lvq_settings"
"""The compacted topic, with one partition, that maps patterns to options."""

DYNAMIC_DURABLES = "dynamic-durables"
"""The one option that is not a queue's: whether a subscriber may declare a durable on a topic."""

DELIMITERS = ".-_"
"""The characters that may part the words of a topic's name; every other one is a letter or a digit."""

ANY_WORDS, ONE_WORD = "#", "*"
_VERSION = 1
_LONGEST = 249  # characters, as of a topic's name


@dataclass(frozen=True, slots=True)
class AddressPattern:
    """A pattern for the names of topics.

    It consists of words: ``*`` is any word, and ``#`` any number of words, even none.

    Args:
        text: the pattern.
        delimiter: what parts the words, here and in the names; one of `DELIMITERS`.

    Raises:
        ConfigError: it matches no name, or a wildcard is only a part of a word.
    """

    text: str
    delimiter: str = "."

    def __post_init__(self) -> None:
        if self.delimiter not in [*DELIMITERS]:
            raise ConfigError(
                "`delimiter` cannot part the words of a topic's name.",
                options={"delimiter": self.delimiter},
                hint=f"Choose one of {' '.join(DELIMITERS)}.",
            )
        instance("pattern", self.text, str, "For example 'stock.#'.")
        if not 0 < len(self.text) <= _LONGEST:
            raise ConfigError(
                f"{quoted(self.text)} is not a pattern for the names of topics.",
                options=["pattern"],
                hint=f"Give 1 to {_LONGEST} characters, for example 'stock.#'.",
            )
        for word in self.words:
            if word not in (ANY_WORDS, ONE_WORD) and not _is_word(word):
                raise ConfigError(
                    f"{quoted(word)} in the pattern {brief(self.text)} is not a word of a topic's name.",
                    options=["pattern"],
                    hint=f"Words are of a-z, A-Z, 0-9 and {' '.join(DELIMITERS)}; * stands for one whole word, and # "
                    f"for any number of them. They are parted by {self.delimiter!r}.",
                )

    @property
    def words(self) -> list[str]:
        """The words of the pattern, wildcards among them."""
        return self.text.split(self.delimiter)

    def matches(self, topic: str) -> bool:
        """Return whether a topic has such a name."""
        names = topic.split(self.delimiter)
        # By the number of words matched so far, whether the rest of the pattern may begin there.
        reached = [True] + [False] * len(names)
        for word in self.words:
            if word == ANY_WORDS:
                first = reached.index(True) if True in reached else len(reached)
                reached = [at >= first for at in range(len(reached))]
            else:
                fits = [word in (ONE_WORD, name) for name in names]
                reached = [False, *(before and fit for before, fit in zip(reached, fits))]
        return reached[-1]

    @property
    def generality(self) -> tuple[object, ...]:
        """A key that sorts the more general of two patterns first, as in Artemis.

        A pattern with ``#`` is more general than one without, and a shorter one of them than a longer one; then one
        with ``*`` than one without, by the first word in which they differ.
        """
        words = self.words
        if ANY_WORDS in words:
            return (0, len(self.text), self.text)
        return (1, [word != ONE_WORD for word in words], self.text)


def _is_word(word: str) -> bool:
    return all(character in DELIMITERS or (character.isascii() and character.isalnum()) for character in word)


@dataclass(frozen=True, slots=True, repr=False)
class AddressSetting:
    """The options of the queues that match a pattern.

    Args:
        pattern: the pattern that the names of their topics match.
        options: options by name, as for `lvq_kafka.LastValueQueue.declare`.
    """

    pattern: AddressPattern
    options: Mapping[str, object] = field(default_factory=dict)

    __repr__ = abridged

    @classmethod
    def of(cls, pattern: AddressPattern, options: Mapping[str, object]) -> AddressSetting:
        """Return a setting with options that were checked one by one.

        Whether they suit each other, and a queue's own, shows in its declaration.

        Raises:
            ConfigError: there is none, or one is unknown or malformed, or contradicts another.
        """
        given = dict(mapping("options", options, 'For example {"default-last-value-key": "ticker"}.'))
        if not given:
            raise ConfigError(
                f"The setting {pattern.text} has no option.",
                options=["options"],
                hint="Name one, for example default-last-value-key=ticker; or delete the setting.",
            )
        if DYNAMIC_DURABLES in given:
            given[DYNAMIC_DURABLES] = boolean(DYNAMIC_DURABLES, given[DYNAMIC_DURABLES])
        GivenOptions(_of_queues(given))
        for name, value in given.items():
            if not isinstance(value, str | int | float) or value in (math.inf, -math.inf) or value != value:
                raise ConfigError(
                    f"`{name}` is {quoted(value)}.", options=[name], hint="Give text, a number, or true or false."
                )
        return cls(pattern, given)

    def to_json(self) -> bytes:
        """Return the form stored under the pattern: UTF-8 JSON with sorted names."""
        row = {"version": _VERSION, "delimiter": self.pattern.delimiter, "options": dict(self.options)}
        return json.dumps(row, sort_keys=True).encode()

    @classmethod
    def from_json(cls, data: bytes, *, pattern: str) -> AddressSetting:
        """Parse the result of `to_json`.

        Raises:
            ConfigError: it is malformed, or of a newer version.
        """
        where = f"The setting {brief(pattern)} in {SETTINGS_TOPIC}"
        mend = "Set it again with `lvq settings set`, or remove it with `lvq settings delete`."
        try:
            content = read_json(data.decode("utf-8"))
            if not isinstance(content, dict):
                raise ValueError("not an object")
        except ValueError as error:
            raise ConfigError(f"{where} is not readable: {error}.", hint=mend) from None
        unknown = sorted(content.keys() - {"version", "delimiter", "options"})
        if content.get("version") != _VERSION or unknown:
            what = f"unknown fields {listed(unknown)}" if unknown else f"version {quoted(content.get('version'))}"
            raise ConfigError(f"{where} has {what}.", options=unknown, hint="A newer lvq-kafka wrote it: upgrade.")
        options = content.get("options")
        if not isinstance(options, dict):
            raise ConfigError(f"{where} is malformed: its options are {quoted(options)}.", hint=mend)
        try:
            return cls.of(AddressPattern(pattern, content.get("delimiter", ".")), options)
        except ConfigError as error:
            raise ConfigError(f"{where} is malformed: {str(error).rstrip('.')}.", hint=mend) from None


def _of_queues(options: Mapping[str, object]) -> dict[str, object]:
    return {name: value for name, value in options.items() if name != DYNAMIC_DURABLES}


def matching(settings: Iterable[AddressSetting], topic: str) -> list[AddressSetting]:
    """Return the settings of the queues on a topic, the most specific first."""
    found = [setting for setting in settings if setting.pattern.matches(topic)]
    return sorted(found, key=lambda setting: setting.pattern.generality, reverse=True)


def by_pattern(settings: Iterable[AddressSetting]) -> dict[str, Mapping[str, object]]:
    """Return the options of settings by the text of their patterns, in the same order."""
    return {setting.pattern.text: setting.options for setting in settings}


def given_by(settings: Mapping[str, Mapping[str, object]], decided: Iterable[str]) -> dict[str, dict[str, object]]:
    """Return the options that settings give to a queue, by pattern.

    Args:
        settings: options by pattern, the most specific first. The options of one setting hold together.
        decided: the fields about which the queue's declaration says something (`GivenOptions.decided`).
    """
    taken, found = set(decided), {}
    for pattern, options in settings.items():
        sets = {name: GivenOptions({name: value}).decided for name, value in _of_queues(options).items()}
        kept = {name for name, fields in sets.items() if not any(_overlap(*pair) for pair in product(fields, taken))}
        if kept:
            found[pattern] = {name: options[name] for name in sets if name in kept}
        taken.update(*(sets[name] for name in kept))
    return found


def given_from_wire(content: object) -> dict[str, dict[str, object]]:
    """Parse what settings gave to a queue, as its definition holds it.

    Raises:
        ConfigError: it is malformed.
    """
    if not isinstance(content, dict) or not all(isinstance(options, dict) for options in content.values()):
        raise ConfigError(f"what settings gave is {quoted(content)}.", options=["from_settings"])
    for options in content.values():
        GivenOptions(options)
    return content


def _overlap(one: str, other: str) -> bool:
    """Return whether two fields are the same, or one is a part of the other."""
    return one == other or one.startswith(f"{other}.") or other.startswith(f"{one}.")
