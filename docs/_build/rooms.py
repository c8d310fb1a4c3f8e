"""Draw core's rooms and their levels for the page about the architecture.

The rooms are those of that page's table, the arrows those imports that do not follow from others. Run
``python docs/_build/rooms.py`` after a change of either.
"""

from __future__ import annotations

import ast
import re
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from html import escape
from pathlib import Path

__all__ = ["PICTURE", "levels", "picture"]

DOCS = Path(__file__).parents[1]
PAGE = DOCS / "maintainers" / "architecture.md"
PICTURE = DOCS / "images" / "core.svg"
PACKAGE = DOCS.parent / "lvq_kafka"

HEAD = "| level | room | it holds |"

COLUMN, GAP, ROW, BOX = 240, 20, 82, 52
WIDTH = 3 * COLUMN + 2 * GAP
CHARACTER = 6.1  # about the width of one

STYLE = """
.diagram text { font: 12px var(--md-text-font-family, sans-serif); fill: var(--md-default-fg-color, #222); }
.diagram .title { font-weight: 700; font-family: var(--md-code-font-family, monospace); }
.diagram .note { fill: var(--md-default-fg-color--light, #555); font-size: 11.5px; }
.box { fill: var(--md-code-bg-color, #f5f5f5); stroke: var(--md-default-fg-color--lighter, #999); }
.arrow { fill: none; stroke: var(--md-default-fg-color--light, #666); }
#below path { fill: var(--md-default-fg-color--light, #666); }
"""

ARROW = (
    '<defs><marker id="below" viewBox="0 0 8 8" refX="5" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    '<path d="M0 0L8 4L0 8Z"/></marker></defs>'
)


@dataclass(frozen=True)
class Room:
    """A room of core: its level, the lowest being 1, and the horizontal extent of its box."""

    title: str
    note: str
    level: int
    left: int
    right: int

    def top(self, height: int) -> int:
        """Return where its box begins."""
        return height - (self.level - 1) * ROW - BOX


def levels(page: str) -> list[list[tuple[str, str]]]:
    """Return the rooms on the page, with their descriptions, from the lowest level up."""
    found: list[list[tuple[str, str]]] = []
    for line in page[page.index(HEAD) :].split("\n\n")[0].splitlines()[2:]:
        level, room, note = (cell.strip() for cell in line.strip("|").split("|"))
        if level:
            found.append([])
        found[-1].append((room.strip("`"), note))
    return found


def picture(page: str) -> str:
    """Return the SVG for this text of the page."""
    table = levels(page)
    arrows = sorted(_needed({_name(room): level for level, rooms in enumerate(table) for room, _ in rooms}))
    rooms = {_name(room.title): room for room in _placed(table, arrows)}
    height = (len(table) - 1) * ROW + BOX
    return "\n".join(
        [
            f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="-1 -1 {WIDTH + 2} {height + 2}" role="img" '
            'aria-label="The rooms of core on their levels; arrows are imports">',
            f"<style>{STYLE}</style>",
            ARROW,
            '<g class="diagram">',
            *(mark for room in rooms.values() for mark in _box(room, room.top(height))),
            *(_arrow(rooms[upper], rooms[lower], height) for upper, lower in arrows),
            "</g>",
            "</svg>",
            "",
        ]
    )


def _name(room: str) -> str:
    return Path(room).stem


def _imported(room: str) -> set[str]:
    """Return the names of the rooms that one imports from, and its own."""
    files = PACKAGE / "errors.py", PACKAGE / "core" / f"{room}.py"
    given = [path for path in files if path.stem == room and path.exists()] or [*(PACKAGE / "core" / room).rglob("*.py")]
    nodes = [node for path in given for node in ast.walk(ast.parse(path.read_text()))]
    modules = {node.module for node in nodes if isinstance(node, ast.ImportFrom) and node.module}
    return {found[1] for module in modules if (found := re.match(r"lvq_kafka\.(?:core\.)?(\w+)", module))}


def _needed(level_of: dict[str, int]) -> set[tuple[str, str]]:
    """Return the imports that do not follow from others, as pairs of a room and a lower one."""
    below = {room: _imported(room) & level_of.keys() - {room} for room in level_of}
    for room in sorted(level_of, key=level_of.__getitem__):
        below[room] = below[room].union(*(below[lower] for lower in below[room]))
    return {
        (room, lower)
        for room, all_lower in below.items()
        for lower in all_lower
        if not any(lower in below[between] for between in all_lower)
    }


def _placed(table: list[list[tuple[str, str]]], arrows: list[tuple[str, str]]) -> Iterator[Room]:
    """Yield the rooms with their places.

    A room alone on its level is wide, but leaves columns to arrows that pass.
    """
    level_of = {_name(room): level for level, rooms in enumerate(table) for room, _ in rooms}
    column_of = {_name(room): column for rooms in table for column, (room, _) in enumerate(rooms) if len(rooms) > 1}
    for level, rooms in enumerate(table):
        passing = {
            column_of.get(lower, column_of.get(upper, 2))
            for upper, lower in arrows
            if level_of[lower] < level < level_of[upper]
        }
        for column, (room, note) in enumerate(rooms):
            last = column if len(rooms) > 1 else max({0, 1, 2} - passing)
            left = column * (COLUMN + GAP)
            yield Room(room, note, level + 1, left, last * (COLUMN + GAP) + COLUMN)


def _box(room: Room, top: int) -> Iterator[str]:
    yield f'<rect class="box" x="{room.left}" y="{top}" width="{room.right - room.left}" height="{BOX}" rx="4"/>'
    yield f'<text class="title" x="{room.left + 10}" y="{top + 16}">{escape(room.title)}</text>'
    most = int((room.right - room.left - 20) / CHARACTER)
    for number, line in enumerate(textwrap.wrap(room.note.replace("`", ""), most)):
        yield f'<text class="note" x="{room.left + 10}" y="{top + 31 + 14 * number}">{escape(line)}</text>'


def _arrow(upper: Room, lower: Room, height: int) -> str:
    left, right = max(upper.left, lower.left), min(upper.right, lower.right)
    begin = end = (left + right) // 2
    if left > right:  # one is beside the other
        begin, end = (upper.left + 40, lower.right - 40) if upper.left > lower.right else (upper.right - 40, lower.left + 40)
    path = f"M{begin} {upper.top(height) + BOX}L{end} {lower.top(height) - 5}"
    return f'<path class="arrow" d="{path}" marker-end="url(#below)"/>'


if __name__ == "__main__":
    PICTURE.write_text(picture(PAGE.read_text()))
