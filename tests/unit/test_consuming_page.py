"""The page about consuming shows the states that the ledger really has."""

from __future__ import annotations

from pathlib import Path

import lvq_kafka
from lvq_kafka.core.lifecycle import diagram


def test_the_diagram_is_the_transition_table() -> None:
    page = (Path(lvq_kafka.__file__).parent / "CONSUMING.md").read_text()
    assert page.split("```mermaid\n")[1].split("\n```")[0] == diagram()
