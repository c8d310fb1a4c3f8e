"""The length of a commit's text, computed without broker or clock: ``python -m tests.benchmarks.room``.

A number of messages wait. Acks come for some of them, chosen at random; the others stay, because they always fail, are
delayed, or are held. *dense*: offsets are consecutive; *sparse*: compaction has left every tenth. With *counts*, each
message that stays was delivered before, mostly once, some up to five times, and the commit includes that.
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


if __name__ == "__main__":
    print("\n".join(table()))
