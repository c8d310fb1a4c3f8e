"""Output for people in a terminal of 40 columns: nothing is wider, and names can still be read."""

from __future__ import annotations

from pathlib import Path

import pytest
from rich.cells import cell_len

from lvq_kafka.core.queue.option_names import OPTION_NAMES
from tests.unit.cli.conftest import Run

BROKERS = "kafka-1.example.com:9093,kafka-2.example.com:9093"


@pytest.fixture
def narrow(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Run:
    """Return ``run`` in a terminal of 40 columns, with queues that have long names, keys and values."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("COLUMNS", "40")
    limits = ["--max-messages", "100000", "--overflow", "reject", "--ttl", "--default-ttl", "600", "--max-delay", "60"]
    run("declare", "market-data-last-prices", "-k", "ticker", *limits)
    run("declare", "readings", "-k", "sensor", "--partitions", "3")
    run("declare", "urgent-jobs", "-k", "id", "--order", "priority", "--groups", "shared")
    for number in range(3):
        run("put", "urgent-jobs", f"job-{number}", "1", "--priority", str(3 * number), "-H", f"lvq-group=g{number % 2}")
        run("put", "readings", f"sensor-in-the-north-hall-{number}", "a value that is quite long, and goes on " * 2)
    run("settings", "set", "market.#", "-o", "default-last-value-key=ticker", "-o", "max-delay=5")
    run("context", "set", "production-in-frankfurt", "-b", BROKERS)
    return run


@pytest.mark.parametrize(
    "arguments",
    [
        ["queues"],
        ["queues", "--definitions"],
        ["stats", "readings"],
        ["stats", "market-data-last-prices"],
        ["stats", "urgent-jobs"],
        ["get", "readings", "--prefix", "s"],
        ["get", "readings", "sensor-in-the-north-hall-1"],
        ["browse", "readings"],
        ["consume", "readings", "-n", "2"],
        ["put", "readings", "sensor-in-the-north-hall-number-4", "1"],
        ["options"],
        ["options", "lvqKey"],
        ["settings", "list"],
        ["settings", "show", "market.x"],
        ["context", "list"],
        ["context", "show", "production-in-frankfurt"],
        ["purge", "readings", "--yes"],
        ["alter", "market-data-last-prices", "--max-delay", "90"],
    ],
    ids=" ".join,
)
def test_the_output_of_every_command_fits_40_columns(narrow: Run, arguments: list[str]) -> None:
    ran = narrow(*arguments, person=True)
    assert (ran.code, bool(ran.text)) == (0, True)
    assert [line for line in ran.text.splitlines() if cell_len(line) > 40] == []


def test_keys_that_begin_alike_are_told_apart(narrow: Run) -> None:
    rows = narrow("browse", "readings", person=True).text.splitlines()[1:]
    assert sorted(row.split()[0] for row in rows) == [f"sensor…hall-{number}" for number in range(3)]


def test_the_name_of_every_queue_and_option_is_whole(narrow: Run) -> None:
    assert "market-data-last-prices" in narrow("queues", person=True).text
    lines = narrow("options", person=True).text.splitlines()
    starts = [line.split("  ")[0].strip() for line in lines]
    assert [row.name for row in OPTION_NAMES if row.name not in starts and len(row.name) <= 40] == []
