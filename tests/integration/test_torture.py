"""The torture test for a minute in each mode, on a private broker; `make torture` runs longer.

``make torture NODES=3`` kills the nodes of a cluster, which takes minutes. `test_three_nodes` is a short form of it.
"""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.torture.ordeal import Ordeal, Protocol, undergo
from tests.torture.report import summary

_PARTITIONS = 6


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("protocol", "options"),
    [("classic", {}), ("consumer", {"scheduled": True}), ("classic", {"transactional": True})],
    ids=["plain", "scheduled-consumer-protocol", "transactions"],
)
def test_g9_to_g13_nothing_is_lost_stale_or_twice_without_a_reason_whatever_is_killed(
    protocol: Protocol, options: dict[str, bool]
) -> None:
    endured(Ordeal(seconds=60, seed=_seed(), protocol=protocol, **options))


def endured(ordeal: Ordeal) -> None:
    """Run it, and check that nothing was found and no accident was left out."""
    report = undergo(ordeal)
    told = summary(report)
    print(told)
    assert not report.verdict.findings, told
    assert not report.spared, told
    assert report.compacted > 0, told
    assert report.assignments > 2 * _PARTITIONS, f"partitions have not moved\n{told}"
    assert report.lost_locks > 0, f"nobody was taken anything away\n{told}"
    assert report.verdict.durable > 0, told
    assert report.verdict.again, f"nothing had to come again\n{told}"
    assert set(report.verdict.letters) == {"rejected", "delivered too often"}, told
    assert report.verdict.remembered > 0, told
    assert report.habits.keys() >= {"counts durably", "counts for itself", "gives up what is delivered too often"}, told
    assert ordeal.transactional or "takes messages ahead" in report.habits, told
    if ordeal.scheduled:
        verdict = report.verdict
        assert min(verdict.expired, verdict.scheduled, verdict.beneath, verdict.sights) > 0, told


def _seed() -> int:
    return SystemRandom().randrange(1 << 32)
