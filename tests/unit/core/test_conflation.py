"""Keys that wait for a slow listener."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import islice
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.pending_keys import ConflatedKeys


def take_all(keys: ConflatedKeys) -> list[bytes]:
    taken = []
    while (key := keys.pop()) is not None:
        taken.append(key)
    return taken


def test_a_key_that_changes_often_waits_once_at_the_tail() -> None:
    keys = ConflatedKeys()
    keys.changed([b"1", b"2", b"3", b"1"])
    keys.changed([b"2"])
    assert take_all(keys) == [b"3", b"1", b"2"]


def test_a_key_whose_turn_has_not_come_moves_to_the_tail_when_it_changes_again() -> None:
    keys = ConflatedKeys()
    keys.changed([b"1", b"2", b"3"])
    assert keys.pop() == b"1"
    keys.changed([b"2", b"1"])
    assert take_all(keys) == [b"3", b"2", b"1"]


def test_a_key_of_the_dump_keeps_its_turn_when_it_changes() -> None:
    keys = ConflatedKeys([b"1", b"2"])
    keys.changed([b"2", b"9", b"1"])
    assert keys.in_dump
    assert take_all(keys) == [b"1", b"2", b"9"]


def test_a_key_given_in_the_dump_comes_again_when_it_changes_after() -> None:
    keys = ConflatedKeys([b"1", b"2"])
    assert keys.pop() == b"1"
    keys.changed([b"1"])
    assert take_all(keys) == [b"2", b"1"]
    assert not keys.in_dump


def test_all_keys_can_be_taken_at_once_each_of_them_once() -> None:
    pending = ConflatedKeys([b"a", b"b", b"c"])
    assert pending.pop() == b"a"
    pending.changed([b"b", b"a", b"d"], "expired")
    assert pending.pop_all() == [b"c", b"b", b"a", b"d"]
    assert not pending
    assert pending.pop_cause(b"d") is None, "no cause is left over"
    pending.changed([b"b"])
    assert (pending.pop(), pending.pop()) == (b"b", None)


def test_nothing_waits_in_the_end() -> None:
    assert ConflatedKeys().pop() is None


def test_a_key_without_a_value_waits_with_the_cause_of_its_last_change() -> None:
    keys = ConflatedKeys([b"1"])
    keys.changed([b"1", b"2", b"3"], "deselected")
    keys.changed([b"3"], "expired")
    keys.changed([b"2"])
    assert [(key, keys.pop_cause(key)) for key in take_all(keys)] == [
        (b"1", "deselected"),
        (b"3", "expired"),
        (b"2", None),
    ]
    assert not keys._causes


def test_only_keys_that_concern_the_reader_wait() -> None:
    keys = ConflatedKeys([b"a1"], lambda key: key.startswith(b"a"))
    keys.changed([b"b1", b"a2", b"a1"], "deselected")
    assert take_all(keys) == [b"a1", b"a2"]
    assert b"b1" not in keys._causes


def test_in_batches_a_key_that_changes_again_keeps_its_turn() -> None:
    keys = ConflatedKeys([b"1"], batches=True)
    keys.changed([b"2", b"3"])
    assert (keys.pop(), keys.at_pause) == (b"1", True)
    assert (keys.pop(), keys.at_pause) == (b"2", False)
    keys.changed([b"3", b"2"])
    assert (keys.pop(), keys.at_pause) == (b"3", True)
    assert (keys.pop(), keys.at_pause) == (b"2", False)
    assert keys.pop() is None


class Counted(Sequence[bytes]):
    """Keys of a dump that count how often one is read."""

    def __init__(self, number: int) -> None:
        self.looks = 0
        self._number = number

    def __len__(self) -> int:
        return self._number

    def __getitem__(self, at: Any) -> Any:
        self.looks += 1
        if at >= self._number:
            raise IndexError(at)
        return b"%d" % at


class CountedKey(bytes):
    """A key; the class counts how often a dict asks any key for its hash, which is once per lookup."""

    looks = 0

    def __hash__(self) -> int:
        CountedKey.looks += 1
        return super().__hash__()


def test_g3_a_dump_is_not_copied_and_each_of_its_keys_is_looked_at_once_at_its_turn() -> None:
    """Many listeners share one dump, and taking its first key costs the same as taking its last."""
    dump = Counted(1000)
    listeners = [ConflatedKeys(dump) for _ in range(3)]
    assert dump.looks == 0
    for listener in listeners:
        before = dump.looks
        for turn in range(1000):
            assert listener.pop() == b"%d" % turn
            assert dump.looks - before == turn + 1
        assert not listener.in_dump


@pytest.mark.parametrize("dumped", [True, False])
def test_g3_taking_a_key_takes_the_same_number_of_steps_however_many_wait(dumped: bool) -> None:
    def steps(number: int) -> float:
        every = [CountedKey(b"%d" % key) for key in range(number)]
        keys = ConflatedKeys(every if dumped else ())
        keys.changed(every)
        CountedKey.looks = 0
        for again in every:  # the worst case: all waiting keys change while they wait
            assert keys.pop() is not None
            keys.changed([again])
        while keys.pop() is not None:
            pass
        return CountedKey.looks / number

    assert steps(4000) == pytest.approx(steps(100), rel=0.05)


KEYS = st.integers(0, 9).map(lambda number: b"%d" % number)


@given(
    st.lists(KEYS, unique=True),
    st.lists(st.one_of(st.none(), st.lists(KEYS)), max_size=60),
)
def test_g3_listeners_are_told_as_if_their_keys_stood_in_two_lines(
    dump: list[bytes], steps: list[list[bytes] | None]
) -> None:
    """Compare with the simplest model: lists from which taken and moved keys are removed."""
    keys, turns, updates = ConflatedKeys(dump), list(dump), list[bytes]()
    for changed in steps:
        if changed is None:
            line = turns or updates
            assert keys.pop() == (line.pop(0) if line else None)
        else:
            keys.changed(changed)
            for key in changed:
                if key not in turns:
                    updates = [*(other for other in updates if other != key), key]
        assert (bool(keys), keys.in_dump) == (bool(turns or updates), bool(turns))
    assert take_all(keys) == turns + updates


@given(
    st.lists(KEYS, unique=True),
    st.booleans(),
    st.lists(st.one_of(st.integers(1, 5), st.lists(KEYS)), max_size=60),
)
def test_g3_a_line_that_is_taken_and_left_at_any_key_is_what_would_be_taken_one_by_one(
    dump: list[bytes], batches: bool, steps: list[int | list[bytes]]
) -> None:
    keys, twin = ConflatedKeys(dump, batches=batches), ConflatedKeys(dump, batches=batches)
    for step in steps:
        if isinstance(step, list):
            keys.changed(step)
            twin.changed(step)
        else:
            taken = list(islice(keys.line(), step))
            assert taken == [twin.pop() for _ in taken]
            if len(taken) < step:  # the line is over
                assert keys.pop() == twin.pop()
        assert (bool(keys), keys.in_dump, keys.at_pause) == (bool(twin), twin.in_dump, twin.at_pause)
    assert take_all(keys) == take_all(twin)
