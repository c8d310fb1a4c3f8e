"""Settling deliveries directly, outside of transactions."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import partial

from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.settlement import JointSettlement, Settlement
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.text.validation import as_float, delays, durations
from lvq_kafka.core.waiting.pending import Item

__all__ = ["DirectSettler"]


class DirectSettler:
    """The `Settler` of all deliveries that are not part of a transaction."""

    defers = False

    def __init__(self, shared: SharedState, dead_letters: DeadLetters) -> None:
        self.topic = shared.topic
        self._shared = shared
        self._dead_letters = dead_letters

    @property
    def shared(self) -> SharedState:
        """The consumer's shared state, which knows all its messages."""
        return self._shared

    def ack(self, item: Item) -> Settlement:
        """See `Delivery.ack`."""
        self._shared.apply(Ledger.ack, item)
        return Settlement(self._shared, item)

    def ack_many(self, items: Sequence[Item]) -> Settlement:
        """See `lvq_kafka.consuming.consumer.Consumer.ack_many`."""
        self._shared.apply_many(Ledger.ack, items)
        return JointSettlement(self._shared, items)

    def release(self, item: Item, delay: float) -> None:
        """See `Delivery.release`."""
        delays(delay=delay)
        due = self._shared.clock() + delay if delay else None
        self._shared.apply(partial(Ledger.release, due=due), item)

    def reject(self, item: Item, reason: str) -> Settlement:
        """See `Delivery.reject`."""
        return Settlement(self._dead_letters.reject(item, reason), item)

    def extend(self, item: Item, seconds: float | None) -> None:
        """See `Delivery.extend`."""
        if seconds is not None:
            durations("To give a message back, release it.", seconds=seconds)
        seconds = self._shared.limits.lock_timeout if seconds is None else seconds
        locked_until = math.inf if seconds is None else self._shared.clock() + as_float(seconds)
        self._shared.apply(partial(Ledger.extend, locked_until=locked_until), item)
