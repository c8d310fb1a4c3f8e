"""The judgement of three nodes about a message that came again after it was durable."""

from __future__ import annotations

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.facts import Position
from tests.integration.commit_history import Noted, why_taken_back

AT = Position("prices", 0, 4)
BEFORE, PROMISE, AFTER = CommitMap(4, sequence=6), CommitMap(5, sequence=7), CommitMap(6, sequence=8)
LATE = CommitMap(4, sequence=5)


def noted(*maps: CommitMap) -> list[Noted]:
    return [Noted(float(at), 0, one) for at, one in enumerate(maps)]


@pytest.mark.parametrize(
    ("stored", "why"),
    [
        ([BEFORE], "brokers acknowledged a commit that their log does not have"),
        ([BEFORE, PROMISE, LATE], "a commit that was sent before it was stored after it"),
        ([BEFORE, PROMISE], ""),
        ([LATE, BEFORE, PROMISE, AFTER], ""),
        ([BEFORE, PROMISE, CommitMap(4, sequence=8)], ""),
    ],
    ids=["lost", "late", "there", "in order", "taken back by a newer one"],
)
def test_only_what_the_brokers_log_shows_excuses_a_redelivery(stored: list[CommitMap], why: str) -> None:
    assert why_taken_back(AT, 9.0, noted(BEFORE, PROMISE), noted(*stored)) == why


def test_nothing_excuses_a_message_that_was_called_durable_before_a_broker_had_acknowledged_it() -> None:
    assert why_taken_back(AT, 9.0, noted(BEFORE), noted(BEFORE)) == ""
    assert why_taken_back(AT, 0.5, noted(BEFORE, PROMISE), noted(BEFORE)) == ""
