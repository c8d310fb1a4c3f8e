"""Consuming a queue: messages are acquired, worked on, and removed by an acknowledgement."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Iterable, Iterator
from functools import partial
from types import TracebackType
from typing import Any, Generic, Self, get_args
from weakref import finalize

from lvq_kafka.aio import in_thread
from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import Codec, Undecodable, V, check_undecodable
from lvq_kafka.consuming.acquiring import Acquiring
from lvq_kafka.consuming.consumer_stats import ConsumerStats
from lvq_kafka.consuming.consumer_thread import ConsumerThread
from lvq_kafka.consuming.dead_letters import DeadLetters
from lvq_kafka.consuming.delivery import Delivery, items_of
from lvq_kafka.consuming.group_monitor import GroupMonitor
from lvq_kafka.consuming.settlement import Settlement
from lvq_kafka.consuming.settlers import DirectSettler
from lvq_kafka.consuming.shared_state import SharedState
from lvq_kafka.consuming.shared_state_base import ConsumerLimits
from lvq_kafka.consuming.transaction import Transaction
from lvq_kafka.consuming.workers import Handler, Workers
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.validation import as_float, at_least_one, choice, durations, instance, limit, seconds, text, waiting
from lvq_kafka.forking import Bound
from lvq_kafka.managing.group_checks import OnForeignCommits
from lvq_kafka.producer import Producer

__all__ = ["Consumer", "ConsumerStats"]

_CLOSING = 10.0  # seconds


class Consumer(Bound, Generic[V]):
    """A consumer of a queue. It shares the queue's partitions with all other consumers of the queue.

    Messages come as deliveries: exclusive (G9), of each key only the newest value and only one at a time (G13), in
    queue order per partition, and none before the consumer knows what lies behind it in the log (G12). A delivery that
    is not acknowledged comes again, here or elsewhere (G10). Deliveries can be settled in any order::

        for delivery in consumer:
            with delivery:                # a clean exit acks, an exception releases
                work(delivery.value)

        async with await queue.consumer_async() as consumer:
            async for delivery in consumer: ...    # the same in asyncio, without a thread per message

        consumer.run(handle, workers=8)            # the same by a callback, in threads

    A message is chosen at the moment it is acquired, so none grows old in a buffer: what waits is replaced by newer
    values. What is held in memory is the newest value of each key that waits in the assigned partitions, and every
    message without a key.

    Partitions are looked at one by one: a key that lies in two of them, because partitions were added or a writer uses
    another partitioner, may be handed out once for each. Views and browsers tell the one that counts (R14).

    Thread-safe: several threads may acquire from one consumer. It joins the group when it is made, from a thread of
    its own, and leaves when it is closed. Slow handlers never cost the membership. One that is left behind, with all
    that was acquired from it, is closed with the last reference to it, with a `ResourceWarning` and a line in the log.

    Args:
        cluster: where the queue lies.
        definition: the queue. Its group must have been declared (`lvq_kafka.managing.group_checks.declare_group`).
        codec: how values are read.
        undecodable: a value that the codec cannot read raises when it is asked for, is rejected and skipped, or is
            given as bytes.
        max_in_work: how many messages may be held at a time, over all threads; `acquire` waits beyond that.
        prefetch: how many messages an iteration takes at a time. One that is replaced before its turn comes is passed
            over, so each is the newest of its key when it comes, whatever the number. With more than 1 an iteration
            keeps messages from other threads of this consumer, and saves time where ``durable_counts`` costs a commit
            for each taking. What never has its turn was not delivered.
        lock_timeout: seconds to settle a delivery in, after which it is released, and the handle is no good any more;
            None for as long as the membership lasts. `Delivery.extend` asks for more. What is taken ahead goes back
            when it has waited that long for its turn, and has the whole time from then on.
        max_deliveries: how often a message is handed out; one more time, and it is rejected instead. Without
            ``durable_counts`` each consumer counts by itself. Only what somebody has got counts.
        dead_letters: the topic that rejected messages go to, with the headers of `lvq_kafka.consuming.dead_letters`;
            None removes them. A dead letter is stored before its message counts as done. If it cannot be, the message
            is available again a second later.
        durable_counts: commit how often each message was delivered before it is handed out, so that one which kills
            its handler is counted, too. Costs a commit for each taking: use `acquire_many`, ``prefetch`` or several
            workers. When the process dies, what was taken ahead, or counted for somebody who never came, counts, too:
            keep ``prefetch`` at 1 where handlers die of their messages.
        commit_interval: seconds over which acks are gathered into one commit; none is gathered when somebody waits.
        revoke_grace: seconds that holders get to finish when the group moves a partition to another consumer.
        on_foreign_commits: what to do where something else has committed with the queue's group: ``"refuse"`` raises,
            ``"ignore"`` goes by the offsets alone, by which messages may come again.

    Raises:
        GroupNotFound, OffsetsExpired, PartitionsAdded: the queue's group holds no offsets, or not for all partitions
            (R17). They are `QueueNotDeclared`, too.
        CommitMapRefused: something else has committed with the queue's group.
        TopicNotFound: the topic, or that of the dead letters, does not exist.
        TopicRecreated: the topic was created anew since the queue was declared or consumed.
        ConfigError: an option is out of range.
        TransportError: the cluster cannot be reached or refuses.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        codec: Codec[V],
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
    ) -> None:
        check_undecodable(undecodable)
        at_least_one(max_in_work=max_in_work, prefetch=prefetch)
        if max_deliveries is not None:
            at_least_one(max_deliveries=max_deliveries)
        seconds(commit_interval=commit_interval, revoke_grace=revoke_grace)
        if lock_timeout is not None:
            durations("None lets a message be held for as long as it takes.", lock_timeout=lock_timeout)
            lock_timeout = as_float(lock_timeout)
        if dead_letters is not None:
            text("dead_letters", dead_letters)
        choice("on_foreign_commits", on_foreign_commits, get_args(OnForeignCommits))
        self.name = definition.name
        self.topic = definition.topic
        self._shared = SharedState(
            definition, ConsumerLimits(max_in_work, lock_timeout, max_deliveries, durable_counts)
        )
        monitor = GroupMonitor(cluster, definition, on_foreign_commits)
        self._dead_letters = DeadLetters(cluster, dead_letters, self._shared)
        self._settler = DirectSettler(self._shared, self._dead_letters)
        self._acquiring = Acquiring(self._shared, self._dead_letters, codec, undecodable=undecodable, prefetch=prefetch)
        self._thread = ConsumerThread(
            definition.name,
            lambda listener: cluster.member(definition.group, definition.topic, listener),
            self._shared,
            monitor,
            commit_interval=commit_interval,
            revoke_grace=revoke_grace,
        )
        self._shut = partial(_shut, self._shared, self._dead_letters, self._thread)
        # What settles is held by whatever can use this consumer: itself, its iterations, what was acquired.
        self._unclosed = finalize(self._settler, self._thread.abandon, partial(self._shut, _CLOSING))
        self._unclosed.atexit = False  # a thread that is needed to leave the group has ended by then
        self._thread.start()

    # ---------------------------------------------------------------- taking messages

    def acquire(self, timeout: float | None = None) -> Delivery[V] | None:
        """Take the next message; wait for one for ``timeout`` seconds, or as long as it takes.

        It also waits while ``max_in_work`` messages are held. Returns None when none came in time.

        Raises:
            Closed: the consumer was closed.
            StateError: without a ``timeout``, in a callback on the consumer's own thread.
            LVQError: the consumer has stopped because of this error (`QueueNotDeclared`, `TopicNotFound`, `DataLoss`,
                `KeyMismatch`, `TransportError` …), or of another one (`ReaderFailed`, with its cause).
        """
        taken = self.acquire_many(1, timeout)
        return taken[0] if taken else None

    def acquire_many(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """Take up to so many messages that are there; wait for the first as `acquire` does.

        Returns an empty list when none came in time. Raises what `acquire` raises, and `ConfigError` where ``most`` is
        no whole number from 1 on.
        """
        return self._acquiring.acquire(most, timeout, self._settler)

    def ack_many(
        self, deliveries: Iterable[Delivery[V]], *, wait: bool = False, timeout: float | None = None
    ) -> Settlement:
        """Ack several deliveries at once: as `Delivery.ack` of each, in half the time, and waited for as one.

        ::

            while batch := consumer.acquire_many(100, timeout=1.0):
                store(batch)
                consumer.ack_many(batch)

        Those that can be acked are, whatever is the matter with others. What is returned is durable when all of them
        are.

        Raises:
            StateError: a delivery is another consumer's, or a transaction's; then none is acked. With ``wait`` in a
                callback on the consumer's own thread.
            ConfigError: something else is among them; then none is acked.
            AlreadySettled, LockLost: the first that could not be acked, for the reasons of `Delivery.ack`; how many
                there are is in the notes of the error. The others are acked.
            LockLost, OutcomeUnknown, ReaderFailed: with ``wait``, as `Delivery.ack`.
        """
        if wait:
            timeout = waiting(timeout)
        settlement = self._settler.ack_many(items_of(deliveries, self._settler))
        if wait:
            settlement.result(timeout)
        return settlement

    async def acquire_async(self, timeout: float | None = None) -> Delivery[V] | None:
        """As `acquire`, in asyncio: waits without a thread. When it is cancelled, nothing is held."""
        taken = await self.acquire_many_async(1, timeout)
        return taken[0] if taken else None

    async def acquire_many_async(self, most: int, timeout: float | None = None) -> list[Delivery[V]]:
        """As `acquire_many`, in asyncio: waits without a thread. When it is cancelled, nothing is held."""
        return await self._acquiring.acquire_async(most, timeout, self._settler)

    def __iter__(self) -> Iterator[Delivery[V]]:
        """The messages as they come, without an end, until the consumer is closed.

        Raises:
            LVQError: as `acquire`.
        """
        return self._acquiring.iterate(self._settler)

    def __aiter__(self) -> AsyncIterator[Delivery[V]]:
        """As iterating, in asyncio."""
        return self._acquiring.iterate_async(self._settler)

    def run(self, handler: Handler[V], *, workers: int = 1, retry_delay: float = 1.0) -> None:
        """Hand messages to a callback, from so many threads, until the consumer is closed elsewhere.

        What the handler leaves unsettled is acked when it returns. When it raises, that goes to the log, and the
        message is released; or rejected with the error as the reason, when that was the last of ``max_deliveries``.

        On Ctrl-C it waits until the handlers have finished what they are at, and raises `KeyboardInterrupt`; so it does
        with whatever a signal handler raises, such as ``signal.signal(SIGTERM, lambda *_: sys.exit(143))``. To end it
        from another thread, `pause`, wait until ``stats.in_work`` is 0, and `close`: closed at once, the handlers lose
        what they are at, and it comes again.

        Args:
            retry_delay: seconds after which a message whose handler raised is handed out again.

        Raises:
            LVQError: the consumer has stopped because of this error.
        """
        Workers(
            self.name,
            lambda stop: self._acquiring.iterate(self._settler, 1, stop),
            handler,
            workers=workers,
            retry_delay=retry_delay,
            attempts=self._shared.limits.max_deliveries,
        ).run()

    def transaction(self, producer: Producer[Any], *, timeout: float | None = None) -> Transaction[V]:
        """A transaction, for a ``with`` block: what is acked in it and what the producer sends commit as one.

        ::

            with consumer.transaction(producer) as tx:
                for delivery in tx.acquire_many(100, timeout=1.0):
                    producer.put(delivery.key, work(delivery.value))
                    delivery.ack()

        An exception aborts it, and the messages come again. A consumer has one transaction at a time; while it
        commits, other acks wait. Where none can begin for 30 s the consumer leaves its partitions to others, and takes
        part again when one begins: go on trying.

        Args:
            producer: a transactional one, of the same cluster, with no transaction open. Open it before the consumer:
                it ends what a worker of its id that died has left open, which a consumer that opens waits for.
            timeout: seconds for each step of the commit; by default 60.

        Raises (at its beginning):
            StateError: one is open already, or this is a callback on the consumer's own thread.
            OutcomeUnknown: what became of the one before is not known in time.
            TransportError: the producer cannot begin one in time.

        Raises (at the end of the block, the transaction being aborted):
            LockLost: a message went to another consumer meanwhile, or may have, or its ``lock_timeout`` was over.
            DeliveryFailed: the producer could not send something.
            TransportError: it could not be committed; ``code`` is ``"_FENCED"`` when a newer producer with the same
                transactional id has taken over.

        Raises (when it is not known whether it has committed):
            OutcomeUnknown: the consumer goes on when the group knows: when the next transaction begins, which ends
                what is open, or when ``transaction.timeout.ms`` is over. Until then it commits nothing, and soon hands
                out nothing; the settlements of the transaction say what became of it.
        """
        instance("producer", producer, Producer, "Open a transactional one: queue.producer(transactional_id=...).")
        return Transaction(
            self._acquiring,
            self._shared,
            self._dead_letters,
            producer,
            lambda: self._thread.member,
            timeout=waiting(timeout),
        )

    # ---------------------------------------------------------------- state and life

    def pause(self) -> None:
        """Hand out nothing for now. What waits goes on to be replaced by newer values, and held messages stay held."""
        self._shared.pause(True)

    def resume(self) -> None:
        """Hand out again."""
        self._shared.pause(False)

    @property
    def paused(self) -> bool:
        """Whether it is paused."""
        return self._shared.paused

    @property
    def stats(self) -> ConsumerStats:
        """What this consumer has and has done."""
        return self._shared.stats

    @property
    def skipped(self) -> int:
        """How many messages were skipped because their values could not be read."""
        return self._acquiring.skipped

    def close(self, timeout: float | None = _CLOSING) -> None:
        """Commit what is done and leave the group. Messages that are held are lost to their holders at once.

        What was settled before is committed, and settling raises `LockLost` from then on. Where that commit is not
        known to be stored, the log says so, and whoever waits for a settlement is told.

        Let workers finish first. Returns after ``timeout`` seconds at the latest, then with a warning in the log; safe
        to call more than once, and from any thread.
        """
        seconds_left = limit(timeout)
        self._unclosed.detach()
        self._shut(seconds_left)

    async def aclose(self, timeout: float | None = _CLOSING) -> None:
        """As `close`, in asyncio. When it is cancelled, closing goes on in the background."""
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


def _shut(shared: SharedState, dead_letters: DeadLetters, thread: ConsumerThread, timeout: float) -> None:
    """See `Consumer.close`. It is no method: of a consumer that is left behind only these are there."""
    deadline = time.monotonic() + timeout
    shared.close()
    dead_letters.close(waiting(timeout / 2))
    thread.close(waiting(deadline - time.monotonic()))
