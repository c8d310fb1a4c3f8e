"""G2: the events of a queue browser after any writes, deletes, acks, resets and compactions."""

from __future__ import annotations

from typing import Any

import hypothesis.strategies as st
from hypothesis import HealthCheck, given, settings

from lvq_kafka import TEXT, Browser, Deleted, EndOfDump, Entry, LastValueQueue, TopicSpec
from lvq_kafka.cluster import Commit
from lvq_kafka.core.commit_map.commit_map import CommitMap, topic_tag
from lvq_kafka.testing import MemoryCluster
from tests.effort import examples

At = tuple[int, int]
"""A partition and an offset."""

KEYS = ["a", "b", "c"]
CHANGES = [
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("put"), st.sampled_from(KEYS)),
    st.tuples(st.just("put elsewhere"), st.sampled_from(KEYS)),
    st.tuples(st.just("delete"), st.sampled_from(KEYS)),
    st.tuples(st.just("ack"), st.sampled_from(KEYS)),
    st.tuples(st.just("ack"), st.sampled_from(KEYS)),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("commit"), st.booleans()),
    st.tuples(st.just("compact"), st.integers(0, 3)),
    st.tuples(st.just("purge"), st.none()),
    st.tuples(st.just("reset"), st.integers(0, 3)),
]
BEFORE = st.lists(st.one_of(*CHANGES), min_size=5, max_size=30)
DURING = st.lists(st.one_of(*CHANGES), max_size=10)
LOOKING = [st.just(("take", None)), st.just(("take", None)), st.just(("refresh", None)), st.just(("refresh", None))]
BETWEEN = st.lists(st.one_of(*CHANGES, *LOOKING), min_size=10, max_size=40)


