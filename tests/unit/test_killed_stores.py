"""R40, R41: stores and readers of processes that are killed; ``python -m tests.killed_stores`` kills many."""

from __future__ import annotations

import re
from random import Random

from tests.effort import TIMES
from tests.killed_stores import kill_attached, kill_many


def test_r40_a_store_whose_process_is_killed_shows_what_memory_does_and_is_not_read_again() -> None:
    """On a busy machine all processes of a seed may be killed before they have read anything; then others follow."""
    read = total = 0
    for series in range(10 * TIMES):
        for line in kill_many(Random().randrange(1_000_000), 4):
            again, of = map(int, re.findall(r"(\d+) of (\d+)", line)[0])
            read, total = read + again, total + of
        if series + 1 >= TIMES and read < total:
            return
    raise AssertionError("Each store was read again from the start.")


def test_r41_readers_see_cuts_of_the_log_whichever_process_is_killed() -> None:
    lines = [line for _ in range(TIMES) for line in kill_attached(Random().randrange(1_000_000), 4)]
    assert len(lines) == 4 * TIMES
