"""Draw the chart of docs/benchmarks.md from the table on that page.

In the table, other systems are in italics. Run ``python docs/_build/chart.py`` after a change of the table.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

__all__ = ["CHART", "chart"]

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "benchmarks.md"
CHART = DOCS / "images" / "benchmarks.svg"

HEAD = "| what | against | speed, by the clock | processor time |"

WIDTH, LABELS, GAP, ROW, BAR, TOP = 760, 250, 30, 30, 14, 58
PANEL = (WIDTH - LABELS - 2 * GAP) // 2
MOST = 1.9  # the ratio at the right edge of a panel, where longer bars end
CHARACTER = 6.5  # about the width of one

STYLE = """
text { font: 12px var(--md-text-font-family, sans-serif); fill: var(--md-default-fg-color, #222); }
.title { font-weight: 700; }
.note { fill: var(--md-default-fg-color--light, #666); font-size: 11px; }
.ours { fill: #00897b; }
.other { fill: #8d6e63; }
.range { opacity: .45; }
.value { paint-order: stroke; stroke: var(--md-default-bg-color, #fff); stroke-width: 4px; }
.even { stroke: var(--md-default-fg-color--light, #666); stroke-dasharray: 3 3; }
"""


@dataclass(frozen=True)
class Row:
    """A line of the table: its label, and from where to where each ratio goes."""

    label: str
    is_ours: bool
    speed: tuple[float, ...]
    time: tuple[float, ...]


def rows(page: str) -> Iterator[Row]:
    """Read the table."""
    for line in page[page.index(HEAD) :].split("\n\n")[0].splitlines()[2:]:
        what, _, speed, time = (cell.strip() for cell in line.strip("|").split("|"))
        yield Row(re.sub("[`*]", "", what), "*" not in what, _numbers(speed), _numbers(time))


def chart(page: str) -> str:
    """Return the SVG for this text of the page."""
    lines = list(rows(page))
    height = TOP + ROW * len(lines) + 8
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img" '
            'aria-label="Speed and processor time, each as a multiple of what it is compared with">',
            f"<style>{STYLE}</style>",
            *_panel(LABELS, height, "Speed by the clock", "more is better"),
            *_panel(LABELS + PANEL + GAP, height, "Processor time", "less is better"),
            *(mark for number, row in enumerate(lines) for mark in _marks(TOP + ROW * number, row)),
            "</svg>",
            "",
        ]
    )


def _panel(x: int, height: int, title: str, note: str) -> Iterator[str]:
    even = x + PANEL / MOST
    yield f'<text class="title" x="{x}" y="16">{title}</text>'
    yield f'<text class="note" x="{x}" y="32">{note}</text>'
    yield f'<text class="note" x="{even:.1f}" y="48" text-anchor="middle">the same</text>'
    yield f'<line class="even" x1="{even:.1f}" x2="{even:.1f}" y1="{TOP - 6}" y2="{height}"/>'


def _marks(y: int, row: Row) -> Iterator[str]:
    yield f'<text x="0" y="{y + BAR - 2}">{escape(row.label)}</text>'
    for x, ratios in ((LABELS, row.speed), (LABELS + PANEL + GAP, row.time)):
        if ratios:
            yield from _bar("ours" if row.is_ours else "other", x, y, ratios)
        else:
            yield f'<text class="note" x="{x}" y="{y + BAR - 2}">not compared</text>'


def _bar(whose: str, x: int, y: int, ratios: tuple[float, ...]) -> Iterator[str]:
    low, high = (PANEL * min(ratio, MOST) / MOST for ratio in (min(ratios), max(ratios)))
    yield f'<rect class="{whose}" x="{x}" y="{y}" width="{low:.1f}" height="{BAR}"/>'
    if high > low:
        yield f'<rect class="{whose} range" x="{x + low:.1f}" y="{y}" width="{high - low:.1f}" height="{BAR}"/>'
    label = " – ".join(f"{ratio:g}" for ratio in ratios) + (" →" if max(ratios) > MOST else "")
    is_inside = high + CHARACTER * len(label) > PANEL + GAP  # there is no room for it after the bar
    at, anchor = (x + high - 5, ' text-anchor="end"') if is_inside else (x + high + 5, "")
    yield f'<text class="value" x="{at:.1f}" y="{y + BAR - 2}"{anchor}>{label}</text>'


def _numbers(cell: str) -> tuple[float, ...]:
    return tuple(map(float, re.findall(r"\d+(?:\.\d+)?", cell)))


if __name__ == "__main__":
    CHART.write_text(chart(PAGE.read_text()))
