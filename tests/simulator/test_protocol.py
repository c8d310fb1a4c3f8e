"""The invariants of the consume protocol under failures in the cluster and its consumers: see `tests.simulator`."""

from __future__ import annotations

from collections import Counter
from random import Random, SystemRandom

import pytest
from hypothesis import settings

from lvq_kafka.core.commit_map import packing
from tests.effort import examples
from tests.simulator.machine import ConsumeProtocol
from tests.simulator.walk import any_setting, by_rank, far_ahead, walk, walks
from tests.simulator.world import World

pytestmark = pytest.mark.timeout(600)  # half a minute on an idle machine

TestConsumeProtocol = ConsumeProtocol.TestCase
TestConsumeProtocol.settings = settings(max_examples=examples(200), stateful_step_count=60, deadline=None)


_ACCIDENTS = [
    *("crash s1 fetched", "crash s2 conflated", "crash s3 handed out", "crash s4 side effect done"),
    *("crash s5 acked", "crash s6 commit sent", "crash s7 commit applied", "crash s8 answer seen"),
    *("zombies", "stood still", "settled by one who is no owner", "partitions lost", "partitions withheld"),
    *("commits lost", "commits taken twice", "answers lost", "commits answered: unknown", "stale", "time_out"),
    *("commits sent again by the client", "commits answered: too large", "limit"),
    *("records compacted away", "reclaim", "dumps shown", "transactions committed", "steps with messages gated"),
    *("steps with messages gated by a limit that sank", "steps with more committed than fits"),
    *("steps with acks that wait for room", "steps after something has expired", "steps while something is scheduled"),
    *("steps after an alteration", "sessions ended", "steps with groups of several sessions"),
]


@pytest.fixture(scope="module")
def what_happened() -> Counter[str]:
    """Return the counts of a walk that is the same every time."""
    return walks(range(1000, 1400), 250)


@pytest.mark.parametrize("accident", _ACCIDENTS)
def test_everything_that_can_go_wrong_does_go_wrong(accident: str, what_happened: Counter[str]) -> None:
    assert what_happened[accident] > 5


@pytest.mark.parametrize("size", [0, 16])
def test_the_invariants_hold_where_the_shortest_maps_are_bitmaps_or_deflated(
    size: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(packing, "DENSE_FROM", size)
    packing.pack_runs.cache_clear()
    begin = SystemRandom().randrange(1 << 32)
    counts = walks(range(begin, begin + 120), 250)
    packing.pack_runs.cache_clear()
    assert counts["transactions committed"] > 5
    assert counts["steps with messages gated"] > 50


@pytest.mark.parametrize("steps", [50, 250, 1000])
def test_the_invariants_hold_in_random_worlds(steps: int) -> None:
    begin = SystemRandom().randrange(1 << 32)
    most = examples(20_000)
    counts = walks(range(begin, begin + most // steps), steps)
    assert counts["hand_out"] > most // 33, "nothing much has happened"


def test_the_invariants_hold_in_queues_that_go_by_rank() -> None:
    counts = Counter[str]()
    begin = SystemRandom().randrange(1 << 32)
    for seed in range(begin, begin + 60):
        random = Random(seed)
        setting = by_rank(any_setting(random.choice))
        world = World(far_ahead(setting) if seed % 2 else setting)
        try:
            walk(world, random, 250)
        except Exception as error:
            error.add_note(f"seed {seed}")
            raise
        counts += world.counts
    assert counts["hand_out"] > 500, "nothing much has happened"
    assert counts["steps after something was evicted"] > 50
