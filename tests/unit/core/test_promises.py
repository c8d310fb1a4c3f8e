"""A consumer's memory of the last commit of a partition that it has lost."""

from __future__ import annotations

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.past_assignments import Promises

TAG = b"12345678"
LAST = CommitMap(10, (2, 3), TAG, sequence=7, delivered=15, counts={10: 1})


@pytest.fixture
def promises() -> Promises:
    promises = Promises()
    promises.keep(0, LAST, 4, 100.0)
    return promises


@pytest.mark.parametrize("stored", [CommitMap(9, (), TAG, sequence=6), CommitMap(2, (1, 1), TAG, sequence=1)])
def test_g11_an_older_commit_of_the_same_queue_breaks_the_promise(promises: Promises, stored: CommitMap) -> None:
    broken = promises.broken(0, stored, 101.0)
    assert broken is not None
    assert (broken.map, broken.epoch) == (LAST, 4)


@pytest.mark.parametrize(
    "stored",
    [
        LAST,
        CommitMap(3, (), TAG, sequence=8),
        CommitMap(9, (), b"87654321", sequence=6),
        CommitMap(11, (), TAG, sequence=6),
        CommitMap(0, (), TAG, sequence=0),
    ],
    ids=["the same", "a reset", "another topic", "by another owner", "declared again"],
)
def test_a_commit_that_is_no_older_one_of_the_same_queue_is_believed(promises: Promises, stored: CommitMap) -> None:
    assert promises.broken(0, stored, 101.0) is None


def test_a_promise_is_kept_for_two_minutes_and_until_the_partition_is_assigned(promises: Promises) -> None:
    older = CommitMap(9, (), TAG, sequence=6)
    assert promises.broken(1, older, 101.0) is None
    assert promises.broken(0, older, 220.0) is not None
    assert promises.broken(0, older, 220.5) is None
    promises.release(0)
    assert promises.broken(0, older, 101.0) is None


def test_i14_deliveries_that_another_owner_has_counted_meanwhile_are_not_forgotten(promises: Promises) -> None:
    older = CommitMap(9, (), TAG, sequence=6, delivered=20, counts={9: 5, 10: 2, 13: 1, 16: 3})
    broken = promises.broken(0, older, 101.0)
    assert broken is not None
    assert broken.map.counts == {10: 2, 16: 3}
    assert broken.map.delivered == 20
