"""Settling deliveries: what becomes of a message that is held."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.holdings import Holdings
from lvq_kafka.consuming.settlement import JointSettlement, Settlement
from lvq_kafka.core.ledger import Ledger
from lvq_kafka.core.options import as_float, delays, durations
from lvq_kafka.core.outstanding import Item

__all__ = ["Settling"]


class Settling:
    """Settles the deliveries of a consumer: the `Holder` of all that is not in a transaction."""

    defers = False

    def __init__(self, holdings: Holdings, dead_letters: DeadLetters) -> None:
        self.topic = holdings.topic
        self._holdings = holdings
        self._dead_letters = dead_letters

    @property
    def holdings(self) -> Holdings:
        """What knows all messages of the consumer."""
        return self._holdings

    def ack(self, item: Item) -> Settlement:
        """See `Delivery.ack`."""
        self._holdings.settle(Ledger.ack, item)
        return Settlement(self._holdings, item)

    def ack_many(self, items: Sequence[Item]) -> Settlement:
        """See `lvq_kafka.consuming.consumer.Consumer.ack_many`."""
        self._holdings.settle_many(Ledger.ack, items)
        return JointSettlement(self._holdings, items)

    def release(self, item: Item, delay: float) -> None:
        """See `Delivery.release`."""
        delays(delay=delay)
        due = self._holdings.clock() + delay if delay else None
        self._holdings.settle(partial(Ledger.release, due=due), item)

    def reject(self, item: Item, reason: str) -> Settlement:
        """See `Delivery.reject`."""
        return Settlement(self._dead_letters.take(item, reason), item)

    def extend(self, item: Item, seconds: float | None) -> None:
        """See `Delivery.extend`."""
        if seconds is not None:
            durations("To give a message back, release it.", seconds=seconds)
        seconds = self._holdings.limits.lock_timeout if seconds is None else seconds
        locked_until = math.inf if seconds is None else self._holdings.clock() + as_float(seconds)
        self._holdings.settle(partial(Ledger.extend, locked_until=locked_until), item)
