"""What the results of the Spark part say."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import Any

from tests.benchmarks.report import Target, table
from tests.benchmarks.spark import OURS, RECIPES, REFRESHES

__all__ = ["growth_table", "progress", "spark_table", "spark_targets"]

Result = dict[str, Any]
SNAPSHOT = OURS[1]
"""What others are compared with in the table."""

GROWTH = ("quarter", "half", "plain", "double")


def progress(result: Result) -> str:
    """One result, while more are to come."""
    what = f"round {result['round'] + 1}, {result['topic']}, {result['contestant']}"
    return f"  {what}: {result['cpu']:.1f} CPU-s in {result['wall']:.1f} s"


def spark_table(results: Sequence[Result]) -> str:
    """Medians of what each contestant takes, and its processor time by that of `SNAPSHOT` in the same round."""
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
    """Processor time for a record, as topics grow."""
    head = ["CPU us/record at so many records", *(f"{_size(results, topic):,}" for topic in GROWTH)]
    rows = [[name, *(f"{_per_record(results, topic, name):.2f}" for topic in GROWTH)] for name in OURS]
    return table(head, rows)


def spark_targets(results: Sequence[Result]) -> list[Target]:
    """What a user gets, against the best recipe; and that cost grows with the number of records."""
    found = []
    for topic in ("plain", "headers"):
        best = min(RECIPES, key=lambda recipe: _median(_of(results, topic, recipe), "cpu"))
        for ours in OURS[:2]:
            share = 1 / _ratio(results, topic, best, ours)
            found.append(Target.at_most(f"Spark, {topic}, {ours}: CPU in times {best}", 0.5, share))
    share = _ratio(results, "plain", REFRESHES[1], SNAPSHOT)
    found.append(Target.at_most("Spark: CPU of a refresh from the last 1 %, in times a snapshot", 0.1, share))
    for ours in OURS:
        costs = [_per_record(results, topic, ours) for topic in GROWTH]
        what = f"{ours}: CPU per record of larger topics, in times that of the smallest"
        found.append(Target.at_most(what, 1.15, max(costs[1:]) / costs[0]))
    return found


def _of(results: Sequence[Result], topic: str, contestant: str) -> list[Result]:
    return [result for result in results if (result["topic"], result["contestant"]) == (topic, contestant)]


def _median(results: Sequence[Result], figure: str) -> float:
    return statistics.median(float(result[figure]) for result in results)


def _ratio(results: Sequence[Result], topic: str, above: str, below: str) -> float:
    """The median over the rounds of one contestant's processor time by another one's in the same round."""
    of_below = {result["round"]: float(result["cpu"]) for result in _of(results, topic, below)}
    return statistics.median(result["cpu"] / of_below[result["round"]] for result in _of(results, topic, above))


def _per_record(results: Sequence[Result], topic: str, contestant: str) -> float:
    return _median(_of(results, topic, contestant), "cpu") / _size(results, topic) * 1e6


def _size(results: Sequence[Result], topic: str) -> int:
    return next(int(result["records"]) for result in results if result["topic"] == topic)
