"""A queue as a live mapping that another process keeps up to date (R41)."""

from __future__ import annotations

import logging
import time
from collections.abc import Mapping
from os import PathLike
from typing import Generic, Self

from lvq_kafka.codecs import BYTES, Codec, T, Undecodable, V, check_undecodable, codec_of
from lvq_kafka.core.latest.page_token import PageToken
from lvq_kafka.core.latest.pending_keys import Cause
from lvq_kafka.core.latest.tables import NewestRecords
from lvq_kafka.core.log.keys import Key
from lvq_kafka.core.text.validation import waiting
from lvq_kafka.errors import ConfigError, LVQError, StoreNotFound
from lvq_kafka.reading.attachment import Attachment
from lvq_kafka.reading.catch_up_waiter import Limit
from lvq_kafka.reading.entries import EndOfDump
from lvq_kafka.reading.index_queries import AttachedIndexes
from lvq_kafka.reading.key_pages import check_prefix, check_queue, check_same_topic
from lvq_kafka.reading.listing import Listing
from lvq_kafka.reading.resuming import Resumable, ResumePoint, check_known
from lvq_kafka.reading.view import LiveMapping
from lvq_kafka.runtime.keywords import refuse_unknown
from lvq_kafka.storing.attached_directory import NotAttachable

__all__ = ["AttachedView", "attach"]

logger = logging.getLogger("lvq_kafka.store")

_PATIENCE = 0.1  # seconds between two looks for a store that is not there yet


class AttachedView(LiveMapping[V], Generic[V]):
    """A live mapping of the store that another process writes; see `attach`.

    It reads as a `View` does, from the files of the store, without a connection to the cluster: each read shows what
    one commit of the writer holds, and a snapshot is such a commit. ``state``, ``lag`` and ``progress`` are the
    writer's, as of its last report; it makes one each second. If it is dead, was closed, or stands still, the state is
    disconnected within some seconds, and ``status.trouble`` says why. Values are shown all the same, less those that
    have expired since (R10); what becomes due (R11) counts once there is a writer again.

    If the store is built again, this view shows the new values as soon as the writer does, and its watches report what
    differs. It fails if the directory then holds values of another queue.

    The writer selects the values to hold.

    Args:
        path: the directory of the store.
        codec: decodes the values.
        catch_up_timeout: seconds that entering ``with`` waits; None for no limit.
        undecodable: ``"raise"`` or ``"raw"``; see `Undecodable`. Only the writer can skip values.

    Raises:
        ConfigError: an option is invalid.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        codec: Codec[V] | type[V],
        *,
        undecodable: Undecodable = "raise",
        catch_up_timeout: float | None = 60.0,
    ) -> None:
        check_undecodable(undecodable)
        if undecodable == "skip":
            raise ConfigError(
                "Only the writer of a store can skip values, before they are in it.",
                options=["undecodable"],
                hint="Open the writer with it, and leave it out here.",
            )
        self._codec = codec_of(codec)
        self._raw_on_error = undecodable == "raw"
        self._catch_up_timeout = waiting(catch_up_timeout, "catch_up_timeout")
        self._callbacks = []
        self._attachment = self._follower = Attachment(path, lambda: time.time())
        self._shared = self._source = self._follower.shared
        self._topic = self._shared.topic
        self._indexes = AttachedIndexes(self._shared)

    def start(self) -> Self:
        """Show what the store holds, without waiting; does nothing if already started.

        Raises:
            StoreNotFound: there is no store, or none yet.
            StoreFailed: it cannot be read from this process, or not be trusted.
            ConfigError: it is on a network file system.
            MissingExtra: LMDB is not installed.
        """
        self._follower.start()
        subject = self._attachment.subject
        self._topic = subject.topic
        self._listing = Listing(subject.rules)
        self._iterated = Listing(subject.rules, by_rank=False)
        return self

    def open(self) -> Self:
        """Wait for the store, and until its writer has caught up, as ``with`` does.

        A store that was left by a writer of another start of the system, of another PID namespace or by another version
        is waited for, too: the next writer makes it readable.

        Raises:
            StoreNotFound: there is none in time.
            CatchUpTimeout: its writer has not caught up in time, or none is there.
            StoreFailed, ConfigError, MissingExtra: as for `start`.
        """
        return super().open()

    def _start_within(self, limit: Limit) -> None:
        said = ""
        while True:
            try:
                self.start()
            except (StoreNotFound, NotAttachable) as error:
                left = limit.left()
                if left == 0:
                    raise
                if str(error) != said:
                    said = str(error)
                    logger.warning("waiting for a store: %s", said)
                self._shared.stop.wait(_PATIENCE if left is None else min(left, _PATIENCE))
            else:
                return

    @property
    def unjudged(self) -> int:
        """0: what a view holds is judged where it is written."""
        return 0

    @property
    def selection_failure(self) -> LVQError | None:
        """None: what a view holds is judged where it is written."""
        return None

    @property
    def queue(self) -> str:
        """The name of the queue."""
        return self._attachment.subject.queue

    def _check_page(self, token: PageToken, prefix: Key | None, waiting: Limit) -> None:
        check_queue(token, self.queue, "after")
        check_prefix(token, prefix)
        check_same_topic(token, self._topic, self._shared.catch_up.topic_id)
        self._reach(ResumePoint(token.offsets, token.topic_id, token.as_of), waiting, "after")

    def _resume_point(self, since: Resumable) -> ResumePoint:
        point = ResumePoint.of(since, self.queue)
        point.check_topic(self._topic, self._shared.catch_up.topic_id)
        self._reach(point, Limit(self._catch_up_timeout), "since")
        return point

    def _reach(self, point: ResumePoint, limit: Limit, option: str) -> None:
        """Wait until the store is as far as another reader was, and note the time of that."""
        timed = self._attachment.subject.timed
        if timed:
            point.check_time(self._topic, time.time(), option)
        self._follower.waiter.reached(point.offsets, limit)
        if timed:
            self._shared.saw(point.as_of)

    def _changed_since(self, point: ResumePoint, end: EndOfDump, table: NewestRecords) -> Mapping[bytes, Cause | None]:
        moment = point.moment if self._attachment.subject.timed else None
        return check_known(table.changed_since(point.offsets, moment), self._topic)


@refuse_unknown()
def attach(
    path: str | PathLike[str],
    *,
    value: Codec[T] | type[T] = BYTES,  # type: ignore[assignment]  # the default of T
    undecodable: Undecodable = "raise",
    catch_up_timeout: float | None = 60.0,
) -> AttachedView[T]:
    """Return a live mapping of the store that another process writes (R41).

    It needs no connection to the cluster.

    The writer is a `View` with ``store=path``, or ``lvq hold``, on the same machine, in the same PID namespace and of
    the same user. See `AttachedView`. Needs the extra ``store``.

    Args:
        path: the directory of the store.
        value: the codec for values, or the dataclass or model that they are; see `LastValueQueue`.
        undecodable: ``"raise"`` or ``"raw"``; see `Undecodable`. Only the writer can skip values.
        catch_up_timeout: seconds that entering ``with`` waits; None for no limit.

    Raises:
        ConfigError: an option is invalid.
    """
    return AttachedView(path, value, undecodable=undecodable, catch_up_timeout=catch_up_timeout)