class World:
    """A queue and its browser, with a naive model of the writes, acks, commits and events.

    A ``filtered`` browser selects the header ``side: here``.
    """

    def __init__(self, partitions: int, *, filtered: bool) -> None:
        self.filtered = filtered
        self.cluster = MemoryCluster()
        self.queue: LastValueQueue[str] = LastValueQueue.declare(
            "q", key_header="key", value=TEXT, cluster=self.cluster, spec=TopicSpec(partitions=partitions)
        )
        self.partitions = partitions
        self.tag = topic_tag(self.cluster.topics.describe("q").id)
        self.written: dict[At, tuple[str, str | None]] = {}
        self.elsewhere: set[At] = set()
        self.newest: dict[str, At] = {}
        self.acked: set[At] = set()
        self.committed: set[At] = set()
        self.known: set[At] = set()
        """Offsets committed at the browser's last refresh."""
        self.hidden: set[At] = set()
        """Offsets committed at any refresh since the browser opened."""
        self.browser: Browser[str] | None = None
        self.given: dict[str, At] = {}
        """The values that the browser shows."""
        self.highest: dict[str, At] = {}
        self.there: dict[str, At] = {}
        """The newest values when the browser started."""
        self.ended = False

    def step(self, what: str, argument: Any) -> None:
        match what:
            case "put" | "put elsewhere":
                side = "here" if what == "put" else "elsewhere"
                self._write(argument, f"{argument}{len(self.written)}", side)
            case "delete":
                self._write(argument, None)
            case "ack":
                at = self.newest.get(argument)
                if at is not None and self.written[at][1] is not None:
                    self.acked.add(at)
            case "commit":
                self._commit(with_dead=argument)
            case "purge":
                self.acked.update(at for at in self.newest.values() if self.written[at][1] is not None)
                self._commit(with_dead=True)
            case "reset":
                self._reset(argument)
            case "compact":
                old = self.browser is None and argument == 0
                self.cluster.compact("q", drop_tombstones=old, choose=lambda record: record.offset % 4 != argument)
            case "take":
                assert self.browser is not None
                self._see(self.browser.poll(0))
            case "refresh":
                self._refresh()

    def _write(self, key: str, value: str | None, side: str = "") -> None:
        with self.queue.producer() as producer:
            receipt = producer.delete(key) if value is None else producer.put(key, value, {"side": side})
            position = receipt.result(5)
        at = position.partition, position.offset
        if side == "elsewhere":
            self.elsewhere.add(at)
        self.written[at] = key, value
        self.newest[key] = at

    def _commit(self, *, with_dead: bool) -> None:
        """Commit the acked offsets, and ``with_dead`` also superseded and deleted ones, as some consumers do."""
        dead = {at for at, (key, value) in self.written.items() if value is None or self.newest[key] != at}
        self.committed |= self.acked | (dead if with_dead else set())
        self._store()

    def _reset(self, to: int) -> None:
        """Undo acks and commits from this offset on in every partition."""
        self.acked = {at for at in self.acked if at[1] < to}
        self.committed = {at for at in self.committed if at[1] < to}
        self._store()

    def _store(self) -> None:
        commits = {}
        for partition in range(self.partitions):
            done = [
                (partition, offset) in self.committed for offset in range(self.cluster.logs.end_offsets("q")[partition])
            ]
            base = [*done, False].index(False)
            runs: list[int] = []
            for offset in range(base, len(done)):
                if len(runs) % 2 != (1 if not done[offset] else 0):
                    runs.append(0)
                runs[-1] += 1
            said = CommitMap(base, tuple(runs[: len(runs) // 2 * 2]), self.tag, self.partitions)
            commits[partition] = Commit(base, said.encode())
        self.cluster.groups.commit("lvq.q", "q", commits)

    # ---------------------------------------------------------------- browsing

    def start(self) -> None:
        self.browser = self.queue.browser(refresh=3600.0, headers={"side": "here"} if self.filtered else None)
        self.there = dict(self.newest)
        self.browser.start()

    def open(self, racing: list[tuple[str, Any]]) -> None:
        """Open the browser. The racing steps run between its dump and its next look at the commits."""
        assert self.browser is not None
        waiter, racing = self.browser._follower.waiter, list(racing)
        wait = waiter.caught_up

        def raced(*args: Any, **options: Any) -> None:
            wait(*args, **options)
            while racing:
                self.step(*racing.pop(0))

        waiter.caught_up = raced  # type: ignore[method-assign]
        self.browser.open()
        waiter.caught_up = wait  # type: ignore[method-assign]
        assert not racing
        self._looked()

    def _refresh(self) -> None:
        assert self.browser is not None
        self.browser.refresh()
        self._looked()

    def _looked(self) -> None:
        self.known = set(self.committed)
        self.hidden |= self.known

    def _is_shown(self, key: str, at: At) -> bool:
        selected = not (self.filtered and at in self.elsewhere)
        return self.newest[key] == at and self.written[at][1] is not None and at not in self.known and selected

    def _see(self, event: object) -> None:
        match event:
            case None:
                pass
            case EndOfDump():
                self.ended = True
                for key, at in self.there.items():
                    if self._is_shown(key, at) and at not in self.hidden:
                        assert self.given.get(key) == at, f"I8: {key} was there from the beginning, and is not given"
            case Deleted():
                key = event.key
                assert key in self.given or not self.filtered, f"I9: {key} was not given, and is said to be gone"
                at = self.given.pop(key, (-1, -1))
                if event.left:
                    later = [place for place in self.elsewhere if self.written[place][0] == key]
                    assert max(later) > at, f"I9: {key} is said to have left"
                    assert self.filtered
                elif event.consumed:  # this value, or a successor that the browser had not read yet
                    assert at in self.written, f"I7: {key} is said left to consume, and was not given"
                    later = [place for place, (of, _) in self.written.items() if of == key and place >= at]
                    assert not self.known.isdisjoint(later), f"I7: {key} is said left to consume"
                else:
                    deletes = [at for at, change in self.written.items() if change == (key, None)]
                    assert max(deletes) > at, f"I7: {key} is said to be deleted"
            case Entry():
                key, at = event.key, (event.position.partition, event.position.offset)
                assert self.written[at] == (key, event.value)
                assert at not in self.known, f"I7: {event} was consumed before the last look"
                assert at >= self.highest.get(key, (-1, -1)), f"I7: {event} comes after a newer value"
                assert at != self.given.get(key), f"I7: {event} comes twice, and was not said to be gone in between"
                self.given[key] = self.highest[key] = at
            case _:
                raise AssertionError(event)

    def finish(self) -> None:
        assert self.browser is not None
        self._looked()  # drain() refreshes, too
        for event in self.browser.drain(30):
            self._see(event)
        assert self.ended
        assert self.given == {key: at for key, at in self.newest.items() if self._is_shown(key, at)}
        self.browser.close()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large])
@given(st.integers(1, 2), st.booleans(), BEFORE, DURING, DURING, BETWEEN)
def test_a_browser_of_a_queue_gives_what_is_newest_and_not_consumed_and_all_of_it(
    partitions: int,
    filtered: bool,
    before: list[tuple[str, Any]],
    during: list[tuple[str, Any]],
    racing: list[tuple[str, Any]],
    between: list[tuple[str, Any]],
) -> None:
    world = World(partitions, filtered=filtered)
    for step in before:
        world.step(*step)
    world.start()
    for step in during:
        world.step(*step)
    world.open(racing)
    for step in between:
        world.step(*step)
    world.finish()
