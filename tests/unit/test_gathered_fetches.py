"""Fetches for a store: those that are there together, in their order, and errors after them."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from lvq_kafka.core.log.records import Fetch, Record, RecordBatch
from lvq_kafka.errors import BrokerUnavailable, LVQError
from lvq_kafka.reading import gathered_fetches
from lvq_kafka.reading.gathered_fetches import GatheredFetches


def fetch(*offsets: int, position: int, partition: int = 0) -> Fetch:
    batch = RecordBatch.of(Record(partition, offset, 0, b"a", b"v") for offset in offsets)
    return Fetch(batch, {partition: position}, {partition: position} if offsets else {})


def polls(*answers: Fetch | LVQError) -> Callable[[float], Fetch]:
    left, waited = list(answers), [0.1]

    def poll(timeout: float) -> Fetch:
        assert timeout in (0, *waited)
        answer = left.pop(0) if left else Fetch(RecordBatch(), {})
        if isinstance(answer, LVQError):
            raise answer
        return answer

    return poll


def unavailable() -> BrokerUnavailable:
    return BrokerUnavailable("nobody answers", code="_TRANSPORT", retriable=True)


def test_a_poll_returns_what_is_there_with_the_last_position_and_epoch_of_each_partition() -> None:
    answers = polls(fetch(0, 1, position=2), fetch(5, position=6, partition=1), fetch(4, position=9))
    whole = GatheredFetches().poll(answers, 0.1)
    assert list(zip(whole.batch.partitions, whole.batch.offsets)) == [(0, 0), (0, 1), (1, 5), (0, 4)]
    assert whole.positions == {0: 9, 1: 6}
    assert whole.epochs == {0: 9, 1: 6}


def test_a_poll_returns_nothing_at_once_if_nothing_is_there() -> None:
    assert GatheredFetches().poll(polls(), 0.1).positions == {}


def test_an_error_after_records_is_raised_by_the_next_poll() -> None:
    gathered, answers = GatheredFetches(), polls(fetch(0, position=1), unavailable(), fetch(1, position=2))
    assert gathered.poll(answers, 0.1).positions == {0: 1}
    with pytest.raises(BrokerUnavailable):
        gathered.poll(answers, 0.1)
    assert gathered.poll(answers, 0.1).positions == {0: 2}


def test_an_error_before_records_is_raised_at_once() -> None:
    with pytest.raises(BrokerUnavailable):
        GatheredFetches().poll(polls(unavailable()), 0.1)


def test_one_poll_does_not_take_records_without_end(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(gathered_fetches, "_MOST", 3)
    answers = polls(*(fetch(2 * at, 2 * at + 1, position=2 * at + 2) for at in range(9)))
    assert GatheredFetches().poll(answers, 0.1).positions == {0: 4}
    monkeypatch.setattr(gathered_fetches, "_MOST_BYTES", 1)
    assert GatheredFetches().poll(answers, 0.1).positions == {0: 6}
