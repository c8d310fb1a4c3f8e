"""Waiters for durable acks, in place of the library's futures."""

from __future__ import annotations

from enum import Enum

from lvq_kafka.core.ledger.ledger import Item

__all__ = ["Heard", "Question"]


class Heard(Enum):
    """The answer that a waiter got."""

    NOTHING = "nothing"
    DURABLE = "durable"
    FAILED = "failed"


class Question:
    """A wait for an ack to be durable."""

    def __init__(self, item: Item) -> None:
        self.item = item
        self.heard = Heard.NOTHING
