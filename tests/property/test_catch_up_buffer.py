"""The equivalence of a ledger that buffers records during catch-up and one that handles each record at once."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import example, given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.latest.fold import Order
from lvq_kafka.core.ledger import catch_up_buffer
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.ledger.partition_ledger import PartitionLedger
from lvq_kafka.core.log.records import Record, RecordBatch
from tests.effort import examples
from tests.rules import new_ledger

KEYS = st.sampled_from([b"a", b"a", b"b", b"b", b"c", b"d", None])
KEYED = st.sampled_from([b"a", b"b", b"c", b"d"])
OFTEN = st.sampled_from([True] * 9 + [False])
RUNS = st.sampled_from([(), (), (2, 1), (1, 2, 1, 3)])
RECORDS = st.lists(
    st.tuples(st.one_of(KEYED, KEYED, KEYED, KEYS), OFTEN, st.sampled_from([1, 1, 1, 3])), min_size=10, max_size=60
)


@given(
    records=RECORDS,
    sizes=st.lists(st.integers(1, 6), min_size=60, max_size=60),
    behind=st.integers(0, 5),
    runs=RUNS,
    order=st.sampled_from(["tail", "in-place"]),
    marker=st.booleans(),
    few=st.sampled_from([0, 2, 8192]),
)
@example(  # two new keys among the others change places
    records=[(key, True, 1) for key in (b"a", b"a", b"a", b"a", b"b", b"c", b"b", b"a")],
    sizes=[1, 6, 1],
    behind=0,
    runs=(),
    order="in-place",
    marker=False,
    few=0,
)
@settings(max_examples=examples(400), deadline=None)
def test_falling_behind_makes_no_difference_in_the_end(
    records: list[tuple[bytes | None, bool, int]],
    sizes: list[int],
    behind: int,
    runs: tuple[int, ...],
    order: Order,
    marker: bool,
    few: int,
) -> None:
    log, offset = [], -1
    for number, (key, is_value, step) in enumerate(records):
        offset += step
        value = b"%d" % number if is_value or key is None else None
        log.append(Record(0, offset, number, key, value, (("n", b"%d" % number),)))
    end = offset + 1 + marker
    loaded = CommitMap(0, runs, delivered=2)
    lazy, eager = new_ledger(order=order), new_ledger(order=order)
    for ledger in (lazy, eager):
        ledger.assign(0, loaded, max(0, end - behind))
    while log:
        size = sizes.pop()
        part, log = RecordBatch.of(log[:size]), log[size:]
        positions = {0: part.offsets[-1] + 1 if log else end}
        with patch.object(catch_up_buffer, "_FEW", few):
            _read(lazy, part, positions)
        with patch.object(PartitionLedger, "_may_fall_behind", lambda *_: False):
            _read(eager, part, positions)
        for both in ("available", "outstanding", "positions", "catching_up", "gated"):
            assert getattr(lazy.assignment, both) == getattr(eager.assignment, both)
        assert eager.assignment.claim(0).covers(lazy.assignment.claim(0)), "it claims no more"
        assert lazy.assignment.claim(0).covers(loaded), "and takes nothing back"
    if not lazy.assignment.catching_up:
        assert lazy.assignment.claim(0) == eager.assignment.claim(0)
        assert lazy.stats == eager.stats
    assert _handed_out(lazy) == _handed_out(eager)
    assert lazy.stats == eager.stats


def _read(ledger: Ledger, batch: RecordBatch, positions: dict[int, int]) -> None:
    ledger.add(batch)
    ledger.advance(positions)


def _handed_out(ledger: Ledger) -> list[tuple[object, ...]]:
    """Acquire and ack all messages; return them in order, each followed by the claim after its ack."""
    ledger.advance({0: 10_000})  # past any target
    found: list[tuple[object, ...]] = []
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
        found.append((item.offset, item.timestamp, item.key, item.value, item.headers, item.redelivered))
        found.append((ledger.assignment.claim(0),))
    return found
