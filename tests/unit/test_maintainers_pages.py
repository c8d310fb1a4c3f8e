"""The pages for maintainers: the tests, names and files that they mention exist, and pictures are those of tables."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import get_args

import pytest

from lvq_kafka.core.queue.limits import OverflowPolicy
from tests.pages import DOCS, ROOT, build_script, page, rows
from tests.unit.test_imports import CORE

SOURCES = [*(ROOT / "lvq_kafka").rglob("*.py"), *(ROOT / "spark" / "lvq_spark").rglob("*.py")]
INVARIANTS = "docs/maintainers/invariants.md"


def invariants() -> list[str]:
    return re.split(r"^(?=\*\*)", page(INVARIANTS), flags=re.MULTILINE)[1:]


def test_every_invariant_names_a_test_that_exists() -> None:
    tests = {
        name for path in (ROOT / "tests").rglob("*.py") for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    assert len(invariants()) >= 75
    for invariant in invariants():
        named = re.findall(r"`(test_\w+)`", invariant)
        assert named or "*No test*: " in invariant, invariant
        assert not set(named) - tests, set(named) - tests


def test_invariants_without_a_test_stay_few() -> None:
    assert sum("*No test*: " in invariant for invariant in invariants()) <= 4


def called(tree: ast.Module) -> Iterator[str]:
    """Yield the names of the methods that a module calls."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            yield node.func.attr


@pytest.mark.parametrize("name", ["list_consumer_group_offsets", "describe_cluster"])
def test_calls_that_end_the_process_are_not_made(name: str) -> None:
    assert name in page(INVARIANTS)
    assert not [path for path in SOURCES if name in called(ast.parse(path.read_text()))]


def test_the_names_on_the_page_about_the_architecture_exist() -> None:
    text = page("docs/maintainers/architecture.md") + (DOCS / "images" / "layers.svg").read_text()
    defined = {
        node.name
        for path in SOURCES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }
    named = set(re.findall(r"`([A-Z]\w+)(?:\.\w+)?`", text)) | set(re.findall(r"\b(?:[A-Z][a-z]+){2,}\b", text))
    assert len(named & defined) >= 15
    assert named - defined <= {"PySpark"}
    for folder in re.findall(r"[>`]([\w/]+)/[<`]", text):
        assert (ROOT / folder).is_dir() or (ROOT / "lvq_kafka" / folder).is_dir(), folder


def test_the_picture_of_core_is_that_of_its_table_and_its_imports() -> None:
    drawing = build_script("rooms")
    drawn = drawing.picture(page("docs/maintainers/architecture.md"))
    assert drawn == drawing.PICTURE.read_text(), "run python docs/_build/rooms.py"
    levels = drawing.levels(page("docs/maintainers/architecture.md"))
    named = [{Path(room).stem for room, _ in rooms} for rooms in levels]
    assert named == [set(rooms) for rooms in CORE]


def test_every_folder_has_a_door_plate_on_the_page_about_modules() -> None:
    text = build_script("modules").modules()
    folders = [path.parent for path in SOURCES if path.name == "__init__.py"]
    assert len(folders) >= 35
    for folder in folders:
        package = next(
            place for place in (ROOT / "lvq_kafka", ROOT / "spark/lvq_spark") if folder.is_relative_to(place)
        )
        name = f"{folder.relative_to(package)}/"
        assert name == "./" or re.search(rf"^\| `{name}` \| \w.+? \|", text, re.MULTILINE), name


def test_the_files_and_rules_in_the_table_of_options_exist() -> None:
    rules = set(re.findall(r"^\| (R\d+) \|", page("docs/guarantees.md"), re.MULTILINE))
    table = rows("docs/maintainers/architecture.md", "option")
    options = [option for option, *_ in table]
    assert [f"`limits`, `{policy}`" in options for policy in get_args(OverflowPolicy)] == [True] * 5
    assert len(options) == 13
    for option, *places in table:
        for place, package in zip(places, ("lvq_kafka", "lvq_kafka", "lvq_kafka", "spark/lvq_spark"), strict=True):
            files, numbers = re.findall(r"`([^`]+)`", place), re.findall(r"\bR\d+\b", place)
            assert bool(files) == bool(numbers) == bool(place), (option, place)
            assert set(numbers) <= rules, (option, place)
            assert all((ROOT / package / file).is_file() for file in files), (option, place)


def test_every_decision_has_its_number_and_is_on_the_list() -> None:
    files = sorted((DOCS / "decisions").glob("[0-9]*.md"))
    assert [int(path.name[:3]) for path in files] == list(range(1, len(files) + 1))
    index = page("docs/decisions/index.md")
    for number, path in enumerate(files, start=1):
        title = path.read_text().splitlines()[0].removeprefix(f"# {number}. ")
        assert f"| {number} | [{title}]({path.name}) |" in index


def test_the_chart_is_that_of_the_table() -> None:
    drawing = build_script("chart")
    assert drawing.chart(page("docs/benchmarks.md")) == drawing.CHART.read_text(), "run python docs/_build/chart.py"
    rows = {row.label: (row.speed, row.time) for row in drawing.rows(page("docs/benchmarks.md"))}
    assert rows["put"] == ((0.8, 1.05), (1.0, 1.15))
