"""Keys that wait for a slow listener."""

from __future__ import annotations

from lvq_kafka.core.conflation import ConflatedKeys


def take_all(keys: ConflatedKeys) -> list[bytes]:
    taken = []
    while (key := keys.take()) is not None:
        taken.append(key)
    return taken


def test_a_key_that_changes_often_waits_once_at_the_tail() -> None:
    keys = ConflatedKeys()
    keys.changed([b"1", b"2", b"3", b"1"])
    keys.changed([b"2"])
    assert len(keys) == 3
    assert take_all(keys) == [b"3", b"1", b"2"]


def test_a_key_of_the_dump_keeps_its_turn_when_it_changes() -> None:
    keys = ConflatedKeys([b"1", b"2"])
    keys.changed([b"2", b"9", b"1"])
    assert keys.in_dump
    assert take_all(keys) == [b"1", b"2", b"9"]


def test_a_key_given_in_the_dump_comes_again_when_it_changes_after() -> None:
    keys = ConflatedKeys([b"1", b"2"])
    assert keys.take() == b"1"
    keys.changed([b"1"])
    assert take_all(keys) == [b"2", b"1"]
    assert not keys.in_dump


def test_nothing_waits_in_the_end() -> None:
    assert ConflatedKeys().take() is None
