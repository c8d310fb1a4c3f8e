"""Consuming a queue: messages are acquired, worked on, and removed by an acknowledgement."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress
from types import TracebackType
from typing import Generic, Self

from lvq_kafka.codecs import Codec, Undecodable, V, check_undecodable
from lvq_kafka.consuming import Consuming
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.delivery import Delivery
from lvq_kafka.errors import Closed, ConfigError, DecodeError, LockLost
from lvq_kafka.holdings import ConsumerStats, Holdings
from lvq_kafka.ports import Log

__all__ = ["Consumer", "ConsumerStats"]


class Consumer(Generic[V]):
    """A consumer of a queue. It shares the queue's partitions with all other consumers of the queue.

    Messages come as deliveries: exclusive (G9), of each key only the newest value and only one at a time (G13), in
    queue order per partition, and none before the consumer knows what lies behind it in the log (G12). A delivery that
    is not acknowledged comes again, here or elsewhere (G10)::

        for delivery in consumer:
            with delivery:                # a clean exit acks, an exception releases
                work(delivery.value)

    A message is chosen at the moment it is acquired, so none grows old in a buffer: what waits is replaced by newer
    values. What is held in memory is the newest value of each key that waits in the assigned partitions, and every
    message without a key.

    Partitions are looked at one by one: a key that lies in two of them, because partitions were added or a writer uses
    another partitioner, may be handed out once for each. Views and browsers tell the one that counts (R14).

    Thread-safe: several threads may acquire from one consumer. It joins the group when it is made, from a thread of
    its own, and leaves when it is closed.

    Args:
        log: where the queue lies.
        definition: the queue. Its group must have been declared (`lvq_kafka.groups.declare_group`).
        codec: how values are read.
        undecodable: a value that the codec cannot read raises when it is asked for, is rejected and skipped, or is
            given as bytes.
        max_in_work: how many messages may be held at a time, over all threads; `acquire` waits beyond that.
        commit_interval: seconds over which acks are gathered into one commit.
        revoke_grace: seconds that holders get to finish when the group moves a partition to another consumer.

    Raises:
        QueueNotDeclared: the queue's group holds no position: never declared, expired or deleted (R17).
        TopicNotFound: the topic does not exist.
        ConfigError: an option is out of range.
        TransportError: the cluster cannot be reached or refuses.
    """

    def __init__(
        self,
        log: Log,
        definition: QueueDefinition,
        codec: Codec[V],
        *,
        undecodable: Undecodable = "raise",
        max_in_work: int = 1000,
        commit_interval: float = 0.2,
        revoke_grace: float = 1.0,
    ) -> None:
        check_undecodable(undecodable)
        _check_options(max_in_work, commit_interval, revoke_grace)
        self._name = definition.name
        self._codec = codec
        self._undecodable = undecodable
        self._skipped = 0
        self._holdings = Holdings(definition, max_in_work)
        self._consuming = Consuming(
            log, definition, self._holdings, commit_interval=commit_interval, revoke_grace=revoke_grace
        )
        self._consuming.start()

    def acquire(self, timeout: float | None = None) -> Delivery[V] | None:
        """Take the next message; wait for one for ``timeout`` seconds, or as long as it takes.

        It also waits while ``max_in_work`` messages are held. Returns None when none came in time.

        Raises:
            Closed: the consumer was closed.
            LVQError: the consumer has stopped because of this error (`QueueNotDeclared`, `TopicNotFound`, `DataLoss`,
                `KeyMismatch`, `TransportError` …), or of another one (`ReaderFailed`, with its cause).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        while True:
            taken = self._holdings.acquire(None if deadline is None else max(0.0, deadline - time.monotonic()))
            if taken is None:
                return None
            delivery = Delivery(self._holdings, *taken, self._codec, raw_on_error=self._undecodable == "raw")
            if self._undecodable != "skip" or self._readable(delivery):
                return delivery

    def __iter__(self) -> Iterator[Delivery[V]]:
        """The messages as they come, without an end, until the consumer is closed.

        Raises:
            LVQError: as `acquire`.
        """
        while True:
            try:
                delivery = self.acquire()
            except Closed:
                return
            if delivery is not None:
                yield delivery

    def _readable(self, delivery: Delivery[V]) -> bool:
        try:
            delivery.value  # noqa: B018  # decodes
        except DecodeError as error:
            self._skipped += 1
            with suppress(LockLost):  # then whoever has the partition now skips it
                delivery.reject(str(error))
            return False
        return True

    @property
    def stats(self) -> ConsumerStats:
        """What this consumer has and has done."""
        return self._holdings.stats()

    @property
    def skipped(self) -> int:
        """How many messages were skipped because their values could not be read."""
        return self._skipped

    def close(self, timeout: float = 10.0) -> None:
        """Commit what is done and leave the group. Messages that are held are lost to their holders at once.

        Let workers finish first. Returns after ``timeout`` seconds at the latest, then with a warning in the log; safe
        to call more than once.
        """
        self._consuming.close(timeout)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    def __repr__(self) -> str:
        return f"<Consumer of {self._name}>"


def _check_options(max_in_work: int, commit_interval: float, revoke_grace: float) -> None:
    for option, value, ok in (
        ("max_in_work", max_in_work, max_in_work >= 1),
        ("commit_interval", commit_interval, 0 <= commit_interval <= 60),
        ("revoke_grace", revoke_grace, 0 <= revoke_grace <= 60),
    ):
        if not ok:
            raise ConfigError(
                f"{option}={value!r} is out of range.",
                options=[option],
                hint="At least 1." if option == "max_in_work" else "0 to 60 seconds.",
            )
