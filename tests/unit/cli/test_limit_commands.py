"""Limits from the shell (R12)."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.conftest import Run
from tests.unit.cli.test_write_commands import lines


@pytest.fixture
def alarms(run: Run) -> Run:
    """Return `run`, with a queue that may hold two messages."""
    assert run("declare", "alarms", "-k", "id", "--max-messages", "2", "--overflow", "reject").code == 0
    return run


def test_declare_takes_limits_and_says_whom_they_bind(run: Run) -> None:
    ran = run("declare", "alarms", "-k", "id", "--max-messages", "2", "--max-bytes", "1K", "--overflow", "block")
    assert ran.row["limits"] == {"messages": 2, "bytes": 1024, "policy": "block", "resume": 0.8}
    assert [finding["setting"] for finding in ran.row["findings"]] == ["limits"]
    assert "limits are advisory: they bind the producers" in ran.stderr
    assert "2 messages or 1,024 bytes, block" in run("queues", person=True).text
    assert run("declare", "log", "-k", "id", "--max-messages", "2").row["findings"] == [], "nobody is bound by none"
    off = run("declare", "free", "-k", "id", "--max-messages", "-1", "--max-bytes", "-1", "--overflow", "ring")
    assert off.row["limits"] is None, "negative numbers are no limits"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--overflow", "reject"], "needs a limit"),
        (["--max-messages", "0"], "--max-messages 0 leaves no room for any message"),
        (["--max-bytes", "much"], "is not a number of bytes"),
        (["--max-messages", "5", "--resume", "0.5"], "blocks none"),
        (["--max-messages", "5", "-o", "max-messages=6"], "are both given"),
        (["--max-messages", "5", "-o", "ring-size=6"], "disagree"),
    ],
)
def test_declare_refuses_what_makes_no_sense(run: Run, arguments: list[str], said: str) -> None:
    ran = run("declare", "alarms", "-k", "id", *arguments)
    assert ran.code == 2
    assert said in ran.stderr


def test_a_message_for_a_full_queue_has_an_exit_code_of_its_own(alarms: Run) -> None:
    for key in ("a", "b", "b"):
        assert alarms("put", "alarms", key, "1").code == 0
    full = alarms("put", "alarms", "c", "1")
    assert full.code == 7
    assert "The queue alarms is full: it holds 2 of 2 messages." in full.stderr
    assert full.stderr.count("is full") == 1, "the log does not repeat the error"
    assert alarms("delete", "alarms", "a").code == 0
    assert alarms("put", "alarms", "c", "1").code == 0


def test_a_file_for_a_full_queue_is_sent_in_part_and_that_is_said(alarms: Run) -> None:
    source = lines(*({"key": key, "value": "1"} for key in "aabc"))
    full = alarms("put", "alarms", "--from-jsonl", "-", stdin=source)
    assert full.code == 7
    assert "3 messages before it were sent." in full.stderr
    assert [json.loads(line)["key"] for line in full.text.splitlines()] == ["a", "a", "b"]


def test_a_queue_that_pages_is_declared_and_consumed_and_being_long_is_no_problem(run: Run, tmp_path: Path) -> None:
    assert run("declare", "log", "-k", "id", "--max-messages", "2", "--overflow", "disk").row["findings"] == []
    assert "2 messages, disk" in run("queues", person=True).text
    values = {key: key * 1000 for key in "abcd"}
    sent = run("put", "log", "--from-jsonl", "-", stdin=lines(*({"key": k, "value": v} for k, v in values.items())))
    assert sent.code == 0
    stats = run("stats", "log")
    assert (stats.code, stats.row["problems"]) == (0, [])
    ran = run("consume", "log", "--count", "4", "--timeout", "10", "--page-directory", str(tmp_path))
    assert {row["key"]: row["value"] for row in ran.rows} == values
    assert list(tmp_path.iterdir()) == []


def test_a_page_directory_is_refused_where_it_has_no_meaning(alarms: Run, tmp_path: Path) -> None:
    ran = alarms("consume", "alarms", "--page-directory", str(tmp_path))
    assert ran.code == 2
    assert "keep all values in memory" in ran.stderr
