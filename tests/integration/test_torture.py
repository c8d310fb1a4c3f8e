"""The torture test for half a minute each way; `make torture` goes on for longer. It kills a broker of its own."""

from __future__ import annotations

from random import SystemRandom

import pytest

from tests.torture.ordeal import Ordeal, undergo
from tests.torture.report import summary


@pytest.mark.timeout(600)
@pytest.mark.parametrize("transactional", [False, True], ids=["plain", "transactions"])
def test_g9_to_g13_nothing_is_lost_stale_or_twice_without_a_reason_whatever_is_killed(transactional: bool) -> None:
    report = undergo(Ordeal(seconds=30, seed=SystemRandom().randrange(1 << 32), transactional=transactional))
    print(summary(report))
    assert report.verdict.delivered, "nothing was tried out"
    assert not report.verdict.findings, summary(report)
