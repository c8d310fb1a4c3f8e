"""R45: at any moment, views find and sort by an index what a scan of that moment would, in memory and in a store."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from decimal import Decimal
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lvq_kafka import JSON, Entry, LastValueQueue, Ttl, View, attach
from lvq_kafka.core.latest.index_order import encode_value
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.core.timing.ttl import TTL_HEADER
from lvq_kafka.errors import ConfigError, MixedIndex, StateError
from lvq_kafka.reading import attached_view, index_queries
from lvq_kafka.reading.view import LiveMapping
from lvq_kafka.storing import index_keeper
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.effort import examples
from tests.waiting import eventually

LONG = "l" * 480
KEYS = ["", "a", "b", "c", "d", "\udcff", LONG, LONG + "b", LONG + "a"]
NUMBERS: list[object] = [None, [], 0, 1, 1.0, -2.5, 2**53 + 1, 2.0**53, True, "1e400"]
TEXTS: list[object] = [None, [], "", "1", "é", "x" * 470, "x" * 470 + "y"]
DESKS = [None, b"fx", b"fx", b"rates", b"", b"\xff", LONG.encode() + b"1", LONG.encode() + b"2"]

puts = st.tuples(
    st.just("put"),
    st.lists(
        st.tuples(
            st.sampled_from(KEYS),
            st.integers(0, 99),
            st.sampled_from(DESKS),
            st.sampled_from([None, None, b"500", b"5000"]),
            st.booleans(),
        ),
        max_size=8,
    ),
)
deletes = st.tuples(st.just("delete"), st.lists(st.sampled_from(KEYS), min_size=1, max_size=3))
others = st.tuples(
    st.sampled_from(["later", "reopen", "reopen by another version", "without", "ask", "add"]), st.none()
)
steps = st.lists(st.one_of(puts, puts, deletes, others), max_size=10)


def total(entry: Entry[Any]) -> Any:
    """Return what the index is by: of any type, and sometimes an error."""
    value = entry.value["total"]
    return Decimal(value) if value == "1e400" else value


def place_of(entry: Entry[Any]) -> bytes | None:
    try:
        value = total(entry)
        return None if value is None else encode_value(value)
    except (TypeError, KeyError):
        return None


def desk_of(entry: Entry[Any]) -> bytes | None:
    found = dict(entry.headers).get("desk")
    return None if found is None else encode_value(found.decode("utf-8", "surrogateescape"))


def assert_as_a_scan(view: LiveMapping[Any], by: str) -> None:
    judge = {"desk": desk_of, "total": place_of}[by]
    with view._shared.lock:
        everything = list(view.scan())
        places = {entry.key: place for entry in everything if (place := judge(entry)) is not None}
        found = [list(view.find(by, value)) for value in QUESTIONS[by]]
        kinds = {place[0] >> 4 for place in places.values()}
        if len(kinds) > 1:
            for ascending in (True, False):
                mixed = None
                try:
                    view.top(3, by=by, ascending=ascending)
                except MixedIndex as error:
                    mixed = error
                assert mixed is not None
                assert {key: places[key][0] >> 4 for key in mixed.keys.values()}.keys() <= places.keys()
                assert len(mixed.keys) == 2
            tops = []
        else:
            tops = [[view.top(3, by=by, ascending=ascending)] for ascending in (True, False)]
            for ascending, pages in zip((True, False), tops):
                while len(pages[-1]) == 3:
                    last = pages[-1][-1]
                    pages.append(view.top(3, by=by, ascending=ascending, after=after(view, last, by)))
    for value, entries in zip(QUESTIONS[by], found):
        wanted = encode_value(value)
        assert entries == [entry for entry in everything if places.get(entry.key) == wanted]
    indexed = [entry for entry in everything if entry.key in places]  # in the order of their keys
    for ascending, pages in zip((True, False), tops):
        expected = sorted(indexed, key=lambda entry: places[entry.key], reverse=not ascending)
        assert [entry for page in pages for entry in page] == expected


def is_complete(view: LiveMapping[Any]) -> bool:
    try:
        return all(view.find(by, "") is not None for by in QUESTIONS)
    except (ConfigError, StateError):
        return False


QUESTIONS: dict[str, list[Any]] = {
    "desk": ["fx", "rates", "", "\udcff", LONG + "1", "no"],
    "total": [0, 1, 1.0, 2**53 + 1, 2.0**53, "1", "x" * 470, Decimal("1e400"), 7],
}


def after(view: LiveMapping[Any], last: Entry[Any], by: str) -> Any:
    """Return the place after which a page begins: that of an entry, or in words, where the function is elsewhere."""
    if by == "desk" or isinstance(view, View):
        return last
    return (total(last), last.key)


class World:
    """A queue, a view in memory, one with a store, and a reader that is attached to that."""

    def __init__(
        self, place: Path, totals: list[object], *, partitions: int, ttl: Ttl | None, max_delay: float | None
    ) -> None:
        self.clock = Clock()
        self.cluster = MemoryCluster(clock=self.clock)
        self.cluster.topics.create("q", partitions=partitions, config={"cleanup.policy": "compact"})
        self.partitions = partitions
        self.delays = max_delay is not None
        self.queue: LastValueQueue[Any] = LastValueQueue(
            "q", key_header=None, value=JSON, cluster=self.cluster, ttl=ttl, max_delay=max_delay
        )
        self.place = place
        self.totals = totals
        self.version = 1
        self.views: list[LiveMapping[Any]] = []

    @contextmanager
    def open(self, *, indexed: bool = True) -> Iterator[None]:
        memory, stored = self.queue.view(), self.queue.view(store=self.place)
        if indexed:
            self.index(memory, stored)
        with memory, stored, attach(self.place, value=JSON) as attached:
            self.views = [memory, stored, attached]
            yield

    def index(self, *views: View[Any]) -> None:
        for view in views:
            view.index("desk", by="desk")
            view.index("total", by=total, version=f"{self.version}")

    def put(self, rows: list[tuple[str, int, bytes | None, bytes | None, bool]]) -> None:
        for at, (key, number, desk, ttl, delayed) in enumerate(rows):
            value = self.totals[number % len(self.totals)]
            headers: list[tuple[str, bytes | None]] = [] if desk is None else [("desk", desk)]
            if ttl is not None:
                headers.append((TTL_HEADER, ttl))
            if delayed and self.delays:
                headers.append((NOT_BEFORE_HEADER, b"%d" % round(1000 * self.clock.now + 700)))
            data = json.dumps({} if value == [] else {"total": value}).encode()
            partition = at % self.partitions if self.partitions > 1 else None
            self.cluster.write("q", key.encode("utf-8", "surrogateescape"), data, headers, partition=partition)

    def check(self) -> None:
        memory, stored, attached = self.views
        for view in (memory, stored):
            view.barrier()
        at = stored.snapshot().offsets
        eventually(lambda: attached.snapshot().offsets == at)
        for view in self.views:
            for by in ("desk", "total"):
                assert_as_a_scan(view, by)


@example(
    drawn=[
        ("put", [("a", 3, b"fx", None, False), ("b", 6, b"fx", b"500", False)]),
        ("add", None),
        ("later", None),
        ("reopen by another version", None),
        ("without", None),
        ("delete", ["a"]),
    ],
    partitions=1,
    ttl=Ttl(),
    max_delay=2.0,
    few=1,
    totals=NUMBERS,
)
@settings(max_examples=examples(40), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    drawn=steps,
    partitions=st.sampled_from([1, 1, 2]),
    ttl=st.sampled_from([None, Ttl()]),
    max_delay=st.sampled_from([None, 2.0]),
    few=st.sampled_from([1, 2, 4096]),
    totals=st.sampled_from([NUMBERS, NUMBERS, TEXTS, NUMBERS + TEXTS]),
)
def test_r45_an_index_finds_and_sorts_what_a_scan_would(
    drawn: list[tuple[str, Any]],
    partitions: int,
    ttl: Ttl | None,
    max_delay: float | None,
    few: int,
    totals: list[object],
) -> None:
    """Whatever is written, expires, becomes due, or is in the file that another process left."""
    with TemporaryDirectory(prefix="lvq-indexes-") as folder, ExitStack() as patched:
        world = World(Path(folder) / "store", totals, partitions=partitions, ttl=ttl, max_delay=max_delay)
        patched.enter_context(patch.object(attached_view, "time", SimpleNamespace(time=world.clock)))
        for module in (index_queries, index_keeper):
            patched.enter_context(patch.object(module, "_SOME", few))
        opened = ExitStack()
        opened.enter_context(world.open())
        try:
            for step, what in drawn:
                if step == "put":
                    world.put(what)
                elif step == "delete":
                    for key in what:
                        world.cluster.write("q", key.encode("utf-8", "surrogateescape"), None)
                elif step == "later":
                    world.clock.now += 0.8
                elif step == "ask":
                    world.check()
                    continue
                else:
                    opened.close()
                    world.version += step == "reopen by another version"
                    if step == "without":
                        with world.open(indexed=False):
                            world.put([("d", 3, b"fx", None, False)])
                    opened.enter_context(world.open(indexed=step != "add"))
                    if step == "add":
                        world.index(*(view for view in world.views if isinstance(view, View)))
                        eventually(lambda: is_complete(world.views[2]))
                if step != "put":
                    world.check()
            world.check()
        finally:
            opened.close()
