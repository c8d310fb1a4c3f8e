"""A background reader that keeps the latest values of a topic and reports its progress.

Views and browsers are built on it. It handles records, not decoded values.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from threading import Condition, RLock, Thread
from weakref import finalize

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.definition import QueueDefinition
from lvq_kafka.core.progress import Shortfall
from lvq_kafka.core.value_store import ValueStore
from lvq_kafka.forking import notify_of_forks
from lvq_kafka.places import opened_at
from lvq_kafka.reading.catch_up_waiter import CatchUpWaiter, Timeout
from lvq_kafka.reading.change_notifier import Subscription
from lvq_kafka.reading.follower_state import FollowerState, State
from lvq_kafka.reading.metadata_thread import MetadataThread
from lvq_kafka.reading.reader_thread import ReaderThread, Screen, Since

__all__ = ["Follower", "State", "Subscription"]

_JOIN = 15.0  # seconds; longer than either thread takes to notice a stop


class Follower:
    """Reads all partitions of a topic into a `ValueStore` in the background, until closed.

    Reading runs in its own thread; a second thread observes the topic from outside. Both update a `FollowerState`, on
    which waiters wait.

    If it has to start over because the topic was recreated or truncated, ``table`` keeps its old contents until the new
    ones are complete: no one sees a value older than one shown before, or a gap (G2).

    Args:
        cluster: the cluster that holds the topic.
        definition: the queue, for its topic and its key header.
        since: the positions to start from, asked for once; None for the start of the log. A recreated topic is read
            from its start.
        screen: called with each batch before it is folded, and may change its values.
        metadata_interval: seconds between two looks at the topic.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        *,
        since: Since | None = None,
        screen: Screen | None = None,
        metadata_interval: float = 5.0,
    ) -> None:
        self.topic = definition.topic
        self._shared = FollowerState(definition.topic)
        self._metadata = MetadataThread(cluster, self._shared, metadata_interval)
        self._reader_thread = ReaderThread(
            cluster, definition, self._shared, self._metadata, since=since, screen=screen
        )
        self._waiter = CatchUpWaiter(self._shared, self._metadata)
        self._threads: list[Thread] = []
        self._unclosed: finalize[[str], Follower] | None = None

    # ---------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Look at the topic and start reading; does nothing if already started.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        if self._threads:
            return
        self._reader_thread.open()
        # The threads hold no reference to this object: only its reader and its watches do.
        self._unclosed = finalize(self, self._shared.abandon, opened_at())
        self._unclosed.atexit = False
        for name, body in (("read", self._reader_thread.run), ("observe", self._metadata.run)):
            thread = Thread(
                target=_guard,
                args=(body, self._shared, self._metadata),
                name=f"lvq-{name}-{self.topic}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)  # only now: a concurrent close() cannot join an unstarted thread
        notify_of_forks(self)

    def fail(self, error: Exception) -> None:
        """Stop permanently because of an error."""
        _fail(error, self._shared, self._metadata)

    def close(self) -> None:
        """Stop reading. Waits for the threads; safe to call more than once."""
        if self._unclosed is not None:
            self._unclosed.detach()
        self._shared.close()
        self._metadata.refresh_now()
        for thread in self._threads:
            thread.join(_JOIN)

    def left_behind(self) -> None:
        """See `lvq_kafka.forking`."""
        self._shared.left_behind()

    def rewind(self, since: Mapping[int, int]) -> None:
        """Read again from these earlier positions. `wait_caught_up` waits for it."""
        self._shared.rewind(since)

    # ---------------------------------------------------------------- status

    @property
    def state(self) -> State:
        """The state of this reader."""
        return self._shared.state

    @property
    def failure(self) -> Exception | None:
        """The error that stopped this reader permanently, or None."""
        return self._shared.failure

    def check(self) -> None:
        """Raise if there is nothing more to come.

        Raises:
            Closed, ReaderFailed: the reader was closed, or an error stopped it.
            StateError: the reader was not started.
        """
        self._shared.check()

    @property
    def caught_up(self) -> bool:
        """True if the table holds everything that the log held at the start."""
        return self._shared.replay.caught_up

    @property
    def complete(self) -> bool:
        """True if caught up, or as far as open transactions allow (see `wait_caught_up`)."""
        return self._shared.replay.complete

    @property
    def lag(self) -> dict[int, int]:
        """The offsets left to the end of the log, by partition, as of the last look at the topic."""
        return self._shared.replay.lag

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read, and total offsets to read until caught up."""
        return self._shared.replay.progress

    @property
    def silence(self) -> float:
        """Seconds since all partitions' ends were last known: without lag, the maximum staleness."""
        return self._shared.silence

    def shortfalls(self) -> list[Shortfall]:
        """Return what is missing until caught up, and what blocks it."""
        return self._shared.replay.shortfalls()

    @property
    def blocked(self) -> list[Shortfall]:
        """The partitions where an open transaction hides records, as of the last look."""
        return self._shared.replay.hidden

    # ---------------------------------------------------------------- waiting

    def wait_caught_up(self, timeout: Timeout = None, *, or_blocked: bool = False) -> None:
        """Wait until everything that the log held at the start has been read.

        With ``or_blocked``, stop at open transactions.

        Raises:
            CatchUpTimeout: some partitions lack something; it names each of them, and why.
            Closed, ReaderFailed: as for `check`.
        """
        self._waiter.caught_up(timeout, or_blocked=or_blocked)

    def barrier(self, timeout: Timeout = None) -> dict[int, int]:
        """Wait until everything acknowledged before this call is applied (G7). Return that cut.

        Raises:
            CatchUpTimeout: some partitions lack something; it names each of them, and why.
            TopicNotFound: the topic does not exist; ``state`` shows whether it comes back.
            TransportError: the cluster cannot be asked for the end of the log.
            Closed, ReaderFailed: as for `check`.
        """
        return self._waiter.barrier(timeout)

    def wait_for(self, targets: Mapping[int, int], timeout: Timeout = None, *, topic_id: str | None = None) -> None:
        """Wait until each partition is read up to its offset, replacements included.

        A record below an offset may have been compacted away; then its replacement has been read. ``topic_id`` is the
        id of the topic that the offsets belong to; None for the one being read.

        Raises:
            CatchUpTimeout, TopicNotFound, TransportError, Closed, ReaderFailed: as for `barrier`.
        """
        self._waiter.reached(targets, timeout, topic_id)

    # ---------------------------------------------------------------- the table and its listeners

    @property
    def table(self) -> ValueStore:
        """The table as shown. Hold the lock for more than one access."""
        return self._shared.table

    @property
    def shown(self) -> ValueStore | None:
        """The table for listeners; None while it predates a restart of the reading thread.

        Listeners are not notified during that time.
        """
        shared = self._shared
        table = shared.table
        return table if table is shared.replay.table else None

    @property
    def topic_id(self) -> str:
        """The id of the topic that the table was read from."""
        return self._shared.topic_id

    @property
    def changed(self) -> Condition:
        """The condition on the lock; notified when there is news for listeners."""
        return self._shared.notifier.changed

    @property
    def lock(self) -> RLock:
        """The bare lock, for code that takes it once per event."""
        return self._shared.notifier.lock

    @contextmanager
    def locked(self) -> Iterator[ValueStore]:
        """Hold the lock and yield the table, to which no batch is applied meanwhile."""
        with self.changed:
            yield self.table

    def subscribe(self, dump: Callable[[ValueStore], Sequence[bytes]] | None = None) -> Subscription:
        """Subscribe to every key that changes from now on.

        The keys that ``dump`` chooses from the current table come first.
        """
        with self.locked() as table:
            return self._shared.notifier.subscribe(dump(table) if dump is not None else ())


def _guard(body: Callable[[], None], shared: FollowerState, metadata: MetadataThread) -> None:
    try:
        body()
    except Exception as error:  # noqa: BLE001  # a dead reader must say so, whatever the cause
        _fail(error, shared, metadata)


def _fail(error: Exception, shared: FollowerState, metadata: MetadataThread) -> None:
    shared.fail(error)
    metadata.refresh_now()
