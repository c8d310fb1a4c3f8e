"""Consuming a queue: acquire messages, process them, and ack them to remove them."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, get_args
from weakref import finalize

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import Codec, Undecodable, V, check_undecodable
from lvq_kafka.consuming.acquiring import Acquiring, AsyncDeliveries
from lvq_kafka.consuming.auto_reclaim import AutoReclaim
from lvq_kafka.consuming.consumer_session import Session
from lvq_kafka.consuming.consumer_stats import ConsumerStats
from lvq_kafka.consuming.consumer_thread import ConsumerThread
from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.delivery import Delivery, items_of
from lvq_kafka.consuming.expiry_letters import ExpiryLetters
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.consuming.page_file import check_page_directory
from lvq_kafka.consuming.sessions import OpenSession
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.consuming.settlers import DirectSettler
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.consuming.workers import Handler, Workers
from lvq_kafka.core.consumer.hand_out import ConsumerLimits
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.text.validation import (
    as_float,
    at_least_one,
    choice,
    durations,
    instance,
    limit,
    seconds,
    text,
    waiting,
)
from lvq_kafka.declared.group_checks import OnForeignCommits
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.producing.producer import Producer
from lvq_kafka.runtime.aio import in_thread
from lvq_kafka.runtime.forking import Bound

__all__ = ["Consumer", "ConsumerStats"]

_CLOSING = 10.0  # seconds


class Consumer(Bound, Generic[V]):
    """A consumer of a queue. All consumers of the queue share its partitions.

    Messages arrive as deliveries. A delivery is exclusive (G9). Only the newest value of each key is delivered, one at
    a time (G13), in queue order per partition, and not before the consumer knows what follows it in the log (G12). A
    message that is not acked is redelivered, here or elsewhere (G10). Deliveries can be settled in any order::

        for delivery in consumer:
            with delivery:                # a clean exit acks, an exception releases
                work(delivery.value)

        async with await queue.consumer_async() as consumer:
            async for delivery in consumer: ...    # the same in asyncio, without a thread per message

        consumer.run(handle, workers=8)            # the same with a callback, in threads

    Messages are chosen at the moment they are acquired, so none goes stale in a buffer: newer values replace waiting
    ones. The consumer holds in memory the newest waiting value of each key in its assigned partitions, and every
    waiting message without a key; or on disk the values beyond the queue's limits, if these have the policy ``"disk"``.

    A partition has one consumer at a time. So on a queue with one partition, the default, a second consumer stands by
    until the first one leaves or dies; ``stats.standby`` says so. To work in parallel, share one consumer: between
    threads, between tasks, with ``run(handle, workers=8)``, or by `session`. To work in several processes, declare the
    queue on as many partitions.

    Each partition is treated separately. If a key lies in two partitions, because partitions were added or a writer
    uses another partitioner, it may be delivered once from each. Views and browsers show the one that counts (R14).

    Thread-safe: several threads may acquire from one consumer. A background thread joins the group when the consumer is
    created and leaves it on close. Slow handlers never cost the group membership. If a consumer is abandoned without
    `close`, it is closed when the last reference to it and to everything acquired from it is dropped, with a
    `ResourceWarning` and a log line. One that is still open when the process exits has five seconds, with all other
    open objects, to commit acked messages and to leave the group. An ack that it cannot commit is lost, so its message
    is redelivered.

    Args:
        cluster: the cluster that holds the queue.
        definition: the queue. Its group must have been declared (`lvq_kafka.declared.group_checks.declare_group`).
        codec: decodes the values.
        reclaim: removes the messages that the topic's queues have consumed; for ``auto_reclaim``.
        watch: notices alterations of the queue.
        options: see `ConsumerOptions`.

    Raises:
        GroupNotFound, OffsetsExpired, PartitionsAdded: the queue's group has no offsets, or not for all partitions
            (R17). These are also `QueueNotDeclared`.
        CommitMapRefused: another client has committed with the queue's group.
        TopicNotFound: the topic, the dead letter topic or the expiry topic does not exist.
        TopicRecreated: the topic was recreated since the queue was declared or consumed.
        ConfigError: an option is out of range, or does not fit the queue.
        TransportError: the cluster cannot be reached or refuses.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        codec: Codec[V],
        reclaim: Callable[[], object] | None = None,
        watch: RegistryWatch | None = None,
        *,
        undecodable: Undecodable = "raise",
        max_in_work: int = 1000,
        prefetch: int = 1,
        lock_timeout: float | None = None,
        max_deliveries: int | None = None,
        dead_letters: str | None = None,
        durable_counts: bool = False,
        commit_interval: float = 0.2,
        revoke_grace: float = 1.0,
        on_foreign_commits: OnForeignCommits = "refuse",
        auto_reclaim: float | None = None,
        page_directory: str | os.PathLike[str] | None = None,
    ) -> None:
        check_undecodable(undecodable)
        at_least_one(max_in_work=max_in_work, prefetch=prefetch)
        if max_deliveries is not None:
            at_least_one(max_deliveries=max_deliveries)
        seconds(commit_interval=commit_interval, revoke_grace=revoke_grace)
        if lock_timeout is not None:
            durations("Pass None to hold messages without a limit.", lock_timeout=lock_timeout)
            lock_timeout = as_float(lock_timeout)
        if dead_letters is not None:
            text("dead_letters", dead_letters)
        choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
        if auto_reclaim is not None:
            durations("Leave it out to keep what was consumed.", auto_reclaim=auto_reclaim)
        if page_directory is not None:
            page_directory = check_page_directory(page_directory, definition)
        if watch is not None:
            watch.refresh_if_due()
            definition = watch.known
        self.name = definition.name
        self.topic = definition.topic
        self._shared = SharedState(
            definition,
            ConsumerLimits(max_in_work, lock_timeout, max_deliveries, durable_counts),
            now=cluster.now,
            page_directory=page_directory,
        )
        monitor = GroupMonitor(cluster, definition, on_foreign_commits)
        self._dead_letters = DeadLetters(cluster, dead_letters, self._shared, definition.dead_letters)
        expiry_letters = ExpiryLetters(cluster, definition.expiry_topic, self._shared)
        self._settler = DirectSettler(self._shared, self._dead_letters)
        self._acquiring = Acquiring(self._shared, self._dead_letters, codec, undecodable=undecodable, prefetch=prefetch)
        self._thread = ConsumerThread(
            definition.name,
            lambda listener: cluster.member(definition.group, definition.topic, listener),
            self._shared,
            monitor,
            self._dead_letters,
            expiry_letters,
            commit_interval=commit_interval,
            revoke_grace=revoke_grace,
            watch=watch,
        )
        reclaiming = None
        if auto_reclaim is not None and reclaim is not None:
            reclaiming = AutoReclaim(definition.name, reclaim, auto_reclaim, self._shared)
        self._shut = partial(_shut, self._shared, self._dead_letters, expiry_letters, reclaiming, self._thread)
        # Everything that can use this consumer holds the settler: the consumer, its iterations, its deliveries.
        self._unclosed = finalize(self._settler, self._thread.abandon, partial(self._shut, _CLOSING))
        self._unclosed.atexit = False  # its thread takes care of that
        self._thread.start()
        if reclaiming is not None:
            reclaiming.start()

    # ---------------------------------------------------------------- taking messages

    def acquire(self, timeout: float | None = None) -> Delivery[V] | None:
        """Take the next message, waiting up to ``timeout`` seconds for one, or indefinitely.

        It also waits while ``max_in_work`` messages are held. Returns None on timeout.

        Raises:
            Closed: the consumer was closed.
            StateError: called without a ``timeout`` in a callback on the consumer's own thread.
            LVQError: the consumer has stopped because of this error (`QueueNotDeclared`, `TopicNotFound`, `DataLoss`,
                `KeyMismatch`, `PageUnreadable`, `TransportError` …), or of another one (`ReaderFailed`, with its
                cause).
        """
        taken = self._acquiring.acquire(1, timeout, self._settler)
        return taken[0] if taken else None

    def acquire_many(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """Take up to ``most`` available messages, waiting for the first as `acquire` does.

        Returns an empty list on timeout. Raises what `acquire` raises, and `ConfigError` if ``most`` is not a positive
        integer.
        """
        return self._acquiring.acquire(most, timeout, self._settler)

    def ack_many(
        self, deliveries: Iterable[Delivery[V]], *, wait: bool = False, timeout: float | None = None
    ) -> Settlement:
        """Ack several deliveries at once, in half the time of separate `Delivery.ack` calls.

        The returned settlement covers all of them.

        ::

            while batch := consumer.acquire_many(100, timeout=1.0):
                store(batch)
                consumer.ack_many(batch)

        Every delivery that can be acked is, even if others cannot. The settlement is durable when all of them are.

        Raises:
            StateError: a delivery belongs to another consumer or to a transaction; then none is acked. With ``wait``,
                also in a callback on the consumer's own thread.
            ConfigError: ``deliveries`` contains something else; then none is acked.
            AlreadySettled, LockLost: the first delivery that could not be acked, for the reasons of `Delivery.ack`. The
                notes of the error give the number of failures. All other deliveries are acked.
            LockLost, OutcomeUnknown, ReaderFailed: with ``wait``, as in `Delivery.ack`.
        """
        if wait:
            timeout = waiting(timeout)
        settlement = self._settler.ack_many(items_of(deliveries, self._settler))
        if wait:
            settlement.result(timeout)
        return settlement

    async def acquire_async(self, timeout: float | None = None) -> Delivery[V] | None:
        """Async version of `acquire`. Waits without a thread; holds nothing when cancelled."""
        taken = await self.acquire_many_async(1, timeout)
        return taken[0] if taken else None

    async def acquire_many_async(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """Async version of `acquire_many`. Waits without a thread; holds nothing when cancelled."""
        return await self._acquiring.acquire_async(most, timeout, self._settler)

    def __iter__(self) -> Iterator[Delivery[V]]:
        """Yield messages as they arrive, until the consumer is closed.

        Raises:
            LVQError: as in `acquire`.
        """
        return self._acquiring.iterate(self._settler)

    def __aiter__(self) -> AsyncDeliveries[V]:
        """Async version of `__iter__`."""
        return self._acquiring.iterate_async(self._settler)

    def run(self, handler: Handler[V], *, workers: int = 1, retry_delay: float = 1.0) -> None:
        """Call ``handler`` with each message in ``workers`` threads until the consumer is closed.

        If the handler returns without settling a message, it is acked. If it raises, the error is logged and the
        message is released; or, on the last of ``max_deliveries``, rejected with the error as the reason.

        On Ctrl-C, waits for running handlers to finish and raises `KeyboardInterrupt`. The same applies to whatever a
        signal handler raises, such as ``signal.signal(SIGTERM, lambda *_: sys.exit(143))``. To stop it from another
        thread, `pause`, wait until ``stats.in_work`` is 0, and `close`. With an immediate `close`, handlers lose the
        messages they are working on, and these are redelivered.

        Args:
            retry_delay: seconds before a message whose handler raised is delivered again.

        Raises:
            LVQError: the consumer has stopped because of this error.
        """
        Workers(
            self.name,
            lambda stop: self._acquiring.iterate(self._settler, 1, stop),
            handler,
            workers=workers,
            retry_delay=retry_delay,
            attempts=lambda: self._shared.limits.max_deliveries,
        ).run()

    def transaction(self, producer: Producer[Any], *, timeout: float | None = None) -> Transaction[V]:
        """Return a transaction for a ``with`` block: acks and the producer's sends commit as one.

        ::

            with consumer.transaction(producer) as tx:
                for delivery in tx.acquire_many(100, timeout=1.0):
                    producer.put(delivery.key, work(delivery.value))
                    delivery.ack()

        An exception aborts it, and its messages are redelivered. A consumer has one transaction at a time; while it
        commits, other acks wait. If none can begin for 30 s, the consumer leaves its partitions to others and rejoins
        when one begins, so keep trying.

        Args:
            producer: a transactional producer of the same cluster, with no open transaction. Open it before the
                consumer: it ends any transaction left open by a dead worker with the same id, which an opening consumer
                would otherwise wait for.
            timeout: seconds for each step of the commit; 60 by default.

        Raises (on entering the block):
            StateError: a transaction is already open, or this is a callback on the consumer's own thread.
            OutcomeUnknown: the outcome of the previous transaction did not become known in time.
            TransportError: the producer could not begin a transaction in time.

        Raises (on leaving the block, with the transaction aborted):
            LockLost: a message went, or may have gone, to another consumer, or its ``lock_timeout`` expired.
            DeliveryFailed: the producer could not send something.
            TransportError: the commit failed; ``code`` is ``"_FENCED"`` if a newer producer with the same transactional
                id has taken over.

        Raises (if the outcome of the commit is unknown):
            OutcomeUnknown: the consumer resumes when the group knows the outcome: when the next transaction begins,
                which ends the open one, or when ``transaction.timeout.ms`` expires. Until then it commits nothing and
                soon hands out nothing. The settlements of the transaction report the outcome.
        """
        return self._transact(producer, timeout, None)

    def _transact(self, producer: Producer[Any], timeout: float | None, session: OpenSession | None) -> Transaction[V]:
        instance("producer", producer, Producer, "Open a transactional one: queue.producer(transactional_id=...).")
        return Transaction(
            self._acquiring,
            self._shared,
            self._dead_letters,
            producer,
            lambda: self._thread.member,
            timeout=waiting(timeout),
            session=session,
        )

    def session(self) -> Session[V]:
        """Return a new session, for a ``with`` block; also in asyncio.

        It matters where the queue declares message groups: the messages of a group are in work for one session at a
        time, in order (R36). Without a session of their own, each thread that acquires from the consumer is one until
        it ends, and so is each worker of `run`; all asyncio tasks together are one.

        ::

            with consumer.session() as session:
                for delivery in session: ...

            async with consumer.session() as session:
                async for delivery in session: ...

        Its deliveries are settled like any others, by anyone. In a queue without groups, sessions make no difference.
        """
        return Session(OpenSession(self._shared), self._acquiring, self._settler, self._transact)

    # ---------------------------------------------------------------- state and lifecycle

    def pause(self) -> None:
        """Stop handing out messages. Newer values still replace waiting ones; held ones stay held."""
        with self._shared as core:
            core.pause(True)

    def resume(self) -> None:
        """Resume handing out messages."""
        with self._shared as core:
            core.pause(False)

    @property
    def paused(self) -> bool:
        """True while the consumer is paused."""
        return self._shared.core.hand_out.paused

    @property
    def stats(self) -> ConsumerStats:
        """The consumer's current state and counters."""
        return self._shared.stats

    @property
    def skipped(self) -> int:
        """The number of messages skipped because their values could not be decoded."""
        return self._acquiring.skipped

    def close(self, timeout: float | None = _CLOSING) -> None:
        """Commit all settled messages and leave the group. Holders lose their messages at once.

        Everything settled before is committed; settling afterwards raises `LockLost`. If that commit is not known to be
        stored, it is logged, and waiters for a settlement are notified.

        Let workers finish first. Returns after ``timeout`` seconds at the latest, then with a logged warning. Safe to
        call repeatedly and from any thread.
        """
        seconds_left = limit(timeout)
        self._unclosed.detach()
        self._shut(seconds_left)

    async def aclose(self, timeout: float | None = _CLOSING) -> None:
        """Async version of `close`. If cancelled, closing continues in the background."""
        await in_thread(partial(self.close, timeout))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self.close()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<Consumer of {self.name}>"


def _shut(
    shared: SharedState,
    dead_letters: DeadLetters,
    expiry_letters: ExpiryLetters,
    reclaiming: AutoReclaim | None,
    thread: ConsumerThread,
    timeout: float,
) -> None:
    """See `Consumer.close`. A function, because it must outlive an abandoned consumer."""
    deadline = time.monotonic() + timeout
    shared.close()
    dead_letters.close(waiting(timeout / 2))
    expiry_letters.close(waiting((deadline - time.monotonic()) / 2))
    if reclaiming is not None:
        reclaiming.close(waiting((deadline - time.monotonic()) / 2))
    thread.close(waiting(deadline - time.monotonic()))
