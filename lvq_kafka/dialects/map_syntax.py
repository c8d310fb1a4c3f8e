"""The syntax of maps in Qpid's addresses, which includes JSON.

::

    map    = "{" [ entry { "," entry } ] "}"        entry = (word | quoted) ":" value
    list   = "[" [ value { "," value } ] "]"        value = map | list | word | quoted

A word has none of these marks, and no space or quote. It is a number, ``true``, ``false``, ``null``, or text, as which
``007`` counts, too. Quoted text may have escapes, as in JSON.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from lvq_kafka.core.text.quoting import brief

__all__ = ["MapSyntaxError", "Part", "parse_map", "plain", "read_quoted", "write_value", "write_word"]

_MOST_NESTED = 32  # the addresses of real systems need six

_TOKEN = re.compile(
    r"""\s*(?:(?P<mark>[{}\[\]:,;])
    | (?P<quoted>"[^"\\]*(?:\\.[^"\\]*)*" | '[^'\\]*(?:\\.[^'\\]*)*')
    | (?P<word>[^\s{}\[\]:,;'"]+))""",
    re.DOTALL | re.VERBOSE,
)
_WHOLE = re.compile(r"[+-]?(?:0|[1-9][0-9]{0,17})")
_NUMBER = re.compile(r"[+-]?(?:(?:0|[1-9][0-9]*)(?:\.[0-9]*)?|\.[0-9]+)(?:[eE][+-]?[0-9]{1,3})?")
_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]*")
_CONSTANTS: Mapping[str, bool | None] = {"true": True, "false": False, "null": None}
_ESCAPE = re.compile(r"\\(?:u([0-9a-fA-F]{4})|x([0-9a-fA-F]{2})|(.))", re.DOTALL)
_ESCAPED = {"n": "\n", "r": "\r", "t": "\t", "b": "\b", "f": "\f"}


class MapSyntaxError(ValueError):
    """The text is not a map, from this place on."""

    def __init__(self, what: str, at: int, hint: str = "") -> None:
        super().__init__(what)
        self.at = at
        self.hint = hint


class Part(NamedTuple):
    """A value, with its place in the text, and that of its name if it is an entry of a map."""

    value: Any
    """Text, a number, a boolean, None, a list of parts, or parts by name."""
    at: int
    named_at: int


def plain(part: Part) -> object:
    """Return a value without places."""
    if isinstance(part.value, dict):
        return {name: plain(inner) for name, inner in part.value.items()}
    return [plain(inner) for inner in part.value] if isinstance(part.value, list) else part.value


def parse_map(text: str, at: int = 0) -> Part:
    """Parse the map that makes up the rest of a text from a place on.

    Raises:
        MapSyntaxError: it is something else.
    """
    parser = _Parser(text, at)
    part = parser.value(parser.following(), 0)
    if not isinstance(part.value, dict):
        raise MapSyntaxError("expected {", part.at, "Options are a map: {create: always}.")
    rest = parser.following()
    if rest.kind != "end":
        raise MapSyntaxError(f"expected the end, found {rest}", rest.at)
    return part


class _Symbol(NamedTuple):
    """A mark, a word, quoted text or the end."""

    kind: str
    text: str
    at: int

    def __str__(self) -> str:
        return "the end" if self.kind == "end" else brief(self.text)


class _Parser:
    def __init__(self, text: str, at: int) -> None:
        self._text = text
        self._at = at

    def following(self) -> _Symbol:
        """Read the next symbol."""
        found = _TOKEN.match(self._text, self._at)
        if found is None:
            at = len(self._text) - len(self._text[self._at :].lstrip())
            if at < len(self._text):
                raise MapSyntaxError("this quote is not closed", at, "Within a text, write \\ before a quote.")
            return _Symbol("end", "", at)
        self._at = found.end()
        kind = found.lastgroup or ""
        return _Symbol(kind, found[kind], found.start(kind))

    def value(self, symbol: _Symbol, depth: int, named_at: int | None = None) -> Part:
        """Read the value that begins with this symbol."""
        place = symbol.at, symbol.at if named_at is None else named_at
        if depth > _MOST_NESTED:
            raise MapSyntaxError(f"this is nested more than {_MOST_NESTED} deep", symbol.at)
        if symbol.kind == "word":
            return Part(_meant(symbol.text), *place)
        if symbol.kind == "quoted":
            return Part(read_quoted(symbol.text, symbol.at), *place)
        if symbol.text == "{":
            return Part(self._entries(depth), *place)
        if symbol.text == "[":
            return Part(self._items(depth), *place)
        raise MapSyntaxError(f"expected a value, found {symbol}", symbol.at)

    def _entries(self, depth: int) -> dict[str, Part]:
        found: dict[str, Part] = {}
        symbol = self.following()
        while symbol.text != "}":
            if symbol.kind not in ("word", "quoted"):
                raise MapSyntaxError(f"expected a name or }}, found {symbol}", symbol.at)
            name = read_quoted(symbol.text, symbol.at) if symbol.kind == "quoted" else symbol.text
            if name in found:
                raise MapSyntaxError(f"{brief(name)} is given twice", symbol.at, "Give it once.")
            colon = self.following()
            if colon.text != ":" or colon.kind != "mark":
                raise MapSyntaxError(f"expected : and the value of {brief(name)}, found {colon}", colon.at)
            found[name] = self.value(self.following(), depth + 1, symbol.at)
            symbol = self._next_of("}")
        return found

    def _items(self, depth: int) -> list[Part]:
        found: list[Part] = []
        symbol = self.following()
        while symbol.text != "]":
            found.append(self.value(symbol, depth + 1))
            symbol = self._next_of("]")
        return found

    def _next_of(self, closing: str) -> _Symbol:
        """Read what follows a comma, or the closing mark."""
        symbol = self.following()
        if symbol.kind == "mark" and symbol.text == closing:
            return symbol
        if symbol.kind != "mark" or symbol.text != ",":
            hint = "Text with a space or mark in it needs quotes." if symbol.kind in ("word", "quoted") else ""
            raise MapSyntaxError(f"expected , or {closing}, found {symbol}", symbol.at, hint)
        following = self.following()
        if following.kind == "mark" and following.text == closing:
            raise MapSyntaxError(f"expected more after the comma, found {closing}", following.at)
        return following


def _meant(word: str) -> object:
    """Return what an unquoted word stands for."""
    if word.lower() in _CONSTANTS:
        return _CONSTANTS[word.lower()]
    if _WHOLE.fullmatch(word):
        return int(word)
    if len(word) < 40 and _NUMBER.fullmatch(word) and math.isfinite(number := float(word)):
        return number
    return word


def read_quoted(quoted: str, at: int) -> str:
    """Return the text between quotes, without its escapes.

    Args:
        quoted: the text with its quotes.
        at: its place, for errors.

    Raises:
        MapSyntaxError: an escape is wrong.
    """

    def meant(found: re.Match[str]) -> str:
        if code := found[1] or found[2]:
            return chr(int(code, 16))
        if found[3] in "ux":
            raise MapSyntaxError(f"\\{found[3]} needs digits", at + 1 + found.start(), "For example \\u20ac or \\x41.")
        return _ESCAPED.get(found[3], found[3])

    inner = _ESCAPE.sub(meant, quoted[1:-1]) if "\\" in quoted else quoted[1:-1]
    try:  # JSON writes a character beyond 16 bits as two halves
        return inner.encode("utf-16", "surrogatepass").decode("utf-16")
    except UnicodeDecodeError:
        raise MapSyntaxError("this text has half a character", at, "An escape lacks its other half.") from None


def write_value(value: object) -> str:
    """Return the text of a value, which `parse_map` reads."""
    if isinstance(value, Mapping):
        return "{" + ", ".join(f"{write_word(name)}: {write_value(inner)}" for name, inner in value.items()) + "}"
    if isinstance(value, Sequence) and not isinstance(value, str):
        return f"[{', '.join(map(write_value, value))}]"
    if value is None or isinstance(value, bool):
        return {None: "null", True: "true", False: "false"}[value]
    return repr(value) if isinstance(value, int | float) else write_word(str(value))


def write_word(text: str) -> str:
    """Return a text as a word if it can be one, or in quotes."""
    if _PLAIN.fullmatch(text) and _meant(text) is text:
        return text
    inner = "".join(
        f"\\{c}" if c in '\\"' else c if c.isprintable() or c > "\uffff" else f"\\u{ord(c):04x}" for c in text
    )
    return f'"{inner}"'
