"""Facts that all rooms know: positions, depths, shortfalls, missing rights, formats."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

from lvq_kafka.core.text.base_errors import ConfigError
from lvq_kafka.core.text.quoting import quoted

__all__ = ["Depth", "Format", "Operation", "Position", "Resource", "Right", "Shortfall"]

Format = Literal["bytes", "text", "json"]
"""The format of a queue's values (R53). Text and JSON are UTF-8."""

_PARTITION, _OFFSET = re.compile("[0-9]{1,10}"), re.compile("[0-9]{1,19}|-1")


class Position(NamedTuple):
    """The place of a record.

    Offsets of different partitions are not comparable; there is no global number. ``str(position)`` is
    ``topic/partition/offset``, a token that another process can `parse` and wait for.

    The offset is -1 in a producer's receipt if the broker has the record but did not report its offset: the answer to a
    first try was lost, and the retry was recognized as a duplicate.
    """

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}/{self.partition}/{self.offset}"

    @classmethod
    def parse(cls, token: str) -> Position:
        """Parse a token written by ``str(position)``.

        Raises:
            ConfigError: the text is not such a token.
        """
        topic, _, rest = str(token).strip().partition("/")
        partition, _, offset = rest.partition("/")
        if not topic or _PARTITION.fullmatch(partition) is None or _OFFSET.fullmatch(offset) is None:
            raise ConfigError(
                f"{quoted(token)} is not a position.", hint="Write it topic/partition/offset, for example prices/0/41."
            )
        return cls(topic, int(partition), int(offset))


@dataclass(frozen=True, slots=True)
class Depth:
    """The content of a queue, or of a part of it, after conflation."""

    messages: int = 0
    """Messages that wait or are in work: the newest of each key."""
    bytes: int = 0
    """The sum of their sizes, each as `size_of` returns it."""

    def __add__(self, other: Depth) -> Depth:
        return Depth(self.messages + other.messages, self.bytes + other.bytes)


Operation = Literal["Read", "Write", "Create", "Delete", "Alter", "Describe", "DescribeConfigs", "AlterConfigs"]


Resource = Literal["Topic", "Group", "Cluster", "TransactionalId"]


_LACKING = re.compile(r"this user lacks (\w+) on (Topic|Group|Cluster|TransactionalId) (\S+)\. ")


_OPTIONS: Mapping[Resource, str] = {"Topic": "--topic", "Group": "--group", "TransactionalId": "--transactional-id"}


_DESCRIBE: Mapping[Resource, str] = {
    "Topic": "It is included in Read, which readers need, in Write, which writers need, and in Delete.",
    "Group": "It is included in Read, which consumers need, and in Delete.",
}
"""Rights that include Describe: users who need it may as well ask for one of these."""


class Right(NamedTuple):
    """One operation on one resource.

    ``str(Right("Read", "Topic", "prices"))`` is ``Read on Topic prices``.
    """

    operation: Operation
    resource: Resource
    name: str

    def __str__(self) -> str:
        return f"{self.operation} on {self.resource} {self.name}"

    @classmethod
    def named_in(cls, text: str) -> Right | None:
        """Return the right named in the text of an error of `lacking`, or None."""
        found = _LACKING.search(text)
        return cls(found[1], found[2], found[3]) if found else None  # type: ignore[arg-type]

    @property
    def hint(self) -> str:
        """Instructions to obtain the right."""
        where = f"{_OPTIONS[self.resource]} {shlex.quote(self.name)}" if self.resource in _OPTIONS else "--cluster"
        acl = f"kafka-acls.sh --add --allow-principal User:NAME --operation {self.operation} {where}"
        also = _DESCRIBE.get(self.resource, "") if self.operation == "Describe" else ""
        return f"Ask for an ACL that allows it: {acl}. {also}".rstrip()


@dataclass(frozen=True, slots=True)
class Shortfall:
    """A partition that has not reached its target.

    ``stable`` is its last stable offset, if known: every transaction below it is decided. A reader that has reached it,
    but not the target, is held up only by an open transaction.
    """

    partition: int
    position: int
    target: int
    stable: int | None = None

    @property
    def blocked(self) -> bool:
        """True while an open transaction holds up this partition."""
        return self.stable == self.position < self.target  # a higher position: the last stable offset has moved since

    def __str__(self) -> str:
        if self.blocked:
            return (
                f"partition {self.partition} is at offset {self.position} of {self.target}: a transaction open since "
                f"offset {self.stable} hides later records"
            )
        return f"partition {self.partition} is at offset {self.position} of {self.target}"
