"""How names, keys and what others have said are shown: bounded, and with nothing in them that steers a terminal.

What comes from a topic, a commit, the registry or a program's caller may be of any length and hold any character.
`quoted` shows it in an error, a log line or a repr; `LVQError` passes its whole message through `bounded`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any

__all__ = ["abridged", "bounded", "brief", "listed", "printable", "quoted", "shell_word"]

_MOST_OF_A_NAME = 200  # characters: any name that a queue can have is shown whole
_MOST_NAMES = 5
_GAP = " … "
_HEAD, _TAIL = 3000, 1000  # characters of a message; what went wrong is said first, and how it ended last


def printable(text: str, *, keep: str = "") -> str:
    """Text that is safe on a terminal: whatever could steer it is written out as an escape, except ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def quoted(thing: object) -> str:
    """The repr of anything, or of its beginning."""
    if isinstance(thing, str):
        return _cut(thing, repr)
    if isinstance(thing, bytes) and len(thing) > _MOST_OF_A_NAME:
        return f"{thing[:_MOST_OF_A_NAME]!r}… ({len(thing):,} bytes)"
    return _cut(repr(thing), printable)


def abridged(record: Any) -> str:
    """The ``__repr__`` of a dataclass in which no field is longer than can be read."""
    shown = ((field.name, getattr(record, field.name)) for field in fields(record) if field.repr)
    return f"{type(record).__qualname__}({', '.join(f'{name}={quoted(value)}' for name, value in shown)})"


def brief(text: str) -> str:
    """As `quoted`, without quotes."""
    return _cut(text, printable)


def _cut(text: str, show: Callable[[str], str]) -> str:
    if len(text) <= _MOST_OF_A_NAME:
        return show(text)
    return f"{show(text[:_MOST_OF_A_NAME])}… ({len(text):,} characters)"


def listed(names: Collection[str], most: int = _MOST_NAMES) -> str:
    """Names with commas between, or the first of them and how many more there are."""
    first = ", ".join(brief(name) for name, _ in zip(names, range(most)))
    return first if len(names) <= most else f"{first} and {len(names) - most:,} more"


def bounded(text: str) -> str:
    """A message of several lines, perhaps: printable, and without its middle where it is too long to be read."""
    shown = printable(_without_middle(text), keep="\n\t")  # which escapes make longer
    return _without_middle(shown)


def _without_middle(text: str) -> str:
    if len(text) <= _HEAD + _TAIL + len(_GAP):
        return text
    return f"{text[:_HEAD]}{_GAP}{text[-_TAIL:]}"


def shell_word(text: str) -> str:
    """Text as one word of a command line, for sh, bash and zsh; in their ``$'…'`` where it cannot be typed."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_typed, text))}'"


def _typed(character: str) -> str:
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
