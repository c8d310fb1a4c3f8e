"""The phases of a consumer's transaction, as a table."""

from __future__ import annotations

import pytest

from lvq_kafka.core.consumer.consumer_transaction import (
    OUTCOMES,
    ConsumerTransaction,
    TransactionEvent,
    TransactionPhase,
)
from lvq_kafka.errors import StateError


@pytest.mark.parametrize("phase", TransactionPhase)
@pytest.mark.parametrize("event", TransactionEvent)
def test_an_event_leads_where_the_table_says_and_any_other_changes_nothing(
    event: TransactionEvent, phase: TransactionPhase
) -> None:
    transaction = ConsumerTransaction()
    transaction.phase = phase
    if phase in OUTCOMES[event]:
        transaction.advance(event)
        assert transaction.phase is OUTCOMES[event][phase]
    else:
        with pytest.raises(StateError):
            transaction.advance(event)
        assert transaction.phase is phase


def test_another_may_be_opened_or_wait_for_that_when_none_is_under_way_here() -> None:
    transaction, may = ConsumerTransaction(), {}
    for transaction.phase in TransactionPhase:
        may[transaction.phase.value] = not transaction.is_open
    assert may == {"none": True, "open": False, "next": False, "committing": False, "undecided": True}


def test_other_commits_may_be_sent_while_that_of_the_transaction_cannot_have_been() -> None:
    transaction, may = ConsumerTransaction(), {}
    for transaction.phase in TransactionPhase:
        may[transaction.phase.value] = not transaction.excludes_commits
    assert may == {"none": True, "open": True, "next": True, "committing": False, "undecided": False}
