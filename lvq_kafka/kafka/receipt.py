"""The receipt of one append."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, ClassVar, cast

from confluent_kafka import KafkaError, Message

from lvq_kafka.cluster import Receipt
from lvq_kafka.core.log.records import Position
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka.ages import Moment
from lvq_kafka.receipts import AwaitableReceipt, check_callback

if TYPE_CHECKING:
    from lvq_kafka.kafka.deliveries import Deliveries

__all__ = ["KafkaReceipt"]


class KafkaReceipt(AwaitableReceipt):
    """`Receipt` of an append to Kafka.

    One is made for each record, so making one costs next to nothing: its only slot holds its moment until the outcome
    is known (see `Ages`), its writer is an attribute of its class (each writer has its own subclass), and its waiters
    are kept elsewhere.
    """

    __slots__ = ("outcome",)

    _deliveries: ClassVar[Deliveries]
    outcome: Moment | tuple[str, int, int | None] | TransportError
    """The moment while undecided; the caller that creates the receipt sets it."""

    def __call__(self, error: KafkaError | None, message: Message) -> None:
        """Handle the delivery report; the client calls this."""
        if error is None:
            self.outcome = (message.topic(), message.partition(), message.offset())  # type: ignore[assignment]
        else:
            self.outcome = self._deliveries.failed(self, error, message)
        if self._deliveries.watchers:
            self._deliveries.notify(self)

    def result(self, timeout: float | None = None) -> Position:
        """See `Receipt.result`."""
        outcome = self._await(timeout)
        if isinstance(outcome, tuple):
            return _position(outcome)
        raise outcome

    def exception(self, timeout: float | None = None) -> Exception | None:
        """See `Receipt.exception`."""
        outcome = self._await(timeout)
        return None if isinstance(outcome, tuple) else outcome

    def done(self) -> bool:
        """See `Receipt.done`."""
        return type(self.outcome) is not Moment

    @property
    def position(self) -> Position | None:
        """See `Receipt.position`."""
        outcome = self.outcome
        return _position(outcome) if type(outcome) is tuple else None

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """See `Receipt.add_done_callback`.

        Runs on the writer's own thread, or here if the outcome is known.
        """
        check_callback(callback)
        if not self._deliveries.watch(self, callback):
            callback(self)

    def _await(self, timeout: float | None) -> tuple[str, int, int | None] | TransportError:
        if not self.done():
            self._deliveries.wait_for(self, waiting(timeout))
        outcome = cast("tuple[str, int, int | None] | TransportError", self.outcome)
        if not isinstance(outcome, tuple):
            self._deliveries.noticed(self)
        return outcome

    def __repr__(self) -> str:
        if not self.done():
            return "<Receipt on its way>"
        return f"<Receipt {_position(self.outcome) if isinstance(self.outcome, tuple) else repr(self.outcome)}>"


def _position(outcome: tuple[str, int, int | None]) -> Position:
    topic, partition, offset = outcome
    return Position(topic, partition, -1 if offset is None else offset)  # None: a retry the broker had already stored
