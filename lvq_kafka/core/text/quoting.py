"""Safe display of names, keys and other people's text: bounded, and harmless to terminals.

Content of a topic, a commit or the registry, or from a caller, may have any length and any characters. `quoted` shows
it in errors, log lines and reprs; `LVQError` passes its whole message through `bounded`.
"""

from __future__ import annotations

import shlex
from collections.abc import Callable, Collection
from dataclasses import fields
from typing import Any

__all__ = ["abridged", "bounded", "brief", "listed", "printable", "quoted", "shell_word"]

_MOST_OF_A_NAME = 200  # characters: any legal queue name is shown whole
_MOST_NAMES = 5
_GAP = " … "
_HEAD, _TAIL = 3000, 1000  # characters of a message; the cause is stated first, and the outcome last


def printable(text: str, *, keep: str = "") -> str:
    """Escape characters that could control a terminal, except those in ``keep``."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in keep else _escaped(c) for c in text)


def _escaped(character: str) -> str:
    if "\udc80" <= character <= "\udcff":  # a byte that is not UTF-8
        return f"\\x{ord(character) - 0xDC00:02x}"
    return character.encode("unicode_escape").decode("ascii")


def quoted(thing: object) -> str:
    """Return the repr of anything, cut short if necessary."""
    if isinstance(thing, str):
        return _cut(thing, repr)
    if isinstance(thing, bytes) and len(thing) > _MOST_OF_A_NAME:
        return f"{thing[:_MOST_OF_A_NAME]!r}… ({len(thing):,} bytes)"
    try:
        return _cut(repr(thing), printable)
    except ValueError:  # Python writes no numbers of many thousands of digits
        size = f" of {thing.bit_length():,} bits" if isinstance(thing, int) else ""
        return f"<{type(thing).__name__}{size}>"


def abridged(record: Any) -> str:
    """Return the ``__repr__`` of a dataclass, with long fields cut short."""
    shown = ((field.name, getattr(record, field.name)) for field in fields(record) if field.repr)
    return f"{type(record).__qualname__}({', '.join(f'{name}={quoted(value)}' for name, value in shown)})"


def brief(text: str) -> str:
    """Return text like `quoted`, without quotes."""
    return _cut(text, printable)


def _cut(text: str, show: Callable[[str], str]) -> str:
    if len(text) <= _MOST_OF_A_NAME:
        return show(text)
    return f"{show(text[:_MOST_OF_A_NAME])}… ({len(text):,} characters)"


def listed(names: Collection[str], most: int = _MOST_NAMES) -> str:
    """Join names with commas, or the first few and the number of others."""
    first = ", ".join(brief(name) for name, _ in zip(names, range(most)))
    return first if len(names) <= most else f"{first} and {len(names) - most:,} more"


def bounded(text: str) -> str:
    """Make a message printable, and cut out its middle if it is too long to read.

    It may have several lines.
    """
    shown = printable(_without_middle(text), keep="\n\t")  # escapes make it longer
    return _without_middle(shown)


def _without_middle(text: str) -> str:
    if len(text) <= _HEAD + _TAIL + len(_GAP):
        return text
    return f"{text[:_HEAD]}{_GAP}{text[-_TAIL:]}"


def shell_word(text: str) -> str:
    """Quote text as one word for sh, bash and zsh; as ``$'…'`` if it cannot be typed."""
    if text.isprintable():
        return shlex.quote(text)
    return f"$'{''.join(map(_typed, text))}'"


def _typed(character: str) -> str:
    if character.isprintable() and character not in "\\'":
        return character
    return "".join(f"\\x{byte:02x}" for byte in character.encode("utf-8", "surrogateescape"))
