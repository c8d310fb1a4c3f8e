"""The page about consuming shows the states that messages and transactions really have."""

from __future__ import annotations

from pathlib import Path

import lvq_kafka
from lvq_kafka.core.lifecycle import diagram
from lvq_kafka.core.transaction_phases import phase_diagram


def test_the_diagrams_are_the_transition_tables() -> None:
    page = (Path(lvq_kafka.__file__).parent / "CONSUMING.md").read_text()
    assert [part.split("\n```")[0] for part in page.split("```mermaid\n")[1:]] == [diagram(), phase_diagram()]
