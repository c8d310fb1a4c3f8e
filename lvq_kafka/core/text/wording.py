"""Options in texts for people: as Python writes them, or as users type them.

Errors and findings mention an option between backticks. It may have a value, as a Python literal: ``order='priority'``
between backticks. If Python writes it differently, that form follows a bar: ``max-ttl=60|ttl=Ttl(maximum=60)``. Python
reads the text that `in_python` returns. The command line rewords it, and names the options that it has.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Collection, Mapping
from typing import Any, NamedTuple

from lvq_kafka.core.text.quoting import quoted

__all__ = ["BARE", "Mention", "Remark", "Spelling", "in_python", "renamed", "worded"]

BARE: Any = ...
"""Stands for the value of an option that is mentioned without one."""

# Backticks within a word, or next to a quotation mark, are part of a name or a value that a text quotes.
_MENTION = re.compile(r"(?<![^\s(])`([A-Za-z][\w.-]*)(?:=([^`|]+))?(?:\|([^`]+))?`(?![^\s.,;:?)])")


class Mention(NamedTuple):
    """An option that a text mentions."""

    name: str
    value: Any
    """Its value; `BARE` without one."""
    python: str
    """Both as Python writes them."""


Spelling = Callable[[Mention], str]
"""A function that spells a mention of an option."""


class Remark:
    """A text for a log that mentions options.

    It has Python's wording, or that of the command line, which shows it.
    """

    def __init__(self, text: str) -> None:
        self._text = text

    def worded(self, spell: Spelling) -> str:
        """Return the text with each option that it mentions spelled by a function."""
        return worded(self._text, spell)

    def __str__(self) -> str:
        return in_python(self._text)


def in_python(text: str, given: Mapping[str, object] | None = None, known: Collection[str] | None = None) -> str:
    """Return a text as Python words it; see `worded`."""
    return worded(text, lambda mention: mention.python, given, known)


def worded(
    text: str, spell: Spelling, given: Mapping[str, object] | None = None, known: Collection[str] | None = None
) -> str:
    """Return a text with each option that it mentions spelled by a function.

    Args:
        given: the values of options; the first mention of each has its value.
        known: the options that are mentioned without a value; None if any word between backticks is one. Texts that
            quote others need it.
    """
    left = {name: value for name, value in (given or {}).items() if value is not BARE}

    def spelled(found: re.Match[str]) -> str:
        name, literal, python = found[1], found[2], found[3]
        if literal is not None:
            return spell(Mention(name, _value(literal), python or f"{name}={literal}"))
        if known is not None and name not in known:
            return found[0]
        if name in left:
            value = left.pop(name)
            return spell(Mention(name, value, python or f"{name}={quoted(value)}"))
        return spell(Mention(name, BARE, python or name))

    return _MENTION.sub(spelled, text)


def renamed(text: str, given: Mapping[str, tuple[str, object]], *, with_values: bool = True) -> str:
    """Return a text with these options replaced by others, each with its value.

    Args:
        with_values: False keeps the options that are mentioned with a value.
    """

    def rename(found: re.Match[str]) -> str:
        name, value = given.get(found[1], (found[1], BARE))
        if name == found[1] or not (found[2] is None or with_values):
            return found[0]
        return f"`{name}{'' if found[2] is None else f'={quoted(value)}'}`"

    return _MENTION.sub(rename, text)


def _value(literal: str) -> Any:
    try:
        return ast.literal_eval(literal)
    # It may be an expression that only Python has, or anything at all in a text that quotes others.
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        return BARE
