"""A check of the project's English: ``python -m tests.prose`` names each line that needs other words.

It reads docstrings, comments, the texts of messages and help, the names of tests, and the Markdown pages. The general
style checkers on the package index know clichés, but neither this project's own habits nor docstrings, so the rules are
here: a pattern for each habit, and advice on what to write instead. `ALLOWED` lists the lines where a pattern is wrong.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parent.parent

LONGEST_SUMMARY = 88
"""The most characters in the first line of a library docstring."""


@dataclass(frozen=True, slots=True)
class Rule:
    """A pattern to avoid, and what to write instead."""

    pattern: re.Pattern[str]
    advice: str


def _rule(pattern: str, advice: str, flags: re.RegexFlag = re.IGNORECASE) -> Rule:
    return Rule(re.compile(pattern, flags), advice)


HABITS = (
    _rule(r"\btold\b(?! apart)", "say what is reported, shown or known"),
    _rule(r"\banew\b", "again, or a verb with re-"),
    _rule(
        r"(?<!fall )(?<!falls )(?<!fell )(?<!left )(?<!leave )(?<!leaves )(?<!stay )(?<!is )(?<!lags )\bbehind\s+(?:it"
        r"|them|that|this|(?:the |a )?(?:cut|end|ends|offset|record|base|dump|barrier|first|last|others))\b",
        "after, beyond or past",
    ),
    _rule(r"\bin\s+vain\b", "without success"),
    _rule(r"\bbesides\b", "also, or beyond"),
    _rule(r"\bof\s+now\b", "current"),
    _rule(r"\bwhoever\b", "name them: a caller, a consumer, the owner"),
    _rule(r"\bfor\s+ever\b", "forever"),
    _rule(r"\bit\s+is\s+looked\b", "use an active verb"),
    _rule(r"\b(?:is|are)\s+so(?=[.,;:]|$)", "repeat the property"),
    _rule(r"\b(?:is|are)\s+to\s+be\b", "must be, should be, or an active verb"),
    _rule(r"\btime-out", "timeout"),
    _rule(r"\bis\s+no\s+(?:list|path|name|codec|policy|mapping|number|session|table|position)\b", "is not a"),
    _rule(r"\b(?:is|are)\s+said(?=\s+on\b|[.,;:]|$)", "reported, contained or committed"),
    _rule(
        r"\bso\s+many\s+(?:seconds|rows|bytes|brokers|offsets|steps|arguments)\b(?!\s+(?:that|as|are|have)\b)",
        "this many, a number of, or the parameter's name",
    ),
    _rule(r"\b(?:is|are|be)\s+of\s+(?:no\s+)?use\b", "useful or useless"),
    _rule(r"\bgo(?:es)?\s+by\s+rank\b", "ranked"),
)
"""Habits to avoid anywhere."""

HEADLESS = _rule(
    r"(?:^|[.!?]\s+|\n\n\s*)(?:What(?! to\b)|Who|Those who|Which|That which|Whoever)\b(?![^.!?]*\?)",
    "begin with the thing itself, not with what or who",
    re.NOFLAG,
)
"""A sentence whose subject is a relative clause."""

NOT_A_SUMMARY = _rule(
    r"^(?:What|Who|Whose|Which|Whether|Those|How|When|Where)\b",
    "begin with a verb in the imperative or a noun phrase",
    re.NOFLAG,
)
THIRD_PERSON = _rule(
    r"^(?:Returns|Gets|Gives|Makes|Says|Tells|Sets|Takes|Runs|Checks|Reads|Writes|Waits|Yields|Raises)\b",
    "use the imperative",
    re.NOFLAG,
)

CAUSATIVE = _rule(r"^Have\b", "begin with what it does, or with make or let", re.NOFLAG)
"""A first line that has somebody do something."""

NO_SUBJECT = _rule(
    r"^test (?:[gri]\d+ )*(?:what|who|whom|whose|whoever|whatever|whether|which|whichever|those|that|how)\b",
    "begin with the subject: a message, a caller, an ack",
)
"""The name of a test whose subject is a relative clause. Clauses with *where* and *when* are no subjects."""

ALLOWED: frozenset[tuple[str, str]] = frozenset()
"""Exceptions: the end of a path, and a part of the text."""

UNCHECKED = ("tests/prose.py", "tests/unit/test_prose.py")
"""Files that quote what they forbid."""


@dataclass(frozen=True, slots=True)
class Text:
    """A piece of prose, and where it begins."""

    line: int
    kind: str
    words: str


@dataclass(frozen=True, slots=True)
class Finding:
    """A line that needs other words."""

    path: str
    line: int
    found: str
    advice: str

    def __str__(self) -> str:
        return f"{self.path}:{self.line}: {self.found!r}: {self.advice}"


def main() -> None:
    """Print all findings in the given files or the project; exit with 1 if there are any."""
    given = [Path(name).resolve() for name in sys.argv[1:]]
    findings = [finding for path in given or files() for finding in check(path)]
    for finding in findings:
        sys.stdout.write(f"{finding}\n")
    sys.exit(1 if findings else 0)


def files() -> list[Path]:
    """Return the project's sources and pages."""
    folders = [ROOT / name for name in ("lvq_kafka", "spark", "tests", "docs")]
    sources = [path for folder in folders for path in folder.rglob("*.py")]
    pages = [path for folder in folders for path in folder.rglob("*.md")]
    return sorted([*sources, *pages, *ROOT.glob("*.md"), ROOT / "Makefile", *(ROOT / "docker").glob("*.sh")])


