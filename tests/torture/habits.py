"""Habits of consumer processes: options dealt so that a few processes cover all of them."""

from __future__ import annotations

import random
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

__all__ = ["MAX_DELIVERIES", "Habits", "in_words"]

MAX_DELIVERIES = 4
"""The limit of all consumers that have one."""


class Habits:
    """Deals the options of consumers. Each option has a deck, which is shuffled again when it is used up.

    Args:
        dead_letters: the dead letter topic.
        lock_timeout: seconds, without transactions.
        ring: whether the queue is a ring. Then fewer processes set messages aside, which no journal has.
    """

    def __init__(
        self, chance: random.Random, transactional: bool, dead_letters: str, lock_timeout: float, *, ring: bool
    ) -> None:
        self._chance = chance
        self._dead_letters = dead_letters
        self._lock_timeout = None if transactional else lock_timeout
        self._decks: dict[str, tuple[Sequence[Any], list[Any]]] = {
            "counts durably": ((False, False, True) if ring else (False, True), []),
            "gives up": ((False, True, True), []),
            "buries": ((False, True), []),
            "prefetch": ((1,) if transactional else (1, 1, 1, 20) if ring else (1, 1, 5, 20), []),
        }

    def deal(self) -> dict[str, Any]:
        """Return the options of one more process."""
        gives_up, buries = self._draw("gives up"), self._draw("buries")
        return {
            "durable_counts": self._draw("counts durably"),
            "max_deliveries": MAX_DELIVERIES if gives_up else None,
            "dead_letters": self._dead_letters if gives_up or buries else None,  # giving up must leave a trace
            "prefetch": self._draw("prefetch"),
            "lock_timeout": self._lock_timeout,
        }

    def _draw(self, name: str) -> Any:
        cards, deck = self._decks[name]
        if not deck:
            deck += self._chance.sample(cards, len(cards))
        return deck.pop()


def in_words(options: Mapping[str, Any]) -> Iterator[str]:
    """Yield a description of each habit in a process's options."""
    yield "counts durably" if options["durable_counts"] else "counts for itself"
    yield "gives up what is delivered too often" if options["max_deliveries"] else "never gives up"
    yield "buries what it rejects" if options["dead_letters"] else "rejects without a trace"
    yield "takes messages ahead" if options["prefetch"] > 1 else "takes no messages ahead"
