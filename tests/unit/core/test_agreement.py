"""A member is compared with its group where it may have missed something, and joins again if they differ."""

from __future__ import annotations

import pytest

from lvq_kafka.core.consumer.agreement import Agreement

NONE = frozenset[int]()
ONE, TWO = frozenset({1}), frozenset({1, 2})


@pytest.fixture
def agreement() -> Agreement:
    """An agreement in doubt since second 100."""
    agreement = Agreement()
    assert agreement.doubts(1, 100.0)
    return agreement


def test_a_member_that_may_have_missed_nothing_is_not_compared() -> None:
    agreement = Agreement()
    assert not agreement.doubts(0, 100.0)
    assert not agreement.is_due(1000.0)


def test_it_is_compared_at_once_and_again_since_the_heartbeat_may_arrive_late(agreement: Agreement) -> None:
    looks = []
    for at in range(100, 300):
        if agreement.is_due(at):
            looks.append(at - 100)
            assert not agreement.differs_for_long(TWO, TWO, TWO, at)
    assert looks == [0, 1, 5, 15, 60]


def test_one_comparison_serves_for_those_that_are_overdue(agreement: Agreement) -> None:
    assert not agreement.differs_for_long(ONE, ONE, ONE, 107.0)
    assert not agreement.is_due(114.9)
    assert agreement.is_due(115.0)


def test_another_missed_answer_begins_anew(agreement: Agreement) -> None:
    assert not agreement.differs_for_long(ONE, ONE, ONE, 160.0)
    assert not agreement.doubts(1, 161.0)
    assert not agreement.is_due(161.0)
    assert agreement.doubts(2, 162.0)
    assert agreement.is_due(162.0)


@pytest.mark.parametrize(
    ("heard", "assigned", "target"),
    [(ONE, TWO, TWO), (NONE, ONE, TWO), (TWO, TWO, ONE), (ONE, ONE, NONE)],
    ids=["assigned", "assigned, and more to come", "to be given up", "all to be given up"],
)
def test_a_difference_that_lasts_lets_the_member_join_again(
    agreement: Agreement, heard: frozenset[int], assigned: frozenset[int], target: frozenset[int]
) -> None:
    assert not agreement.differs_for_long(heard, assigned, target, 200.0)
    assert not agreement.is_due(200.9)
    assert agreement.is_due(201.0), "it is compared again soon"
    assert not agreement.differs_for_long(heard, assigned, target, 209.9)
    assert agreement.differs_for_long(heard, assigned, target, 210.0)


def test_partitions_that_others_still_have_are_no_difference(agreement: Agreement) -> None:
    for at in (200.0, 220.0):
        assert not agreement.differs_for_long(ONE, ONE, TWO, at)
        assert not agreement.is_due(at + 1)


def test_a_difference_that_changes_is_a_rebalance(agreement: Agreement) -> None:
    assert not agreement.differs_for_long(NONE, ONE, ONE, 200.0)
    assert not agreement.differs_for_long(ONE, TWO, TWO, 209.0)
    assert not agreement.differs_for_long(ONE, TWO, TWO, 218.0)
    assert agreement.differs_for_long(ONE, TWO, TWO, 219.0)
