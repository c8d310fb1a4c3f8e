"""The page *When something is wrong*: its log lines are real ones, and it has all warnings, errors and exit codes."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

from lvq_kafka import errors
from lvq_kafka.cli.exit_codes import EXIT_CODES
from tests.pages import ROOT, cells, page, rows

PAGE = "docs/how-to/troubleshooting.md"
LIBRARY = sorted((ROOT / "lvq_kafka").rglob("*.py"))
SPARK = sorted((ROOT / "spark" / "lvq_spark").rglob("*.py"))

BARE = {"…", "the …", "the consumer of …: …", "the consumer of … stands still: …"}
"""Forms of log lines whose text is that of another line, or of the reason that they give."""

ABSTRACT = {"LVQError", "TopicError"}
"""Errors that are never raised themselves."""


def text_of(node: ast.expr) -> str | None:
    """Return a text of the program, with an ellipsis for each variable part."""
    match node:
        case ast.Constant(value=str(text)):
            return re.sub(r"%(?:\.\d+)?[sdrfg]", "…", text)
        case ast.JoinedStr():
            return "".join(part if (part := text_of(each)) is not None else "…" for each in node.values)
    return None


def texts(paths: list[Path]) -> set[str]:
    nodes = (node for path in paths for node in ast.walk(ast.parse(path.read_text())))
    return {text for node in nodes if isinstance(node, ast.expr) and (text := text_of(node)) is not None}


def fragments() -> list[str]:
    """Return the parts of log lines that the page quotes."""
    tables = re.findall(r"^\| log line \|.*(?:\n\|.*)+", page(PAGE), re.MULTILINE)
    first = [line[0] for table in tables for line in [*cells(table)][1:]]
    return [quoted for cell in first for quoted in re.findall(r"`([^`]+)`", cell)]


def warnings() -> Iterator[str]:
    """Yield the forms of the library's warnings and errors in the log."""
    for path in LIBRARY:
        if path.is_relative_to(ROOT / "lvq_kafka" / "testing"):
            continue
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.args:
                is_logged = ast.unparse(node.func) in ("logger.warning", "logger.error", "logger.exception")
                if is_logged and (text := text_of(node.args[0])) is not None and text not in BARE:
                    yield text


def test_every_log_line_on_the_page_is_in_the_source() -> None:
    known = texts([*LIBRARY, *SPARK])
    quoted = fragments()
    assert len(quoted) >= 70
    assert not [fragment for fragment in quoted if not any(fragment in text for text in known)]


def test_every_warning_of_the_library_is_on_the_page() -> None:
    quoted = fragments()
    forms = list(warnings())
    assert len(forms) >= 50
    assert not [text for text in forms if not any(fragment in text for fragment in quoted)]


def test_every_error_is_on_the_page() -> None:
    named = {name for error, *_ in rows(PAGE, "error") for name in re.findall(r"`(\w+)`", error)}
    assert named == set(errors.__all__) - ABSTRACT


def test_every_exit_code_is_on_the_page() -> None:
    assert [int(code) for code, *_ in rows(PAGE, "code")] == [*EXIT_CODES]
