"""A message in the hands of a consumer."""

from __future__ import annotations

import logging
from collections.abc import Callable
from types import TracebackType
from typing import Generic, Protocol, Self

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.keys import key_text
from lvq_kafka.core.ledger import Item
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.records import Headers, Position, header_value
from lvq_kafka.errors import LockLost

__all__ = ["Delivery", "Holder"]

logger = logging.getLogger("lvq_kafka.consumer")


class Holder(Protocol):
    """Where a delivery is settled."""

    topic: str

    def ack(self, item: Item) -> None:
        """See `Delivery.ack`."""

    def release(self, item: Item) -> None:
        """See `Delivery.release`."""

    def reject(self, item: Item, reason: str) -> None:
        """See `Delivery.reject`."""

    def wait_durable(self, item: Item, life: int, timeout: float | None) -> None:
        """See `Delivery.ack`."""


class Delivery(Generic[V]):
    """A message that this consumer holds, and nobody else, until it is settled.

    As a context manager it settles itself: a clean exit acks, an exception releases. If the lock was lost meanwhile
    that only goes to the log, since somebody else gets the message; the explicit calls raise.

    Any thread may settle a delivery.
    """

    __slots__ = ("_codec", "_holder", "_item", "_life", "_raw_on_error", "_value")

    def __init__(self, holder: Holder, item: Item, life: int, codec: Codec[V], *, raw_on_error: bool = False) -> None:
        self._holder = holder
        self._item = item
        self._life = life
        self._codec = codec
        self._raw_on_error = raw_on_error
        self._value: list[V] = []  # empty until it is asked for

    @property
    def value(self) -> V:
        """The value, decoded when it is first asked for.

        Raises:
            DecodeError: its codec cannot read it, and the policy is ``"raise"``.
        """
        if not self._value:
            self._value = [
                self._codec.decode_at(
                    self._item.value, self.position, headers=self.headers, raw_on_error=self._raw_on_error
                )
            ]
        return self._value[0]

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
        return Position(self._holder.topic, self._item.partition, self._item.offset)

    @property
    def timestamp(self) -> float:
        """Seconds since the epoch: when the broker appended it, or the producer's time where the topic is set so."""
        return self._item.timestamp / 1000

    @property
    def delivery_count(self) -> int:
        """How often this consumer has handed the message out, this time included.

        Counted in memory, from the moment when the consumer was assigned the partition.
        """
        return self._item.deliveries

    @property
    def redelivered(self) -> bool:
        """Whether this consumer has handed it out before. A delivery by another one before a crash is not known."""
        return self._item.deliveries > 1

    @property
    def state(self) -> State:
        """Where it stands; ``stale`` says that a newer value, or a delete, has come since it was handed out."""
        return self._item.state

    @property
    def settled(self) -> bool:
        """Whether it is out of this holder's hands: acked, released, rejected, or its lock lost."""
        return self._item.state not in (State.ACQUIRED, State.STALE)

    def ack(self, *, wait: bool = False, timeout: float | None = None) -> None:
        """Done: remove the message from the queue. A newer value of its key is not touched (R6).

        Acks are gathered and committed a few times a second; until then a crash brings the message again (G10). With
        ``wait`` the call returns when the ack is durable: the message will not be handed out again, by anybody (G11).
        What a group keeps is one offset per partition below which all is done, so an ack is durable only when
        everything before it in the partition is done too. Do not wait on a later message while holding an earlier one.

        Raises:
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer; before the ack, or with ``wait`` before it was durable.
            TimeoutError: not durable within ``timeout`` seconds. The ack stands, and may become durable later.
            ReaderFailed: the consumer stopped because of an error, before the ack was durable.
        """
        self._holder.ack(self._item)
        if wait:
            self._holder.wait_durable(self._item, self._life, timeout)

    def release(self) -> None:
        """Give the message back: it can be acquired again at once, unless a newer value or a delete has come (R6).

        Raises:
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer.
        """
        self._holder.release(self._item)

    def reject(self, reason: str = "") -> None:
        """The message cannot be processed: remove it from the queue. The reason goes to the log.

        Raises:
            AlreadySettled: it was acked, released or rejected before.
            LockLost: the partition went to another consumer.
        """
        self._holder.reject(self._item, reason)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        if self._item.state is State.LOST:
            self._report_lost()
        elif not self.settled:
            settle: Callable[[Item], None] = self._holder.ack if kind is None else self._holder.release
            try:
                settle(self._item)
            except LockLost:
                self._report_lost()

    def _report_lost(self) -> None:
        logger.warning("%s was handled, but its partition went to another consumer, which may handle it again", self)

    def __repr__(self) -> str:
        return f"<Delivery {self.key!r} at {self.position}, {self._item.state}>"
