"""Lines that streams share: each is that of its entry, and what is kept is bounded (G3, R46)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.facts import Position
from lvq_kafka.reading.entries import Entry
from lvq_kafka.serve.line_cache import LineCache
from tests.unit.serve.scenes import scene

MOST = 40  # bytes

entries = st.builds(
    Entry,
    st.sampled_from(["", "IBM"]),
    st.binary(max_size=50),
    st.builds(Position, st.just("prices"), st.integers(0, 1), st.integers(0, 3)),
    st.sampled_from([1.0, 2.0]),
    st.sampled_from([(), (("a", b"1"),)]),
)


def line_of(entry: Entry[bytes]) -> bytes:
    return repr((entry.key, entry.value, *entry.position, entry.timestamp, entry.headers)).encode()


@given(st.lists(entries, max_size=20))
def test_r46_a_line_is_that_of_its_entry_also_where_a_topic_is_another(asked: list[Entry[bytes]]) -> None:
    lines = LineCache(line_of, most=400)
    for entry in asked:
        assert lines.line(entry) == line_of(entry)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=20))
def test_g3_r46_lines_are_made_once_and_the_oldest_are_dropped(asked: list[tuple[int, int]]) -> None:
    made: list[int] = []

    def make(entry: Entry[bytes]) -> bytes:
        made.append(entry.position.offset)
        return b""

    lines = LineCache(make, MOST)
    kept: dict[int, int] = {}  # the model: sizes by offset, the oldest first
    for offset, size in asked:
        before = len(made)
        lines.line(Entry("IBM", b"x" * size, Position("prices", 0, offset), 1.0))
        assert (len(made) == before) is (kept.get(offset) == size)
        if kept.get(offset) != size:
            kept.pop(offset, None)
            kept[offset] = size
        while sum(kept.values()) > MOST:
            del kept[next(iter(kept))]
        assert len(lines) == len(kept)


async def test_r46_streams_of_a_queue_share_their_lines() -> None:
    async with scene() as on:
        shared = on.app._queues["prices"].shared
        for path in ("events", "events?changed=1", "events?keys=IBM"):
            async with on.client.stream(f"/v1/queues/prices/{path}") as stream:
                await stream.until("end-of-dump")
                assert len(shared) == 2
