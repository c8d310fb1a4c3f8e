"""A message held by a consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, Protocol, Self

from lvq_kafka.codecs import V
from lvq_kafka.consuming.dead_letters import reason_text
from lvq_kafka.consuming.settlement import Durability, Settlement
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.log.records import Headers, header_value
from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.core.timing.ttl import NEVER
from lvq_kafka.core.waiting.lifecycle import MessageState
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import AlreadySettled, ConfigError, LockLost, StateError
from lvq_kafka.runtime.forking import Bound

__all__ = ["Delivery", "Settler", "items_of"]

logger = logging.getLogger("lvq_kafka.consumer")

_IN_HANDS = frozenset({MessageState.ACQUIRED, MessageState.STALE})
_UNREAD: Any = object()


class Settler(Protocol):
    """Settles a delivery: its consumer, or one of the consumer's transactions."""

    topic: str

    defers: bool
    """True if acks take effect only when a transaction ends, and cannot be waited for."""

    @property
    def shared(self) -> Durability:
        """The consumer's shared state, which knows all its messages."""

    def ack(self, item: Item) -> Settlement:
        """See `Delivery.ack`."""

    def release(self, item: Item, delay: float) -> None:
        """See `Delivery.release`."""

    def reject(self, item: Item, reason: str) -> Settlement:
        """See `Delivery.reject`."""

    def extend(self, item: Item, seconds: float | None) -> None:
        """See `Delivery.extend`."""


