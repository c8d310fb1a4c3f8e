"""R40, R41: stores, their writers and readers do not grow; ``python -m tests.soaked_stores`` lets months pass."""

from __future__ import annotations

import sys
from random import Random

import pytest

from tests.effort import TIMES
from tests.soaked_stores import Taken, soak

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads the memory of processes from /proc")

WARM = 10  # days until the file and the allocators have what they need
DAYS = 20 * TIMES
MORE_MEMORY = 3_000_000


def grown(early: Taken, late: Taken) -> bool:
    """Return whether a process takes more than it did."""
    more = late.descriptors > early.descriptors or late.threads > early.threads
    return more or late.memory > early.memory + MORE_MEMORY


def test_r40_r41_a_store_its_writer_and_its_readers_do_not_grow() -> None:
    days = list(soak(Random().randrange(1_000_000), DAYS))
    early, late = days[WARM], days[-1]
    assert not grown(early.writer, late.writer), (early, late)
    assert not grown(early.reader, late.reader), (early, late)
    assert late.file < 1.5 * early.file, (early, late)
