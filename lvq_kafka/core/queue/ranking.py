"""Ranks of messages: the order in which they are handed out (R20).

In a queue with ``order="priority"`` or ``"sorted"``, the rank of a message is in one of its headers. A lower rank is
first; messages of the same rank are in the order of arrival. With conflation, the rank of a key is that of its newest
value.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, get_args

from lvq_kafka.core.log.records import RawHeaders, header_value
from lvq_kafka.errors import ConfigError

__all__ = [
    "DEFAULT_PRIORITY",
    "HIGHEST_PRIORITY",
    "PRIORITY_HEADER",
    "SORT_HEADER",
    "Order",
    "QueueOrder",
    "Rank",
    "Ranking",
    "check_priorities",
    "place_order",
    "priority_of",
]

PRIORITY_HEADER = "lvq-priority"
"""Carries a message's priority: a decimal digit, 9 first."""

SORT_HEADER = "lvq-sort"
"""The header by whose text a sorted queue is sorted, unless its definition names another."""

DEFAULT_PRIORITY = 4
"""The priority of a message without one, as in JMS."""

HIGHEST_PRIORITY = 9

_LEVELS = HIGHEST_PRIORITY + 1
_DIGITS = {b"%d" % digit: digit for digit in range(_LEVELS)}

Order = Literal["tail", "in-place"]
QueueOrder = Literal["tail", "in-place", "priority", "sorted"]
"""The orders of a queue: two by arrival (R4), two by rank (R20)."""

Rank = int | bytes
"""Comparable within a queue."""


class Ranking:
    """Ranks the messages of one queue, for one reader.

    Anyone can write any header. A priority that cannot be read counts as none, and is counted. Of several headers of
    the name, the last one counts.

    Args:
        header: the header that holds the rank.
        rank: returns the rank for the value of that header, or None if it cannot be read. The value is None if the
            header is missing.
        has_levels: whether there are only a few different ranks.
    """

    expected = f"a digit from 0 to {HIGHEST_PRIORITY}"  # any text is a rank

    def __init__(self, header: str, rank: Callable[[bytes | None], Rank | None], *, has_levels: bool = False) -> None:
        self.header = header
        self.has_levels = has_levels
        self.malformed = 0
        """The number of messages whose rank could not be read."""
        self.example: bytes | None = None
        """The first such value."""
        self._rank = rank
        default = rank(None)
        assert default is not None
        self._default: Rank = default

    @classmethod
    def of(cls, order: QueueOrder, *, priorities: int | None, sort_header: str | None) -> Ranking | None:
        """Return the ranking of a queue's messages; None if they are in the order of arrival."""
        if order == "priority":
            return cls(PRIORITY_HEADER, _levels(priorities or _LEVELS).get, has_levels=True)
        return cls(sort_header or SORT_HEADER, _text_rank) if order == "sorted" else None

    def rank(self, headers: RawHeaders) -> Rank:
        """Return the rank of a message with these headers."""
        found = header_value(headers or (), self.header)
        if found is None:
            return self._default
        rank = self._rank(found)
        if rank is None:
            self.malformed += 1
            self.example = self.example or found
            return self._default
        return rank


def place_order(order: QueueOrder) -> Order:
    """Return the place of a new value of a key among the values of its rank."""
    return "in-place" if order == "in-place" else "tail"


def priority_of(value: bytes) -> int | None:
    """Return the priority that a message's header holds; None if it cannot be read."""
    return _DIGITS.get(value)


def check_priorities(option: str, value: object) -> None:
    """Check for the number of levels of a priority queue.

    Raises:
        ConfigError: it is not a whole number from 2 to 10.
    """
    if type(value) is not int or not 2 <= value <= _LEVELS:
        raise ConfigError(
            f"`{option}` is not a whole number from 2 to {_LEVELS}.",
            options={option: value},
            hint=f"There are priorities 0 to {HIGHEST_PRIORITY}; leave it out to tell all of them apart.",
        )


def _levels(number: int) -> dict[bytes | None, int]:
    """Return the rank of each priority, where there are fewer levels than priorities.

    The levels lie around the default priority, and a priority above or below them belongs to the nearest. So of two
    levels, one has 0 to 4 and the other 5 to 9. Broker-J and Qpid do the same.
    """
    lowest = _LEVELS // 2 - (number + 1) // 2
    ranks: dict[bytes | None, int] = {text: -min(max(digit - lowest, 0), number - 1) for text, digit in _DIGITS.items()}
    ranks[None] = ranks[b"%d" % DEFAULT_PRIORITY]
    return ranks


def _text_rank(value: bytes | None) -> bytes:
    """Rank by the bytes of UTF-8, in the order of code points; a missing text is first."""
    return b"" if value is None else b"\x01" + value


assert set(get_args(Order)) < set(get_args(QueueOrder))
