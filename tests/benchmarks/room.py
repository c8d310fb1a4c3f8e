"""The room in a commit's text, computed without broker or clock: ``python -m tests.benchmarks.room``.

A number of messages wait. Acks come for some of them, chosen at random; the others stay, because they always fail, are
delayed, or are held. *dense*: offsets are consecutive; *sparse*: compaction has left every tenth. With *counts*, each
message that stays was delivered before, mostly once, some up to five times, and the commit includes that.

The second table hands messages out in random order, a hundred at a time, as a priority queue may do, until one has to
wait for room (in transactions), or until an ack has none (otherwise). Here, *sparse* offsets have gaps of random
length, ten on average. With *counts*, every tenth message fails once and stays.
"""

from __future__ import annotations

from collections.abc import Iterator
from heapq import heappop, heappush
from itertools import islice
from random import Random

from lvq_kafka.core.commit_map.commit_map import ANY_LENGTH, LONGEST_TEXT, CommitMap
from lvq_kafka.core.commit_map.map_capacity import MapCapacity
from lvq_kafka.core.commit_map.packing import BITMAP, DEFLATED, pack_runs
from lvq_kafka.core.consumer.commits import Answer, Commits
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.records import RecordBatch
from tests.rules import new_ledger

__all__ = ["AtRandom", "room", "room_table", "said", "table"]

_AT_ONCE = 100
_WAITING = (1_000, 3_000, 6_000, 10_000, 20_000, 24_000, 50_000)
_FORMS = {0: "numbers", DEFLATED: "deflated", BITMAP: "bitmap", BITMAP | DEFLATED: "bitmap, deflated"}
_TIMES = (1, 1, 1, 1, 2, 3, 5)


def said(waiting: int, acked: float, step: int, *, counted: bool) -> CommitMap:
    """Return the map of a queue in which ``waiting`` messages, ``step`` offsets apart, waited and some were acked."""
    rng = Random(waiting + step)
    stays = [0, *(number * step for number in range(1, waiting) if rng.random() >= acked)]
    end = waiting * step
    return CommitMap(0, _runs(stays, end, step), bytes(8), 1, 1 << 20, end, _counts(stays, rng, counted=counted))


def _runs(stays: list[int], end: int, step: int) -> tuple[int, ...]:
    runs: list[int] = []
    pending = stays[0]
    for offset, following in zip(stays, [*stays[1:], end]):
        if following - offset > step or following == end:
            runs += (offset + 1 - pending, following - offset - 1)
            pending = following
    if runs[-1] == 0:  # nothing after the last one is done
        del runs[-2:]
    return tuple(runs)


def _counts(stays: list[int], rng: Random, *, counted: bool) -> dict[int, int]:
    return {offset: rng.choice(_TIMES) for offset in stays} if counted else {}


def table() -> Iterator[str]:
    """Yield the rows of a Markdown table."""
    yield "| waiting | acked | offsets | characters | form of the runs | acks that fit | with counts | acks that fit |"
    yield "| ---: | ---: | --- | ---: | --- | ---: | ---: | ---: |"
    for waiting in _WAITING:
        for acked in (0.5, 0.95):
            for step, offsets in ((1, "dense"), (10, "sparse")):
                plain, counted = (said(waiting, acked, step, counted=with_counts) for with_counts in (False, True))
                form = _FORMS[pack_runs(plain.runs)[0]]
                cells = [f"{waiting:,}", f"{acked:.0%}", offsets, _length(plain), form, _part(plain), _length(counted)]
                yield f"| {' | '.join([*cells, _part(counted)])} |"


def _length(one: CommitMap) -> str:
    return f"{len(one.encode(ANY_LENGTH)):,}"


def _part(one: CommitMap) -> str:
    """Return the share of the acked runs that fits into a commit by default."""
    fitting = one.shortened(LONGEST_TEXT, stored=CommitMap(0))
    if fitting.runs == one.runs:
        return "all"
    return f"{len(fitting.runs) / len(one.runs):.0%}"


class AtRandom:
    """Hands messages out in random order."""

    def __init__(self) -> None:
        self._rng = Random(7)
        self._order: list[tuple[float, int]] = []
        self._items: dict[int, Item] = {}

    def add(self, item: Item) -> None:
        """See `ReadyQueue.add`."""
        self._items[item.slot] = item
        heappush(self._order, (self._rng.random(), item.slot))

    def remove(self, item: Item) -> None:
        """See `ReadyQueue.remove`."""
        self._items.pop(item.slot, None)

    def pop(self) -> Item | None:
        """See `ReadyQueue.pop`."""
        while self._order:
            item = self._items.pop(heappop(self._order)[1], None)
            if item is not None:
                return item
        return None


def room(waiting: int, *, sparse: bool, counted: bool, bounded: bool) -> int:
    """Return how many messages come in random order until one waits for room, or an ack has none."""
    rng, offsets, end = Random(1), [], 0
    for _ in range(waiting):
        offsets.append(end)
        end += 1 + (int(rng.expovariate(1 / 9.5)) if sparse else 0)
    ledger = new_ledger(hand_out=AtRandom(), count_deliveries=counted, bounded=bounded)
    ledger.assign(0, CommitMap(0), end)
    keys: list[bytes | None] = [b"%d" % offset for offset in offsets]
    ledger.add(RecordBatch([0] * waiting, offsets, [0] * waiting, keys, [b""] * waiting, [None] * waiting))
    ledger.advance({0: end})
    commits: Commits[None] = Commits(ledger)
    commits.track(0, CommitMap(0), tag=bytes(range(8)), partitions=1)
    done = 0
    while items := list(islice(iter(ledger.acquire, None), _AT_ONCE)):
        if ledger.assignment.gated:  # the last ones came since they were the lowest
            break
        for item in items:
            if counted and rng.random() < 0.1:
                ledger.release(item, 1e9)
            else:
                ledger.ack(item)
        flight = commits.prepare()
        if commits.text_is_full:
            break
        done += len(items)
        if flight is not None:
            commits.landed(flight, Answer.STORED)
    return done


def room_table() -> Iterator[str]:
    """Yield the rows of a Markdown table."""
    yield "| waiting | offsets | acks that fit | in transactions | with counts | in transactions |"
    yield "| ---: | --- | ---: | ---: | ---: | ---: |"
    for waiting in _WAITING:
        for sparse, offsets in ((False, "dense"), (True, "sparse")):
            cells = [f"{waiting:,}", offsets]
            for counted in (False, True):
                for bounded in (False, True):
                    fitting = room(waiting, sparse=sparse, counted=counted, bounded=bounded)
                    cells.append("all" if fitting == waiting else f"{fitting:,}")
            yield f"| {' | '.join(cells)} |"


if __name__ == "__main__":
    print("\n".join(table()))
    print(f"\nWhatever is done, {MapCapacity(LONGEST_TEXT).window:,} offsets above the base have room.\n")
    print("\n".join(room_table()))
