"""The benchmark of hot paths runs, and sets two revisions side by side. Speed is never asserted."""

from __future__ import annotations

from tests.benchmarks import measuring
from tests.benchmarks.hot_paths import measure, table


def test_every_path_is_measured() -> None:
    found = measure(2_000)
    assert found.keys() >= {"add, few keys", "acquire and ack, many keys", "put", "look up", "consume one by one"}
    assert min(found.values()) > 0


def test_the_table_has_the_medians_and_the_least_with_their_ratios() -> None:
    here, there = [{"put": 2e-6}, {"put": 3e-6}, {"put": 90e-6}], [{"put": 6e-6}] * 3
    assert list(table(here, there))[2:] == ["| put | 3.00 | 6.00 | 0.50 | 2.00 | 6.00 | 0.33 |"]


def test_the_cost_of_metrics_and_traces_is_measured() -> None:
    rounds = {mode: [measuring.measure(mode, 200)] for mode in measuring.MODES}
    rows = list(measuring.table(measuring.parts(1000), rounds))
    assert [row.split(" |")[0] for row in rows][-2:] == ["| put, and a view that follows", "| consume"]
