"""The assignments of a consumer: handles are good for one of them, and each leaves behind what it had committed."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Iterator

from lvq_kafka.core.commit_map import CommitMap

__all__ = ["Generations"]

_REMEMBERED = 256  # assignments that have ended and whose last commit is still known


class Generations:
    """The assignments of partitions, by the numbers that the ledger gives them. It has no lock of its own."""

    def __init__(self) -> None:
        self._present: dict[int, int] = {}  # by partition
        self._last: OrderedDict[int, CommitMap] = OrderedDict()  # by number

    def start(self, partition: int, generation: int) -> None:
        """A partition was assigned."""
        self._present[partition] = generation

    def end(self, partition: int, last: CommitMap) -> None:
        """It is gone, and this is what the group is known to hold."""
        self._last[self._present.pop(partition)] = last
        while len(self._last) > _REMEMBERED:
            self._last.popitem(last=False)

    def is_current(self, partition: int, generation: int) -> bool:
        """Whether that assignment has not ended."""
        return self._present.get(partition) == generation

    def committed(self, offset: int, generation: int) -> bool:
        """Whether the group holds that the message is done, as far as was known when that assignment ended."""
        last = self._last.get(generation)
        return last is not None and last.done(offset)

    def __iter__(self) -> Iterator[int]:
        """The partitions that are assigned."""
        return iter(self._present)
