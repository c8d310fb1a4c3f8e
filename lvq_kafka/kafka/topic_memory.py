"""What brokers have told of topics: one that lags behind the others may tell less than another has told before."""

from __future__ import annotations

from threading import Lock

__all__ = ["TopicMemory"]


class TopicMemory:
    """Remembers what cannot become less: an id does not come back, and partitions never go. Thread-safe."""

    def __init__(self) -> None:
        self._lock = Lock()
        self._latest: dict[str, tuple[str, int]] = {}  # by topic, its id and how many partitions it has
        self._former: set[str] = set()  # ids

    def says(self, topic: str, topic_id: str, partitions: int) -> tuple[str, int] | None:
        """A broker says this of a topic. Returns what is so; None where that topic is known to be gone."""
        with self._lock:
            if topic_id in self._former:
                return None
            before, most = self._latest.get(topic, (topic_id, 0))
            if before != topic_id:
                self._former.add(before)
                most = 0
            self._latest[topic] = topic_id, max(most, partitions)
            return self._latest[topic]

    def gone(self, topic: str) -> None:
        """The topic was deleted."""
        with self._lock:
            if topic in self._latest:
                self._former.add(self._latest.pop(topic)[0])
