"""Section 6: consuming in transactions. Sending in transactions is in `test_browsing` (S083, S085).

Kafka has no two-phase commit. A transaction counts as prepared once all its records are stored.
"""

from __future__ import annotations

from tests.scenarios.harness import Queue


def test_s079_values_that_came_during_an_aborted_transaction_come_and_those_they_replaced_do_not(q: Queue) -> None:
    """By G13, newer values wait while the transaction has the older ones, and are taken after it."""
    c = q.consume()
    q.send("a=m1", "b=m2")
    with c.transaction(abort=True) as tx:
        taken = [c.take(tx), c.take(tx)]
        assert [delivery.value for delivery in taken] == ["m1", "m2"]
        for delivery in taken:
            delivery.ack()
        q.send("a=m3", "b=m4")
        assert c.has_nothing()
    assert c.take_all() == ["m3", "m4"]
    c.close()
    assert q.consume().has_nothing()


def test_s080_an_ack_in_an_aborted_transaction_did_not_happen(q: Queue) -> None:
    c = q.consume()
    q.send("a=m1")
    with c.transaction(abort=True) as tx:
        c.take(tx).ack()
    with c.take() as again:
        assert (again.value, again.redelivered) == ("m1", True)
    assert c.has_nothing()


def test_s080_an_ack_in_a_transaction_that_commits_has_happened(q: Queue) -> None:
    c = q.consume()
    q.send("a=m1")
    with c.transaction() as tx:
        c.take(tx).ack()
    assert c.has_nothing()
    c.close()
    assert q.consume().has_nothing()


def test_s086_a_transaction_that_was_open_at_a_restart_commits_its_newest_values(q: Queue) -> None:
    with q.transaction() as send:
        send("a=m1", "b=m2", "a=m3", "b=m4")
        q.restart_broker()
    assert q.consume().take_all() == ["m3", "m4"]


def test_s087_what_a_transaction_held_at_a_restart_and_gave_back_is_replaced_by_the_newest(q: Queue) -> None:
    """By G13, the transaction has only m1, and m2 to m6 wait. In Artemis it takes all six."""
    c = q.consume()
    q.send("a=m1")
    with c.transaction(abort=True) as tx:
        assert c.take(tx).value == "m1"
        for number in range(2, 7):
            q.send(f"a=m{number}")
        q.restart_broker()
    c.close()
    c = q.consume()
    assert c.take_all() == ["m6"]
    assert c.has_nothing()
