"""Letters: messages that left a queue for another topic, with the reason."""

from __future__ import annotations

import logging
from collections.abc import Callable

from lvq_kafka.cluster import Cluster, LogWriter
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Headers
from lvq_kafka.core.queue.headers import UNKEYED_HEADER
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.core.waiting.pending import Item
from lvq_kafka.errors import MessageTooLarge

__all__ = [
    "DLQ_COUNT",
    "DLQ_REASON",
    "DLQ_SOURCE",
    "LetterWriter",
    "letter_headers",
    "letter_key",
    "log_shortened",
    "own_headers",
    "writable",
]

logger = logging.getLogger("lvq_kafka.consumer")

DLQ_SOURCE, DLQ_COUNT, DLQ_REASON = "lvq-dlq-source", "lvq-dlq-count", "lvq-dlq-reason"

_MAX_BLOCK = 1.0  # seconds that a letter may wait for room in the client's buffer
_LONGEST_REASON = 1000  # bytes; a reason must not make a message too large to store


def letter_headers(item: Item, topic: str, reason: str, *, expires: bool = True) -> Headers:
    """Return a letter's headers: the message's, its position, delivery count and the reason.

    A reason longer than 1000 bytes is truncated.

    Args:
        topic: the topic of the queue.
        expires: False leaves out the message's TTL.
    """
    return (
        *own_headers(item, expires=expires),
        *(((UNKEYED_HEADER, b"1"),) if item.stands_alone else ()),
        (DLQ_SOURCE, str(Position(topic, item.partition, item.offset)).encode()),
        (DLQ_COUNT, str(item.delivered).encode()),
        (DLQ_REASON, writable(reason).encode()),
    )


def own_headers(item: Item, *, expires: bool = True) -> Headers:
    """Return the message's headers, without the time when it was due (R11).

    So its letter counts at once.
    """
    without = (NOT_BEFORE_HEADER,) if expires else (NOT_BEFORE_HEADER, TTL_HEADER)
    return tuple(pair for pair in item.headers or () if pair[0] not in without)


def letter_key(item: Item, topic: str) -> bytes:
    """Return the record key of a message's letter.

    It is the key of the message. A message that stands alone must not be replaced among the letters, either: there, its
    key is its position, so that only another letter of the same message replaces it.
    """
    if item.stands_alone:
        return str(Position(topic, item.partition, item.offset)).encode()
    assert item.key is not None
    return item.key


def writable(reason: str) -> str:
    """Return the reason as it can be written: truncated, and valid UTF-8."""
    return reason.encode("utf-8", "replace")[:_LONGEST_REASON].decode("utf-8", "ignore")


def log_shortened(source: Position) -> None:
    """Log that a letter keeps only the headers of its message."""
    logger.warning("the letter of %s has no room for headers that explain it", source)


class LetterWriter:
    """Writes letters of one queue.

    A letter that is too large is written again with only the headers of its message, which are known to fit.

    Args:
        cluster: the cluster.
        topic: where letters go.
        source: the topic of the queue.
        expires: False leaves out the TTL of messages.
    """

    def __init__(self, cluster: Cluster, topic: str, source: str, *, expires: bool) -> None:
        self._writer: LogWriter = cluster.writer(max_block=_MAX_BLOCK)
        self._topic = topic
        self._source = source
        self._expires = expires

    def post(self, item: Item, reason: str, decided: Callable[[Exception | None], None]) -> None:
        """Write a message's letter.

        Args:
            decided: called, perhaps at once, with None when all in-sync replicas have stored it, or with the reason why
                they have not, or may not have.
        """
        headers = letter_headers(item, self._source, reason, expires=self._expires)
        self._append(item, headers, decided, shortened=False)

    def flush(self, timeout: float | None) -> None:
        """Wait for letters in flight."""
        self._writer.flush(timeout)

    def close(self) -> None:
        """Give up on letters in flight."""
        self._writer.close(0.0)

    def _append(
        self, item: Item, headers: Headers, decided: Callable[[Exception | None], None], *, shortened: bool
    ) -> None:
        def outcome(error: Exception | None) -> None:
            if isinstance(error, MessageTooLarge) and not shortened:
                log_shortened(Position(self._source, item.partition, item.offset))
                self._append(item, own_headers(item, expires=self._expires), decided, shortened=True)
            else:
                decided(error)

        try:
            receipt = self._writer.append(self._topic, letter_key(item, self._source), item.value, headers)
        except Exception as error:  # noqa: BLE001  # whatever the client refuses, the message must not get lost
            outcome(error)
        else:
            receipt.add_done_callback(lambda receipt: outcome(receipt.exception(0)))
