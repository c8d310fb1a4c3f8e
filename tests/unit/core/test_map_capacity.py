"""The number of messages in work: exactly as many as a text has room for, whatever its runs."""

from __future__ import annotations

from bisect import bisect_left

import pytest

from lvq_kafka.core.commit_map.commit_map import CommitMap, size_bound
from lvq_kafka.core.commit_map.map_capacity import MapCapacity


@pytest.mark.parametrize("limit", [64, 100, 256, 1000, 4095])
@pytest.mark.parametrize("bits", [3, 6, 12, 20, 40])
def test_no_pair_fewer_fits_than_the_text_has_room_for(limit: int, bits: int) -> None:
    """The message at the base needs no pair, so the number is lower only if a text of one pair is too long."""
    capacity, span = MapCapacity(limit), (1 << bits) - 1
    fitting = [pairs for pairs in range(limit) if size_bound(pairs, span) <= limit - 32]
    assert all(capacity.fits(pairs, span) for pairs in fitting if pairs < span // 2)
    assert not capacity.fits(len(fitting) + 1, span) or len(fitting) >= min(limit, span // 2)


@pytest.mark.parametrize("limit", [64, 256, 4095])
def test_a_number_of_runs_that_always_fits_does_so_over_any_span(limit: int) -> None:
    capacity = MapCapacity(limit)
    assert all(capacity.fits(capacity.always, (1 << bits) - 1) for bits in range(64))
    assert not capacity.fits(capacity.always + 1, (1 << 63) - 1)


def test_counts_take_room_from_runs() -> None:
    capacity = MapCapacity(256)
    most = max(pairs for pairs in range(256) if capacity.fits(pairs, 10_000))
    assert not capacity.fits(most, 10_000, 1)
    assert capacity.fits(most // 2, 10_000, 1)
    assert not capacity.fits(0, 10_000, 256)


@pytest.mark.parametrize("counted", [1, 7, 60, 300])
@pytest.mark.parametrize("step", [1, 100, 130, 20_000])
def test_the_largest_counts_at_the_worst_distances_fit_where_there_is_room_for_them(counted: int, step: int) -> None:
    counts = {number * step: (1 << 14) - 1 for number in range(1, counted + 1)}
    span = counted * step + 1
    limit = bisect_left(
        range(1 << 14), True, key=lambda limit: MapCapacity(limit).fits(0, span, counted, (1 << 14) - 1)
    )
    text = CommitMap(0, (), b"\xff" * 8, (1 << 31) - 1, (1 << 63) - 1, delivered=span, counts=counts).encode(1 << 30)
    assert len(text) <= limit - 32
