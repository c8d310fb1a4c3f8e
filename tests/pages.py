"""The user-facing pages, README included, and a runner for their examples."""

from __future__ import annotations

import importlib.util
import re
import shlex
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

import pytest
import yaml

__all__ = [
    "DOCS",
    "PAGES",
    "ROOT",
    "Block",
    "after",
    "block",
    "blocks",
    "build_script",
    "cells",
    "in_order",
    "page",
    "python_examples",
    "rows",
    "run",
    "transitions",
]

ROOT = Path(__file__).resolve().parents[1]
DOCS = ROOT / "docs"

PAGES = ("README.md", *sorted(f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.md")))

_FENCED = re.compile(r"^( *)```(\S*)\n(.*?)^ *```$", re.MULTILINE | re.DOTALL)

_NOT_HERE = {"broker", "exporter", "hold", "serve", "watch"}
"""Commands that run until interrupted, or that need a broker of their own; see tests/integration/test_cli.py."""


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, its text, and the output that the page shows right after it, if any."""

    language: str
    body: str
    output: str | None


def page(name: str) -> str:
    """Return the text of a page, by its path from the project's root."""
    return (ROOT / name).read_text()


def in_order() -> list[str]:
    """Return the pages as the site has them from first to last, with the README in the place of its overview."""

    def paths(entry: object) -> Iterator[str]:
        match entry:
            case str():
                yield "README.md" if entry == "index.md" else f"docs/{entry}"
            case dict() | list():
                for each in entry.values() if isinstance(entry, dict) else entry:
                    yield from paths(each)

    return list(paths(yaml.safe_load((ROOT / "mkdocs.yml").read_text())["nav"]))


def blocks(name: str) -> list[Block]:
    """Return the fenced blocks of a page, in order."""
    text = page(name)
    found = list(_FENCED.finditer(text))
    return [Block(this[2], this[3], _output(text, this, later)) for this, later in zip(found, [*found[1:], None])]


def _output(text: str, this: re.Match[str], later: re.Match[str] | None) -> str | None:
    shown = later is not None and later[2] == "text" and not text[this.end() : later.start()].strip()
    return later[3] if later is not None and shown else None


def block(name: str, language: str, containing: str) -> str:
    """Return the only block of a language on a page that contains some text."""
    found = [each.body for each in blocks(name) if each.language == language and containing in each.body]
    assert len(found) == 1, f"{len(found)} blocks of {language} on {name} contain {containing!r}"
    return found[0]


def after(name: str, text: str) -> str:
    """Return the first block after some text."""
    whole = page(name)
    match = _FENCED.search(whole, whole.index(text) + len(text))
    assert match is not None
    return match[3]


def cells(text: str) -> Iterator[list[str]]:
    """Yield the cells of each line of a text's tables, heads included."""
    for line in text.splitlines():
        if line.startswith("|") and not re.fullmatch(r"[|\s:-]+", line):
            yield [cell.strip() for cell in re.split(r"(?<!\\)\|", line.strip().strip("|"))]


def rows(name: str, head: str) -> list[list[str]]:
    """Return the lines of the only table of a page whose head begins with some text."""
    tables = [table for table in page(name).split("\n\n") if table.startswith(f"| {head} |")]
    assert len(tables) == 1, f"{len(tables)} tables on {name} begin with {head!r}"
    return list(cells(tables[0]))[1:]


def build_script(name: str) -> ModuleType:
    """Return a script of docs/_build, which is not in any package."""
    spec = importlib.util.spec_from_file_location(name, DOCS / "_build" / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patched:
        patched.setitem(sys.modules, name, module)
        spec.loader.exec_module(module)
    return module


def transitions(name: str, events: str) -> dict[str, dict[str, str]]:
    """Return a page's table of states: the next state by event and state.

    ``events`` is the head of its first column.
    """
    lines = page(name).split(f"| {events} |")[1].split("\n\n")[0].splitlines()
    states, _, *rows = ([cell.strip() for cell in line.strip("|").split("|")] for line in lines)
    return {event: {state: after for state, after in zip(states, outcomes) if after} for event, *outcomes in rows}


def python_examples() -> Iterator[tuple[str, str]]:
    """Yield each page's Python as one program, with a file name made from the page's path."""
    for name in PAGES:
        program = "\n\n".join(each.body for each in blocks(name) if each.language == "python")
        if program:
            yield re.sub(r"\W", "_", name.removesuffix(".md")) + ".py", program


def run(
    name: str,
    shell: Callable[[Sequence[str]], object],
    printed: Callable[[], str],
    replacing: Mapping[str, str] | None = None,
) -> dict[str, object]:
    """Run a page from top to bottom, as a reader would: all Python as one program, ``lvq`` commands in between.

    Args:
        shell: runs an ``lvq`` command with these arguments, and fails unless it succeeds.
        printed: returns what was printed since its last call.
        replacing: text on the page, and what to run instead.

    Returns:
        The names that the program has defined.
    """
    names: dict[str, object] = {}
    for each in blocks(name):
        body = each.body
        for text, instead in (replacing or {}).items():
            body = body.replace(text, instead)
        printed()
        if each.language == "python":
            exec(compile(body, name, "exec"), names)
            if each.output is not None:
                said = printed()
                assert said == each.output, f"{name} prints {said}"
        elif each.language == "sh":
            for command in lvq_commands(body):
                shell(command)
    return names


def lvq_commands(script: str) -> Iterator[list[str]]:
    """Yield the arguments of each ``lvq`` command in a script that ends by itself."""
    for line in script.splitlines():
        command = shlex.split(line, comments=True)
        if command[:1] == ["lvq"] and command[1] not in _NOT_HERE:
            yield command[1:]
