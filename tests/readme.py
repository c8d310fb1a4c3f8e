"""The README's examples, as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

__all__ = ["after", "block"]

README = (Path(__file__).parent.parent / "README.md").read_text()

_FENCED = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def block(language: str, containing: str) -> str:
    """The one fenced block of a language that contains some text."""
    found = [body for name, body in _FENCED.findall(README) if name == language and containing in body]
    assert len(found) == 1, f"{len(found)} blocks of {language} contain {containing!r}"
    return found[0]


def after(text: str) -> str:
    """The first fenced block behind some text."""
    match = _FENCED.search(README, README.index(text) + len(text))
    assert match is not None
    return match[2]
