"""The pages for those who move from another broker: their tests, rules and commands exist."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from lvq_kafka.cli.app import lvq
from tests.pages import DOCS, ROOT, cells, page

FEATURES = "docs/moving/features.md"
MOVING = sorted(f"docs/moving/{path.name}" for path in (DOCS / "moving").glob("*.md"))
RULES = {
    *re.findall(r"^\| (R\d+) \|", page("docs/guarantees.md"), re.MULTILINE),
    *re.findall(r"^\| (G\d+)\b", page("docs/guarantees.md"), re.MULTILINE),
}


def features() -> list[list[str]]:
    return [row for row in cells(page(FEATURES)) if row[0] != "the document says"]


def test_the_page_has_all_features_of_the_five_documents() -> None:
    documents = re.split(r"^## ", page(FEATURES), flags=re.MULTILINE)[1:]
    assert [sum(len(row) == 3 for row in cells(each)) - 1 for each in documents] == [14, 23, 17, 32, 16]
    assert f"{len(features())} features" in page(FEATURES)


def test_each_feature_works_or_differs_by_a_rule_or_a_reason_and_a_test_that_exists_shows_it() -> None:
    tests = {
        name
        for path in (ROOT / "tests").rglob("test_*.py")
        for name in re.findall(r"def (test_\w+)\(", path.read_text())
    }
    for said, here, test in features():
        assert re.match(r"works\b|differs: |impossible: ", here), said
        (named,) = re.findall(r"`(\w+)`", test)
        assert named in tests, (said, named)


@pytest.mark.parametrize("name", MOVING)
def test_a_rule_that_a_page_cites_exists(name: str) -> None:
    assert {"R1", "R38", "G1", "G16"} <= RULES
    assert not set(re.findall(r"\b[RG]\d+\b", page(name))) - RULES


@pytest.mark.parametrize("name", MOVING)
def test_a_command_that_a_page_names_exists_with_its_options(name: str) -> None:
    for command, rest in re.findall(r"\blvq ([a-z]+)([^`\n]*)", page(name)):
        found = lvq.commands.get(command)
        assert found is not None, command
        subcommands = getattr(found, "commands", {}).values()
        declared = {each for one in (found, *subcommands) for option in one.params for each in option.opts}
        given = set(re.findall(r"(?<=\s)--?[a-z][a-z-]*", rest))
        assert not given - declared - {"--json"}, (command, given - declared)


def test_the_first_page_links_to_all_others() -> None:
    first = page("docs/moving/index.md")
    assert not [name for name in MOVING if name != "docs/moving/index.md" and f"({Path(name).name})" not in first]
