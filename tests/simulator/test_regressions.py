"""Bugs found by the simulator, as plain tests."""

from __future__ import annotations

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Ledger


def test_a_claim_keeps_what_was_done_when_its_records_were_compacted_away_before_they_were_read_again() -> None:
    """It used to cover less than the previous commit, so nothing was committed until the base was acked."""
    loaded = CommitMap(0, (1, 3, 2, 4))
    ledger = Ledger()
    ledger.assign(0, loaded, target=0)
    ledger.offer(0, 0, b"a", b"pending")
    ledger.offer(0, 4, b"b", b"pending")  # 1 to 3 are gone
    assert ledger.assignment.claim(0).covers(loaded)
    ledger.advance({0: 12})  # 6 to 9 are gone, too
    assert ledger.assignment.claim(0).covers(loaded)
    ledger.offer(0, 12, b"c", b"new")
    assert ledger.assignment.claim(0).covers(loaded)
    assert ledger.assignment.claim(0).runs == (1, 3, 1, 7), "and what is not there is no reason for another run"


def test_a_claim_keeps_what_was_done_behind_a_message_that_is_replaced() -> None:
    loaded = CommitMap(0, (1, 1, 1, 3))
    ledger = Ledger()
    ledger.assign(0, loaded, target=0)
    ledger.offer(0, 0, b"a", b"pending")
    ledger.offer(0, 2, b"b", b"pending")  # 1 is gone
    ledger.offer(0, 6, b"b", b"newer")  # 3 to 5 are gone, too
    assert ledger.assignment.claim(0).covers(loaded)


def test_a_claim_keeps_what_a_transaction_has_committed_though_a_newer_value_came_meanwhile() -> None:
    """It used to cover less than the previous commit, so nothing was committed until the base was acked."""
    ledger = Ledger()
    ledger.assign(0, CommitMap(0), target=0)
    ledger.offer(0, 0, b"a", b"held")
    ledger.offer(0, 1, b"b", b"in a transaction")
    _, item = ledger.acquire(), ledger.acquire()
    assert item is not None
    ledger.leave(item)
    committed = ledger.assignment.claim(0, [item])
    ledger.offer(0, 2, b"b", b"newer")
    ledger.commit(item)
    assert committed.runs == (1, 1)
    assert ledger.assignment.claim(0).covers(committed)


def test_the_ack_of_a_message_that_was_replaced_while_it_was_held_can_become_durable_at_once() -> None:
    """Its waiters used to wait for every lower message, too."""
    ledger = Ledger()
    ledger.assign(0, CommitMap(0), target=0)
    ledger.offer(0, 0, b"a", b"held for long")
    ledger.offer(0, 1, b"b", b"held")
    _, item = ledger.acquire(), ledger.acquire()
    assert item is not None
    ledger.offer(0, 2, b"b", b"newer")
    ledger.ack(item)
    assert ledger.assignment.claim(0).runs == (1, 1)
