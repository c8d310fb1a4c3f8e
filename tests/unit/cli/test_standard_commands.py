"""Standard queues from the shell (R35)."""

from __future__ import annotations

import json

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run
from tests.waiting import eventually


@pytest.fixture
def jobs(run: Run) -> Run:
    """Return `run`, with a standard queue of three messages, one of which has no key."""
    run("declare", "jobs", "--standard", "-k", "customer")
    for value in ("1", "2"):
        run("send", "jobs", value, "-H", "customer=acme")
    run("send", "jobs", "3")
    return run


def test_declare_needs_no_key_header(run: Run) -> None:
    row = run("declare", "jobs", "--standard").row
    assert (row["conflate"], row["key_header"], row["findings"]) == (False, None, [])
    assert run("declare", "jobs", "--standard", person=True).text.startswith(
        "✓ jobs exists and matches: a standard queue"
    )
    assert run("declare", "jobs", "-o", "type=standard").code == 0
    assert run("declare", "jobs", "-o", "last-value=false").code == 0
    assert run("declare", "jobs", "--record-key").code == 4, "it differs"
    assert "all messages" in run("queues", person=True).text
    (listed,) = run("queues").rows
    assert listed["conflate"] is False


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--standard", "--order", "in-place"], "--order in-place and --standard"),
        (["--standard", "--keyless", "refuse"], "--keyless refuse and --standard"),
        (["--standard", "-o", "last-value=true"], "--standard asks for a standard queue, and -o last-value"),
        (["--standard", "--topic-config", "cleanup.policy=compact"], "cleanup.policy=compact and a standard queue"),
        (["-k", "id", "--topic-config", "cleanup.policy=delete"], "cleanup.policy=delete and a last value queue"),
    ],
)
def test_declare_refuses_what_excludes_it(run: Run, arguments: list[str], said: str) -> None:
    ran = run("declare", "jobs", *arguments)
    assert ran.code == 2
    assert said in ran.stderr
    assert run("queues").rows == []


def test_messages_are_browsed_in_order(jobs: Run) -> None:
    *rows, end = jobs("browse", "jobs").rows
    assert [(row["key"], row["value"]) for row in rows] == [("acme", "1"), ("acme", "2"), ("", "3")]
    assert end["event"] == "end-of-dump"
    assert [row["value"] for row in jobs("browse", "jobs", "--key", "acme").rows[:-1]] == ["1", "2"]
    assert "3" in jobs("browse", "jobs", person=True).text


def test_browsed_messages_can_be_sent_to_another_queue(jobs: Run, memory_cluster: MemoryCluster) -> None:
    jobs("declare", "copy", "--standard", "-k", "customer")
    lines = "".join(f"{json.dumps(row)}\n" for row in jobs("browse", "jobs").rows)
    assert jobs("send", "copy", "--from-jsonl", "-", stdin=lines.encode()).code == 0
    assert [(record.key, record.value) for record in memory_cluster.records("copy")] == [
        (record.key, record.value) for record in memory_cluster.records("jobs")
    ]


@pytest.mark.parametrize(
    "command",
    [("get", "jobs", "acme"), ("watch", "jobs"), ("export", "jobs")],
    ids=lambda command: str(command[0]),
)
def test_a_command_that_shows_one_value_for_each_key_names_the_browser(jobs: Run, command: tuple[str, ...]) -> None:
    ran = jobs(*command)
    assert ran.code == 2
    assert "jobs is a standard queue (--standard)" in ran.stderr
    assert "Browse" in ran.stderr


def test_keys_cannot_be_set(jobs: Run, memory_cluster: MemoryCluster) -> None:
    for arguments in (("acme", "4"), ("--from-jsonl", "-")):
        ran = jobs("put", "jobs", *arguments, stdin=b'{"key": "acme", "value": "4"}\n')
        assert (ran.code, "lvq send" in ran.stderr) == (2, True)
    assert len(memory_cluster.records("jobs")) == 3


def test_keys_cannot_be_deleted(jobs: Run, memory_cluster: MemoryCluster) -> None:
    ran = jobs("delete", "jobs", "acme")
    assert ran.code == 2
    assert "a standard queue (--standard)" in ran.stderr
    assert len(memory_cluster.records("jobs")) == 3


def test_stats_count_messages(jobs: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.write("jobs", b"acme", None)
    jobs("consume", "jobs", "--count", "1")
    row = jobs("stats", "jobs").row
    assert (row["values"], row["waiting"], row["ignored"], row["problems"]) == (3, 2, 1, [])
    assert (row["state"], row["partitions"][0]["values"]) == ("caught-up", 3)
    text = jobs("stats", "jobs", person=True).text
    assert "holds 3 messages, 2 left to consume" in text
    assert "a standard queue: no message replaces another" in text
    assert "1 delete, which mean nothing in a standard queue" in " ".join(text.split())


def test_stats_name_what_would_lose_messages(jobs: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.alter_config("jobs", {"retention.ms": "1000"})
    ran = jobs("stats", "jobs")
    assert ran.code == 4
    assert ran.row["findings"][0]["setting"] == "retention.ms"


def test_a_consumer_reclaims_by_itself(jobs: Run, memory_cluster: MemoryCluster) -> None:
    assert jobs("consume", "jobs", "--count", "2").code == 0
    assert memory_cluster.logs.start_offsets("jobs") == {0: 0}
    assert jobs("consume", "jobs", "--timeout", "1", "--auto-reclaim", "0.01").code == 0
    eventually(lambda: memory_cluster.logs.start_offsets("jobs") == {0: 3}, 20)
    assert jobs("reclaim", "jobs").row["offsets"] == 0
    assert jobs("consume", "jobs", "--auto-reclaim", "0").code == 2
