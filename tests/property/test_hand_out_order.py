"""The order of hand-out does not depend on when a consumer came: the same for all, and that of a naive model (R4, R11).

One consumer was open while everything was written and came due. One starts at the end. One takes over what another has
left after it settled some. All of them hand out in the order of the model: by rank, by the time from which a message
counts, then by its position; in place, by the earliest such time of its key's values since the key was last gone.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.queue.message_groups import GROUP_HEADER, Groups
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.core.queue.rules import OrderRule
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER, DueTimes
from tests.effort import examples
from tests.rules import new_ledger

LONGEST = 0.9  # seconds
KEYS = st.sampled_from([b"a", b"b", b"c", b"d", b"e", None])


class Write(NamedTuple):
    """A record, and the steps around it."""

    partition: int
    key: bytes | None
    deletes: bool
    delay: int | None  # ms
    later: int  # ms since the last one
    priority: int
    takes: int  # messages that the first consumer settles after it
    looks: bool  # whether consumers look at the clock after it


WRITES = st.lists(
    st.builds(
        Write,
        st.sampled_from([0, 0, 1]),
        KEYS,
        st.sampled_from([False, False, False, True]),
        st.sampled_from([None, None, 0, 1, 40, 100, 300, 5000]),
        st.sampled_from([0, 0, 1, 20, 100]),
        st.sampled_from([0, 4, 9]),
        st.sampled_from([0, 0, 0, 1, 2]),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


def records_of(writes: Sequence[Write]) -> list[Record]:
    now, ends, records = 1000, {0: 0, 1: 0}, []
    for write in writes:
        now += write.later
        headers: list[tuple[str, bytes]] = [(PRIORITY_HEADER, b"%d" % write.priority)]
        headers.append((GROUP_HEADER, b"g%d" % (write.priority % 2)))
        deletes = write.deletes and write.key is not None
        if write.delay is not None and not deletes:  # deletes cannot be scheduled
            headers.append((NOT_BEFORE_HEADER, b"%d" % (now + write.delay)))
        value = None if deletes else b"v"
        records.append(Record(write.partition, ends[write.partition], now, write.key, value, tuple(headers)))
        ends[write.partition] += 1
    return records


class Consumer:
    """A ledger, with what is done."""

    def __init__(self, options: dict[str, Any], claims: dict[int, CommitMap], targets: dict[int, int]) -> None:
        if options.get("groups"):
            options = options | {"groups": Groups()}
        self.ledger = new_ledger(max_delay=LONGEST, **options)
        for partition, claim in claims.items():
            self.ledger.assign(partition, claim, targets[partition])

    def read(self, records: Sequence[Record]) -> None:
        if records:
            self.ledger.add(RecordBatch.of(records))
        self.ledger.advance({one.partition: one.offset + 1 for one in records})

    def take(self) -> Item | None:
        item = self.ledger.acquire()
        if item is not None:
            self.ledger.ack(item)
        return item

    def drain(self, now: int) -> list[tuple[int, int]]:
        self.ledger.pass_time(now / 1000)
        found = []
        while (item := self.take()) is not None:
            found.append((item.partition, item.offset))
        return found

    def drain_returned(self, now: int) -> list[tuple[int, int]]:
        """Take all, release all in another order, and drain: each comes back in its place."""
        self.ledger.pass_time(now / 1000)
        held = []
        while (item := self.ledger.acquire()) is not None:
            held.append(item)
        for item in (*held[1::2], *reversed(held[::2])):
            self.ledger.release(item)
        return self.drain(now)


def expected(
    records: Sequence[Record], settled: dict[tuple[int, int], int], now: int, options: dict[str, Any]
) -> list[tuple[int, int]]:
    """Return the positions of what is left at a time, in order.

    Args:
        settled: by position, the number of records that had been written when it was.
    """
    rule = OrderRule(options.get("order", "tail"))
    judge, ranking, in_place = DueTimes(LONGEST), rule.ranking(), rule.in_place
    lanes: dict[tuple[int, bytes | int], list[tuple[int, Record]]] = {}
    for number, one in enumerate(records):
        lanes.setdefault((one.partition, one.offset if one.key is None else one.key), []).append((number, one))
    found = []
    for line in lanes.values():
        due = [(number, one, judge.due(one.timestamp, one.headers)) for number, one in line]
        counting = [(number, one, since) for number, one, since in due if since <= now]
        if not counting:
            continue
        _, newest, since = counting[-1]
        if newest.value is None or (newest.partition, newest.offset) in settled:
            continue
        place = since, newest.partition, newest.offset
        if in_place:
            gone = [at for at, (_, one, _) in enumerate(counting) if one.value is None]
            gone += [at for at, (_, one, _) in enumerate(counting) if (one.partition, one.offset) in settled]
            since_gone = counting[max(gone, default=-1) + 1 :]
            place = min((since, one.partition, one.offset) for _, one, since in since_gone)
        rank = 0 if ranking is None else ranking.rank(newest.headers)
        found.append((rank, place, (newest.partition, newest.offset)))
    return [position for _, _, position in sorted(found)]


@pytest.mark.parametrize(
    "options",
    [
        {},
        {"conflate": False},
        {"groups": True},
        {"order": "in-place"},
        {"order": "in-place", "groups": True},
        {"order": "priority"},
        {"order": "priority", "groups": True},
    ],
    ids=["arrival", "standard", "groups", "in place", "in place and groups", "priority", "priority and groups"],
)
@given(writes=WRITES, last=st.sampled_from([0, 30, 1000]))
@settings(max_examples=examples(60), deadline=None)
def test_r11_consumers_hand_out_in_one_order_whenever_they_came(
    options: dict[str, Any], writes: list[Write], last: int
) -> None:
    if options.get("order") == "in-place":  # one that is replaced just when it is due may leave a place or not
        writes = [write._replace(delay=None) for write in writes]
    records = records_of(writes)
    if options.get("conflate") is False:
        records = [one._replace(value=one.value or b"v") for one in records]
    nothing = {0: CommitMap(0), 1: CommitMap(0)}
    ends = {partition: sum(one.partition == partition for one in records) for partition in nothing}
    first, watching = (Consumer(options, nothing, {0: 0, 1: 0}) for _ in range(2))
    settled: dict[tuple[int, int], int] = {}
    for number, (write, one) in enumerate(zip(writes, records)):
        for consumer in (first, watching):
            consumer.read([one])
            if write.looks:
                consumer.ledger.pass_time(one.timestamp / 1000)
        if write.looks:
            for _ in range(write.takes):
                item = first.take()
                if item is not None:
                    settled[item.partition, item.offset] = number
    now = records[-1].timestamp + last
    claims = {partition: first.ledger.assignment.claim(partition) for partition in nothing}
    late, successor, other = (Consumer(options, one, ends) for one in (nothing, claims, claims))
    late.ledger.pass_time(now / 1000)
    late.read(records)
    for consumer in (successor, other):
        for partition, claim in claims.items():
            consumer.read([one for one in records if one.partition == partition and one.offset >= claim.base])
        consumer.ledger.advance(ends)
    model = options if options.get("conflate") is not False else options | {"order": "tail"}
    if options.get("conflate") is False:
        records = [one._replace(key=None) for one in records]
    assert watching.drain(now) == late.drain(now) == expected(records, {}, now, model)
    left = expected(records, settled, now, model)
    assert first.drain(now) == successor.drain(now) == left
    assert other.drain_returned(now) == left