class Delivery(Bound, Generic[V]):
    """A message held exclusively by this consumer until it is settled.

    Used as a context manager, it settles itself unless that was already done: a clean exit acks, an exception releases.
    If the lock was lost meanwhile, this is only logged, since another holder gets the message; explicit calls raise.

    Any thread may settle a delivery.
    """

    __slots__ = ("_item", "_read", "_settler", "_value")

    elsewhere = "Send its key, value and position; it can be settled only here."

    def __init__(self, settler: Settler, item: Item, read: Callable[[Item], V]) -> None:
        self._settler = settler
        self._item = item
        self._read = read
        self._value: V = _UNREAD

    @property
    def value(self) -> V:
        """The value, decoded on first access.

        Raises:
            DecodeError: the codec cannot decode it, and the policy is ``"raise"``.
        """
        if self._value is _UNREAD:
            self._value = self._read(self._item)
        return self._value

    @property
    def raw(self) -> bytes:
        """The value as stored in the log."""
        return self._item.value

    @property
    def key(self) -> str:
        """The key as text; empty for a record without one.

        A message without a key header is treated as having a key of its own.
        """
        return "" if self._item.key is None else key_text(self._item.key)

    @property
    def headers(self) -> Headers:
        """All headers in order; names may repeat."""
        return tuple(self._item.headers or ())

    def header(self, name: str) -> str | None:
        """Return the text of the last header with that name, or None."""
        value = header_value(self._item.headers or (), name)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def position(self) -> Position:
        """The message's position in the log."""
        return Position(self._settler.topic, self._item.partition, self._item.offset)

    @property
    def timestamp(self) -> float:
        """Seconds since the epoch: the append time, or the producer's time if the topic says so."""
        return self._item.timestamp / 1000

    @property
    def expires(self) -> float | None:
        """The time at which it expires, in seconds since the epoch; None if it never does (R10).

        It can still be settled after that. If it is released then, no consumer gets it again.
        """
        expires = getattr(self._item, "expires", NEVER)
        return None if expires == NEVER else expires / 1000

    @property
    def delivery_count(self) -> int:
        """The number of deliveries so far, including this one, as far as this consumer knows.

        Counted since the partition was assigned to this consumer; with ``durable_counts``, across all consumers of the
        queue and through crashes.
        """
        return self._item.deliveries

    @property
    def redelivered(self) -> bool:
        """True if it was handed out before, or may have been, by another consumer.

        The next consumer learns of an unsettled delivery once it has been committed, at most ``commit_interval`` later.
        If the process dies sooner, it learns of the delivery only with ``durable_counts``.
        """
        return self._item.redelivered

    @property
    def state(self) -> MessageState:
        """The current state; ``stale`` if a newer value or a delete has arrived meanwhile."""
        return self._item.state

    @property
    def settled(self) -> bool:
        """True once it is no longer held: acked, released, rejected, or its lock lost."""
        return self._item.state not in _IN_HANDS

    def ack(self, *, wait: bool = False, timeout: float | None = None) -> Settlement:
        """Remove the message from the queue. A newer value of its key is not affected (R6).

        Acks are batched and committed a few times a second, in any order. Until then a crash causes redelivery (G10).
        With ``wait``, the call returns when the ack is durable: the message will not be delivered again, by any
        consumer (G11). Otherwise, wait for the returned settlement later, or ``await`` it.

        In a transaction, the ack takes effect and becomes durable when the transaction commits, so it cannot be waited
        for inside.

        Raises:
            AlreadySettled: the message was acked, released or rejected before.
            LockLost: the partition went to another consumer, or ``lock_timeout`` expired; with ``wait``, also if that
                happened before the ack was durable.
            StateError: called with ``wait`` in a transaction, or in a callback on the consumer's own thread.
            OutcomeUnknown: the ack was not durable within ``timeout`` seconds. It may become so later.
            ReaderFailed: the consumer stopped because of an error before the ack was durable.
        """
        if wait:
            timeout = waiting(timeout)
            if self._settler.defers:
                raise StateError(
                    "An ack in a transaction is durable when the transaction has committed.",
                    hint="Ack without wait=True.",
                )
        settlement = self._settler.ack(self._item)
        if wait:
            settlement.result(timeout)
        return settlement

    def release(self, *, delay: float = 0.0) -> None:
        """Return the message to the queue, unless a newer value or a delete has arrived (R6).

        Args:
            delay: seconds before it can be acquired again. A newer value of its key does not wait that long.

        Raises:
            ConfigError: the delay is not a non-negative number of seconds; the message stays held.
            AlreadySettled: the message was acked, released or rejected before.
            LockLost: the partition went to another consumer, or ``lock_timeout`` expired.
        """
        self._settler.release(self._item, delay)

    def reject(self, reason: str | BaseException = "") -> Settlement:
        """Remove a message that cannot be processed, to the dead letter topic if there is one.

        The dead letter is stored before the message counts as done. If that fails, the message becomes available again,
        and waiters for the settlement get `DeliveryFailed`.

        Args:
            reason: logged, and written to the dead letter: text, or the error that the message caused, which is written
                as its type and message.

        Raises:
            ConfigError: the reason is neither text nor an exception; the message stays held.
            AlreadySettled: the message was acked, released or rejected before.
            LockLost: the partition went to another consumer, or ``lock_timeout`` expired.
        """
        return self._settler.reject(self._item, reason_text(reason))

    def extend(self, seconds: float | None = None) -> None:
        """Extend the lock to ``seconds`` from now; ``lock_timeout`` by default.

        Without ``lock_timeout`` a lock lasts as long as the membership, and this does nothing.

        Raises:
            ConfigError: ``seconds`` is not a positive number.
            AlreadySettled: the message was acked, released or rejected before.
            LockLost: the partition went to another consumer, or the time expired.
        """
        self._settler.extend(self._item, seconds)

    def into(self, settler: Settler) -> Self:
        """Hand the delivery to another settler and return it.

        See `lvq_kafka.consuming.transaction.Transaction.enlist`.
        """
        if settler.shared is not self._settler.shared:
            raise StateError("The delivery belongs to another consumer.", hint="A transaction covers one consumer.")
        self._settler = settler
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._item.state is MessageState.LOST:
            self._report_lost()
        elif not self.settled:
            try:
                if kind is None:
                    self.ack()
                else:
                    self.release()
            except LockLost:
                self._report_lost()
            except AlreadySettled:  # by another thread, just now
                pass

    def _report_lost(self) -> None:
        logger.warning("%s was handled, but its lock had been lost; it may be handled again", self)

    def __repr__(self) -> str:
        return f"<Delivery {quoted(self.key)} at {self.position}, {self._item.state}>"


def items_of(deliveries: Iterable[Delivery[Any]], settler: Settler) -> list[Item]:
    """Return the messages of the deliveries.

    Raises:
        ConfigError: something is not a delivery.
        StateError: one of them belongs to another settler.
    """
    if isinstance(deliveries, Delivery):
        raise ConfigError(f"{deliveries} is one delivery, not several.", options=["deliveries"], hint="Use its ack().")
    if not isinstance(deliveries, Iterable):
        raise ConfigError(
            f"deliveries={deliveries!r} is not a list.", options=["deliveries"], hint="Ack acquired deliveries."
        )
    deliveries = list(deliveries)
    for delivery in deliveries:
        if not isinstance(delivery, Delivery):
            raise ConfigError(
                f"{delivery!r} is not a delivery.", options=["deliveries"], hint="Ack acquired deliveries."
            )
        if delivery._settler is not settler:
            raise StateError(f"{delivery} belongs to another consumer or transaction.", hint="Ack it separately.")
    return [delivery._item for delivery in deliveries]
