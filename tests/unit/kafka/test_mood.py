"""Restarts of tests about two members: only if the mock has removed one; see ``mock_queue.py``."""

from __future__ import annotations

import pytest

from tests.unit.kafka.mock_queue import NewQueue, whatever_its_mood


class Moods(NewQueue):
    """A mock in a bad mood for this many tries; failures in them are its fault."""

    def __init__(self, bad: int) -> None:
        super().__init__()
        self.tries = 0
        self._bad = bad

    @property
    def moody(self) -> bool:
        return self.tries <= self._bad


@whatever_its_mood
def fails_in_a_bad_mood(*, new_queue: NewQueue) -> None:
    assert isinstance(new_queue, Moods)
    new_queue.tries += 1
    assert not new_queue.moody


@whatever_its_mood
def always_fails(*, new_queue: NewQueue) -> None:
    assert isinstance(new_queue, Moods)
    new_queue.tries += 1
    raise AssertionError


def test_a_test_that_fails_in_a_bad_mood_is_tried_again() -> None:
    fails_in_a_bad_mood(new_queue=(moods := Moods(2)))
    assert moods.tries == 3


def test_a_test_that_fails_in_a_good_mood_has_failed() -> None:
    with pytest.raises(AssertionError):
        always_fails(new_queue=(moods := Moods(1)))
    assert moods.tries == 2


def test_a_mood_that_does_not_pass_is_no_excuse() -> None:
    with pytest.raises(AssertionError):
        always_fails(new_queue=(moods := Moods(1000)))
    assert moods.tries == 5
