"""Waiters for an ack to be durable: the core's, where the library has futures."""

from __future__ import annotations

from enum import Enum

from lvq_kafka.core.ledger import Item

__all__ = ["Heard", "Question"]


class Heard(Enum):
    """The answer that a waiter has heard."""

    NOTHING = "nothing"
    DURABLE = "durable"
    IN_VAIN = "in vain"


class Question:
    """True if an ack is durable."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.heard = Heard.NOTHING
