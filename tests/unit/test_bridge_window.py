"""The messages between two brokers, and the values that a bridge has copied, without a client."""

from __future__ import annotations

import random

import pytest

from lvq_kafka.bridging.copied_values import CopiedValues
from lvq_kafka.bridging.window import Arrival, Window
from lvq_kafka.producing.producer import Message
from tests.effort import examples


def arrival(tag: int, size: int = 1, *, unfit: bool = False) -> Arrival:
    return Arrival(tag, size, None if unfit else Message(b"", {"key": str(tag)}))


def window(count: int) -> tuple[Window, list[Arrival]]:
    held = Window(10, 1000)
    arrivals = [arrival(tag) for tag in range(count)]
    for each in arrivals:
        held.add(each)
    return held, arrivals


def send_all(held: Window) -> list[int]:
    sent = []
    while (following := held.next) is not None:
        sent.append(following.tag)
        held.send()
    return sent


def test_messages_are_settled_in_the_order_in_which_they_came() -> None:
    held, arrivals = window(3)
    assert send_all(held) == [0, 1, 2]
    held.decide(arrivals[2], stored=True)
    held.decide(arrivals[1], stored=True)
    assert held.pop_decided() == []
    held.decide(arrivals[0], stored=True)
    assert held.pop_decided() == arrivals
    assert (len(held), held.bytes, held.in_flight) == (0, 0, 0)


def test_g14_a_failure_repeats_all_that_came_after_it_once_the_others_are_decided() -> None:
    held, arrivals = window(4)
    send_all(held)
    held.decide(arrivals[0], stored=True)
    held.decide(arrivals[1], stored=False, retry=True)
    assert (held.must_retry, held.next) == (False, None)
    held.decide(arrivals[2], stored=True)
    held.decide(arrivals[3], stored=False, retry=True)
    assert held.pop_decided() == [arrivals[0]]
    assert held.must_retry
    held.retry()
    assert send_all(held) == [1, 2, 3]


def test_a_message_that_the_destination_never_takes_is_passed_over() -> None:
    held, arrivals = window(3)
    held.add(unfit := arrival(3, unfit=True))
    held.send()
    held.leave_out()
    held.send()
    held.decide(arrivals[0], stored=False)
    held.decide(arrivals[2], stored=True)
    assert [each.stored for each in held.pop_decided()] == [False, False, True, False]
    assert unfit.message is None


def test_a_window_asks_for_no_more_messages_or_bytes_than_it_holds() -> None:
    held = Window(10, 100)
    assert held.room(0) == 10
    held.add(arrival(0, 60))
    assert held.room(3) == 6
    assert held.room(30) == 0
    held.add(arrival(1, 60))
    assert held.room(0) == 0


def test_messages_that_will_come_again_are_forgotten_though_some_are_on_their_way() -> None:
    held, arrivals = window(2)
    held.send()
    held.forget()
    assert (len(held), held.bytes, held.next) == (0, 0, None)
    held.decide(arrivals[0], stored=False, retry=True)
    held.retry()
    held.add(again := arrival(5))
    assert held.next is again


@pytest.mark.parametrize("seed", range(examples(30)))
def test_g10_a_random_destination_gets_all_messages_and_the_last_of_each_is_the_newest(seed: int) -> None:
    dice = random.Random(seed)
    held = Window(10, 1000)
    log: list[int] = []
    on_their_way: list[Arrival] = []
    settled: list[Arrival] = []
    tag = 0
    while len(settled) < 60:
        if tag < 60 and held.room(0) and dice.random() < 0.5:
            held.add(arrival(tag))
            tag += 1
        while held.next is not None and dice.random() < 0.7:
            on_their_way.append(held.next)
            held.send()
        if on_their_way and dice.random() < 0.6:
            first = on_their_way.pop(0)
            if dice.random() < 0.8:
                log.append(first.tag)
                held.decide(first, stored=True)
            else:  # it may be in the log all the same
                log += [first.tag] * dice.choice([0, 1])
                held.decide(first, stored=False, retry=True)
        if held.must_retry:
            held.retry()
        for each in held.pop_decided():
            assert each.tag == len(settled)
            assert each.tag in log
            settled.append(each)
    last = {key: max(at for at, found in enumerate(log) if found % 6 == key) for key in range(6)}
    assert [log[last[key]] for key in range(6)] == [54, 55, 56, 57, 58, 59]


def test_a_value_that_is_there_again_on_the_next_look_is_known() -> None:
    known = CopiedValues(conflate=True)
    known.start_over()
    assert [known.has(b"a", b"1"), known.has(b"a", b"2"), known.has(b"b", b"1")] == [False, False, False]
    known.end_look()
    assert not known.has(b"a", b"3"), "within a look, each is new"
    known.start_over()
    assert [known.has(b"a", b"3"), known.has(b"b", b"2")] == [True, False]
    assert not known.has(b"a", b"3"), "a second one is another message"


def test_a_value_that_was_away_for_a_look_is_new() -> None:
    known = CopiedValues(conflate=True)
    known.start_over()
    known.has(b"a", b"1")
    for _ in range(2):
        known.end_look()
        known.start_over()
    known.end_look()
    assert not known.has(b"a", b"1")


def test_a_look_that_was_cut_off_keeps_what_the_look_before_had() -> None:
    known = CopiedValues(conflate=True)
    known.start_over()
    known.has(b"a", b"1")
    known.has(b"b", b"1")
    known.end_look()
    known.start_over()
    assert known.has(b"a", b"1")
    known.start_over()
    assert known.has(b"b", b"1")


@pytest.mark.parametrize(("key", "conflate"), [(None, True), (b"a", False)])
def test_messages_that_stand_alone_are_counted_by_what_they_are(key: bytes | None, conflate: bool) -> None:
    known = CopiedValues(conflate)
    known.start_over()
    assert [known.has(key, b"1"), known.has(key, b"1")] == [False, False]
    known.end_look()
    known.start_over()
    assert [known.has(key, b"1"), known.has(key, b"1"), known.has(key, b"1")] == [True, True, False]


def test_a_value_that_was_not_stored_is_not_known() -> None:
    known = CopiedValues(conflate=True)
    known.start_over()
    known.has(b"a", b"1")
    known.forget(b"a")
    known.end_look()
    known.start_over()
    assert not known.has(b"a", b"1")
