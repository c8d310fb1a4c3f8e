"""The filter by which a producer of a queue with limits keeps sizes in place of values."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.conditions import UNSELECTED
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.limits import size_of
from lvq_kafka.reading.record_filters import ValuesToSizes

KEYS = st.sampled_from([b"", b"a", b"key"])
VALUES = st.sampled_from([b"", b"1", b"value"])
HEADERS = st.sampled_from([None, (("k", b"a"),), (("k", None),), (("lvq-ttl", b"5"), ("other", b"1"))])


@st.composite
def batches(draw: st.DrawFn) -> RecordBatch:
    """Draw a batch: of messages with the key header alone, of messages without headers, or of anything."""
    plain = draw(st.sampled_from(["header", "none", "no"]))
    batch = RecordBatch()
    for offset in range(draw(st.integers(1, 4))):
        key, value, headers = draw(KEYS), draw(VALUES), draw(HEADERS)
        if plain == "no":
            key, value = draw(st.sampled_from([key, None])), draw(st.sampled_from([value, None, UNSELECTED]))
        batch.partitions.append(0)
        batch.offsets.append(offset)
        batch.timestamps.append(0)
        batch.keys.append(key)
        batch.values.append(value)
        batch.headers.append(headers if plain == "no" else (("k", key),) if plain == "header" else None)
    return batch


@given(batch=batches())
def test_values_become_sizes_and_headers_that_decide_something_stay(batch: RecordBatch) -> None:
    before = list(zip(batch.keys, batch.values, batch.headers))
    filtered = ValuesToSizes({"k", "lvq-ttl"}, "k")(batch)
    for (key, value, headers), size, left in zip(before, filtered.values, filtered.headers, strict=True):
        if value is None or value is UNSELECTED:
            assert size is value
            continue
        assert size == b"%d" % size_of(key, value, headers)
        kept = [pair for pair in headers or () if pair[0] in ("k", "lvq-ttl")]
        assert list(left or ()) == kept or kept == [("k", key)], "a header that repeats the key decides nothing"
