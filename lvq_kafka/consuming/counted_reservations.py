"""Durable delivery counts: a message is handed out once the group holds its new count."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future

from lvq_kafka.core.commits import Commits
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.pending import Item

__all__ = ["CountedReservations"]

_HELD = frozenset({State.ACQUIRED, State.STALE})
_REMEMBERED = 256  # skipped keys to remember
_PROMPT = 0.2  # seconds in which an unimpeded commit is answered


class CountedReservations:
    """Messages reserved for a future holder until their counts are stored. Not thread-safe.

    A message whose count is stored when nobody waits any longer goes to the next caller. If there is none, it was not
    delivered (`lvq_kafka.core.ledger.Ledger.reserve`), and the last commit before its partition is revoked says so.

    Args:
        commits: commits the counts.
        counted: called without any lock when some messages are counted, or never will be.
    """

    def __init__(self, commits: Commits[Future[None]], counted: Callable[[Future[None]], object]) -> None:
        self._commits = commits
        self._counted = counted
        self._line: list[tuple[Item, Future[None], float]] = []  # item, its future, and when it was added
        # Skipped keys, by partition and lane, until they are handed out.
        self._passed_over: OrderedDict[tuple[int, bytes | int], None] = OrderedDict()

    def __len__(self) -> int:
        return sum(item.state in _HELD for item, _, _ in self._line)

    def add(self, taken: Collection[Item], now: float) -> None:
        """Have these messages counted, all in one commit."""
        stored = {item.partition: Future[None]() for item in taken}
        for partition, future in stored.items():
            future.add_done_callback(self._counted)
            self._commits.wait_stored(partition, future)
        self._line += [(item, stored[item.partition], now) for item in taken]

    def overtaken(self, now: float, *, comes_now: bool) -> list[Item]:
        """Return counted messages that were superseded before anyone came for them.

        A waiting caller came before the messages were counted. But if the commit was slow, as in a rebalance, they were
        reserved for a caller that may have left, and are old.

        Release these so the next caller gets the newer value (or nothing, if the key was deleted). A key is skipped at
        most once; otherwise a hot key would starve callers that poll without waiting.
        """
        items = [
            item
            for item, future, since in self._line
            if item.state is State.STALE
            and future.done()
            and (comes_now or now - since > _PROMPT)
            and (item.partition, item.lane) not in self._passed_over
        ]
        self._passed_over.update(dict.fromkeys((item.partition, item.lane) for item in items))
        while len(self._passed_over) > _REMEMBERED:  # deleted keys are never handed out
            self._passed_over.popitem(last=False)
        return items

    def pop_counted(self, most: int) -> list[Item]:
        """Take messages that are counted and not lost meanwhile."""
        taken: list[Item] = []
        left: list[tuple[Item, Future[None], float]] = []
        for item, future, since in self._line:
            if item.state not in _HELD:
                continue
            if len(taken) < most and future.done():
                taken.append(item)
            else:
                left.append((item, future, since))
        self._line = left
        for item in taken:
            self._passed_over.pop((item.partition, item.lane), None)
        return taken
