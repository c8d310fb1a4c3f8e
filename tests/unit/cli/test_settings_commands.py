"""`lvq settings`, and what a declaration says of settings."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka import AddressSettings, LastValueQueue, Limits, Ttl
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.errors import ConfigError
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Ran, Run


def test_settings_are_set_shown_listed_and_deleted(run: Run) -> None:
    stored = {"pattern": "stock.#", "delimiter": ".", "options": {"default-last-value-key": "ticker"}}
    assert run("settings", "set", "stock.#", "-o", "default-last-value-key=ticker").row == stored | {"queues": []}
    run("settings", "set", "stock_*", "--delimiter", "_", "-o", "max-expiry-delay=5000")
    assert run("settings", "show", "stock.us").rows == [stored]
    assert [row["pattern"] for row in run("settings", "list").rows] == ["stock.#", "stock_*"]
    assert run("settings", "delete", "stock.#").row == {"deleted": "stock.#", "queues": []}
    assert [row["pattern"] for row in run("settings", "list").rows] == ["stock_*"]


def test_a_person_reads_patterns_and_options(run: Run) -> None:
    assert "No setting. Try: lvq settings set" in run("settings", "list", person=True).stderr
    run("settings", "set", "stock.#", "-o", "default-last-value-key=ticker", "-o", "dynamic-durables=true")
    shown = run("settings", "list", person=True).text
    assert "stock.#" in shown
    assert "default-last-value-key=ticker, dynamic-durables=true" in " ".join(shown.split())


@pytest.mark.parametrize(
    ("arguments", "code", "said"),
    [
        (["set", "stock.#", "-o", "default-last-value-kye=t"], 2, "Did you mean default-last-value-key?"),
        (["set", "stock#", "-o", "max-ttl=5"], 2, "in the pattern stock# is not a word of a topic's name"),
        (["set", "stock.#"], 2, "Missing option '-o'"),
        (["show", "stock.us"], 1, "No setting matches stock.us"),
        (["delete", "stock.#"], 1, "No setting has the pattern stock.#; see lvq settings list"),
    ],
)
def test_a_wrong_call_says_what_to_do(run: Run, arguments: list[str], code: int, said: str) -> None:
    ran = run("settings", *arguments)
    assert ran.code == code
    assert said in ran.stderr


def test_r37_declare_says_which_setting_gave_what(run: Run) -> None:
    run("settings", "set", "stock.#", "-o", "default-last-value-key=ticker", "-o", "max-ttl=60")
    row = run("declare", "stock.us", "--max-ttl", "5").row
    assert (row["key_header"], row["ttl"]) == ("ticker", {"maximum_ms": 5000})
    assert row["from_settings"] == {"stock.#": {"default-last-value-key": "ticker"}}
    said = run("declare", "stock.eu", person=True).text
    assert "from the setting stock.#: default-last-value-key=ticker, max-ttl=60" in said


def test_r37_an_error_of_declare_names_the_setting(run: Run) -> None:
    run("settings", "set", "stock.#", "-o", "max-ttl=60")
    ran = run("declare", "stock.us", "-k", "ticker", "--default-ttl", "3600")
    assert ran.code == 2
    assert "The setting stock.# gives max-ttl." in ran.stderr


def test_a_declaration_is_checked_before_the_cluster_is_asked(run: Run, memory_cluster: MemoryCluster) -> None:
    memory_cluster.disconnect()
    ran = run("declare", "q", "-k", "ticker", "-o", "max-ttl=soon")
    assert ran.code == 2
    assert "max-ttl" in ran.stderr


def changes(ran: Ran) -> dict[str, dict[str, Any]]:
    """Return what a command says of queues: by queue and option, what the option becomes."""
    return {
        row["queue"]: {option: change["after"] for option, change in row["changes"].items()}
        for row in ran.row["queues"]
    }


def newest(cluster: MemoryCluster, name: str) -> QueueDefinition:
    with LastValueQueue.open(name, cluster=cluster) as queue:
        return queue.newest()


def test_r39_settings_say_what_they_would_alter_and_alter_it_if_asked(run: Run, memory_cluster: MemoryCluster) -> None:
    run("settings", "set", "stock.#", "-o", "default-last-value-key=ticker", "-o", "max-ttl=60")
    for name, own in {"stock.us": (), "stock.eu": ("--max-ttl", "5"), "bond": ("-k", "isin")}.items():
        run("declare", name, *own)
    again = ("settings", "set", "stock.#", "-o", "default-last-value-key=isin", "-o", "max-ttl=90", "-o", "max-delay=9")
    would = run(*again)
    assert changes(would) == {
        "stock.eu": {"max_delay": {"ms": 9000}},
        "stock.us": {"ttl": {"maximum_ms": 90_000}, "max_delay": {"ms": 9000}},
    }
    assert newest(memory_cluster, "stock.us").ttl == Ttl(maximum=60.0)
    said = run(*again, person=True).stderr
    assert "--apply would alter the queue stock.eu: max_delay: none → 9 s" in " ".join(said.split())
    assert run(*again, "--apply").code == 0
    altered = newest(memory_cluster, "stock.us")
    assert (altered.ttl, altered.max_delay, altered.key_header) == (Ttl(maximum=90.0), 9.0, "ticker")
    assert newest(memory_cluster, "stock.eu").ttl == Ttl(maximum=5.0), "which is its own"
    assert changes(run(*again, "--apply")) == {}
    assert run("declare", "stock.us").code == 0, "a service that declares its queue at each start goes on doing so"


def test_r39_a_setting_that_is_deleted_leaves_the_queue_what_is_its_own(
    run: Run, memory_cluster: MemoryCluster
) -> None:
    run("settings", "set", "stock.#", "-o", "max-ttl=60", "-o", "max-delay=9")
    run("declare", "stock.us", "-k", "ticker", "--min-ttl", "2")
    run("alter", "stock.us", "--max-delay", "7")
    assert changes(run("settings", "delete", "stock.#", "--apply")) == {"stock.us": {"ttl": {"minimum_ms": 2000}}}
    left = newest(memory_cluster, "stock.us")
    assert (left.ttl, left.max_delay, left.from_settings) == (Ttl(minimum=2.0), 7.0, None)


def test_r39_a_queue_that_a_setting_does_not_suit_is_named_and_the_others_are_altered(
    run: Run, memory_cluster: MemoryCluster
) -> None:
    run("declare", "stock.eu", "-k", "ticker", "--default-ttl", "3600")
    run("declare", "stock.us", "-k", "ticker")
    would = run("settings", "set", "stock.#", "-o", "max-ttl=60")
    assert (would.code, "queue stock.eu: " in would.stderr) == (0, True)
    ran = run("settings", "set", "stock.#", "-o", "max-ttl=60", "--apply")
    assert ran.code == 2
    assert "queue stock.eu: " in ran.stderr
    assert "The setting stock.# gives max-ttl." in ran.stderr
    assert newest(memory_cluster, "stock.us").ttl == Ttl(maximum=60.0)
    with AddressSettings(cluster=memory_cluster) as settings, pytest.raises(ConfigError, match="gives max-ttl"):
        settings.apply()


def test_r39_settings_are_applied_in_python(memory_cluster: MemoryCluster) -> None:
    with AddressSettings(cluster=memory_cluster) as settings:
        settings.set("stock.#", {"default-last-value-key": "ticker"})
        LastValueQueue.declare("stock.us", cluster=memory_cluster).close()
        settings.set("stock.#", {"max-size-messages": 9})
        (would,) = settings.apply(dry_run=True).values()
        assert (would.definition.limits, would.since) == (Limits(messages=9, policy="disk"), None)
        assert newest(memory_cluster, "stock.us").limits is None
        assert settings.apply()["stock.us"].since is not None
        assert newest(memory_cluster, "stock.us").limits == Limits(messages=9, policy="disk")
        assert newest(memory_cluster, "stock.us").key_header == "ticker"
        assert settings.apply() == {}
