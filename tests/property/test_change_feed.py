"""R44: from any point, a watch of a store brings what an earlier one had to what the store holds, restarts included."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import ExitStack
from pathlib import Path
from tempfile import TemporaryDirectory
from types import SimpleNamespace
from typing import Any, NamedTuple
from unittest.mock import patch

from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from lvq_kafka import TEXT, EndOfDump, LastValueQueue, TopicSpec, Ttl, View, Watch, attach
from lvq_kafka.core.latest import checkpoints
from lvq_kafka.errors import DataLoss
from lvq_kafka.reading import attached_view
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.effort import examples
from tests.following import keep_up
from tests.waiting import eventually

DAY = 86_400.0


class Put(NamedTuple):
    key: str
    value: str | None
    ttl: float | None
    delay: float | None
    desk: str
    partition: int


puts = st.builds(
    Put,
    st.sampled_from("abc"),
    st.sampled_from(["1", "2", None]),
    st.sampled_from([None, None, 1.0, 6.0]),
    st.sampled_from([None, None, None, 2.0, 8.0]),
    st.sampled_from(["x", "y"]),
    st.integers(0, 1),
)
changes = st.one_of(
    puts.map(lambda put: ("put", put)),
    puts.map(lambda put: ("put", put)),
    puts.map(lambda put: ("put", put)),
    st.sampled_from([0.5, 1.5, 4.0, 9.0]).map(lambda seconds: ("wait", seconds)),
)
looks = st.one_of(
    st.integers(0, 2).map(lambda events: ("follow", events)),
    st.sampled_from(["token", "snapshot", "end"]).map(lambda kind: ("take", kind)),
    st.just(("restart", None)),
    st.just(("close", None)),
    st.booleans().map(lambda deletes: ("compact", deletes)),
)
histories = st.lists(
    st.tuples(st.lists(changes, min_size=1, max_size=3), looks, looks).map(lambda drawn: [*drawn[0], *drawn[1:]]),
    min_size=4,
    max_size=9,
).map(lambda parts: [step for part in parts for step in part])


class Follower:
    """Keeps values up to date with the events of watches, each of which goes on where the one before had got to."""

    def __init__(self) -> None:
        self.kept: dict[str, str] = {}
        self.token: str | None = None

    def watch(self, view: View[str], *, built_again: bool) -> None:
        if self.token is not None:
            try:
                self._watch = view.watch(since=self.token)
            except DataLoss:
                assert built_again
            else:
                return
        self.kept.clear()
        self.token, self._watch = None, view.watch(dump=True)

    def follow(self, events: int | None = None) -> None:
        """Take so many events, by default all."""
        while events is None or events:
            event = self._watch.poll(0.0)
            if event is None:
                break
            keep_up(self.kept, [event])
            events = None if events is None else events - 1
        self.token = self._watch.token or self.token

    def stop(self) -> None:
        self._watch.close()


def resumed(watch: Watch[str], kept: dict[str, str]) -> tuple[dict[str, str], set[str]]:
    """Return the values after what a watch says to the end of its dump, and the keys that it names."""
    found, keys = dict(kept), set()
    while not isinstance(event := watch.poll(10), EndOfDump):
        assert event is not None
        keep_up(found, [event])
        keys.add(event.key)
    return found, keys


TIMES = {"ttl": Ttl(), "max_delay": 10.0}


@example(
    history=[("put", Put("a", "1", 1.0, None, "x", 0)), ("take", "end"), ("wait", 4.0), ("restart", None)],
    options={"ttl": Ttl()},
    partitions=1,
    selector=None,
    most=1,
)
@settings(max_examples=examples(90), deadline=None, suppress_health_check=list(HealthCheck))
@given(
    history=histories,
    options=st.sampled_from([{}, {"ttl": Ttl()}, {"max_delay": 10.0}, TIMES, TIMES]),
    partitions=st.sampled_from([1, 1, 2]),
    selector=st.sampled_from([None, None, "desk = 'x'"]),
    most=st.sampled_from([1, 3, 2048]),
)
def test_r44_a_watch_of_a_store_resumes_from_any_point_without_a_gap(
    history: Sequence[tuple[str, Any]],
    options: dict[str, Any],
    partitions: int,
    selector: str | None,
    most: int,
) -> None:
    clock = Clock()
    cluster = MemoryCluster(clock=clock)
    spec = TopicSpec(partitions=partitions)
    queue = LastValueQueue.declare("q", key_header=None, value=TEXT, cluster=cluster, spec=spec, **options)
    follower = Follower()
    points: list[tuple[dict[str, str], Any]] = []

    def put(one: Put) -> None:
        headers = [("desk", one.desk.encode())]
        if one.ttl is not None and "ttl" in options:
            headers.append(("lvq-ttl", b"%d" % round(1000 * one.ttl)))
        if one.delay is not None:
            headers.append(("lvq-not-before", b"%d" % round(1000 * (clock.now + one.delay))))
        value = None if one.value is None else one.value.encode()
        cluster.write("q", one.key.encode(), value, headers, partition=one.partition % partitions)

    def take(kind: str) -> None:
        if view is None:  # a reader that is ahead of the store
            with queue.view(selector=selector) as other:
                points.append((dict(other), other.snapshot()))
        elif kind == "token":
            if follower.token is not None:
                points.append((dict(follower.kept), follower.token))
        elif kind == "snapshot":
            points.append((dict(view), view.snapshot()))
        else:
            events = view.watch(dump=True).drain()
            kept: dict[str, str] = {}
            keep_up(kept, events)
            points.append((kept, events[-1]))

    built_again = selector is not None and partitions > 1  # records that are not at home need another read (R30)
    with ExitStack() as stack:
        place = Path(stack.enter_context(TemporaryDirectory())) / "store"
        stack.enter_context(patch.object(attached_view, "time", SimpleNamespace(time=clock)))
        stack.enter_context(patch.object(checkpoints, "_MOST", most))

        def opened() -> View[str]:
            view = queue.view(store=place, selector=selector).open()
            follower.watch(view, built_again=built_again)
            return view

        view: View[str] | None = opened()
        for what, how in history:
            match what:
                case "put":
                    put(how)
                    if view is not None:
                        view.barrier()
                case "wait":
                    clock.now += how
                case "follow":
                    if view is not None:
                        follower.follow(how)
                case "take":
                    take(how)
                case "compact":
                    if view is not None and "max_delay" not in options:  # a broker would wait for what is due
                        cluster.compact("q", drop_tombstones=how)
                case "close" | "restart":
                    if view is not None:
                        follower.stop()
                        view.close()
                    view = None if what == "close" else opened()
        if view is None:
            view = opened()
        stack.callback(view.close)
        view.barrier()
        follower.follow()
        shown = dict(view)
        assert follower.kept == shown
        with attach(place, value=TEXT) as reader:
            eventually(lambda: dict(reader) == shown)
            for kept, since in points:
                for one in (view, reader):
                    try:
                        watch = one.watch(since=since)
                    except DataLoss:
                        assert built_again
                        continue
                    with watch:
                        found, _ = resumed(watch, kept)
                        assert found == shown
        for kept, since in ((shown, view.snapshot()), (shown, follower.token)):
            with view.watch(since=since) as watch:
                assert resumed(watch, kept) == (shown, set())
