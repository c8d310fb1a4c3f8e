"""R14 as a table of cases: the one current value of a key in several partitions.

The newest record in the home partition wins. If the home partition has none, the newest records of the other partitions
compete: the latest append time wins, then the higher partition. If the winner is a delete, there is no value.

In a queue placed by group no partition is the key's home: the newest records of all of them compete.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Literal, NamedTuple

import pytest

from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.queue.message_groups import Groups

__all__ = ["BY_GROUP", "CASES", "PARTITIONS", "R14ByGroupContract", "R14Contract", "records"]

PARTITIONS = 3
HOME, LOW, HIGH = range(PARTITIONS)
"""The place of a record: its key's home, or the lower or higher of the other partitions."""


class Written(NamedTuple):
    """A record of a case. Within a partition, later records have higher offsets."""

    where: int
    at: int
    value: bytes | None


class Case(NamedTuple):
    """The records of a key, and its current value or None: where messages are placed by key, and by group."""

    name: str
    written: tuple[Written, ...]
    current: bytes | None
    latest: bytes | None

    @property
    def key(self) -> bytes:
        return self.name.encode()


def case(
    name: str, *written: tuple[int, int, bytes | None], current: bytes | None, latest: bytes | Literal[""] | None = ""
) -> Case:
    """Return a case. ``latest`` is the value where messages are placed by group, if it is another one."""
    return Case(name, tuple(Written(*one) for one in written), current, current if latest == "" else latest)


CASES = [
    case("alone at home", (HOME, 5, b"home"), current=b"home"),
    case("alone elsewhere", (LOW, 5, b"low"), current=b"low"),
    case("", (HOME, 1, b"the key is empty"), (HIGH, 9, b"high"), current=b"the key is empty", latest=b"high"),
    case(
        "home wins over what is later elsewhere", (HOME, 1, b"home"), (LOW, 9, b"low"), current=b"home", latest=b"low"
    ),
    case(
        "home wins over two", (LOW, 8, b"low"), (HIGH, 9, b"high"), (HOME, 1, b"home"), current=b"home", latest=b"high"
    ),
    case("an empty value at home wins", (HOME, 1, b""), (LOW, 9, b"low"), current=b"", latest=b"low"),
    case("a delete at home hides what is earlier elsewhere", (LOW, 1, b"low"), (HOME, 9, None), current=None),
    case(
        "a delete at home hides what is later elsewhere",
        (HOME, 1, None),
        (HIGH, 9, b"high"),
        current=None,
        latest=b"high",
    ),
    case("a delete elsewhere hides nothing at home", (HOME, 1, b"home"), (LOW, 9, None), current=b"home", latest=None),
    case(
        "a value replaces a delete at home",
        (HOME, 1, None),
        (HOME, 2, b"home"),
        (LOW, 9, b"low"),
        current=b"home",
        latest=b"low",
    ),
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
    case(
        "within a partition the last one",
        (HOME, 9, b"old"),
        (HOME, 1, b"home"),
        (LOW, 5, b"low"),
        current=b"home",
        latest=b"low",
    ),
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


BY_GROUP = Groups(placement="group")


class R14Contract:
    """All cases. The fixture ``current`` has an implementation's values for `records`, by key."""

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name or "an empty key")
    def test_r14(self, current: Mapping[bytes, bytes], case: Case) -> None:
        assert current.get(case.key) == case.current


class R14ByGroupContract:
    """All cases in a queue placed by group. The fixture is that of `R14Contract`."""

    @pytest.mark.parametrize("case", CASES, ids=lambda case: case.name or "an empty key")
    def test_r14_by_group(self, current: Mapping[bytes, bytes], case: Case) -> None:
        assert current.get(case.key) == case.latest
