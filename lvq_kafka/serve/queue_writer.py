"""A queue that can be written: one producer for all requests."""

from __future__ import annotations

import logging
from functools import partial
from typing import Any

from lvq_kafka.codecs import BYTES, JSON, TEXT
from lvq_kafka.core.facts import Position
from lvq_kafka.errors import LVQError
from lvq_kafka.producing.producer import Producer
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.serve.write_requests import WriteRequest

__all__ = ["QueueWriter"]

logger = logging.getLogger("lvq_kafka.serve")

_FOR_ROOM = 10.0  # seconds that a write waits for room in a queue whose limits block
_CLOSING = 5.0  # seconds for what is on its way when the server ends


class QueueWriter:
    """Writes values, as bytes, and deletes.

    Args:
        queue: the queue.
        producer: an open producer of it.
    """

    def __init__(self, queue: LastValueQueue[Any], producer: Producer[bytes]) -> None:
        self._queue = queue
        self._codec = queue.value_codec
        self.producer = producer

    @classmethod
    async def open(cls, queue: LastValueQueue[Any]) -> QueueWriter:
        """Open a producer. Raises what `LastValueQueue.producer` raises."""
        call = partial(queue._producer, BYTES, {"max_block": _FOR_ROOM})
        return cls(queue, await in_thread(call, undo=Producer.close))

    async def write(self, key: bytes, value: bytes | None, request: WriteRequest) -> Position:
        """Write a value as it is, or a delete, and return its position once it is durable.

        Raises:
            EncodeError: the queue's codec does not read it. Nothing is written.
            DeliveryUnknown: it may have been written.
            LVQError: nothing was written; see `Producer.send`.
        """
        headers = request.headers or None
        if value is None:  # on a queue with limits, it may have to ask how full that is
            delete = partial(self.producer.delete, key, headers, group=request.terms.get("group"))
            return await (await in_thread(delete))
        await self._check(value, request)
        terms = request.terms_at(self._queue.cluster.now())
        return await (await self.producer.put_async(key, value, headers, **terms))

    async def _check(self, value: bytes, request: WriteRequest) -> None:
        if self._codec is BYTES:
            return
        check = partial(self._codec.check, value, self._queue.topic, request.headers)
        if self._codec is TEXT or self._codec is JSON:
            check()
        else:  # it may ask a registry
            await in_thread(check)

    async def aclose(self) -> None:
        """Close the producer. Writes that it leaves undecided are logged."""
        try:
            await self.producer.aclose(_CLOSING)
        except LVQError as error:
            logger.warning("the end of the server left writes undecided: %s", error)
