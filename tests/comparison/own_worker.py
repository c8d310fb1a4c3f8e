"""Carries out a script on a queue of this library."""

from __future__ import annotations

from collections import defaultdict, deque
from contextlib import ExitStack
from typing import Any

from lvq_kafka import Delivery, LastValueQueue, Message
from lvq_kafka.errors import QueueFull
from tests.comparison.steps import SentMessage

__all__ = ["OwnWorker"]

_NONE_COMES = 0.3  # seconds after which no message is expected any more


class OwnWorker:
    """One producer, and one consumer with a session for each consumer of the script."""

    def __init__(self, queue: LastValueQueue[str], opened: ExitStack) -> None:
        self._producer = opened.enter_context(queue.producer())
        self._consumer = opened.enter_context(queue.consumer())
        self._key_header = queue.key_header
        self._sessions: dict[str, Any] = {}
        self._held: dict[str, deque[Delivery[str]]] = defaultdict(deque)

    def send(self, message: SentMessage) -> bool:
        headers = {} if self._key_header is None or "key" not in message else {self._key_header: message["key"]}
        options: dict[str, Any] = {name: value for name, value in message.items() if name not in ("body", "key")}
        try:
            self._producer.send(Message(message["body"], headers=headers, **options)).result(30)
        except QueueFull:
            return False
        return True

    def open(self, consumer: str) -> None:
        self._sessions[consumer] = self._consumer.session()

    def close(self, consumer: str) -> None:
        for delivery in self._held.pop(consumer, ()):
            delivery.release()
        self._sessions.pop(consumer).close()

    def take(self, consumer: str) -> str | None:
        delivery = self._sessions[consumer].acquire(_NONE_COMES)
        if delivery is None:
            return None
        self._held[consumer].append(delivery)
        return str(delivery.value)

    def ack(self, consumer: str) -> None:
        self._held[consumer].popleft().ack(wait=True, timeout=30)

    def release(self, consumer: str) -> None:
        self._held[consumer].popleft().release()
