"""Reading in the background, from a cluster or from a store: lifecycle and status."""

from __future__ import annotations

from types import TracebackType
from typing import Generic, Self

from lvq_kafka.codecs import Codec, V
from lvq_kafka.core.facts import Shortfall
from lvq_kafka.core.latest.catch_up import ReaderStatus, State
from lvq_kafka.core.latest.fold import ReaderStats
from lvq_kafka.core.log.keys import key_text
from lvq_kafka.errors import ReaderFailed
from lvq_kafka.reading.catch_up_waiter import Limit
from lvq_kafka.reading.follower import BackgroundReader
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.reading.listing import Listing
from lvq_kafka.runtime.aio import in_background, in_thread
from lvq_kafka.runtime.forking import Bound

__all__ = ["FollowingReader"]

_PATIENCE = 0.5  # seconds until a thread notices that no caller waits for the reader it opens


class FollowingReader(Bound, Generic[V]):
    """Follows a queue in the background, from `open` to `close`.

    Use it in ``with``, or in ``async with`` in asyncio code. A reader that is abandoned, along with all its watches, is
    closed when Python collects it, with a `ResourceWarning`.

    In asyncio, methods that wait for the cluster have a twin whose name ends in ``_async``. The twin waits in its own
    thread; a cancelled task continues at once.
    """

    _topic: str
    _codec: Codec[V]
    _raw_on_error: bool
    _catch_up_timeout: float | None
    _listing: Listing
    _follower: BackgroundReader
    _shared: FollowerState

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
            self._start_within(limit)
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

    def _start_within(self, limit: Limit) -> None:
        """Start; a subclass may wait until it can."""
        self.start()

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
    def queue(self) -> str:
        """The name of the queue."""
        raise NotImplementedError

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
    def unranked(self) -> int:
        """The number of messages in the last dump or snapshot whose priority could not be read.

        They count as having none (R20).
        """
        return self._listing.unranked

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
