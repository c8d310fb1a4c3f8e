"""Events that streams share: each is that of its record, and what is kept is bounded (G3, R46)."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.log.records import Record
from lvq_kafka.serve.event_cache import EventCache
from tests.unit.serve.scenes import scene

MOST = 40  # bytes

records = st.builds(
    Record,
    st.integers(0, 1),
    st.integers(0, 3),
    st.sampled_from([1000, 2000]),
    st.sampled_from([b"", b"IBM"]),
    st.binary(max_size=50),
    st.sampled_from([(), (("a", b"1"),)]),
)


def event_of(record: Record) -> bytes:
    return repr(tuple(record)).encode()


@given(st.lists(records, max_size=20))
def test_r46_an_event_is_that_of_its_record_also_where_a_topic_is_another(asked: list[Record]) -> None:
    events = EventCache(event_of, most=400)
    for record in asked:
        assert events.event(record) == event_of(record)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 30)), max_size=20))
def test_g3_r46_events_are_made_once_and_the_oldest_are_dropped(asked: list[tuple[int, int]]) -> None:
    made: list[int] = []

    def make(record: Record) -> bytes:
        made.append(record.offset)
        return b""

    events = EventCache(make, MOST)
    kept: dict[int, int] = {}  # the model: sizes by offset, the oldest first
    for offset, size in asked:
        before = len(made)
        events.event(Record(0, offset, 1000, b"IBM", b"x" * size))
        assert (len(made) == before) is (kept.get(offset) == size)
        if kept.get(offset) != size:
            kept.pop(offset, None)
            kept[offset] = size
        while sum(kept.values()) > MOST:
            del kept[next(iter(kept))]
        assert len(events) == len(kept)


async def test_r46_streams_of_a_queue_share_their_events() -> None:
    async with scene() as on:
        shared = on.app._queues["prices"].shared
        for path in ("events", "events?changed=1", "events?keys=IBM"):
            async with on.client.stream(f"/v1/queues/prices/{path}") as stream:
                await stream.until("end-of-dump")
                assert len(shared) == 2
