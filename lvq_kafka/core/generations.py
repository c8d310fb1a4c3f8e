"""Assignment generations. A handle is valid for one; each remembers its last commit."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from lvq_kafka.core.commit_map import CommitMap

__all__ = ["Generations"]

_REMEMBERED = 256  # ended generations whose last commit is kept


class Generations:
    """The generations of assigned partitions, as numbered by the ledger."""

    def __init__(self) -> None:
        self._present: dict[int, int] = {}  # by partition
        self._last: OrderedDict[int, CommitMap] = OrderedDict()  # by generation

    def start(self, partition: int, generation: int) -> None:
        """Record that a partition was assigned."""
        self._present[partition] = generation

    def end(self, partition: int, last: CommitMap) -> None:
        """Record that an assignment ended, and what the group is known to hold."""
        self._last[self._present.pop(partition)] = last
        while len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def is_current(self, partition: int, generation: int) -> bool:
        """Return whether that generation is still assigned."""
        return self._present.get(partition) == generation

    def committed(self, offset: int, generation: int) -> bool:
        """Return whether the group was known to have the message done when the generation ended."""
        last = self._last.get(generation)
        return last is not None and last.done(offset)

    def __iter__(self) -> Iterator[int]:
        """Iterate over the assigned partitions."""
        return iter(self._present)
