"""A queue that can be written, by one producer for all requests."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from lvq_kafka.cluster import Receipt
from lvq_kafka.codecs import BYTES, JSON, TEXT
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import (
    BrokerUnavailable,
    Closed,
    LVQError,
    MessageTooLarge,
    QueueError,
    ReaderFailed,
    TopicRecreated,
    TransportError,
)
from lvq_kafka.producing.producer import Producer
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.serve.write_requests import WriteRequest

__all__ = ["QueueWriter"]

logger = logging.getLogger("lvq_kafka.serve")

_FOR_ROOM = 10.0  # seconds that a write waits for room in a queue whose limits block
_OPENING = 30.0  # seconds until a producer must be open; later, its client has been answered
_CLOSING = 5.0  # seconds for what is on its way when a producer is closed
_BETWEEN = 5.0  # seconds between two producers that fail
_OF_THE_QUEUE = (Closed, ReaderFailed, QueueError, TopicRecreated)  # which its producer does not get over


class QueueWriter:
    """Writes values, as bytes, and deletes.

    A producer that has failed for good is replaced: rights may have been granted since, the queue declared again, and a
    client of Kafka that has lost count never sends again.

    Args:
        queue: the queue.
        opened: called with each producer that was opened.
    """

    def __init__(self, queue: LastValueQueue[Any], opened: Callable[[Producer[bytes]], object]) -> None:
        self._queue = queue
        self._codec = queue.value_codec
        self._opened = opened
        self._producer: Producer[bytes] | None = None
        self._failed: Producer[bytes] | None = None
        self._next = 0.0
        self._replacing = asyncio.Lock()
        self._over = False

    async def open(self) -> None:
        """Open a producer. Raises what `LastValueQueue.producer` raises."""
        call = partial(self._queue._producer, BYTES, {"max_block": _FOR_ROOM})
        self._producer = await in_thread(call, undo=Producer.close)
        self._opened(self._producer)
        if self._over:  # it was closed meanwhile
            await self._close()

    async def write(self, key: bytes, value: bytes | None, request: WriteRequest) -> Position:
        """Write a value as it is, or a delete, and return its position once it is durable.

        Raises:
            EncodeError: the queue's codec does not read it. Nothing is written.
            DeliveryUnknown: it may have been written.
            LVQError: nothing was written; see `Producer.send`.
        """
        if value is not None:
            await self._check(value, request)
        try:
            async with asyncio.timeout(_OPENING):
                producer = await self._working()
        except TimeoutError:
            raise BrokerUnavailable(
                f"No producer for {self._queue.name} could be opened within {_OPENING:g} s. Nothing was written.",
                code="_TIMED_OUT",
                retriable=True,
            ) from None
        try:
            return await (await self._send(producer, key, value, request))
        except LVQError as error:
            if _lasts(error):
                self._failed = producer
            raise

    async def _send(self, producer: Producer[bytes], key: bytes, value: bytes | None, request: WriteRequest) -> Receipt:
        headers = request.headers or None
        if value is None:
            return await producer.delete_async(key, headers, group=request.terms.get("group"))
        return await producer.put_async(key, value, headers, **request.terms_at(self._queue.cluster.now()))

    async def _check(self, value: bytes, request: WriteRequest) -> None:
        if self._codec is BYTES:
            return
        check = partial(self._codec.check, value, self._queue.topic, request.headers)
        if self._codec is TEXT or self._codec is JSON:
            check()
        else:  # it may ask a registry
            await in_thread(check)

    async def _working(self) -> Producer[bytes]:
        """Return the producer, or another one if that has failed, and some time ago.

        Raises:
            LVQError: another one cannot be opened, or the server ends.
        """
        async with self._replacing:
            if self._over:
                raise Closed(f"The server no longer writes {self._queue.name}.")
            failed, now = self._failed, time.monotonic()
            if now >= self._next and (self._producer is None or failed is self._producer):
                self._next = now + _BETWEEN
                await self._close()
                await self.open()
                self._failed = None
            if self._producer is None:
                raise Closed(f"There is no producer for {self._queue.name}; another is opened soon.")
            return self._producer

    async def aclose(self) -> None:
        """Close the producer. Writes that it leaves undecided are logged."""
        self._over = True
        await self._close()

    async def _close(self) -> None:
        producer, self._producer = self._producer, None
        try:
            if producer is not None:
                await producer.aclose(_CLOSING)
        except LVQError as error:
            logger.warning("a producer was closed, and left writes undecided: %s", error)


def _lasts(error: LVQError) -> bool:
    """Return whether the producer that raised this error takes no other message either."""
    if isinstance(error, TransportError):
        return not error.retriable and not isinstance(error, MessageTooLarge)
    return isinstance(error, _OF_THE_QUEUE)
