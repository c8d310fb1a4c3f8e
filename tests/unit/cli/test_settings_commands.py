"""`lvq settings`, and what a declaration says of settings."""

from __future__ import annotations

import pytest

from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run


def test_settings_are_set_shown_listed_and_deleted(run: Run) -> None:
    stored = {"pattern": "stock.#", "delimiter": ".", "options": {"default-last-value-key": "ticker"}}
    assert run("settings", "set", "stock.#", "-o", "default-last-value-key=ticker").row == stored
    run("settings", "set", "stock_*", "--delimiter", "_", "-o", "max-expiry-delay=5000")
    assert run("settings", "show", "stock.us").rows == [stored]
    assert [row["pattern"] for row in run("settings", "list").rows] == ["stock.#", "stock_*"]
    assert run("settings", "delete", "stock.#").row == {"deleted": "stock.#"}
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
