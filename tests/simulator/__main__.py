"""The long run of the simulator: ``python -m tests.simulator [steps] [seed]``. Prints what it has exercised."""

from __future__ import annotations

import sys
import time
from collections import Counter
from random import SystemRandom

from hypothesis import HealthCheck, seed, settings
from hypothesis.stateful import run_state_machine_as_test

from tests.simulator import quietly
from tests.simulator.machine import ConsumeProtocol
from tests.simulator.walk import walks

_STEPS = 200_000  # by hypothesis; the walks are faster and take three times as many
_EXAMPLES = 100
_LENGTHS = (50, 250, 1000)


def main(steps: int = _STEPS, begin: int | None = None) -> None:
    begin = SystemRandom().randrange(1 << 32) if begin is None else begin
    print(f"seed {begin}: python -m tests.simulator {steps} {begin}", flush=True)
    counts: Counter[str] = Counter()
    started = time.process_time()
    while ConsumeProtocol.counts["steps"] < steps:
        for length in _LENGTHS:
            seed(begin)(ConsumeProtocol)
            run_state_machine_as_test(ConsumeProtocol, settings=_settings(length))
            begin += 1
    counts += ConsumeProtocol.counts
    _say("hypothesis", counts["steps"], started)
    started = time.process_time()
    walked: Counter[str] = Counter()
    while walked["steps"] < 3 * steps:
        for length in _LENGTHS:
            worlds = 20_000 // length
            walked += walks(range(begin, begin + worlds), length)
            begin += worlds
    _say("random walks", walked["steps"], started)
    for what, times in sorted((counts + walked).items()):
        print(f"  {times:>12,}  {what.replace('_', ' ')}")


def _settings(length: int) -> settings:
    return settings(
        max_examples=_EXAMPLES * 60 // length + 1,
        stateful_step_count=length,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=True,
    )


def _say(who: str, steps: int, started: float) -> None:
    seconds = time.process_time() - started
    rate = f"{steps / seconds:,.0f} a second"
    print(f"{who}: {steps:,} steps in {seconds:.0f} s of processor time, {rate}; all invariants hold", flush=True)


if __name__ == "__main__":
    with quietly():
        main(*map(int, sys.argv[1:]))
