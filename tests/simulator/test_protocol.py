"""The consume protocol holds, whatever happens in the cluster and to its consumers: see `tests.simulator`."""

from __future__ import annotations

from random import SystemRandom

import pytest
from hypothesis import settings

from tests.simulator.machine import ConsumeProtocol
from tests.simulator.walk import walks

pytestmark = pytest.mark.timeout(600)  # half a minute, where nothing else runs

TestConsumeProtocol = ConsumeProtocol.TestCase
TestConsumeProtocol.settings = settings(max_examples=200, stateful_step_count=60, deadline=None)


@pytest.mark.parametrize("steps", [50, 250, 1000])
def test_the_invariants_hold_in_random_worlds(steps: int) -> None:
    begin = SystemRandom().randrange(1 << 32)
    counts = walks(range(begin, begin + 20_000 // steps), steps)
    assert counts["hand_out"] > 500, "nothing much has happened"
