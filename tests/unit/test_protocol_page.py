"""The page about consuming: its states are those that messages and transactions really have."""

from __future__ import annotations

from lvq_kafka.core.consumer.consumer_transaction import OUTCOMES
from lvq_kafka.core.waiting.lifecycle import TRANSITIONS
from tests.pages import transitions


def test_the_tables_of_states_and_phases_are_those_of_the_code() -> None:
    for events, table in (("event", TRANSITIONS), ("transaction", OUTCOMES)):
        expected = {str(event): dict(outcomes) for event, outcomes in table.items()}
        assert transitions("docs/protocol.md", events) == expected
