"""The report of the Spark part."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from tests.benchmarks.report import Target, table
from tests.benchmarks.spark import OURS, RECIPES, REFRESHES

__all__ = ["growth_table", "progress", "spark_table", "spark_targets"]

Result = dict[str, Any]
SNAPSHOT = OURS[1]
"""The baseline of the table."""

GROWTH = ("quarter", "half", "plain", "double")


def progress(result: Result) -> str:
    """Return a line about one result, while others are still to come."""
    what = f"round {result['round'] + 1}, {result['topic']}, {result['contestant']}"
    return f"  {what}: {result['cpu']:.1f} CPU-s in {result['wall']:.1f} s"


def spark_table(results: Sequence[Result]) -> str:
    """Return a table of medians, with processor time relative to that of `SNAPSHOT` in the same round."""
    head = [
        "topic",
        "contestant",
        "seconds",
        "CPU s",
        "CPU us/record",
        "JVM peak MB",
        "Python peak MB",
        "CPU / snapshot",
    ]
    rows = []
    for topic in ("plain", "headers"):
        for contestant in (*OURS, *RECIPES, *REFRESHES):
            mine = _of(results, topic, contestant)
            if mine:
                figures = [
                    f"{_median(mine, 'wall'):.1f}",
                    f"{_median(mine, 'cpu'):.1f}",
                    f"{_median(mine, 'cpu') / mine[0]['records'] * 1e6:.1f}",
                    f"{_median(mine, 'peak_jvm') / 1e6:.0f}",
                    f"{_median(mine, 'peak_python') / 1e6:.0f}",
                    f"{_ratio(results, topic, contestant, SNAPSHOT):.2f}",
                ]
                rows.append([topic, contestant, *figures])
    return table(head, rows)


def growth_table(results: Sequence[Result]) -> str:
    """Return the processor time per record as topics grow: for all records, and for those beyond the smaller topic."""
    head = ["CPU us/record at so many records", *(f"{_size(results, topic):,}" for topic in GROWTH)]
    rows = []
    for name in OURS:
        rows.append([name, *(f"{_per_record(results, topic, name):.2f}" for topic in GROWTH)])
        more = [_each_more(results, smaller, larger, name) for smaller, larger in pairwise(GROWTH)]
        rows.append([f"{name}: each more", "", *(f"{statistics.median(costs.values()):.2f}" for costs in more)])
    return table(head, rows)


def spark_targets(results: Sequence[Result]) -> list[Target]:
    """Compare ours with the best recipe, and check that the cost grows no faster than the number of records."""
    found = []
    for topic in ("plain", "headers"):
        best = min(RECIPES, key=lambda recipe: _median(_of(results, topic, recipe), "cpu"))
        for ours in OURS:
            share = 1 / _ratio(results, topic, best, ours)
            found.append(Target.at_most(f"Spark, {topic}, {ours}: CPU in times {best}", 0.5, share))
    share = _ratio(results, "plain", REFRESHES[1], SNAPSHOT)
    found.append(Target.at_most("Spark: CPU of a refresh from the last 1 %, in times a snapshot", 0.1, share))
    for ours in OURS:
        what = f"{ours}: CPU of each record more in the largest topic, in times that in smaller ones"
        found.append(Target.at_most(what, 1.15, _growth(results, ours)))
    return found


def _of(results: Sequence[Result], topic: str, contestant: str) -> list[Result]:
    return [result for result in results if (result["topic"], result["contestant"]) == (topic, contestant)]


def _median(results: Sequence[Result], figure: str) -> float:
    return statistics.median(float(result[figure]) for result in results)


def _ratio(results: Sequence[Result], topic: str, above: str, below: str) -> float:
    """Return the median over the rounds of one contestant's processor time divided by another's in the same round."""
    of_below = {result["round"]: float(result["cpu"]) for result in _of(results, topic, below)}
    return statistics.median(result["cpu"] / of_below[result["round"]] for result in _of(results, topic, above))


def _per_record(results: Sequence[Result], topic: str, contestant: str) -> float:
    return _median(_of(results, topic, contestant), "cpu") / _size(results, topic) * 1e6


def _each_more(results: Sequence[Result], smaller: str, larger: str, contestant: str) -> dict[int, float]:
    """Return the processor time in us per record that one topic has beyond another, by round.

    It excludes a query's fixed cost, which would hide growth.
    """
    records = _size(results, larger) - _size(results, smaller)
    below = {result["round"]: float(result["cpu"]) for result in _of(results, smaller, contestant)}
    above = _of(results, larger, contestant)
    return {result["round"]: (result["cpu"] - below[result["round"]]) / records * 1e6 for result in above}


def _growth(results: Sequence[Result], contestant: str) -> float:
    """Return the median over the rounds of the cost per added record in the largest topic, relative to smaller ones.

    The smaller topics count as one step, since each of their steps is small compared with the noise. Where noise hides
    the cost of records completely, the result is infinite.
    """
    smallest, *_, large, largest = GROWTH
    up_to_there = _each_more(results, smallest, large, contestant)
    last = _each_more(results, large, largest, contestant)
    return statistics.median(last[number] / cost if cost > 0 else math.inf for number, cost in up_to_there.items())


def _size(results: Sequence[Result], topic: str) -> int:
    return next(int(result["records"]) for result in results if result["topic"] == topic)
