"""`lvq alter`: a queue is changed while it lives (R39)."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka import LastValueQueue, Limits, Ttl
from lvq_kafka.core.queue.altering import UNSETTABLE, altered, changes_by_option
from lvq_kafka.core.queue.default_filters import DefaultFilters
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


def newest(cluster: MemoryCluster) -> QueueDefinition:
    return LastValueQueue.open("q", cluster=cluster).newest()


def test_alter_changes_parts_and_leaves_the_others(run: Run, memory_cluster: MemoryCluster) -> None:
    assert run("declare", "q", "-k", "id", "--default-ttl", "60", "--max-ttl", "3600", "--max-messages", "9").code == 0
    row = run("alter", "q", "--max-ttl", "600", "--overflow", "reject").row
    assert row["changes"] == {
        "ttl": {
            "before": {"default_ms": 60_000, "maximum_ms": 3_600_000},
            "after": {"default_ms": 60_000, "maximum_ms": 600_000},
        },
        "limits": {"before": {"messages": 9, "policy": "none"}, "after": {"messages": 9, "policy": "reject"}},
    }
    assert row["since"].endswith("+00:00")
    assert newest(memory_cluster).ttl == Ttl(default=60.0, maximum=600.0)
    assert newest(memory_cluster).limits == Limits(messages=9, policy="reject")
    assert run("alter", "q", "--max-ttl", "600").row["changes"] == {}
    assert run("alter", "q", "--unset", "ttl", "--unset", "limits").code == 0
    assert (newest(memory_cluster).ttl, newest(memory_cluster).limits) == (None, None)


def test_a_dry_run_only_shows(run: Run, memory_cluster: MemoryCluster) -> None:
    run("declare", "q", "-k", "id")
    row = run("alter", "q", "--max-delay", "60", "--dry-run").row
    assert (row["dry_run"], row["since"], row["changes"]) == (
        True,
        None,
        {"max_delay": {"before": None, "after": {"ms": 60_000}}},
    )
    assert newest(memory_cluster).max_delay is None
    assert "would be altered" in run("alter", "q", "--ttl", "--dry-run", person=True).text


def test_settings_of_the_topic_go_along(run: Run, memory_cluster: MemoryCluster) -> None:
    run("declare", "q", "-k", "id")
    text = run("alter", "q", "--max-delay", "60", person=True).text
    assert "max_delay: none → 60 s" in text
    assert "min.compaction.lag.ms set to 120000" in text
    assert memory_cluster.topics.config("q")["min.compaction.lag.ms"] == "120000"
    run("alter", "q", "--unset", "max-delay")
    assert memory_cluster.topics.config("q")["min.compaction.lag.ms"] == "120000", "earlier messages need it"


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "Name an option to change"),
        (("-o", "key-header=other"), "--key-header of the queue q cannot be altered"),
        (("-o", "conflate=false"), "-o conflate of the queue q cannot be altered"),
        (("--max-ttl", "0", "--max-delay", "5"), "--max-ttl 0"),
        (("--max-delay", "0", "--keyless", "refuse"), "--max-delay 0"),
        (("--resume", "0", "--keyless", "refuse"), "--resume 0"),
        (("-o", "maximumMessageTtl=60000", "--unset", "max-ttl"), "both set and unset"),
        (("-o", "selector=a = 'b'"), "another queue"),
        (("-o", "max-ttl=5", "--max-ttl", "6"), "both given"),
        (("--max-ttl", "5", "--unset", "max-ttl"), "both set and unset"),
        (("--unset", "key-header"), "is not one of"),
        (("--min-ttl", "9", "--max-ttl", "5"), "--min-ttl 9 exceeds --max-ttl 5"),
        (("-o", "nonsense=1"), "not a queue option"),
        (("--expiry-topic", "elsewhere"), "messages that expire"),
    ],
)
def test_a_change_that_makes_no_sense_is_refused(
    run: Run, memory_cluster: MemoryCluster, arguments: tuple[str, ...], said: str
) -> None:
    run("declare", "q", "-k", "id")
    before = newest(memory_cluster)
    refused = run("alter", "q", *arguments)
    assert refused.code == 2
    assert said in refused.stderr
    assert newest(memory_cluster) == before


def test_a_queue_that_is_not_declared_cannot_be_altered(run: Run) -> None:
    assert run("alter", "nowhere", "--ttl").code == 4


BEFORE = QueueDefinition(
    name="q",
    topic="q",
    key_header="id",
    ttl=Ttl(default=60.0),
    max_delay=5.0,
    limits=Limits(messages=9, policy="block", resume=0.5),
    default_filters=DefaultFilters(replay_period=60.0, selector="a = 'b'"),
)


@pytest.mark.parametrize(
    ("options", "unset", "after"),
    [
        ({"no-expiry": True}, (), {"ttl": Ttl(never=True)}),
        ({"expiry-delay": 5000}, (), {"ttl": Ttl(default=5.0)}),
        ({"maximumMessageTtl": 90_000}, (), {"ttl": Ttl(default=60.0, maximum=90.0)}),
        ({}, ("default-ttl",), {"ttl": Ttl()}),
        ({}, ("max-delay",), {"max_delay": None}),
        ({"max-messages": 5}, (), {"limits": Limits(messages=5, policy="block", resume=0.5)}),
        ({"overflow": "ring"}, (), {"limits": Limits(messages=9, policy="ring")}),
        ({"max-bytes": "1K"}, ("max-messages",), {"limits": Limits(bytes=1024, policy="block", resume=0.5)}),
        ({}, ("max-messages",), {"limits": None}),
        ({}, ("resume",), {"limits": Limits(messages=9, policy="block")}),
        ({}, ("default-selector",), {"default_filters": DefaultFilters(replay_period=60.0)}),
        ({"default-replay-period": 5}, (), {"default_filters": DefaultFilters(replay_period=5.0, selector="a = 'b'")}),
        ({"keyless": "refuse"}, (), {"keyless": "refuse"}),
    ],
)
def test_options_by_name_change_what_they_say_and_nothing_else(
    options: dict[str, object], unset: tuple[str, ...], after: dict[str, Any]
) -> None:
    found = altered(BEFORE, changes_by_option(BEFORE, options, unset))
    fields = ("ttl", "max_delay", "limits", "default_filters", "keyless", "expiry_topic")
    assert {field: getattr(found, field) for field in fields} == {
        field: after.get(field, getattr(BEFORE, field)) for field in fields
    }


@pytest.mark.parametrize("name", UNSETTABLE)
def test_every_name_that_can_be_unset_is_one_of_an_option(name: str) -> None:
    altered(BEFORE, changes_by_option(BEFORE, {}, (name,)))
    with pytest.raises(ConfigError, match="no option that a queue can go without"):
        changes_by_option(BEFORE, {}, (f"{name}s",))
