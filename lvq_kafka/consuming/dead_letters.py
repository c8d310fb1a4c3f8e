"""Dead letters: what becomes of messages that cannot be processed."""

from __future__ import annotations

import logging
from contextlib import suppress
from functools import partial

from lvq_kafka.consuming.holdings import Holdings
from lvq_kafka.core.ledger import Ledger
from lvq_kafka.core.outstanding import Item
from lvq_kafka.core.records import Position
from lvq_kafka.errors import ConfigError, LockLost, LVQError
from lvq_kafka.ports import Log, LogWriter, Receipt

__all__ = ["DLQ_COUNT", "DLQ_REASON", "DLQ_SOURCE", "DeadLetters", "dead_letter_headers"]

logger = logging.getLogger("lvq_kafka.consumer")

DLQ_SOURCE, DLQ_COUNT, DLQ_REASON = "lvq-dlq-source", "lvq-dlq-count", "lvq-dlq-reason"

_AGAIN = 1.0  # seconds after which a message whose dead letter could not be stored is available again
_MAX_BLOCK = 1.0  # seconds that a rejection may wait for room in the client's buffer
_LONGEST_REASON = 1000  # bytes; a reason must not make a message too large to be stored


def dead_letter_headers(item: Item, topic: str, reason: str, deliveries: int) -> list[tuple[str, bytes | None]]:
    """The headers of the message, and what is to know about its death: where it lay, how often it was delivered, why.

    A reason that is longer than 1000 bytes is cut off.
    """
    return [
        *(item.headers or ()),
        (DLQ_SOURCE, str(Position(topic, item.partition, item.offset)).encode()),
        (DLQ_COUNT, str(deliveries).encode()),
        (DLQ_REASON, _writable(reason).encode()),
    ]


class DeadLetters:
    """Takes rejected messages out of a queue: to a dead letter topic where there is one, else away.

    A message is done when its dead letter is stored by all in-sync replicas, not before. A crash in between brings it
    again, and perhaps a second dead letter with the same ``lvq-dlq-source``.

    Args:
        log: the cluster.
        topic: the dead letter topic; None drops what is rejected.
        holdings: where the messages are held.

    Raises:
        TopicNotFound: there is no such topic.
        ConfigError: it is the topic of the queue itself, where a dead letter would be the newest value of its key.
    """

    def __init__(self, log: Log, topic: str | None, holdings: Holdings) -> None:
        self.topic = topic
        self._holdings = holdings
        self._writer: LogWriter | None = None
        if topic is None:
            return
        if topic == holdings.topic:
            raise ConfigError(
                f"dead_letters={topic!r} is the topic of the queue itself.",
                options=["dead_letters"],
                hint="Name another topic.",
            )
        log.describe_topic(topic)
        self._writer = log.writer(max_block=_MAX_BLOCK)

    def take(self, item: Item, reason: str) -> None:
        """Reject a message that is held.

        Raises:
            AlreadySettled, LockLost: see `lvq_kafka.consuming.delivery.Delivery.reject`.
        """
        if self._writer is None:
            self._holdings.settle(Ledger.reject, item)
            self.tell(item, reason)
        else:
            self._holdings.settle(Ledger.leave, item)
            self._send(self._writer, item, reason, item.deliveries)

    def take_exhausted(self, items: list[Item]) -> None:
        """Reject messages that were delivered as often as allowed before this time; they have been left."""
        for item in items:
            deliveries = item.deliveries - 1
            reason = f"delivered {deliveries} times and never acknowledged"
            if self._writer is None:
                self._bury(item, reason)
            else:
                self._send(self._writer, item, reason, deliveries)

    def close(self, timeout: float) -> None:
        """Wait for what is on its way. What is not stored in time is given back."""
        if self._writer is not None:
            self._writer.flush(timeout)
            self._writer.close(0.0)

    def tell(self, item: Item, reason: str) -> None:
        """Log a rejection."""
        where = f"moved to {self.topic}" if self.topic is not None else "removed"
        reason = _writable(reason) or "no reason given"
        logger.warning("%s was rejected and %s: %s", self._source(item), where, reason)

    def _send(self, writer: LogWriter, item: Item, reason: str, deliveries: int) -> None:
        assert self.topic is not None
        headers = dead_letter_headers(item, self._holdings.topic, reason, deliveries)
        try:
            receipt = writer.append(self.topic, item.key or b"", item.value, headers)
        except LVQError as error:
            self._failed(item, error)
        else:
            receipt.add_done_callback(partial(self._decided, item, reason))

    def _decided(self, item: Item, reason: str, receipt: Receipt) -> None:
        error = receipt.exception(0)
        if error is None:
            self._bury(item, reason)
        else:
            self._failed(item, error)

    def _bury(self, item: Item, reason: str) -> None:
        self.tell(item, reason)
        with suppress(LockLost):  # then whoever has the partition now rejects it, too
            self._holdings.settle(Ledger.bury, item)

    def _failed(self, item: Item, error: Exception) -> None:
        logger.warning("the dead letter of %s could not be stored: %s", self._source(item), error)
        with suppress(LockLost):
            self._holdings.settle(Ledger.give_back, item, self._holdings.clock() + _AGAIN)

    def _source(self, item: Item) -> Position:
        return Position(self._holdings.topic, item.partition, item.offset)


def _writable(reason: str) -> str:
    """A reason as it can be written: not too long, and UTF-8."""
    return reason.encode("utf-8", "replace")[:_LONGEST_REASON].decode("utf-8", "ignore")
