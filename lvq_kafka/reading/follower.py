"""A background reader that keeps the latest values of a topic.

Views and browsers are built on it. It handles records, not decoded values.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from threading import Thread
from weakref import finalize

from lvq_kafka.cluster import Cluster
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.reading.catch_up_waiter import CatchUpWaiter
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.reading.metadata_thread import MetadataThread
from lvq_kafka.reading.reader_thread import ReaderStore, ReaderThread, RecordFilter, Since
from lvq_kafka.runtime.forking import notify_of_forks
from lvq_kafka.runtime.unclosed import opened_at

__all__ = ["BackgroundReader", "Follower"]

_JOIN = 15.0  # seconds; longer than any thread takes to notice a stop


class BackgroundReader:
    """Keeps values current in the background, until closed.

    The threads hold no reference to this object: only its reader and its watches do, so that it is closed when no one
    can use it any more.

    Args:
        shared: what the threads update.
        waiter: waits for it.
        prepare: called once, before the threads start.
        wake: makes the threads notice a stop.
        bodies: those of the threads, by their names.
    """

    def __init__(
        self,
        shared: FollowerState,
        waiter: CatchUpWaiter,
        *,
        prepare: Callable[[], None],
        wake: Callable[[], None],
        bodies: Mapping[str, Callable[[], None]],
    ) -> None:
        self.shared = shared
        self.waiter = waiter
        self._prepare = prepare
        self._wake = wake
        self._bodies = bodies
        self._threads: list[Thread] = []
        self._unclosed: finalize[[str], BackgroundReader] | None = None

    @property
    def topic(self) -> str:
        """The topic that is read."""
        return self.shared.topic

    def start(self) -> None:
        """Start reading; does nothing if already started. Raises what ``prepare`` raises."""
        if self._threads:
            return
        self._prepare()
        self._unclosed = finalize(self, self.shared.abandon, opened_at())
        self._unclosed.atexit = False
        for name, body in self._bodies.items():
            thread = Thread(
                target=_guard,
                args=(body, self.shared, self._wake),
                name=f"lvq-{name}-{self.topic}",
                daemon=True,
            )
            thread.start()
            self._threads.append(thread)  # only now: a concurrent close() cannot join an unstarted thread
        notify_of_forks(self)

    def fail(self, error: Exception) -> None:
        """Stop permanently because of an error."""
        _fail(error, self.shared, self._wake)

    def close(self) -> None:
        """Stop reading. Waits for the threads; safe to call more than once."""
        if self._unclosed is not None:
            self._unclosed.detach()
        self.shared.close()
        self._wake()
        for thread in self._threads:
            thread.join(_JOIN)

    def left_behind(self) -> None:
        """See `lvq_kafka.runtime.forking`."""
        self.shared.left_behind()


class Follower(BackgroundReader):
    """Reads all partitions of a topic in the background, until closed.

    Reading runs in its own thread; a second thread observes the topic from outside. Both update ``shared``, on which
    ``waiter`` waits. `start` describes the topic first.

    Args:
        cluster: the cluster that holds the topic.
        rules: the rules of the queue.
        since: returns the positions to start from, called once; None for the start of the log. A recreated topic is
            read from its start.
        record_filter: called with each batch before it is folded; returns the part of it that matters.
        partitions: read only these; None for all.
        by_value: whether the filter marks values as `UNSELECTED`.
        metadata_interval: seconds between two checks of the topic.
        watch: notices alterations of the queue; None for a topic that is no declared queue.
        store: where the values are kept; None for memory alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        rules: QueueRules,
        *,
        since: Since | None = None,
        record_filter: RecordFilter | None = None,
        partitions: Collection[int] | None = None,
        by_value: bool = False,
        metadata_interval: float = 5.0,
        watch: RegistryWatch | None = None,
        store: ReaderStore | None = None,
    ) -> None:
        timed = rules.times.matters
        shared = FollowerState(rules.keys.topic, partitions=partitions, time=cluster.now, timed=timed)
        self._metadata = metadata = MetadataThread(cluster, shared, metadata_interval)
        self._reader_thread = reading = ReaderThread(
            cluster,
            rules,
            shared,
            metadata,
            since=since,
            record_filter=record_filter,
            by_value=by_value,
            watch=watch,
            store=store,
        )
        super().__init__(
            shared,
            CatchUpWaiter(shared, metadata),
            prepare=reading.open,
            wake=metadata.refresh_now,
            bodies={"read": reading.run, "observe": metadata.run},
        )


def _guard(body: Callable[[], None], shared: FollowerState, wake: Callable[[], None]) -> None:
    try:
        body()
    except Exception as error:  # noqa: BLE001  # a dead reader must report it, whatever the cause
        _fail(error, shared, wake)
    except BaseException as error:  # noqa: BLE001  # such as SystemExit, from a function that it has called
        _fail(RuntimeError(f"a thread of the reader was ended by {error!r}"), shared, wake)


def _fail(error: Exception, shared: FollowerState, wake: Callable[[], None]) -> None:
    shared.fail(error)
    wake()
