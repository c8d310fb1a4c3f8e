"""Expiry in the fold against a naive one, for any log, batching, and any moments at which time passes."""

from __future__ import annotations

from collections.abc import Sequence

from hypothesis import given
from hypothesis import strategies as st

from lvq_kafka.core.latest.fold import LatestValues, Order
from lvq_kafka.core.log.records import Record, RecordBatch
from lvq_kafka.core.timing.expiry_queue import BUCKET, ExpiryQueue
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.core.timing.ttl import TTL_HEADER, Ttl
from tests.property.test_fold import expected
from tests.rules import rules

KEYS = [b"", b"a", b"b", b"c", b"dd"]
OPTIONS = [Ttl(), Ttl(default=0.3), Ttl(maximum=1), Ttl(minimum=0.2, maximum=0.9), Ttl(default=0.5, maximum=2)]
ORDERS: list[Order] = ["tail", "in-place"]
ttls = st.sampled_from([None, b"0", b"1", b"255", b"256", b"700", b"5000", b"soon"])
values = st.one_of(st.none(), st.just(b""), st.binary(min_size=1, max_size=2))
records = st.lists(st.tuples(st.integers(0, 2), st.integers(0, 900), st.sampled_from(KEYS), values, ttls), max_size=30)


def log(draws: Sequence[tuple[int, int, bytes, bytes | None, bytes | None]], partitions: int) -> list[Record]:
    found, ends, now = [], [0] * partitions, 0
    for partition, later, key, value, ttl in draws:
        now += later
        at = partition % partitions
        headers = () if ttl is None else ((TTL_HEADER, ttl),)
        found.append(Record(at, ends[at], now, key, value, headers))
        ends[at] += 1
    return found


def alive(read: Sequence[Record], partitions: int, now: int, ttl: Ttl) -> dict[bytes, Record]:
    """Return the current values by the rule: the winners of the contest that have not expired."""
    logs = [[record for record in read if record.partition == partition] for partition in range(partitions)]
    judge = ExpiryTimes.of(ttl)
    assert judge is not None
    return {
        key: record for key, record in expected(logs).items() if judge.expiry(record.timestamp, record.headers) >= now
    }


@given(records, st.integers(1, 3), st.sampled_from(OPTIONS), st.sampled_from(ORDERS), st.data())
def test_r8_r10_at_any_moment_there_are_the_newest_values_that_have_not_expired(
    draws: list[tuple[int, int, bytes, bytes | None, bytes | None]],
    partitions: int,
    ttl: Ttl,
    order: Order,
    data: st.DataObject,
) -> None:
    written = log(draws, partitions)
    latest = LatestValues(partitions, rules(ttl=ttl, order=order))
    unread = [[record for record in written if record.partition == partition] for partition in range(partitions)]
    read: list[Record] = []
    now = 0
    shown: set[bytes] = set()
    while any(unread) or data.draw(st.booleans()):
        batch: list[Record] = []
        for part in unread:  # some partitions are read before others
            size = data.draw(st.integers(0, 6))
            batch += part[:size]
            del part[:size]
        latest.apply(RecordBatch.of(batch))
        read += batch
        now += data.draw(st.integers(0, 1500))
        if order == "in-place":  # there, records tell the time, too
            now = max([now, *(record.timestamp for record in read)])
        latest.expire(now, most=data.draw(st.integers(0, 2)))
        rule = alive(read, partitions, now, ttl)
        for key in KEYS:  # right, however much is still to be removed
            assert latest.table.record(key) == rule.get(key)
            assert (key in latest.table) == (key in rule)
            assert latest.table.value(key) == (rule[key].value if key in rule else None)
        gone: list[bytes] = []
        while some := latest.expire(now, most=data.draw(st.integers(1, 3))):
            gone += some
        assert len(set(gone)) == len(gone)
        assert {record.key: record for record in latest.table.records()} == rule
        assert len(latest.table) == len(rule)
        copy = latest.table.copy()
        assert list(copy.records()) == list(latest.table.records())
        stats = latest.stats
        assert stats.added - stats.replaced - stats.deleted - stats.expired == len(latest.table)
        shown |= rule.keys()
    assert shown <= {record.key for record in written}


class Times:
    """Entries with times, as an owner of an `ExpiryQueue` keeps them."""

    def __init__(self) -> None:
        self.times: dict[str, int] = {}
        self.buckets: dict[str, int] = {}
        self.queue: ExpiryQueue[str] = ExpiryQueue(self)

    def due(self, entry: str, bucket: int) -> int | None:
        return self.times[entry] if entry in self.times and self.buckets.get(entry) == bucket else None

    def moved(self, entry: str, bucket: int) -> None:
        self.buckets[entry] = bucket

    def set(self, entry: str, due: int) -> None:
        self.times[entry] = due
        bucket = due >> BUCKET
        if entry not in self.buckets or bucket < self.buckets[entry] or bucket <= self.queue.opened:
            self.queue.add(entry, due)

    def remove(self, entry: str) -> None:
        self.times.pop(entry, None)
        self.buckets.pop(entry, None)


@given(st.lists(st.tuples(st.sampled_from("abcd"), st.integers(-1, 2000), st.integers(0, 400), st.integers(0, 3))))
def test_entries_come_when_they_are_due_and_only_then(steps: list[tuple[str, int, int, int]]) -> None:
    owner, now = Times(), 0
    for entry, ahead, later, most in steps:
        if ahead < 0:
            owner.remove(entry)
        else:
            owner.set(entry, now + ahead)
        now += later
        due = {one for one, time in owner.times.items() if time < now}
        found = owner.queue.pop_due(now, most)
        assert set(found) <= due
        assert len(found) == min(most, len(due))
        for one in found:
            owner.remove(one)
        if owner.times and not any(time < now for time in owner.times.values()):
            following = owner.queue.next
            assert following is not None
            assert following <= min(owner.times.values())
