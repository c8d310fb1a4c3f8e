"""R26: for a queue with a selector, a value that is not selected is a delete, however the log is read."""

from __future__ import annotations

from unittest.mock import patch

from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.latest.fold import Order
from lvq_kafka.core.ledger import catch_up_buffer
from lvq_kafka.core.ledger.ledger import Item, Ledger
from lvq_kafka.core.log.records import Record, RecordBatch
from tests.effort import examples
from tests.rules import new_ledger

KEYS = st.sampled_from([b"a", b"b", b"c", None])
VALUES = st.sampled_from(["selected", "selected", "other", "delete"])
STEPS = st.lists(st.sampled_from(["acquire", "ack", "release"]), max_size=3)


def record(offset: int, key: bytes | None, kind: str) -> Record:
    value = None if kind == "delete" and key is not None else b"%d" % offset
    return Record(0, offset, offset, key, value, (("kind", kind.encode()),))


def selects(record: Record) -> bool:
    assert record.value is not None, "a delete has nothing to select"
    return record.headers == (("kind", b"selected"),)


@settings(max_examples=examples(300), deadline=None)
@given(
    records=st.lists(st.tuples(KEYS, VALUES, STEPS), min_size=5, max_size=40),
    sizes=st.lists(st.integers(1, 5), min_size=40, max_size=40),
    behind=st.integers(0, 20),
    runs=st.sampled_from([(), (2, 1), (1, 2, 1, 3)]),
    order=st.sampled_from(["tail", "in-place"]),
    few=st.sampled_from([0, 8192]),
)
def test_r26_a_queue_is_its_topic_with_deletes_for_what_is_not_selected(
    records: list[tuple[bytes | None, str, list[str]]],
    sizes: list[int],
    behind: int,
    runs: tuple[int, ...],
    order: Order,
    few: int,
) -> None:
    loaded = CommitMap(0, runs)
    queue, topic = new_ledger(order=order, selects=selects), new_ledger(order=order)
    for ledger in (queue, topic):
        ledger.assign(0, loaded, behind)
    log = [record(offset, key, kind) for offset, (key, kind, _) in enumerate(records)]
    held: list[tuple[Item, Item]] = []
    at = 0
    while at < len(log):
        some = log[at : at + sizes.pop()]
        with patch.object(catch_up_buffer, "_FEW", few):
            for ledger, part in ((queue, some), (topic, [derived(one) for one in some])):
                ledger.add(RecordBatch.of(part))
                ledger.advance({0: part[-1].offset + 1})
        at += len(some)
        for step in records[at - 1][2]:
            work(step, queue, topic, held)
        if not queue.assignment.catching_up:
            assert seen(queue) == seen(topic)
    for ledger in (queue, topic):
        ledger.advance({0: max(behind, 100)})
    assert seen(queue) == seen(topic)


def derived(one: Record) -> Record:
    return one if one.value is None or selects(one) else one._replace(value=None)


def work(step: str, queue: Ledger, topic: Ledger, held: list[tuple[Item, Item]]) -> None:
    if step == "acquire":
        mine, other = queue.acquire(), topic.acquire()
        assert (mine and mine.offset) == (other and other.offset)
        if mine is not None and other is not None:
            held.append((mine, other))
    elif held:
        for ledger, item in zip((queue, topic), held.pop(0)):
            ledger.ack(item) if step == "ack" else ledger.release(item)


def seen(ledger: Ledger) -> tuple[object, ...]:
    stats = ledger.stats
    return (
        ledger.assignment.claim(0),
        ledger.assignment.available,
        ledger.assignment.outstanding,
        stats.acked,
        stats.released,
    )
