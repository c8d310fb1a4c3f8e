"""R11, R34: a resumed watch reports what has become due since, no more and no less, after any legal compaction."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lvq_kafka import TEXT, EndOfDump, LastValueQueue, TopicSpec
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.log.records import Record
from lvq_kafka.reading.watch import Watch
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples
from tests.following import keep_up

LONGEST = 10.0
LAG = LONGEST
"""Seconds after which a record may be compacted away that has a newer one of its key."""


class Step(NamedTuple):
    later: float
    key: str
    value: str | None
    delay: float | None
    partition: int
    removed: bool


steps = st.lists(
    st.builds(
        Step,
        st.sampled_from([0.0, 0.5, 2.0, 7.0]),
        st.sampled_from("abc"),
        st.sampled_from(["1", "2", None]),
        st.sampled_from([None, None, 0.5, 3.0, 9.0, 99.0]),
        st.integers(0, 1),
        st.booleans(),
    ),
    min_size=1,
    max_size=14,
)


def newest(read: Sequence[Record], now: float) -> dict[tuple[str, int], Record]:
    """Return the record with the highest offset among those due, by key and partition."""
    found = {}
    for record in read:
        said = dict(record.headers).get("lvq-not-before")
        longest = record.timestamp + round(1000 * LONGEST)
        due = record.timestamp if said is None else min(int(said), longest)
        if max(due, record.timestamp) <= round(1000 * now):
            assert record.key is not None
            found[record.key.decode(), record.partition] = record
    return found


def values(newest: dict[tuple[str, int], Record], partitions: int) -> dict[str, str]:
    rivals: dict[str, list[Record]] = {}
    for (key, _), record in newest.items():
        rivals.setdefault(key, []).append(record)
    found = {}
    for key, records in rivals.items():
        home = home_partition(key.encode(), partitions)
        best = max(records, key=lambda record: (record.partition == home, record.timestamp, record.partition))
        if best.value is not None:
            found[key] = best.value.decode()
    return found


def follow(kept: dict[str, str], watch: Watch[str]) -> list[str]:
    """Keep values up to date with all events of a watch; return their keys."""
    events = watch.drain()
    keep_up(kept, events)
    return [event.key for event in events if not isinstance(event, EndOfDump)]


@settings(max_examples=examples(60), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=steps,
    cut=st.integers(0, 14),
    waits=st.tuples(*[st.sampled_from([0.0, 1.0, 3.0, 12.0])] * 3),
    partitions=st.sampled_from([1, 1, 2]),
)
def test_s114_s116_a_resumed_watch_neither_misses_nor_repeats_what_has_become_due(
    history: list[Step], cut: int, waits: tuple[float, float, float], partitions: int
) -> None:
    now = 1_000_000.0
    cluster = MemoryCluster(clock=lambda: now)
    spec = TopicSpec(partitions=partitions)
    queue = LastValueQueue.declare("q", key_header=None, value=TEXT, cluster=cluster, max_delay=LONGEST, spec=spec)

    def write(some: Sequence[Step]) -> None:
        nonlocal now
        for step in some:
            now += step.later
            due = [] if step.delay is None else [("lvq-not-before", b"%d" % round(1000 * (now + step.delay)))]
            value = step.value and step.value.encode()
            cluster.write("q", step.key.encode(), value, due, partition=step.partition % partitions)

    write(history[:cut])
    now += waits[0]
    with queue.view() as view:
        point = view.snapshot()
    then = newest(cluster.records("q"), now)
    kept = dict(point)
    assert kept == values(then, partitions)
    write(history[cut:])
    now += waits[1]
    written = cluster.records("q")
    order = iter(history)
    removed = {position: step.removed for position, step in zip(_positions(history, partitions), order)}
    young = {
        (record.key, record.partition): max(
            (
                r.offset
                for r in written
                if r.key == record.key and r.partition == record.partition and r.timestamp <= 1000 * (now - LAG)
            ),
            default=-1,
        )
        for record in written
    }
    cluster.compact("q", choose=lambda r: removed[r.partition, r.offset] and r.offset < young[r.key, r.partition])
    with queue.view() as view, view.watch(since=point) as watch:
        current = newest(written, now)
        changed = {key for key, at in current if then.get((key, at)) != current[key, at]}
        reported = follow(kept, watch)
        assert kept == dict(view) == values(current, partitions)
        assert sorted(reported) == sorted(changed)
        before, now = current, now + waits[2]
        current = newest(written, now)
        reported = follow(kept, watch)
        assert kept == dict(view) == values(current, partitions)
        assert len(reported) == len(set(reported))
        assert set(reported) == {key for key, at in current if before.get((key, at)) != current[key, at]}


def _positions(history: Sequence[Step], partitions: int) -> list[tuple[int, int]]:
    """Return the partition and offset of each step's record."""
    ends = [0] * partitions
    found = []
    for step in history:
        at = step.partition % partitions
        found.append((at, ends[at]))
        ends[at] += 1
    return found
