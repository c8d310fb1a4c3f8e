"""A background reader that keeps the latest values of a topic, and says how far it is.

Views and browsers are built on it. It knows records, not decoded values.
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

_JOIN = 15.0  # seconds; more than either thread takes to notice that it shall stop


class Follower:
    """Reads all partitions of a topic into a `Store`, from a thread of its own, until it is closed.

    A second thread looks at the topic from outside. Both tell a `FollowerState`, and whoever waits, waits on that.

    When it has to start over, since the topic was created anew or cut short, ``table`` stays what it was until what is
    read meanwhile is complete: nobody is shown a value that is older than one shown before, or a gap (G2).

    Args:
        cluster: where the topic lies.
        definition: the queue, for its topic and its key header.
        since: positions to start from, asked once; None for the start of the log. A topic that is created anew is read
            from its start.
        screen: looks at each batch before it is folded, and may change its values.
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

    # ---------------------------------------------------------------- life

    def start(self) -> None:
        """Take a look at the topic and begin to read; does nothing when that was done before.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses.
        """
        if self._threads:
            return
        self._reader_thread.open()
        # The threads know nothing of this: who can use it are its reader, its watches, and nobody else.
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
            self._threads.append(thread)  # whoever closes meanwhile can join none that was not started
        notify_of_forks(self)

    def fail(self, error: Exception) -> None:
        """Stop for good because of an error."""
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
        """Read again from these positions on: more is wanted of the log than was. `wait_caught_up` waits for it."""
        self._shared.rewind(since)

    # ---------------------------------------------------------------- how it is

    @property
    def state(self) -> State:
        """How this reader is."""
        return self._shared.state

    @property
    def failure(self) -> Exception | None:
        """Why it has stopped for good, if it has."""
        return self._shared.failure

    def check(self) -> None:
        """Raise when nothing more will come.

        Raises:
            Closed, ReaderFailed: it was closed, or has stopped because of an error.
            StateError: it was not started.
        """
        self._shared.check()

    @property
    def caught_up(self) -> bool:
        """Whether the table holds all that the log held at the start."""
        return self._shared.replay.caught_up

    @property
    def complete(self) -> bool:
        """Whether it is caught up, or as far as open transactions let it be (see `wait_caught_up`)."""
        return self._shared.replay.complete

    @property
    def lag(self) -> dict[int, int]:
        """Offsets between this reader and the end of the log, by partition, as of the last look at the topic."""
        return self._shared.replay.lag

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read and offsets to read in all until caught up."""
        return self._shared.replay.progress

    @property
    def silence(self) -> float:
        """Seconds since the ends of all partitions were last known: without lag, how stale this reader may be."""
        return self._shared.silence

    def shortfalls(self) -> list[Shortfall]:
        """What is missing to caught up, and what holds it up."""
        return self._shared.replay.shortfalls()

    @property
    def blocked(self) -> list[Shortfall]:
        """The partitions in which an open transaction hides what follows, as of the last look at the topic."""
        return self._shared.replay.hidden

    # ---------------------------------------------------------------- waiting

    def wait_caught_up(self, timeout: Timeout = None, *, or_blocked: bool = False) -> None:
        """Wait until all that the log held at the start has been read; with ``or_blocked`` stop at open transactions.

        Raises:
            CatchUpTimeout: names each partition that lacks something, and why.
            Closed, ReaderFailed: as `check`.
        """
        self._waiter.caught_up(timeout, or_blocked=or_blocked)

    def barrier(self, timeout: Timeout = None) -> dict[int, int]:
        """Wait until everything that was acknowledged before this call has been applied (G7). Returns that cut.

        Raises:
            CatchUpTimeout: names each partition that lacks something, and why.
            TopicNotFound: the topic is gone; whether it comes back shows in ``state``.
            TransportError: the cluster cannot be asked for the end of the log.
            Closed, ReaderFailed: as `check`.
        """
        return self._waiter.barrier(timeout)

    def wait_for(self, targets: Mapping[int, int], timeout: Timeout = None, *, topic_id: str | None = None) -> None:
        """Wait until each partition has been read up to its offset, or what has replaced the records below it.

        ``topic_id`` is that of the topic they lie in; None for whichever is read.

        Raises:
            CatchUpTimeout, TopicNotFound, TransportError, Closed, ReaderFailed: as `barrier`.
        """
        self._waiter.reached(targets, timeout, topic_id)

    # ---------------------------------------------------------------- the table and its listeners

    @property
    def table(self) -> ValueStore:
        """What is shown. To look at more than one thing of it, hold the lock."""
        return self._shared.table

    @property
    def shown(self) -> ValueStore | None:
        """The table, for listeners, who are told nothing while it is that of before the reading thread started over."""
        shared = self._shared
        table = shared.table
        return table if table is shared.replay.table else None

    @property
    def topic_id(self) -> str:
        """The id of the topic that the table was read from."""
        return self._shared.topic_id

    @property
    def changed(self) -> Condition:
        """The lock; notified when there is news for listeners."""
        return self._shared.notifier.changed

    @property
    def lock(self) -> RLock:
        """The lock by itself, for those who take it once for every event."""
        return self._shared.notifier.lock

    @contextmanager
    def locked(self) -> Iterator[ValueStore]:
        """The table, which no batch is applied to meanwhile."""
        with self.changed:
            yield self.table

    def subscribe(self, dump: Callable[[ValueStore], Sequence[bytes]] | None = None) -> Subscription:
        """Be told of every key that changes from now on, after the keys that ``dump`` chooses of the table of now."""
        with self.locked() as table:
            return self._shared.notifier.subscribe(dump(table) if dump is not None else ())


def _guard(body: Callable[[], None], shared: FollowerState, metadata: MetadataThread) -> None:
    try:
        body()
    except Exception as error:  # noqa: BLE001  # a dead reader must say so, whatever killed it
        _fail(error, shared, metadata)


def _fail(error: Exception, shared: FollowerState, metadata: MetadataThread) -> None:
    shared.fail(error)
    metadata.refresh_now()
