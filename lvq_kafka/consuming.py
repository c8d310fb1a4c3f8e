"""The engine of a consumer: one thread that owns the group member, and the ledger that everybody works on.

The thread polls, whatever the holders of messages do, so slow work never costs the membership. It feeds the ledger,
commits what is done, and answers the group's comings and goings. All other threads touch the ledger only, under
``changed``.
"""

from __future__ import annotations

import itertools
import logging
import time
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from threading import Condition, Event, Thread

from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.ledger import Item, Ledger
from lvq_kafka.core.mismatch import choose_keys
from lvq_kafka.core.records import Fetch
from lvq_kafka.errors import (
    AuthenticationFailed,
    Closed,
    DataLoss,
    LockLost,
    LVQError,
    ReaderFailed,
    TopicRecreated,
    TransportError,
    Unauthorized,
)
from lvq_kafka.groups import check_group
from lvq_kafka.ports import Commit, GroupMember, Log
from lvq_kafka.retrying import patiently

__all__ = ["ConsumerStats", "Consuming"]

logger = logging.getLogger("lvq_kafka.consumer")

_IDLE_POLL = 0.1  # seconds; how long close() waits for the thread to notice
_BUSY_POLL = 0.01  # seconds; how long an ack that is waited for can lie before it is committed
_PATIENCE = 30.0  # seconds; how long a partition that just came waits for the cluster to say where it begins and ends


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


