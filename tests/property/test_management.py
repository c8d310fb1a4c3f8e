"""The contents of a queue after any writes, compactions, purges, resets, moves and reclaims."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from lvq_kafka import LastValueQueue, TopicSpec
from lvq_kafka.core.log.records import Record
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples
from tests.unit.managing import commits, declare, maps

KEYS = st.integers(0, 5)
STEPS = st.one_of(
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("put"), KEYS),
    st.tuples(st.just("delete"), KEYS),
    st.tuples(st.just("compact"), st.integers(0, 3)),
    st.tuples(st.just("purge"), st.frozensets(KEYS)),
    st.tuples(st.just("move"), st.frozensets(KEYS)),
    st.tuples(st.just("purge all"), st.none()),
    st.tuples(st.just("reset"), st.floats(0, 1)),
    st.tuples(st.just("reclaim"), st.none()),
    st.tuples(st.just("add partition"), st.none()),
)


class World:
    """A queue, with a model of its contents."""

    def __init__(self) -> None:
        self.cluster = MemoryCluster()
        self.queue: LastValueQueue[str] = declare(self.cluster, "q", spec=TopicSpec(partitions=2, reclaim=True))
        self.other: LastValueQueue[str] = declare(self.cluster, "other")
        self.begin: dict[int, int] = {0: 0, 1: 0}  # by partition, the offset of the last reset
        self.done: set[tuple[int, int]] = set()
        self.moved = 0

    def step(self, what: str, argument: Any) -> None:
        match what:
            case "put" | "delete":
                with self.queue.producer() as producer:
                    producer.put(argument, what) if what == "put" else producer.delete(argument)
            case "compact":
                self.cluster.compact("q", drop_tombstones=argument == 0, choose=lambda r: r.offset % 4 != argument)
            case "purge":
                self._take(argument)
                assert self.queue.purge(keys=argument).without_room == 0
            case "move":
                gone = self._take(argument)
                assert self.queue.move(self.other, keys=argument).messages == gone
                self.moved += gone
            case "purge all":
                self.begin = self.cluster.logs.end_offsets("q")
                self.queue.purge()
            case "reset":
                starts, ends = self.cluster.logs.start_offsets("q"), self.cluster.logs.end_offsets("q")
                at = {p: start + round((ends[p] - start) * argument) for p, start in starts.items()}
                self.begin, self.done = at, set()
                self.queue.reset(at)
            case "reclaim":
                self.queue.reclaim()
            case "add partition":
                count = self.cluster.topics.describe("q").partitions
                if count < 4:
                    self.cluster.topics.add_partitions("q", count + 1)
                    self.begin[count] = 0
                    self.queue.repair()

    def waiting(self) -> dict[tuple[int, int], Record]:
        """Return the expected contents, by partition and offset."""
        newest: dict[tuple[int, bytes | None], Record] = {}
        for record in self.cluster.records("q"):
            if record.offset >= self.begin[record.partition]:
                newest[record.partition, record.key] = record
        found = {(one.partition, one.offset): one for one in newest.values() if one.value is not None}
        return {place: record for place, record in found.items() if place not in self.done}

    def _take(self, keys: frozenset[int]) -> int:
        wanted = {str(key).encode() for key in keys}
        taken = {place for place, record in self.waiting().items() if record.key in wanted}
        self.done |= taken
        return len(taken)

    def check(self) -> None:
        waiting, stats = self.waiting(), self.queue.stats()
        assert stats.depth == len(waiting)
        assert stats.oldest == min((record.timestamp / 1000 for record in waiting.values()), default=None)
        for (partition, offset), one in ((place, maps(self.queue)[place[0]]) for place in waiting):
            assert not one.done(offset), f"{partition}/{offset} waits, and the commit says that it is done"
        assert all(len(commit.metadata) <= 4095 for commit in commits(self.queue).values())
        assert self.queue.repair(dry_run=True).found == ()


@given(st.lists(STEPS, max_size=30))
@settings(max_examples=examples(150), suppress_health_check=[HealthCheck.too_slow])
def test_a_queue_holds_what_it_should_whatever_its_owner_does(steps: list[tuple[str, Any]]) -> None:
    world = World()
    for what, argument in steps:
        world.step(what, argument)
        world.check()
    assert sum(record.value is not None for record in world.cluster.records("other")) == world.moved
