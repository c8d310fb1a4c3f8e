"""Delivery counts that outlive a crash: a message is handed out when the group holds how often that was done."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Collection
from concurrent.futures import Future

from lvq_kafka.core.commits import Commits
from lvq_kafka.core.lifecycle import State
from lvq_kafka.core.pending import Item

__all__ = ["CountedReservations"]

_HELD = frozenset({State.ACQUIRED, State.STALE})
_REMEMBERED = 256  # keys that were passed over
_PROMPT = 0.2  # seconds in which a commit is answered that nothing holds up


class CountedReservations:
    """Messages that are on their way to a holder, whoever that will be. It has no lock of its own.

    One that is counted when nobody waits any more goes to the next who does. If there is none, it was not delivered
    (`lvq_kafka.core.ledger.Ledger.reserve`), and the last commit before its partition goes says so.

    Args:
        commits: what the counts are committed with.
        counted: called, without any lock, when some of them can be had; or will never be.
    """

    def __init__(self, commits: Commits[Future[None]], counted: Callable[[Future[None]], object]) -> None:
        self._commits = commits
        self._counted = counted
        self._line: list[tuple[Item, Future[None], float]] = []  # and since when they are in it
        # By partition and lane, since their last hand-out.
        self._passed_over: OrderedDict[tuple[int, bytes | int], None] = OrderedDict()

    def __len__(self) -> int:
        return sum(item.state in _HELD for item, _, _ in self._line)

    def add(self, taken: Collection[Item], now: float) -> None:
        """Have these counted: all that come at once by one commit."""
        stored = {item.partition: Future[None]() for item in taken}
        for partition, future in stored.items():
            future.add_done_callback(self._counted)
            self._commits.wait_stored(partition, future)
        self._line += [(item, stored[item.partition], now) for item in taken]

    def overtaken(self, now: float, *, comes_now: bool) -> list[Item]:
        """Those that were counted before somebody came for them, and are not the newest of their keys any more.

        One who waits for them has come before; but where the commit took its time, as in a rebalance, they were set
        aside for somebody who may have left, and are old.

        They are to be let go, so that who comes now gets the newer value, or none if the key was deleted. A key is
        passed over once: else one that never rests would never come to somebody who never waits.
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
        while len(self._passed_over) > _REMEMBERED:  # those that were deleted never come
            self._passed_over.popitem(last=False)
        return items

    def pop_counted(self, most: int) -> list[Item]:
        """Those that are counted, and not lost meanwhile."""
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
