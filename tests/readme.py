"""The examples of the README and of other pages, as they stand there."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

__all__ = ["after", "block", "python_examples"]

ROOT = Path(__file__).parent.parent
README = (ROOT / "README.md").read_text()

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


def python_examples() -> Iterator[tuple[str, str]]:
    """Every Python example of a Markdown page, with a file name that says where it stands."""
    pages = [
        *ROOT.glob("*.md"),
        *(page for folder in ("docs", "lvq_kafka", "spark") for page in (ROOT / folder).rglob("*.md")),
    ]
    for page in sorted(pages):
        text = page.read_text()
        for match in _FENCED.finditer(text):
            if match[1] == "python":
                where = page.relative_to(ROOT).with_suffix("").as_posix().replace("/", "_").replace("-", "_")
                yield f"{where}_line_{text.count(chr(10), 0, match.start()) + 1}.py", match[2]
