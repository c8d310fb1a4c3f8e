"""R14 as a table of cases: the one current value of a key in several partitions.

The newest record in the home partition wins. If the home partition has none, the newest records of the other partitions
compete: the latest append time wins, then the higher partition. If the winner is a delete, there is no value.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import NamedTuple

import pytest

from lvq_kafka.core.keys import home_partition
from lvq_kafka.core.records import Record

__all__ = ["CASES", "PARTITIONS", "R14Contract", "records"]

PARTITIONS = 3
HOME, LOW, HIGH = range(PARTITIONS)
"""The place of a record: its key's home, or the lower or higher of the other partitions."""


class Written(NamedTuple):
    """A record of a case. Within a partition, later records have higher offsets."""

    where: int
    at: int
    value: bytes | None


class Case(NamedTuple):
    """The records of a key, and its current value or None."""

    name: str
    written: tuple[Written, ...]
    current: bytes | None

    @property
    def key(self) -> bytes:
        return self.name.encode()


def case(name: str, *written: tuple[int, int, bytes | None], current: bytes | None) -> Case:
    return Case(name, tuple(Written(*one) for one in written), current)


CASES = [
    case("alone at home", (HOME, 5, b"home"), current=b"home"),
    case("alone elsewhere", (LOW, 5, b"low"), current=b"low"),
    case("", (HOME, 1, b"the key is empty"), (HIGH, 9, b"high"), current=b"the key is empty"),
    case("home wins over what is later elsewhere", (HOME, 1, b"home"), (LOW, 9, b"low"), current=b"home"),
    case("home wins over two", (LOW, 8, b"low"), (HIGH, 9, b"high"), (HOME, 1, b"home"), current=b"home"),
    case("an empty value at home wins", (HOME, 1, b""), (LOW, 9, b"low"), current=b""),
    case("a delete at home hides what is earlier elsewhere", (LOW, 1, b"low"), (HOME, 9, None), current=None),
    case("a delete at home hides what is later elsewhere", (HOME, 1, None), (HIGH, 9, b"high"), current=None),
    case("a delete elsewhere hides nothing at home", (HOME, 1, b"home"), (LOW, 9, None), current=b"home"),
    case("a value replaces a delete at home", (HOME, 1, None), (HOME, 2, b"home"), (LOW, 9, b"low"), current=b"home"),
    case("the later one of two elsewhere", (LOW, 9, b"low"), (HIGH, 1, b"high"), current=b"low"),
    case(
        "a replaced one does not count, though later",
        (HIGH, 8, b"old"),
        (HIGH, 1, b"high"),
        (LOW, 5, b"low"),
        current=b"low",
    ),
    case("of two at one time, the higher partition", (LOW, 5, b"low"), (HIGH, 5, b"high"), current=b"high"),
    case("a later delete elsewhere hides a value", (HIGH, 1, b"high"), (LOW, 9, None), current=None),
    case("an earlier delete elsewhere hides none", (HIGH, 9, b"high"), (LOW, 1, None), current=b"high"),
    case("a delete at the same time, in the higher partition", (LOW, 5, b"low"), (HIGH, 5, None), current=None),
    case("within a partition the last one", (HOME, 9, b"old"), (HOME, 1, b"home"), (LOW, 5, b"low"), current=b"home"),
    case("deleted everywhere", (HOME, 1, None), (LOW, 2, None), (HIGH, 3, None), current=None),
]


def records(start: int = 0) -> Iterator[Record]:
    """Yield all cases as one log, each partition in offset order. Times begin at ``start`` (ms)."""
    written = [(home_partition(case.key, PARTITIONS), case.key, one) for case in CASES for one in case.written]
    for partition in range(PARTITIONS):
        offset = 0
        for home, key, (where, at, value) in written:
            elsewhere = [other for other in range(PARTITIONS) if other != home]
            if partition == (home, *elsewhere)[where]:
                yield Record(partition, offset, start + at, key, value)
                offset += 1


class R14Contract:
    """All cases. The fixture ``current`` has an implementation's values for `records`, by key."""

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name or "an empty key")
    def test_r14(self, current: Mapping[bytes, bytes], case: Case) -> None:
        assert current.get(case.key) == case.current
