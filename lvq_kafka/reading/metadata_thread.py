"""A follower's metadata thread, which observes the topic over its own connection."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from lvq_kafka.cluster import Cluster, TopicDescription
from lvq_kafka.core.latest.catch_up import Trouble
from lvq_kafka.core.queue.topic_settings import DELETE_RETENTION
from lvq_kafka.declared.queue_topic import ask_delete_retention
from lvq_kafka.errors import TopicNotFound, TopicRecreated, TransportError
from lvq_kafka.reading.follower_state import FollowerState

__all__ = ["MetadataThread"]

T = TypeVar("T")

_LOOK = 5.0  # seconds for one check; then a frozen cluster counts as lost. close() may wait for it
_MOMENT = 0.1  # seconds that each request of a check gets at least
_QUESTION = 10.0  # the same, if a caller waits for the answer
_SETTINGS = 60.0  # seconds between two checks of the topic's settings
_LEAST = 0.5  # minimum seconds between two checks of the topic, however briefly it keeps deletes
_LOOKS = 4  # checks per delete retention time


class MetadataThread:
    """Observes the topic's identity, its partitions, and its log ends.

    That keeps metadata requests off the reading path, and distinguishes a quiet topic from a lost cluster.

    Args:
        cluster: the cluster that holds the topic.
        shared: receives the observations.
        interval: seconds between two checks.
    """

    def __init__(self, cluster: Cluster, shared: FollowerState, interval: float) -> None:
        self._cluster = cluster
        self._shared = shared
        self._topic = shared.topic
        self._interval = interval
        self._due = Event()
        self._retention = DELETE_RETENTION
        self._settings_at = 0.0

    def refresh_now(self) -> None:
        """Make the thread check at once, or end if it was asked to stop."""
        self._due.set()

    def run(self) -> None:
        """Check until the follower is closed or has failed: the body of the thread."""
        shared = self._shared
        while True:
            self._due.wait(min(self._interval, max(_LEAST, self._retention / _LOOKS)))
            self._due.clear()  # before checking for a stop, or the signal could be lost
            if shared.over:
                return
            topic_id = shared.catch_up.replay.topic_id
            try:
                self._refresh()
            except TopicNotFound as error:
                shared.lose(error, topic_id)
            except TransportError as error:
                if not error.retriable:
                    raise
                shared.lost_touch(Trouble.NO_METADATA, error)

    def retention(self, *, timeout: float = _LOOK, insist: bool = False) -> float:
        """Ask how many seconds the topic keeps deletes. See `ask_delete_retention`."""
        self._settings_at = time.monotonic() + _SETTINGS
        self._retention = ask_delete_retention(
            self._cluster, self._topic, self._retention, timeout=timeout, insist=insist
        )
        return self._retention

    def _refresh(self) -> None:
        deadline = time.monotonic() + _LOOK

        def left() -> float:
            return max(_MOMENT, deadline - time.monotonic())

        if time.monotonic() >= self._settings_at:
            self._shared.keeps(self.retention(timeout=left()))
        then = self._shared.clock()
        described, (ends, stable) = self._of_one_topic(
            lambda partitions: (
                # In this order, a partition without transactions never looks blocked.
                self._cluster.logs.end_offsets(self._topic, partitions=partitions, timeout=left()),
                self._cluster.logs.end_offsets(self._topic, stable=True, partitions=partitions, timeout=left()),
            ),
            left,
        )
        self._shared.observed(then, described, self._shared.those_read(ends), self._shared.those_read(stable))

    def ends(
        self, left: Callable[[], float | None] = lambda: None, *, stable: bool = False
    ) -> tuple[str, dict[int, int]]:
        """Return the topic's id and the ends of the partitions read, for a waiting caller.

        ``left`` returns the caller's remaining seconds. May be called from any thread. Raises what
        `Logs.end_offsets` raises.
        """

        def timeout() -> float:
            seconds = left()
            return _QUESTION if seconds is None else min(seconds, _QUESTION)

        described, ends = self._of_one_topic(
            lambda partitions: self._cluster.logs.end_offsets(
                self._topic, stable=stable, partitions=partitions, timeout=timeout()
            ),
            timeout,
        )
        return described.id, self._shared.those_read(ends)

    def _of_one_topic(self, question: Callable[[int], T], timeout: Callable[[], float]) -> tuple[TopicDescription, T]:
        """Ask a question for a partition count; return the topic that was asked, and the answer.

        If the topic id is the same before and after the request, the answer belongs to that topic. The partition count
        is already known, so this takes no extra request.
        """
        replay = self._shared.catch_up.replay
        topic_id, partitions = replay.topic_id, replay.partitions
        while True:
            answer = question(partitions)
            described = self._cluster.topics.describe(self._topic, timeout=timeout())
            if described.id != topic_id:
                news = TopicRecreated(f"The topic {self._topic} was re-created.", topic=self._topic)
                self._shared.lose(news, topic_id)
            elif described.partitions == partitions:
                return described, answer
            topic_id, partitions = described.id, described.partitions
