"""The workload of consumers: updates of keys in turn, each value with its number, so the work can be judged.

`Judge` sees every delivery. It knows when the newest value of each key has been delivered. It detects a consumer that
steps back and delivers an older value of a key after a newer one.
"""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

VALUE_SIZE = 256
WARM_UP = "warm-up"  # the key of a message before the work, which shows that everything is connected
_NOISE = random.Random(7).randbytes(8192)


def key_of(number: int, keys: int) -> str:
    """Return a key. 7919 is prime: neighbours in the log have distant keys, and all come before any comes again."""
    return f"k{number * 7919 % keys:09d}"


def value_of(number: int) -> bytes:
    """Return the number and a piece of noise: all values differ, and none compresses."""
    begin = number * 37 % (len(_NOISE) - VALUE_SIZE)
    return b"%016d" % number + _NOISE[begin : begin + VALUE_SIZE - 16]


@dataclass(frozen=True)
class Workload:
    """A number of messages over a number of keys."""

    messages: int
    keys: int

    def __post_init__(self) -> None:
        if self.messages % self.keys or not self.keys % 7919:
            raise ValueError("every key gets as many messages as any other one")

    def __iter__(self) -> Iterator[tuple[str, bytes]]:
        return ((key_of(number, self.keys), value_of(number)) for number in range(self.messages))


@dataclass
class Judge:
    """The judge of one consumer's work."""

    work: Workload
    deliveries: int = 0
    missing: int = field(init=False)
    _newest: dict[str, int] = field(default_factory=dict, init=False)

    def __post_init__(self) -> None:
        self.missing = self.work.keys

    def take(self, key: str, value: bytes) -> bool:
        """Take a delivery, and return whether it is part of the work; the warm-up is not."""
        if key == WARM_UP:
            return False
        number = int(value[:16])
        if number <= self._newest.get(key, -1):
            raise RuntimeError(f"number {number} of {key} was delivered after number {self._newest[key]}")
        self._newest[key] = number
        self.deliveries += 1
        self.missing -= number >= self.work.messages - self.work.keys
        return True

    @property
    def complete(self) -> bool:
        """Return whether the newest value of each key has been delivered."""
        return not self.missing


def outcome(work: Workload, began: int, measured: Mapping[str, Any]) -> dict[str, Any]:
    """Return the figures of a consumer that did ``work``, from ``began`` (monotonic, ns) to its reported end."""
    wall = (measured["ended"] - began) / 1e9
    return {
        "wall": wall,
        "messages": work.messages,
        "messages_per_second": work.messages / wall,
        "deliveries": measured["deliveries"],
        "deliveries_per_second": measured["deliveries"] / wall,
        "cpu": measured["cpu"],
    }
