"""What a consumer holds: the ledger, shared between the thread that reads and those that work.

The only place that knows the lock. On one side holders acquire and settle messages; on the other side the reading
thread (`lvq_kafka.consuming`) brings records, takes what can be committed, and gives and ends assignments.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Collection, Mapping
from dataclasses import dataclass, replace
from threading import Condition

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.mismatch import choose_keys
from lvq_kafka.core.records import Fetch
from lvq_kafka.errors import Closed, LockLost, LVQError, ReaderFailed
from lvq_kafka.forking import left_behind, tell_of_forks

__all__ = ["ConsumerStats", "Holdings"]

logger = logging.getLogger("lvq_kafka.consumer")


@dataclass(slots=True)
class ConsumerStats:
    """What a consumer has, and what it has done since it was opened. Counts are messages."""

    partitions: tuple[int, ...] = ()
    """The partitions it is assigned now."""
    catching_up: tuple[int, ...] = ()
    """Those it must still read to their end before it hands out anything of them (G12)."""
    available: int = 0
    in_work: int = 0
    delivered: int = 0
    redelivered: int = 0
    acked: int = 0
    released: int = 0
    rejected: int = 0
    lost: int = 0
    """Deliveries whose partition went away before they were settled."""
    mismatched: int = 0
    """Records whose key header and record key disagree (R16)."""
    trouble: str = ""
    """Why the cluster cannot be reached, or commits fail, just now; empty when all is well."""


class Holdings:
    """A ledger for several threads, with what the group is known to have committed."""

    def __init__(self, definition: QueueDefinition, max_in_work: int) -> None:
        self.topic = definition.topic
        self._definition = definition
        self._max_in_work = max_in_work
        self._changed = Condition()
        self._ledger = Ledger(order=definition.order)
        self._lives = itertools.count(1)
        self._life: dict[int, int] = {}  # by assigned partition: a number of its own for each assignment
        self._durable: dict[int, int] = {}  # by partition: what the group has committed, as far as is known
        self._urgent = False
        self._counts = ConsumerStats()
        self._failure: Exception | None = None
        self._closed = False
        tell_of_forks(self)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self._changed = Condition()
        self.fail(left_behind(f"The consumer of {self._definition.name}"))
        self.forget(self.partitions)

    # ---------------------------------------------------------------- for holders

    def acquire(self, timeout: float | None) -> tuple[Item, int] | None:
        """Wait for a message and take it, with the number of its assignment.

        Raises:
            Closed: the consumer was closed.
            LVQError: it has stopped because of this error, or of another one (`ReaderFailed`).
        """
        deadline = None if timeout is None else time.monotonic() + timeout
        ledger = self._ledger
        with self._changed:
            while True:
                self._check()
                item = ledger.acquire() if ledger.in_work < self._max_in_work else None
                if item is not None:
                    self._counts.delivered += 1
                    self._counts.redelivered += item.deliveries > 1
                    return item, self._life[item.partition]
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    return None
                self._changed.wait(left)

    def ack(self, item: Item) -> None:
        """See `lvq_kafka.delivery.Delivery.ack`."""
        with self._changed:
            self._ledger.ack(item)
            self._counts.acked += 1
            self._changed.notify_all()

    def release(self, item: Item) -> None:
        """See `lvq_kafka.delivery.Delivery.release`."""
        with self._changed:
            self._ledger.release(item)
            self._counts.released += 1
            self._changed.notify_all()

    def reject(self, item: Item, reason: str) -> None:
        """See `lvq_kafka.delivery.Delivery.reject`."""
        with self._changed:
            self._ledger.reject(item)
            self._counts.rejected += 1
            self._changed.notify_all()
        logger.warning("rejected %s/%d/%d: %s", self.topic, item.partition, item.offset, reason or "no reason given")

    def wait_durable(self, item: Item, life: int, timeout: float | None) -> None:
        """See `lvq_kafka.delivery.Delivery.ack`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        what = f"the ack of offset {item.offset} of partition {item.partition}"
        with self._changed:
            while self._durable.get(item.partition, 0) <= item.offset:
                if self._life.get(item.partition) != life:
                    if self._failure is not None:
                        raise ReaderFailed(f"The consumer stopped before {what} was committed.") from self._failure
                    raise LockLost(
                        f"The partition was revoked before {what} was committed.",
                        hint="Another consumer may handle the message again.",
                    )
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"Not durable within {timeout:g} s: {what}.")
                if not self._urgent and self._ledger.base(item.partition) > item.offset:
                    self._urgent = True
                    self._changed.notify_all()
                self._changed.wait(left)

    def stats(self) -> ConsumerStats:
        """What this consumer has and has done."""
        with self._changed:
            return replace(
                self._counts,
                partitions=tuple(sorted(self._life)),
                catching_up=tuple(sorted(self._ledger.catching_up)),
                available=self._ledger.available,
                in_work=self._ledger.in_work,
            )

    def _check(self) -> None:
        """Raise when no message will come any more."""
        failure = self._failure
        if isinstance(failure, LVQError):
            raise failure
        if failure is not None:
            raise ReaderFailed(
                f"The consumer of {self._definition.name} has stopped: {failure}", hint="Open a new one."
            ) from failure
        if self._closed:
            raise Closed(f"The consumer of {self._definition.name} is closed.")

    # ---------------------------------------------------------------- for the reading thread

    @property
    def urgent(self) -> bool:
        """Whether somebody waits for a commit that can be made."""
        return self._urgent

    @property
    def in_work(self) -> int:
        """How many messages are held."""
        return self._ledger.in_work

    @property
    def partitions(self) -> list[int]:
        """The partitions that are assigned."""
        return list(self._life)

    def take(self, fetch: Fetch) -> None:
        """Take in what was read.

        Raises:
            KeyMismatch: a header and a key disagree, and the queue's policy is ``"fail"``.
        """
        definition, batch = self._definition, fetch.batch
        keys, mismatched = choose_keys(batch, self.topic, definition.key_header, definition.key_mismatch)
        columns = zip(batch.partitions, batch.offsets, keys, batch.values, batch.timestamps, batch.headers, strict=True)
        with self._changed:
            offer = self._ledger.offer
            for partition, offset, key, value, timestamp, headers in columns:
                offer(partition, offset, key, value, timestamp, headers)
            self._ledger.advance(fetch.positions)
            self._counts.mismatched += mismatched
            self._counts.trouble = ""
            self._changed.notify_all()

    def assign(self, starts: Mapping[int, int], ends: Mapping[int, int], committed: Mapping[int, int]) -> None:
        """Begin with these partitions: read from the starts, hand out from the ends on."""
        with self._changed:
            for partition, start in starts.items():
                self._ledger.assign(partition, start, ends[partition])
                self._life[partition] = next(self._lives)
                self._durable[partition] = committed[partition]
            self._changed.notify_all()

    def withhold(self, partitions: Collection[int]) -> None:
        """Hand out nothing more of these."""
        with self._changed:
            self._ledger.withhold(partitions)

    def wait_finished(self, partitions: Collection[int], timeout: float) -> bool:
        """Wait until nothing of these is held, or nobody shall wait any more; False when time is up or a commit due."""
        with self._changed:
            self._changed.wait_for(lambda: self._urgent or self._finished(partitions), timeout)
            return self._finished(partitions)

    def _finished(self, partitions: Collection[int]) -> bool:
        return self._closed or self._failure is not None or not any(self._ledger.held(partitions))

    def forget(self, partitions: Collection[int]) -> None:
        """End the assignment of these partitions, and with it the locks on their messages."""
        with self._changed:
            self._counts.lost += len(self._ledger.revoke(partitions))
            for partition in partitions:
                del self._life[partition]
            self._changed.notify_all()

    def to_commit(self, partitions: Collection[int]) -> dict[int, int]:
        """The offset to commit for each of these partitions where it is not what is committed already."""
        with self._changed:
            self._urgent = False
            bases = {partition: self._ledger.base(partition) for partition in partitions}
            return {partition: base for partition, base in bases.items() if base > self._durable[partition]}

    def committed(self, offsets: Mapping[int, int]) -> None:
        """The group has stored these offsets."""
        with self._changed:
            self._durable.update(offsets)
            self._counts.trouble = ""
            self._changed.notify_all()

    def trouble(self, error: Exception) -> None:
        """Something does not work just now."""
        if not self._counts.trouble:
            logger.warning("the consumer of %s goes on after: %s", self._definition.name, error)
        self._counts.trouble = str(error)

    def fail(self, error: Exception) -> None:
        """Nothing will come any more, because of this."""
        with self._changed:
            self._failure = self._failure or error
            self._changed.notify_all()

    def close(self) -> None:
        """Nothing will be handed out any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
