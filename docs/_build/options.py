"""The names of options in Markdown, a section for each system."""

from __future__ import annotations

from collections.abc import Iterator

from lvq_kafka.core.queue.option_names import OPTION_NAMES, SYSTEMS, explanation

__all__ = ["option_names"]

def option_names() -> str:
    """Return a table of the options of each system, in the order of the one table."""
    return "\n".join(_lines())


def _lines() -> Iterator[str]:
    for system, title in SYSTEMS.items():
        yield from (f"## {title}", "", "| option | here |", "| --- | --- |")
        for row in OPTION_NAMES:
            if system in row.systems:
                yield f"| `{row.name}` | {_text(explanation(row))} |"
        yield ""


def _text(said: str) -> str:
    return said.replace("|", "\\|").replace("*", "\\*").replace("_", "\\_")
