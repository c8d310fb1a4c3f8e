"""The check of the project's English: each rule can fail. `make lint` runs it on the project."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.prose import check


def found(folder: Path, source: str, name: str = "module.py") -> list[tuple[int, str]]:
    """Return the lines with findings in a file, and what to write there."""
    path = folder / name
    path.write_text(source, encoding="utf-8")
    return [(finding.line, finding.advice) for finding in check(path)]


@pytest.mark.parametrize(
    ("sentence", "advice"),
    [
        ("The caller is told.", "reported"),
        ("It is built anew.", "again"),
        ("The record lies behind the cut.", "after"),
        ("It waits in vain.", "without success"),
        ("Besides, it is slow.", "also"),
        ("The state of now.", "current"),
        ("The lock of whoever asks.", "name them"),
        ("It waits for ever.", "forever"),
        ("It is looked at.", "active"),
        ("The lease is over; then it is so.", "repeat"),
        ("The text is to be read.", "must be"),
        ("After a time-out.", "timeout"),
        ("The value is no number.", "is not a"),
        ("The rest is said on stderr.", "reported"),
        ("It waits for so many seconds.", "this many"),
        ("That is of no use.", "useless"),
        ("A queue that goes by rank.", "ranked"),
        ("It ends. What is left goes.", "the thing itself"),
        ("It ends. Who waits goes.", "the thing itself"),
        ("It ends. Those who wait go.", "the thing itself"),
    ],
)
@pytest.mark.parametrize(
    "place", ['"""A module.\n\n{}\n"""\n', "# {}\n", "x = 0  # {}\n", 'print("{}")\n', 'print(f"{} {{x}}")\n']
)
def test_a_habit_is_found_in_docstrings_comments_and_messages(
    tmp_path: Path, place: str, sentence: str, advice: str
) -> None:
    assert [said for _, said in found(tmp_path, place.format(sentence)) if advice in said]


@pytest.mark.parametrize(
    "sentence",
    [
        "They cannot be told apart.",
        "A broker behind a proxy.",
        "It falls behind the others.",
        "It is said to have left.",
        "So many seconds are too many.",
        "What is it?",
        "What to do.",
    ],
)
def test_ordinary_english_passes(tmp_path: Path, sentence: str) -> None:
    assert found(tmp_path, f'"""A module.\n\n{sentence}\n"""\n') == []


@pytest.mark.parametrize(
    ("summary", "advice"),
    [
        ("What a queue holds.", "imperative"),
        ("Whether it is open.", "imperative"),
        ("How it works.", "imperative"),
        ("Returns the value.", "imperative"),
        ("Have the value returned.", "make or let"),
        ("Return " + "x" * 90, "at most 88"),
    ],
)
def test_a_docstring_begins_with_a_verb_or_a_noun_phrase(tmp_path: Path, summary: str, advice: str) -> None:
    findings = found(tmp_path, f'def one():\n    """{summary}"""\n')
    assert {line for line, _ in findings} == {2}
    assert any(advice in said for _, said in findings)


def test_a_sentence_over_several_comment_lines_is_one(tmp_path: Path) -> None:
    findings = found(tmp_path, "# It ends.\n# What is left goes.\n# That is\n# to be seen.\n")
    assert sorted(line for line, _ in findings) == [2, 4]


@pytest.mark.parametrize(
    "name",
    [
        "what_is_acked_is_done",
        "g11_who_waits_goes_on",
        "i9_r20_whoever_asks_waits",
        "those_left_come",
        "how_it_is_done",
    ],
)
def test_a_test_whose_name_has_no_subject_is_found(tmp_path: Path, name: str) -> None:
    source = f"class TestIt:\n    async def test_{name}(self): ...\n\n\ndef test_{name}(): ...\n"
    findings = found(tmp_path, source, "test_it.py")
    assert [line for line, _ in findings] == [5, 2]
    assert all("begin with the subject" in said for _, said in findings)


@pytest.mark.parametrize(
    "name", ["an_acked_message_is_done", "g11_a_commit_is_what_counts", "where_nothing_is_left_nothing_is_polled"]
)
def test_a_test_named_as_a_sentence_passes(tmp_path: Path, name: str) -> None:
    assert found(tmp_path, f"def test_{name}(): ...\n") == []


def test_a_function_that_is_no_test_may_begin_with_what(tmp_path: Path) -> None:
    assert found(tmp_path, "def what_is_left(): ...\n") == []


def test_a_page_is_checked_outside_of_its_code(tmp_path: Path) -> None:
    page = "It is told.\n```\nIt is told.\n```\nIt is built anew.\n"
    assert [line for line, _ in found(tmp_path, page, "page.md")] == [1, 5]


def test_the_help_of_a_makefile_is_checked(tmp_path: Path) -> None:
    assert [line for line, _ in found(tmp_path, "one: ## Say\ntwo: ## Build anew\n", "Makefile")] == [2]
