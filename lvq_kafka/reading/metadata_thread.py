"""The observing thread of a follower: it looks at the topic from outside, over a connection of its own."""

from __future__ import annotations

import time
from collections.abc import Callable
from threading import Event
from typing import TypeVar

from lvq_kafka.cluster import Cluster, TopicDescription
from lvq_kafka.core.policy import DELETE_RETENTION
from lvq_kafka.errors import TopicNotFound, TopicRecreated, TransportError
from lvq_kafka.reading.follower_state import FollowerState
from lvq_kafka.topics import ask_delete_retention

__all__ = ["MetadataThread"]

T = TypeVar("T")

_LOOK = 5.0  # seconds that a question may take; a frozen cluster is called lost after it, and close() may wait for it
_QUESTION = 10.0  # the same for one who waits for the answer
_SETTINGS = 60.0  # seconds between two looks at the topic's settings
_LEAST = 0.5  # seconds between two looks at the topic, though it keeps deletes for less than a few times that
_LOOKS = 4  # in the time for which it keeps deletes


class MetadataThread:
    """Sees whether the topic is still the same one, whether partitions were added, and where its log ends.

    That keeps every look-up off the reading path, and tells a quiet topic from a lost cluster.

    Args:
        cluster: where the topic lies.
        standing: is told.
        interval: seconds between two looks.
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
        """Let the thread look at once, or at its end if it was told to stop."""
        self._due.set()

    def run(self) -> None:
        """Look until the follower is closed or has failed: the body of the thread."""
        shared = self._shared
        while True:
            self._due.wait(min(self._interval, max(_LEAST, self._retention / _LOOKS)))
            self._due.clear()  # before the question whether to stop, or that news could get lost
            if shared.closed or shared.failure is not None:
                return
            topic_id = shared.replay.described.id
            try:
                self._refresh()
            except TopicNotFound as error:
                shared.lose(error, topic_id)
            except TransportError as error:
                if not error.retriable:
                    raise
                shared.lost_touch("looking", error)

    def retention(self, *, insist: bool = False) -> float:
        """Seconds for which the topic keeps deletes, as it says when it is asked. See `ask_delete_retention`."""
        self._settings_at = time.monotonic() + _SETTINGS
        self._retention = ask_delete_retention(
            self._cluster, self._topic, self._retention, timeout=_LOOK, insist=insist
        )
        return self._retention

    def _refresh(self) -> None:
        then = self._shared.clock()
        if time.monotonic() >= self._settings_at:
            self._shared.keeps(self.retention())
        described, (ends, stable) = self._of_one_topic(
            lambda partitions: (
                # In this order: a partition without transactions then never looks blocked.
                self._cluster.end_offsets(self._topic, partitions=partitions, timeout=_LOOK),
                self._cluster.end_offsets(self._topic, stable=True, partitions=partitions, timeout=_LOOK),
            ),
            lambda: _LOOK,
        )
        self._shared.observed(then, described, ends, stable)

    def ends(
        self, left: Callable[[], float | None] = lambda: None, *, stable: bool = False
    ) -> tuple[str, dict[int, int]]:
        """The id of the topic, and the end of each partition's log, for one who waits; ``left`` are their seconds.

        For any thread. Raises what `Cluster.end_offsets` does.
        """

        def timeout() -> float:
            seconds = left()
            return _QUESTION if seconds is None else min(seconds, _QUESTION)

        described, ends = self._of_one_topic(
            lambda partitions: self._cluster.end_offsets(
                self._topic, stable=stable, partitions=partitions, timeout=timeout()
            ),
            timeout,
        )
        return described.id, ends

    def _of_one_topic(self, question: Callable[[int], T], timeout: Callable[[], float]) -> tuple[TopicDescription, T]:
        """The answer to a question about so many partitions, and the topic that the answer is of.

        The answer of a topic that was the same before and is the same after is of that one. What is known of it from
        before is enough to ask, so that this costs no question more.
        """
        known = self._shared.replay.described
        while True:
            answer = question(known.partitions)
            described = self._cluster.describe_topic(self._topic, timeout=timeout())
            if described.id != known.id:
                news = TopicRecreated(f"The topic {self._topic} was created anew.", topic=self._topic)
                self._shared.lose(news, known.id)
            elif described.partitions == known.partitions:
                return described, answer
            known = described
