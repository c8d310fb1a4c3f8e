"""The common base of views and browsers: lifecycle and status."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from os import PathLike
from types import TracebackType
from typing import Generic, Self

from lvq_kafka.cluster import Cluster
from lvq_kafka.codecs import Codec, Undecodable, V, check_undecodable
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.latest.catch_up import ReaderStatus, State
from lvq_kafka.core.latest.conditions import KeySelection
from lvq_kafka.core.latest.fold import ReaderStats
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.core.queue.standard import StandardFilter
from lvq_kafka.core.text.validation import durations, waiting
from lvq_kafka.declared.registry_watch import RegistryWatch
from lvq_kafka.errors import LVQError, ReaderFailed
from lvq_kafka.reading.catch_up_waiter import Limit
from lvq_kafka.reading.follower import Follower
from lvq_kafka.reading.listing import Listing
from lvq_kafka.reading.reader_thread import ReaderStore
from lvq_kafka.reading.record_filters import KeyFilter, UndecodableFilter, ValueFilter, in_turn
from lvq_kafka.reading.selection import Selection, SelectionOptions
from lvq_kafka.reading.store_terms import store_terms
from lvq_kafka.runtime.aio import in_background, in_thread
from lvq_kafka.runtime.forking import Bound
from lvq_kafka.selectors.of_queues import queue_selector
from lvq_kafka.storing.store_directory import StoreDirectory

__all__ = ["QueueReader"]

_PATIENCE = 0.5  # seconds until a thread notices that no caller waits for the reader it opens


class QueueReader(Bound, Generic[V]):
    """Follows a queue in the background, from `open` to `close`.

    Use it in ``with``, or in ``async with`` in asyncio code. A reader that is abandoned, along with all its watches, is
    closed when Python collects it, with a `ResourceWarning`.

    In asyncio, methods that wait for the cluster have a twin whose name ends in ``_async``. The twin waits in its own
    thread; a cancelled task continues at once.

    Args:
        selection: what to read.
        by_value: whether the conditions of the selection limit the values held, and not only its keys and partitions.
        watch: notices alterations of the queue; None for a topic that is no declared queue.
        store: the directory to keep the values in; None for memory alone.
    """

    def __init__(
        self,
        cluster: Cluster,
        definition: QueueDefinition,
        codec: Codec[V],
        *,
        undecodable: Undecodable,
        catch_up_timeout: float | None,
        metadata_interval: float,
        selection: SelectionOptions[V],
        by_value: bool = False,
        since: Callable[[Cluster, str], Mapping[int, int]] | None = None,
        watch: RegistryWatch | None = None,
        store: str | PathLike[str] | None = None,
    ) -> None:
        check_undecodable(undecodable)
        durations("Give the time between checks of the topic.", metadata_interval=metadata_interval)
        self._cluster = cluster
        self._topic = definition.topic
        self._codec = codec
        self._raw_on_error = undecodable == "raw"
        self._catch_up_timeout = waiting(catch_up_timeout, "catch_up_timeout")
        selector = queue_selector(definition)
        judged = () if selector is None else (selector,)
        rules = QueueRules.of(definition, None if selector is None else selector.matches)
        self._rules = rules
        self._listing = Listing(rules)
        self._selection = Selection(self._topic, codec, *judged, raw_on_error=self._raw_on_error, **selection)
        self._hiding = UndecodableFilter(definition.topic, codec)
        self._alone = None if definition.conflate else StandardFilter()
        selected = self._selection.keys
        if self._alone is not None:
            self._selection.keys = KeySelection()  # only the filter sees keys as they are in the log
        by_value = by_value and bool(self._selection.conditions)
        self._follower = Follower(
            cluster,
            rules,
            since=since,
            record_filter=in_turn(
                KeyFilter(rules.keys, selected) if selected else None,
                self._alone,
                self._hiding if undecodable == "skip" else None,
                ValueFilter(rules.keys, self._selection) if by_value else None,
            ),
            partitions=self._selection.partitions,
            by_value=by_value,
            metadata_interval=metadata_interval,
            watch=watch,
            store=None
            if store is None
            else ReaderStore(
                StoreDirectory(store),
                partial(store_terms, selector=definition.selector, selection=self._selection, undecodable=undecodable),
            ),
        )
        self._shared = self._follower.shared

    # ---------------------------------------------------------------- lifecycle

    def start(self) -> Self:
        """Start reading, without waiting; does nothing if already started.

        See ``state`` and ``progress``.

        Raises:
            TopicNotFound: there is no such topic.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        self._follower.start()
        return self

    def open(self) -> Self:
        """Start reading and wait until ready, as ``with`` does; does nothing if already open.

        Raises:
            TopicNotFound: there is no such topic.
            CatchUpTimeout: the end of the log was not reached in time.
            TransportError: the cluster cannot be reached or refuses the request.
        """
        return self._open(Limit(self._catch_up_timeout))

    def _open(self, limit: Limit) -> Self:
        """Open the reader within a limit.

        If the limit is given up, the reader continues to read, and may be opened later.
        """
        opening = self._shared.opening
        while not opening.acquire(timeout=_PATIENCE):
            if limit.given_up:
                return self
        try:
            self.start()
            try:
                self._wait_open(limit)
            except ReaderFailed as failed:  # nothing was read yet: report why it cannot be opened
                self.close()
                raise failed.reason from failed.reason.__cause__
            except BaseException:
                if not limit.given_up:
                    self.close()
                raise
        finally:
            opening.release()
        return self

    def _wait_open(self, limit: Limit) -> None:
        raise NotImplementedError

    def close(self) -> None:
        """Stop reading. Calls that wait on this reader return; safe to call more than once."""
        self._follower.close()

    def __enter__(self) -> Self:
        return self.open()

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    async def open_async(self) -> Self:
        """Like `open`, for asyncio.

        If it is cancelled, it returns at once, and the reader is closed in the background.
        """
        return await in_thread(self.open, abort=lambda: in_background(self.close), undo=lambda _: self.close())

    async def aclose(self) -> None:
        """Like `close`, for asyncio. If it is cancelled, closing continues in the background."""
        await in_thread(self.close)

    async def __aenter__(self) -> Self:
        return await self.open_async()

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.aclose()

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self._topic}: {self.state}>"

    # ---------------------------------------------------------------- status

    @property
    def status(self) -> ReaderStatus:
        """The status of the reader. The properties below are its parts, each as of its own moment."""
        return self._shared.catch_up.status(self._shared.clock())

    @property
    def state(self) -> State:
        """The state of the reader; see `lvq_kafka.core.latest.catch_up.State`."""
        return self._shared.catch_up.state(self._shared.clock())

    @property
    def failure(self) -> Exception | None:
        """The error that made the reader fail, or None."""
        return self.status.failure

    @property
    def lag(self) -> int:
        """The offsets left to the end of the log, as of the last check of the topic."""
        return self.status.lag

    @property
    def lag_by_partition(self) -> dict[int, int]:
        """The `lag` of each partition."""
        return self.status.lag_by_partition

    @property
    def progress(self) -> tuple[int, int]:
        """Offsets read, and total offsets to read until caught up."""
        return self.status.progress

    @property
    def blocked_by(self) -> list[Shortfall]:
        """The partitions where an open transaction hides records, as of the last check."""
        return self.status.blocked_by

    @property
    def silence(self) -> float:
        """Seconds since the last answered request for the ends of all partitions.

        Without `lag`, no record that was acknowledged before that request is missing.
        """
        return self.status.silence

    @property
    def skipped(self) -> int:
        """The number of undecodable values skipped under the policy ``"skip"``."""
        return self._hiding.skipped

    @property
    def ignored(self) -> int:
        """The number of deletes in a standard queue, where they mean nothing (R35)."""
        return 0 if self._alone is None else self._alone.ignored

    @property
    def unranked(self) -> int:
        """The number of messages in the last dump or snapshot whose priority could not be read.

        They count as having none (R20).
        """
        return self._listing.unranked

    @property
    def unjudged(self) -> int:
        """The number of values that ``where`` or ``selector`` could not judge: not selected (R31)."""
        return self._selection.unjudged

    @property
    def selection_failure(self) -> LVQError | None:
        """The first error of ``where``, a `PredicateFailed`, or None."""
        return self._selection.failure

    @property
    def stats(self) -> ReaderStats:
        """Statistics on everything that the reader has seen so far."""
        return self._shared.catch_up.values.stats

    @property
    def split_keys(self) -> list[str]:
        """The keys found in several partitions (R14).

        Either a writer uses another partitioner, or partitions were added.
        """
        with self._shared.lock:
            self._shared.catch_up.check()
            return [key_text(key) for key in self._shared.catch_up.values.split_keys]
