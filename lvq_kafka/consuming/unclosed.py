"""The consumers of this process that nobody has closed, and where each was opened."""

from __future__ import annotations

from weakref import WeakSet

from lvq_kafka.places import opened_at

__all__ = ["Unclosed"]

_all: WeakSet[Unclosed] = WeakSet()


class Unclosed:
    """A consumer from its opening on, until it has left the group. As text it says where it was opened.

    Args:
        name: of the queue.
        topic_id: of its topic: queues of that name on other clusters are others.
    """

    def __init__(self, name: str, topic_id: str) -> None:
        self._of = (name, topic_id)
        self._place = opened_at()
        _all.add(self)

    def end(self) -> None:
        """It has left the group."""
        _all.discard(self)

    @property
    def others(self) -> list[Unclosed]:
        """The others of this queue in this process."""
        return [other for other in list(_all) if other is not self and other._of == self._of]

    def __str__(self) -> str:
        return self._place
