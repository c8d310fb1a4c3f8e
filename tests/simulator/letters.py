"""Dead letters in flight: the parts of a cluster, its writer and a consumer that `DeadLetters` needs."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Sequence
from typing import Any, cast

from lvq_kafka.cluster import Cluster, LogWriter, Receipt, TopicDescription, Topics
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.core.consumer.consumer_core import ConsumerCore
from lvq_kafka.core.consumer.consumer_transaction import LedgerStep
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.errors import DeliveryFailed

__all__ = ["Letters", "Removing"]


class Removing:
    """A core without a lock, which removes messages once their dead letters are stored."""

    topic = "topic"

    def __init__(self, core: ConsumerCore[Any], clock: Callable[[], float]) -> None:
        self.clock = clock
        self._core = core

    @property
    def shared(self) -> SharedState:
        return cast(SharedState, self)

    def __enter__(self) -> ConsumerCore[Any]:
        return self._core

    def __exit__(self, *_: object) -> None: ...

    def apply(self, step: LedgerStep, item: Item) -> None:
        step(self._core.ledger, item)


class Letters:
    """A dead letter topic. The world decides its appends one by one, at any time."""

    def __init__(self) -> None:
        self._waiting: deque[_Letter] = deque()

    @property
    def cluster(self) -> Cluster:
        return cast(Cluster, self)

    @property
    def topics(self) -> Topics:
        return cast(Topics, self)

    def describe(self, topic: str) -> TopicDescription:
        return TopicDescription(topic, "id", 1, 1)

    def writer(self, *, max_block: float) -> LogWriter:
        return cast(LogWriter, self)

    def append(
        self, topic: str, key: bytes, value: bytes | None, headers: Sequence[tuple[str, bytes | None]]
    ) -> Receipt:
        letter = _Letter()
        self._waiting.append(letter)
        return cast(Receipt, letter)

    def decide(self, *, stored: bool) -> None:
        """Acknowledge the write of the oldest letter, or let it fail with an unknown outcome."""
        self._waiting.popleft().decide(
            None if stored else DeliveryFailed("The broker has refused it.", code="_MSG_TIMED_OUT")
        )

    def __len__(self) -> int:
        return len(self._waiting)


class _Letter:
    """A dead letter in flight."""

    def __init__(self) -> None:
        self._error: Exception | None = None
        self._callback: Callable[[Receipt], object]

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        self._callback = callback

    def exception(self, timeout: float | None = None) -> Exception | None:
        return self._error

    def decide(self, error: Exception | None) -> None:
        self._error = error
        self._callback(cast(Receipt, self))