class Consuming:
    """A consumer's thread, ledger and commits. `lvq_kafka.consumer.Consumer` is its face."""

    def __init__(
        self, log: Log, definition: QueueDefinition, *, max_in_work: int, commit_interval: float, revoke_grace: float
    ) -> None:
        self.topic = definition.topic
        self.changed = Condition()
        self._log = log
        self._definition = definition
        self._max_in_work = max_in_work
        self._commit_interval = commit_interval
        self._revoke_grace = revoke_grace
        self._ledger = Ledger(order=definition.order)
        self._lives = itertools.count(1)
        self._life: dict[int, int] = {}  # by assigned partition: a new number for each assignment
        self._durable: dict[int, int] = {}  # by partition: what the group has committed, as far as is known
        self._urgent = False  # whether somebody waits for a commit
        self._commit_at = 0.0
        self._failure: Exception | None = None
        self._counts = ConsumerStats()
        self._stop = Event()
        self._thread = Thread(target=self._run, name=f"lvq-consume-{definition.name}", daemon=True)

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Look whether the queue can be consumed, and begin.

        Raises:
            QueueNotDeclared: its group holds no position (R17).
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses.
        """
        described = self._log.describe_topic(self.topic)
        self._topic_id = described.id
        commits = self._log.committed(self._definition.group, self.topic)
        self._check_commits(range(described.partitions), commits)
        self._thread.start()

    def close(self, timeout: float) -> None:
        """Commit what is done, leave the group, and end the locks of what is not settled. Waits for the thread."""
        self._stop.set()
        with self.changed:
            self.changed.notify_all()
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                logger.warning(
                    "the consumer of %s did not close within %g s: the cluster does not answer; "
                    "what was not committed yet will be delivered again",
                    self._definition.name,
                    timeout,
                )

    # ---------------------------------------------------------------- for the holders of messages

    def acquire(self, timeout: float | None) -> tuple[Item, int] | None:
        """Wait for a message and take it, with the number of its assignment."""
        deadline = None if timeout is None else time.monotonic() + timeout
        ledger = self._ledger
        with self.changed:
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
                self.changed.wait(left)

    def ack(self, item: Item) -> None:
        """See `Delivery.ack`."""
        with self.changed:
            self._ledger.ack(item)
            self._counts.acked += 1
            self.changed.notify_all()

    def release(self, item: Item) -> None:
        """See `Delivery.release`."""
        with self.changed:
            self._ledger.release(item)
            self._counts.released += 1
            self.changed.notify_all()

    def reject(self, item: Item, reason: str) -> None:
        """See `Delivery.reject`."""
        with self.changed:
            self._ledger.reject(item)
            self._counts.rejected += 1
            self.changed.notify_all()
        logger.warning("rejected %s/%d/%d: %s", self.topic, item.partition, item.offset, reason or "no reason given")

    def wait_durable(self, item: Item, life: int, timeout: float | None) -> None:
        """See `Delivery.ack`."""
        deadline = None if timeout is None else time.monotonic() + timeout
        where = f"the ack of offset {item.offset} of partition {item.partition}"
        with self.changed:
            while self._durable.get(item.partition, 0) <= item.offset:
                if self._life.get(item.partition) != life:
                    if self._failure is not None:
                        raise ReaderFailed(f"The consumer stopped before {where} was committed.") from self._failure
                    raise LockLost(
                        f"The partition was revoked before {where} was committed.",
                        hint="Another consumer may handle the message again.",
                    )
                left = None if deadline is None else deadline - time.monotonic()
                if left is not None and left <= 0:
                    raise TimeoutError(f"Not durable within {timeout:g} s: {where}.")
                self._urgent = self._urgent or self._ledger.base(item.partition) > item.offset
                self.changed.wait(left)

    def stats(self) -> ConsumerStats:
        """What this consumer has and has done."""
        with self.changed:
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
        if self._stop.is_set():
            raise Closed(f"The consumer of {self._definition.name} is closed.")

    # ---------------------------------------------------------------- the thread

    def _run(self) -> None:
        try:
            self._member = self._log.member(self._definition.group, self.topic, self)
            try:
                while not self._stop.is_set():
                    self._step(self._member)
            except Exception as error:  # noqa: BLE001  # a dead consumer must say so, whatever killed it
                self._fail(error)
            finally:
                self._member.close()
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        finally:
            with self.changed:
                self._forget(self._life)

    def _fail(self, error: Exception) -> None:
        if self._stop.is_set():
            logger.warning("while the consumer of %s was closed: %s", self._definition.name, error)
            return
        logger.error("the consumer of %s has failed: %s", self._definition.name, error)
        with self.changed:
            self._failure = self._failure or error
            self.changed.notify_all()

    def _step(self, member: GroupMember) -> None:
        try:
            fetch = member.poll(_BUSY_POLL if self._urgent or self._ledger.in_work else _IDLE_POLL)
        except TransportError as error:
            if not error.retriable:
                raise
            self._note_trouble(error)
            self._stop.wait(_IDLE_POLL)
            return
        if fetch.positions:
            self._take(fetch)
        if self._urgent or time.monotonic() >= self._commit_at:
            self._commit(member, self._life)

    def _take(self, fetch: Fetch) -> None:
        definition, batch = self._definition, fetch.batch
        keys, mismatched = choose_keys(batch, self.topic, definition.key_header, definition.key_mismatch)
        columns = zip(batch.partitions, batch.offsets, keys, batch.values, batch.timestamps, batch.headers, strict=True)
        with self.changed:
            offer = self._ledger.offer
            for partition, offset, key, value, timestamp, headers in columns:
                offer(partition, offset, key, value, timestamp, headers)
            self._ledger.advance(fetch.positions)
            self._counts.mismatched += mismatched
            self._counts.trouble = ""
            self.changed.notify_all()

    def _commit(self, member: GroupMember, partitions: Collection[int]) -> None:
        """Commit for each of these the base of now, where it moved. A failure is made good by the next commit."""
        with self.changed:
            self._urgent = False
            bases = {partition: self._ledger.base(partition) for partition in partitions}
        self._commit_at = time.monotonic() + self._commit_interval
        moved = {partition: base for partition, base in bases.items() if base > self._durable[partition]}
        if not moved:
            return
        try:
            member.commit({partition: Commit(base) for partition, base in moved.items()})
        except (AuthenticationFailed, Unauthorized):
            raise
        except TransportError as error:
            self._note_trouble(error)
            return
        with self.changed:
            self._durable.update(moved)
            self._counts.trouble = ""
            self.changed.notify_all()

    def _note_trouble(self, error: TransportError) -> None:
        if not self._counts.trouble:
            logger.warning("the consumer of %s goes on after: %s", self._definition.name, error)
        self._counts.trouble = str(error)

    # ---------------------------------------------------------------- the group's comings and goings, on the thread

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """See `GroupListener.assigned`: start at the commits, and hand nothing out below the ends of now (G12).

        The end is the last stable offset. What lies above was not visible to a former holder either, so nothing below
        it can be older than what the group has consumed; and an open transaction does not hold the queue up.
        """
        self._check_commits(partitions, commits)
        if patiently(lambda: self._log.describe_topic(self.topic), _PATIENCE).id != self._topic_id:
            raise TopicRecreated(
                f"The topic {self.topic} was created anew while it was consumed.",
                topic=self.topic,
                hint="Declare the queue again and open a new consumer.",
            )
        first = patiently(lambda: self._log.start_offsets(self.topic), _PATIENCE)
        ends = patiently(lambda: self._log.end_offsets(self.topic, stable=True), _PATIENCE)
        for partition in partitions:
            if commits[partition].offset > ends[partition]:
                raise DataLoss(
                    f"Queue {self._definition.name} was consumed up to offset {commits[partition].offset} of partition "
                    f"{partition}, but topic {self.topic} ends at {ends[partition]}: records were lost.",
                    hint="Compare with another copy, then declare the queue anew.",
                )
        # What lies below the start of the log is gone: superseded and deleted long ago, or removed by retention.
        starts = {partition: max(commits[partition].offset, first[partition]) for partition in partitions}
        with self.changed:
            for partition, start in starts.items():
                self._ledger.assign(partition, start, ends[partition])
                self._life[partition] = next(self._lives)
                self._durable[partition] = commits[partition].offset
            self.changed.notify_all()
        logger.info("the consumer of %s has got partitions %s", self._definition.name, sorted(starts))
        return starts

    def revoked(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.revoked`: hand out no more, let holders finish for a moment, commit, end the locks."""
        mine = self._mine(partitions)
        with self.changed:
            self._ledger.withhold(mine)
            if not self._stop.is_set() and self._failure is None:
                self.changed.wait_for(
                    lambda: self._stop.is_set() or not any(self._ledger.held(mine)), self._revoke_grace
                )
        try:
            self._commit(self._member, mine)
        finally:
            with self.changed:
                self._forget(mine)
            logger.info("the consumer of %s has given up partitions %s", self._definition.name, sorted(mine))

    def lost(self, partitions: Sequence[int]) -> None:
        """See `GroupListener.lost`: the locks are over, and nothing can be committed."""
        mine = self._mine(partitions)
        with self.changed:
            self._forget(mine)
        logger.warning("the consumer of %s has lost partitions %s", self._definition.name, sorted(mine))

    def _mine(self, partitions: Collection[int]) -> list[int]:
        return [partition for partition in partitions if partition in self._life]

    def _forget(self, partitions: Collection[int]) -> None:
        """End the assignment of these partitions. Holds the lock."""
        partitions = list(partitions)
        self._counts.lost += len(self._ledger.revoke(partitions))
        for partition in partitions:
            del self._life[partition]
        self.changed.notify_all()

    def _check_commits(self, partitions: Collection[int], commits: Mapping[int, Commit]) -> None:
        definition = self._definition
        check_group(definition.group, self.topic, partitions, commits, queue=definition.name)
