"""The list of modules in Markdown, from their docstrings."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["modules"]

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "lvq_kafka", ROOT / "spark" / "lvq_spark")


def modules() -> str:
    """Return a section for each package: its summary, and a table of its modules."""
    return "\n".join(line for package in PACKAGES for folder in _folders(package) for line in _section(folder))


def _folders(package: Path) -> Iterator[Path]:
    yield from sorted({path.parent for path in package.rglob("*.py")})


def _section(folder: Path) -> Iterator[str]:
    yield from (f"## {folder.relative_to(folder.parents[len(folder.relative_to(ROOT).parts) - 1])}", "")
    yield from (_summary(folder / "__init__.py"), "", "| module | |", "| --- | --- |")
    for path in sorted(folder.glob("*.py")):
        if not path.name.startswith("_"):
            yield f"| `{path.name}` | {_summary(path)} |"
    yield ""


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text())) if path.exists() else None
    return " ".join((text or "").split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
