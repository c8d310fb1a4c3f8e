"""``lvq`` on queues with an order by rank (R20)."""

from __future__ import annotations

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.unit.cli.test_write_commands import lines, stored


@pytest.fixture
def ranked(run: Run) -> Run:
    """Return ``run``, with a priority queue ``jobs`` and two sorted ones, ``orders`` and ``bids``."""
    assert run("declare", "jobs", "-k", "id", "--order", "priority", "--priorities", "5", "--ttl").code == 0
    assert run("declare", "orders", "-k", "id", "--order", "sorted").code == 0
    assert run("declare", "bids", "-k", "id", "--order", "sorted", "--sort-header", "price").code == 0
    return run


def said(cluster: MemoryCluster, topic: str, header: str) -> list[bytes | None]:
    """Return what this header of the stored messages says."""
    return [headers.get(header) for _, _, headers in stored(cluster, topic)]


def test_r20_messages_are_given_a_priority(ranked: Run, memory_cluster: MemoryCluster) -> None:
    given = lines({"key": "a", "value": "1"}, {"key": "b", "value": "2", "headers": {"lvq-priority": "1"}})
    for arguments, stdin in (
        (["put", "jobs", "a", "1", "--priority", "9", "--ttl", "5"], None),
        (["send", "jobs", "1", "-H", "id=a", "--priority", "0"], None),
        (["put", "jobs", "a", "1", "-H", "lvq-priority=3"], None),
        (["put", "jobs", "a", "1"], None),
        (["put", "jobs", "--from-jsonl", "-", "--priority", "7"], given),
        (["send", "jobs", "--from-jsonl", "-", "--priority", "8"], given),
    ):
        assert ranked(*arguments, stdin=stdin).code == 0
    assert said(memory_cluster, "jobs", "lvq-priority") == [b"9", b"0", b"3", None, b"7", b"1", b"8", b"1"]


@pytest.mark.parametrize(("queue", "header"), [("orders", "lvq-sort"), ("bids", "price")])
def test_r20_messages_are_given_a_sort_key(ranked: Run, memory_cluster: MemoryCluster, queue: str, header: str) -> None:
    given = lines({"key": "a", "value": "1"}, {"key": "b", "value": "2", "headers": {header: "z"}})
    for arguments, stdin in (
        (["put", queue, "a", "1", "--sort", "ä"], None),
        (["send", queue, "1", "-H", "id=a", "--sort", ""], None),
        (["put", queue, "a", "1", "-H", f"{header}=7"], None),
        (["put", queue, "--from-jsonl", "-", "--sort", "c"], given),
    ):
        assert ranked(*arguments, stdin=stdin).code == 0
    assert said(memory_cluster, queue, header) == ["ä".encode(), b"", b"7", b"c", b"z"]


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["put", "jobs", "a", "1", "--priority", "10"], "0<=x<=9"),
        (["put", "jobs", "a", "1", "--priority", "high"], "not a valid whole number"),
        (["put", "jobs", "a", "1", "-H", "lvq-priority=high"], "not a digit from 0 to 9"),
        (["put", "jobs", "a", "1", "--sort", "a"], "--order sorted"),
        (["put", "orders", "a", "1", "--priority", "1"], "--order priority"),
        (["put", "bids", "a", "1", "-H", "lvq-sort=a"], "set the header by which it is sorted"),
        (["put", "jobs", "a", "1", "--priority", "3", "-H", "lvq-priority=5"], "header lvq-priority are mutually"),
        (["put", "jobs", "a", "1", "--ttl", "3", "-H", "lvq-ttl=5"], "--ttl and the header lvq-ttl"),
        (["put", "orders", "a", "1", "--sort", "3", "-H", "lvq-sort=5"], "--sort and the header lvq-sort"),
        (["send", "bids", "1", "--sort", "3", "-H", "id=a", "-H", "price=5"], "--sort and the header price"),
    ],
)
def test_r22_a_rank_that_means_nothing_is_an_error_of_usage(
    ranked: Run, memory_cluster: MemoryCluster, arguments: list[str], why: str
) -> None:
    ran = ranked(*arguments)
    assert ran.code == 2
    assert why in ran.stderr
    assert stored(memory_cluster, arguments[1]) == []


def test_r20_browse_and_export_are_by_rank(ranked: Run) -> None:
    for key, priority in (("a", "1"), ("b", "9"), ("c", "5"), ("d", "9")):
        assert ranked("put", "jobs", key, "1", "--priority", priority).code == 0
    browsed = ranked("browse", "jobs").rows
    assert [row["key"] for row in browsed if "event" not in row] == ["b", "d", "c", "a"]
    exported = ranked("export", "jobs").rows
    assert [row["key"] for row in exported[1:]] == ["b", "d", "c", "a"]


def test_the_order_is_declared_and_shown(ranked: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    rows = {row["name"]: row for row in ranked("queues").rows}
    assert (rows["jobs"]["order"], rows["jobs"]["priorities"]) == ("priority", 5)
    assert (rows["orders"]["order"], rows["orders"]["sort_header"]) == ("sorted", "lvq-sort")
    assert ranked("declare", "urgent", "--standard", "--order", "priority").code == 0
    monkeypatch.setenv("COLUMNS", "160")
    listed = ranked("queues", person=True).text
    for shown in ("priority, 5 levels", "sorted by lvq-sort", "sorted by price", "all messages, priority, 10 levels"):
        assert shown in listed
    assert "order sorted by price" in ranked("stats", "bids", person=True).text
    assert "no message replaces another; order priority, 10 levels" in ranked("stats", "urgent", person=True).text


def test_a_queue_is_declared_by_the_options_of_other_brokers(run: Run) -> None:
    ran = run("declare", "jobs", "-o", "type=priority", "-o", "priorities=3")
    assert ran.code == 0
    row = ran.row
    assert (row["conflate"], row["order"], row["priorities"]) == (False, "priority", 3)


def test_another_order_is_another_queue(ranked: Run) -> None:
    ran = ranked("declare", "jobs", "-k", "id", "--order", "priority", "--ttl")
    assert ran.code != 0
    assert "priorities" in ran.stderr
