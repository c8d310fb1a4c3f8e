"""All pages, read from first to last on one real broker: every block runs, and prints what its page shows."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

import pytest
from click.testing import CliRunner

from lvq_kafka.cli.app import lvq
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.pages import ROOT, blocks, in_order, run

ELSEWHERE = {
    "docs/how-to/spark.md": "tests/spark/test_pages.py",
    "docs/how-to/spark-cluster.md": "tests/spark/test_pages.py",
    "docs/how-to/access.md": "tests/integration/test_rights.py",
    "docs/how-to/bridge.md": "tests/integration/test_bridge.py",
}
"""Pages that need more than a broker: a Spark, a cluster, access rights, another broker. Each has a test of its own."""

CHAIN = [name for name in in_order() if name not in ELSEWHERE and blocks(name)]


def test_a_page_that_needs_more_than_a_broker_has_a_test_that_names_it() -> None:
    assert not [name for name, test in ELSEWHERE.items() if name not in (ROOT / test).read_text()]


@pytest.mark.timeout(600)
def test_the_pages_do_what_they_show_from_first_to_last(
    private_broker: ProvidedBroker,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    tmp_path: Path,
) -> None:
    monkeypatch.chdir(tmp_path)  # for files that a page writes
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", private_broker.bootstrap_servers)
    printed: dict[str, str] = {}

    def shell(command: Sequence[str]) -> None:
        result = CliRunner().invoke(lvq, command, prog_name="lvq")
        assert result.exit_code == 0, f"lvq {' '.join(command)}: {result.output}"
        printed[command[0]] = result.stdout

    assert CHAIN[:2] == ["README.md", "docs/tutorial.md"]
    for name in CHAIN:
        run(name, shell, lambda: capsys.readouterr().out, {"localhost:9092": private_broker.bootstrap_servers})
        if name == "README.md":
            assert '"119.25"' in printed["browse"]
            assert "27.95" not in printed["browse"], "what was consumed is hidden"
