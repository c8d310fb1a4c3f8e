"""The length of a commit's text, computed: no broker, no clock. ``python -m tests.benchmarks.room``.

So many messages wait; of some, chosen at random, the acks come, and the others stay: they fail always, are delayed, or
held. *dense*: their offsets follow each other; *sparse*: compaction has left every tenth. With *counts* each that stays
was handed out before, most of them once, some up to five times, and that is committed with them.
"""

from __future__ import annotations

from collections.abc import Iterator
from random import Random

from lvq_kafka.core.commit_map import ANY_LENGTH, LONGEST_TEXT, CommitMap
from lvq_kafka.core.packing import BITMAP, DEFLATED, pack_runs

__all__ = ["said", "table"]

_WAITING = (1_000, 3_000, 6_000, 10_000, 20_000, 24_000, 50_000)
_FORMS = {0: "numbers", DEFLATED: "deflated", BITMAP: "bitmap", BITMAP | DEFLATED: "bitmap, deflated"}
_TIMES = (1, 1, 1, 1, 2, 3, 5)


def said(waiting: int, acked: float, step: int, *, counted: bool) -> CommitMap:
    """The map of a queue of which so many messages, that lie so far apart, waited, and a part of them was acked."""
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
    """Rows of Markdown."""
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
    """Return how many of the runs of acked messages a commit by default has room for."""
    fitting = one.shortened(LONGEST_TEXT, stored=CommitMap(0))
    if fitting.runs == one.runs:
        return "all"
    return f"{len(fitting.runs) / len(one.runs):.0%}"


if __name__ == "__main__":
    print("\n".join(table()))
