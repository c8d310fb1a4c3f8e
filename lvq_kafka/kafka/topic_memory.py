"""Memory of what brokers have reported about topics, as protection against lagging ones."""

from __future__ import annotations

from threading import Lock

__all__ = ["TopicMemory"]


class TopicMemory:
    """The newest known ids and partition counts of topics. Thread-safe.

    A former id does not come back, and partitions never disappear.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._latest: dict[str, tuple[str, int]] = {}  # by topic: its id and number of partitions
        self._former: set[str] = set()  # ids

    def says(self, topic: str, topic_id: str, partitions: int) -> tuple[str, int] | None:
        """Record a broker's report; return what is now known, or None for a deleted topic."""
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
        """Record that the topic was deleted."""
        with self._lock:
            if topic in self._latest:
                self._former.add(self._latest.pop(topic)[0])