def check(path: Path) -> Iterator[Finding]:
    """Yield what a file should say in other words."""
    name = path.relative_to(ROOT).as_posix() if path.is_relative_to(ROOT) else path.name
    if name in UNCHECKED:
        return
    source = path.read_text(encoding="utf-8")
    for text in _python(source) if path.suffix == ".py" else _plain(source, path.suffix):
        for rule in _rules(text.kind, is_test=name.startswith("tests/")):
            for match in rule.pattern.finditer(text.words):
                line = text.line + text.words.count("\n", 0, match.end())
                whole = text.words.splitlines()[line - text.line]
                if not any(name.endswith(end) and part in whole for end, part in ALLOWED):
                    yield Finding(name, line, match[0].strip("\n .!?"), rule.advice)
        if text.kind in ("module", "class", "function") and not name.startswith("tests/"):
            first = text.words.partition("\n")[0]
            if len(first) > LONGEST_SUMMARY:
                yield Finding(name, text.line, f"{first[:40]}…", f"at most {LONGEST_SUMMARY} characters")


def _rules(kind: str, *, is_test: bool) -> Iterator[Rule]:
    if kind == "test name":
        yield NO_SUBJECT
        return
    yield from HABITS
    if kind == "message" and is_test:
        return
    if kind != "page":
        yield HEADLESS
    if kind in ("module", "class", "function"):
        yield NOT_A_SUMMARY
    if kind == "function":
        yield THIRD_PERSON
        yield CAUSATIVE


def _python(source: str) -> Iterator[Text]:
    """Yield the docstrings, comments, texts and names of tests of a program."""
    tree = ast.parse(source)
    seen: set[int] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name.startswith("test_"):
            yield Text(node.lineno, "test name", node.name.replace("_", " "))
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef):
            kind = {ast.Module: "module", ast.ClassDef: "class"}.get(type(node), "function")
            first = node.body[0] if node.body else None
            for statement in node.body:
                if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant):
                    value = statement.value
                    if isinstance(value.value, str):
                        seen.add(id(value))
                        yield Text(value.lineno, kind if statement is first else "attribute", value.value)
        if isinstance(node, ast.JoinedStr):
            parts = [part.value if isinstance(part, ast.Constant) else "…" for part in node.values]
            seen.update(id(part) for part in ast.walk(node))
            yield Text(node.lineno, "message", "".join(map(str, parts)))
    for node in ast.walk(tree):
        is_text = isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in seen
        if is_text and node.value.count(" ") >= 2:  # others are names and fragments
            yield Text(node.lineno, "message", node.value)
    yield from _comments(source)


def _comments(source: str) -> Iterator[Text]:
    """Yield comments; lines that follow each other are one text."""
    block: list[str] = []
    begin = last = 0
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        words = token.string.removeprefix("#").strip()
        own_line = not token.line[: token.start[1]].strip()
        if block and own_line and token.start[0] == last + 1:
            block.append(words)
        else:
            if block:
                yield Text(begin, "comment", "\n".join(block))
            block, begin = [words], token.start[0]
        last = token.start[0] if own_line else -1
    if block:
        yield Text(begin, "comment", "\n".join(block))


def _plain(source: str, suffix: str) -> Iterator[Text]:
    """Yield the lines of a page outside of code, or the comments, help and messages of a script."""
    in_code = False
    for number, line in enumerate(source.splitlines(), 1):
        if suffix == ".md":
            if line.lstrip().startswith(("```", "~~~")):
                in_code = not in_code
            elif not in_code:
                yield Text(number, "page", line)
        elif "#" in line or re.search(r"\b(?:say|die|echo)\b", line):
            yield Text(number, "script", line)


if __name__ == "__main__":
    main()
