"""The torture test for a minute in two modes, on a private broker; `make torture` runs longer, and has more.

With scheduled messages, a run has all that a plain one has. ``make torture NODES=3`` kills the nodes of a cluster,
which takes minutes. `test_three_nodes` is a short form of it.
"""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.torture.ordeal import Ordeal, Protocol, undergo
from tests.torture.report import summary

_PARTITIONS = 6
_ORDEALS = 3


@pytest.mark.timeout(1500)
@pytest.mark.parametrize(
    ("protocol", "options"),
    [("consumer", {"scheduled": True}), ("classic", {"transactional": True})],
    ids=["scheduled-consumer-protocol", "transactions"],
)
def test_g9_to_g13_nothing_is_lost_stale_or_twice_without_a_reason_whatever_is_killed(
    protocol: Protocol, options: dict[str, bool]
) -> None:
    for _ in range(_ORDEALS):
        if endured(Ordeal(seconds=60, seed=_seed(), protocol=protocol, **options)):
            return
    pytest.fail("nobody was taken anything away")


def endured(ordeal: Ordeal) -> bool:
    """Run it, and check that nothing was found and no accident was left out.

    Return whether a member lost messages in work: on a slow machine, the only one that stops beyond its session may
    hold none.
    """
    report = undergo(ordeal)
    told = summary(report)
    print(told)
    assert not report.verdict.findings, told
    assert not report.spared, told
    assert report.compacted > 0, told
    assert report.assignments > 2 * _PARTITIONS, f"partitions have not moved\n{told}"
    assert report.verdict.durable > 0, told
    assert report.verdict.again, f"nothing had to come again\n{told}"
    assert set(report.verdict.letters) == {"rejected", "delivered too often"}, told
    assert report.verdict.remembered > 0, told
    assert report.habits.keys() >= {"counts durably", "counts for itself", "gives up what is delivered too often"}, told
    assert ordeal.transactional or "takes messages ahead" in report.habits, told
    if ordeal.scheduled:
        verdict = report.verdict
        assert min(verdict.expired, verdict.scheduled, verdict.beneath, verdict.sights) > 0, told
    return report.lost_locks > 0


def _seed() -> int:
    return SystemRandom().randrange(1 << 32)
