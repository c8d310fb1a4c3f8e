"""The list of folders in Markdown, from the docstrings of their ``__init__.py``."""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

__all__ = ["modules"]

ROOT = Path(__file__).parents[2]
PACKAGES = (ROOT / "lvq_kafka", ROOT / "spark" / "lvq_spark")


def modules() -> str:
    """Return a section for each package: its summary, and a table of its folders."""
    return "\n".join(line for package in PACKAGES for line in _section(package))


def _section(package: Path) -> Iterator[str]:
    yield from (f"## {package.name}", "", _summary(package / "__init__.py"), "")
    yield from ("| | it holds | files | lines |", "| --- | --- | ---: | ---: |")
    for path in sorted([*package.glob("*.py"), *(file.parent for file in package.glob("*/**/__init__.py"))]):
        if path.is_dir():
            files = [file for file in path.glob("*.py") if not file.name.startswith("_")]
            yield _row(f"{path.relative_to(package)}/", path / "__init__.py", files)
        elif not path.name.startswith("_"):
            yield _row(path.name, path, [path])
    yield ""


def _row(name: str, plate: Path, files: list[Path]) -> str:
    lines = sum(len(file.read_text().splitlines()) for file in files)
    return f"| `{name}` | {_summary(plate)} | {len(files) or ''} | {f'{lines:,}' if lines else ''} |"


def _summary(path: Path) -> str:
    text = ast.get_docstring(ast.parse(path.read_text()))
    return " ".join((text or "").split("\n\n")[0].split()).replace("``", "`").replace("|", "\\|")
