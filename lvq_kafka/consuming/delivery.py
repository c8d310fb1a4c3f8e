"""A message in the hands of a consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable
from types import TracebackType
from typing import Any, Generic, Protocol, Self

from lvq_kafka.codecs import V
from lvq_kafka.consuming.dead_letters import reason_text
from lvq_kafka.consuming.settlement import Durability, Settlement
from lvq_kafka.core.keys import key_text
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.pending import Item
from lvq_kafka.core.quoting import quoted
from lvq_kafka.core.records import Headers, Position, header_value
from lvq_kafka.core.validation import waiting
from lvq_kafka.errors import AlreadySettled, ConfigError, LockLost, StateError
from lvq_kafka.forking import Bound

__all__ = ["Delivery", "Settler", "items_of"]

logger = logging.getLogger("lvq_kafka.consumer")

_IN_HANDS = frozenset({State.ACQUIRED, State.STALE})
_UNREAD: Any = object()


class Settler(Protocol):
    """Where a delivery is settled: its consumer, or a transaction of it."""

    topic: str

    defers: bool
    """Whether an ack takes effect at the end of something else, so that it cannot be waited for before."""

    @property
    def shared(self) -> Durability:
        """What knows all messages of the consumer."""

    def ack(self, item: Item) -> Settlement:
        """See `Delivery.ack`."""

    def release(self, item: Item, delay: float) -> None:
        """See `Delivery.release`."""

    def reject(self, item: Item, reason: str) -> Settlement:
        """See `Delivery.reject`."""

    def extend(self, item: Item, seconds: float | None) -> None:
        """See `Delivery.extend`."""


class Delivery(Bound, Generic[V]):
    """A message that this consumer holds, and nobody else, until it is settled.

    As a context manager it settles itself where that was not done: a clean exit acks, an exception releases. If the
    lock was lost meanwhile that only goes to the log, since somebody else gets the message; explicit calls raise.

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
        """The value, decoded when it is first asked for.

        Raises:
            DecodeError: its codec cannot read it, and the policy is ``"raise"``.
        """
        if self._value is _UNREAD:
            self._value = self._read(self._item)
        return self._value

    @property
    def raw(self) -> bytes:
        """The value as it lies in the log."""
        return self._item.value

    @property
    def key(self) -> str:
        """The key as text; empty for a record that has none. A message without a key header has a key of its own."""
        return "" if self._item.key is None else key_text(self._item.key)

    @property
    def headers(self) -> Headers:
        """All headers in their order, names may repeat."""
        return tuple(self._item.headers or ())

    def header(self, name: str) -> str | None:
        """The text of the last header of that name, or None."""
        value = header_value(self._item.headers or (), name)
        return None if value is None else value.decode("utf-8", "replace")

    @property
    def position(self) -> Position:
        """Where the message lies."""
        return Position(self._settler.topic, self._item.partition, self._item.offset)

    @property
    def timestamp(self) -> float:
        """Seconds since the epoch: when the broker appended it, or the producer's time where the topic is set so."""
        return self._item.timestamp / 1000

    @property
    def delivery_count(self) -> int:
        """How often the message has been handed out, this time included, as far as this consumer knows.

        Counted from the moment when the consumer was assigned the partition; with ``durable_counts`` over all consumers
        of the queue, through crashes.
        """
        return self._item.deliveries

    @property
    def redelivered(self) -> bool:
        """Whether it was handed out before, or may have been: by another consumer that has not settled it.

        The next consumer knows of a hand-out when that has been committed, at most ``commit_interval`` later: of one
        whose process died sooner only with ``durable_counts``.
        """
        return self._item.redelivered

    @property
    def state(self) -> State:
        """Where it stands; ``stale`` says that a newer value, or a delete, has come since it was handed out."""
        return self._item.state

    @property
    def settled(self) -> bool:
        """Whether it is out of this holder's hands: acked, released, rejected, or its lock lost."""
        return self._item.state not in _IN_HANDS

    def ack(self, *, wait: bool = False, timeout: float | None = None) -> Settlement:
        """Done: remove the message from the queue. A newer value of its key is not touched (R6).

        Acks are gathered and committed a few times a second, in any order; until then a crash brings the message again
        (G10). With ``wait`` the call returns when the ack is durable: the message will not be handed out again, by
        anybody (G11). Else what is returned can be waited for, later or with ``await``.

        In a transaction the ack takes effect when that commits, and is durable then; so there is no waiting for it
        inside.

        Raises:
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer, or ``lock_timeout`` was over; with ``wait`` also when
                that happened before it was durable.
            StateError: with ``wait`` in a transaction, or in a callback on the consumer's own thread.
            OutcomeUnknown: not durable within ``timeout`` seconds. It may become so later.
            ReaderFailed: the consumer stopped because of an error, before the ack was durable.
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
        """Give the message back: it can be acquired again, unless a newer value or a delete has come (R6).

        Args:
            delay: seconds after which it can be. A newer value of its key does not wait for that.

        Raises:
            ConfigError: the delay is no number of seconds from 0 on; the message stays with its holder.
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer, or ``lock_timeout`` was over.
        """
        self._settler.release(self._item, delay)

    def reject(self, reason: str | BaseException = "") -> Settlement:
        """The message cannot be processed: remove it from the queue, to the dead letter topic if there is one.

        Its dead letter is stored before the message counts as done; if that fails, it becomes available again, and who
        waits for the settlement gets `DeliveryFailed`.

        Args:
            reason: goes to the log, and into the dead letter: text, or the error that the message caused, of which the
                type and what it says are written.

        Raises:
            ConfigError: the reason is neither; the message stays with its holder.
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer, or ``lock_timeout`` was over.
        """
        return self._settler.reject(self._item, reason_text(reason))

    def extend(self, seconds: float | None = None) -> None:
        """Ask for more time: the lock ends so many seconds from now, by default ``lock_timeout``.

        Without ``lock_timeout`` a lock lasts as long as the membership, and there is nothing to do.

        Raises:
            ConfigError: that is no positive number of seconds.
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer, or the time was over.
        """
        self._settler.extend(self._item, seconds)

    def into(self, settler: Settler) -> Self:
        """The same delivery, settled by somebody else; see `lvq_kafka.consuming.transaction.Transaction.enlist`."""
        if settler.shared is not self._settler.shared:
            raise StateError("The delivery is another consumer's.", hint="A transaction is about one consumer.")
        self._settler = settler
        return self

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._item.state is State.LOST:
            self._report_lost()
        elif not self.settled:
            try:
                if kind is None:
                    self.ack()
                else:
                    self.release()
            except LockLost:
                self._report_lost()
            except AlreadySettled:  # by another thread, at this moment
                pass

    def _report_lost(self) -> None:
        logger.warning("%s was handled, but its lock was lost meanwhile; it may be handled again", self)

    def __repr__(self) -> str:
        return f"<Delivery {quoted(self.key)} at {self.position}, {self._item.state}>"


def items_of(deliveries: Iterable[Delivery[Any]], settler: Settler) -> list[Item]:
    """Their messages.

    Raises:
        ConfigError: they are not deliveries.
        StateError: one of them is settled elsewhere.
    """
    if isinstance(deliveries, Delivery):
        raise ConfigError(f"{deliveries} is one delivery, not several.", options=["deliveries"], hint="Use its ack().")
    if not isinstance(deliveries, Iterable):
        raise ConfigError(
            f"deliveries={deliveries!r} is no list.", options=["deliveries"], hint="Ack what was acquired."
        )
    deliveries = list(deliveries)
    for delivery in deliveries:
        if not isinstance(delivery, Delivery):
            raise ConfigError(f"{delivery!r} is no delivery.", options=["deliveries"], hint="Ack what was acquired.")
        if delivery._settler is not settler:
            raise StateError(
                f"{delivery} is settled elsewhere: by another consumer or transaction.", hint="Ack it by itself."
            )
    return [delivery._item for delivery in deliveries]
