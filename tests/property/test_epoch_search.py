"""The search for the first overwritten record of a log, in few lookups of the first record from an offset on."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.cluster import LogEnd
from lvq_kafka.kafka.truncation import _search

# For each record, the distances of its offset and its leader epoch from the previous record.
LOGS = st.lists(st.tuples(st.integers(1, 50), st.sampled_from([0, 0, 0, 0, 1, 3])), max_size=30)


@given(LOGS, st.integers(0, 5), st.integers(1, 2000), st.integers(-1, 12))
def test_the_first_record_below_an_end_that_is_of_a_later_epoch_is_found(
    steps: list[tuple[int, int]], start: int, length: int, epoch: int
) -> None:
    records: list[LogEnd] = []
    at, of = start - 1, 0
    for distance, later in steps:
        at, of = at + distance, of + later
        records.append(LogEnd(at, of))
    end = LogEnd(start + length, epoch)

    search, looks, found = _search(start, end), 0, None
    try:
        place = next(search)
        while True:
            looks += 1
            assert start <= place < end.offset
            place = search.send(next((record for record in records if record.offset >= place), None))
    except StopIteration as stop:
        found = stop.value

    assert found == next((r.offset for r in records if r.offset < end.offset and r.leader_epoch > epoch), None)
    assert looks <= 2 * length.bit_length()


def test_one_look_tells_that_nothing_was_written_over() -> None:
    search = _search(0, LogEnd(1_000_000, 4))
    assert next(search) == 999_999
    with pytest.raises(StopIteration) as stopped:
        search.send(LogEnd(999_999, 4))
    assert stopped.value.value is None
