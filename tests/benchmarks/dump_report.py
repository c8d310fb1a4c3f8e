"""The report of the dump part."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.dump import CONTESTANTS
from tests.benchmarks.report import Target, table

__all__ = ["dump_table", "dump_targets"]

Result = dict[str, Any]


def dump_table(results: Sequence[Result]) -> str:
    """Return a table of medians, and of the event loop's longest pause."""
    head = ["dump, follow", "keys", "dump s", "CPU s", "CPU us/key", "follow s", "CPU us/key", "pause ms"]
    rows = []
    for contestant in CONTESTANTS:
        for keys in _sizes(results):
            mine = _of(results, contestant, keys)
            follows = "follow_wall" in mine[0]
            rows.append(
                [
                    contestant,
                    f"{keys}",
                    f"{_median(mine, 'dump_wall'):.2f}",
                    f"{_median(mine, 'dump_cpu'):.2f}",
                    f"{_median(mine, 'dump_cpu') / keys * 1e6:.2f}",
                    f"{_median(mine, 'follow_wall'):.2f}" if follows else "",
                    f"{_median(mine, 'follow_cpu') / keys * 1e6:.2f}" if follows else "",
                    "" if follows else f"{max(row['pause'] for row in mine) * 1e3:.0f}",
                ]
            )
    return table(head, rows)


def dump_targets(results: Sequence[Result]) -> list[Target]:
    """Return the targets: a million keys in three CPU seconds, and a cost per key that does not grow."""
    if not results:
        return []
    *_, few, many = _sizes(results)
    found = []
    for contestant in CONTESTANTS:
        largest = _of(results, contestant, many)
        per_million = _median(largest, "dump_cpu") / many * 1e6
        found.append(Target.at_most(f"dump, {contestant}: CPU seconds per million keys", 3.0, per_million))
        for what in ("dump_cpu", "follow_cpu"):
            if what in largest[0]:
                growth = _median(largest, what) / many / (_median(_of(results, contestant, few), what) / few)
                what = what.removesuffix("_cpu")
                found.append(
                    Target.at_most(f"{what}, {contestant}: CPU time per key of {many} in times {few}", 2.0, growth)
                )
    return found


def _sizes(results: Sequence[Result]) -> list[int]:
    return sorted({result["keys"] for result in results})


def _of(results: Sequence[Result], contestant: str, keys: int) -> list[Result]:
    return [result for result in results if (result["contestant"], result["keys"]) == (contestant, keys)]


def _median(results: Sequence[Result], what: str) -> float:
    return statistics.median(result[what] for result in results)
