"""The base of all errors, and the error of a wrong option, which the lowest layers raise.

`lvq_kafka.errors` has the whole tree; import both from there.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from lvq_kafka.core.text.quoting import bounded
from lvq_kafka.core.text.wording import BARE, Spelling, in_python, renamed, worded

__all__ = ["ConfigError", "LVQError"]


class LVQError(Exception):
    """Base class of every error in this library.

    ``hint`` is the part of the message that says what to do next; it is empty if there is no useful advice.
    ``options`` names the options that the message is about, if any.
    """

    def __init__(self, message: str, *, hint: str = "", options: Mapping[str, object] | Sequence[str] = ()) -> None:
        # Most of these texts quote others, so none can be assumed short, or harmless on a terminal.
        self._texts = bounded(message), bounded(hint)
        self._given = _kept(options)
        self.options = tuple(options)
        self.hint = bounded(in_python(hint))
        given = options if isinstance(options, Mapping) else {}
        super().__init__(f"{bounded(in_python(message, given, tuple(options)))} {self.hint}".rstrip())

    def worded(self, spell: Spelling) -> str:
        """Return the message with each option that it mentions spelled by a function."""
        message, hint = self._texts
        given = {name: value for name, value in self._given.items() if value is not BARE}
        said = bounded(worded(message, spell, given, self._given))
        return f"{said} {bounded(worded(hint, spell))}".rstrip()

    def __reduce__(self) -> tuple[Any, ...]:
        # By default, exceptions are rebuilt by calling the class with `args`, but these need keywords.
        cause = {"__cause__": self.__cause__} if isinstance(self.__cause__, LVQError) else {}
        return _rebuilt, (type(self), self.args), {**self.__dict__, **cause}


def _kept(options: Mapping[str, object] | Sequence[str]) -> dict[str, Any]:
    """Return options with their values, if these are text, numbers or booleans."""
    values = options if isinstance(options, Mapping) else dict.fromkeys(options, BARE)
    return {name: value if isinstance(value, str | int | float | bool) else BARE for name, value in values.items()}


def _rebuilt(kind: type[LVQError], args: tuple[object, ...]) -> LVQError:
    shape: Any = kind
    while shape.__module__ != "builtins":  # only the builtin base with its layout can create one without __init__
        shape = shape.__base__
    error: LVQError = shape.__new__(kind)
    error.args = args
    return error


class ConfigError(LVQError, ValueError):
    """An option is unknown, missing or malformed, or clashes with another.

    ``options`` names the culprits.
    """

    def of_options(self, given: Mapping[str, tuple[str, object]]) -> ConfigError:
        """Return this error about other options: the ones that set the options it names.

        Args:
            given: by the name of an option, the option that set it, and its value.
        """
        message, hint = self._texts
        options: dict[str, object] = {}
        for option, value in self._given.items():
            name, said = given.get(option, (option, value))
            options[name] = value if value is BARE else said
        # The values in a hint are valid, and belong to this library's own options.
        return ConfigError(renamed(message, given), options=options, hint=renamed(hint, given, with_values=False))

    def in_text(self, where: str, excerpt: str) -> ConfigError:
        """Return this error with the place in a text where its option stands.

        Args:
            where: the place, in words.
            excerpt: the part of the text around it.
        """
        message, hint = self._texts
        return ConfigError(f"{where}: {message}\n{excerpt}\n", options=self._given, hint=hint)


for _error in (LVQError, ConfigError):
    _error.__module__ = "lvq_kafka.errors"  # as tracebacks and pickles name them
