"""Progress, judged by positions."""

from __future__ import annotations

from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.log.progress import Progress, describe


def test_an_empty_partition_is_done_at_once() -> None:
    assert Progress({}).reached({0: 0})
    assert Progress({0: 7}).reached({0: 7})


def test_a_partition_that_is_not_read_yet_is_not_done() -> None:
    assert not Progress({0: 5}).reached({0: 5, 1: 1})


def test_a_position_never_moves_back() -> None:
    progress = Progress({0: 5})
    progress.advance({0: 3, 1: 2})
    assert progress.positions == {0: 5, 1: 2}


def test_lag_counts_what_is_missing_only() -> None:
    assert Progress({0: 9, 1: 1}).lag({0: 5, 1: 4}) == 3


def test_a_shortfall_at_the_last_stable_offset_is_blocked_by_a_transaction() -> None:
    progress = Progress({0: 4, 1: 2, 2: 9})
    blocked, behind = progress.shortfalls({0: 9, 1: 9, 2: 9}, stable={0: 4, 1: 9})
    assert blocked == Shortfall(0, 4, 9, 4)
    assert blocked.blocked
    assert not behind.blocked
    assert "transaction open since offset 4" in describe([blocked, behind])


def test_without_a_stable_offset_nothing_is_called_blocked() -> None:
    (shortfall,) = Progress({}).shortfalls({0: 3})
    assert not shortfall.blocked
    assert str(shortfall) == "partition 0 is at offset 0 of 3"
