"""The unclosed consumers of this process, and where each was opened."""

from __future__ import annotations

from weakref import WeakSet

from lvq_kafka.places import opened_at

__all__ = ["Unclosed"]

_all: WeakSet[Unclosed] = WeakSet()


class Unclosed:
    """A consumer from its opening until it has left the group.

    Its text is the place where it was opened.

    Args:
        name: the queue's name.
        topic_id: the topic's id. Queues with the same name on other clusters are different queues.
    """

    def __init__(self, name: str, topic_id: str) -> None:
        self._of = (name, topic_id)
        self._place = opened_at()
        _all.add(self)

    def end(self) -> None:
        """Record that it has left the group."""
        _all.discard(self)

    @property
    def others(self) -> list[Unclosed]:
        """The other consumers of this queue in this process."""
        return [other for other in list(_all) if other is not self and other._of == self._of]

    def __str__(self) -> str:
        return self._place
