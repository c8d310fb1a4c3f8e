"""The options behind a URL's question mark: ``name=value&name=value``, percent-encoded."""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import unquote_plus

from lvq_kafka.dialects.address import AddressDraft

__all__ = ["UrlOption", "decoded", "url_options"]

_BAD_ESCAPE = re.compile(r"%(?![0-9a-fA-F]{2})")


class UrlOption(NamedTuple):
    """An option, with its place in the address."""

    name: str
    value: str
    at: int


def url_options(draft: AddressDraft, start: int) -> Iterator[UrlOption]:
    """Yield the options in the rest of an address, from a place on.

    Raises:
        ConfigError: one is not of the form ``name=value``.
    """
    if start >= len(draft.text):
        return
    for pair in draft.text[start:].split("&"):
        name, equals, value = pair.partition("=")
        if not name or not equals:
            raise draft.wrong("expected name=value", start, "Options are separated by &.")
        yield UrlOption(decoded(draft, name, start), decoded(draft, value, start + len(name) + 1), start)
        start += len(pair) + 1


def decoded(draft: AddressDraft, text: str, at: int) -> str:
    """Return a part of a URL without its percent-encoding.

    Raises:
        ConfigError: an escape is wrong.
    """
    if wrong := _BAD_ESCAPE.search(text):
        raise draft.wrong("% needs two hexadecimal digits", at + wrong.start(), "A percent sign itself is %25.")
    try:
        return unquote_plus(text, errors="strict")
    except UnicodeDecodeError:
        raise draft.wrong("these bytes are not UTF-8", at) from None
