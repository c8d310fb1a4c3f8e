"""One contract for views in memory, views with stores and attached views (R40, R41)."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka import BYTES, JSON, TEXT, Deleted, EndOfDump, Entry, LastValueQueue, Ttl, attach
from lvq_kafka.errors import CatchUpTimeout, Closed, ConfigError, DecodeError, TopicRecreated, UnencodableKey
from lvq_kafka.reading import attached_view
from lvq_kafka.reading.view import LiveMapping
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.waiting import eventually

KINDS = ["memory", "stored", "attached"]


class World:
    """A cluster with a topic, and views of one kind."""

    def __init__(self, kind: str, place: Path, opened: ExitStack) -> None:
        self.kind = kind
        self._place = place
        self._opened = opened
        self.clock = Clock()
        self.cluster = MemoryCluster(clock=self.clock)

    def put(self, headers: Any = (), partition: int | None = None, **values: str | None) -> None:
        for key, value in values.items():
            data = None if value is None else value.encode()
            self.cluster.write("prices", key.encode(), data, headers, partition=partition)

    def view(self, partitions: int = 1, value: Any = TEXT, **options: Any) -> LiveMapping[Any]:
        """Return an open view of a new topic."""
        self.cluster.topics.create("prices", partitions=partitions, config={"cleanup.policy": "compact"})
        return self.another(value, **options)

    def another(self, value: Any = TEXT, **options: Any) -> LiveMapping[Any]:
        how = {name: options.pop(name) for name in ("undecodable", "keys", "headers") if name in options}
        queue = LastValueQueue("prices", cluster=self.cluster, value=value, **{"key_header": "ticker", **options})
        kept = {} if self.kind == "memory" else {"store": self._place}
        view = self._opened.enter_context(queue.view(metadata_interval=0.02, **kept, **how))
        if self.kind != "attached":
            return view
        own = {"undecodable": how["undecodable"]} if "undecodable" in how else {}
        return self._opened.enter_context(attach(self._place, value=value, **own))


@pytest.fixture(params=KINDS)
def world(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    with ExitStack() as opened:
        found = World(request.param, tmp_path / "store", opened)
        monkeypatch.setattr(attached_view, "time", SimpleNamespace(time=found.clock))
        yield found


def key_of(event: Any) -> str:
    return str(event.key)


def test_r40_r41_it_is_a_mapping(world: World) -> None:
    view = world.view()
    world.put(a="1", b="2", c="3")
    world.put(b=None, a="4")
    view.barrier()
    assert dict(view) == {"c": "3", "a": "4"}
    assert (list(view), len(view), "a" in view, "b" in view, 1.5 in view) == (["c", "a"], 2, True, False, False)
    assert (view["a"], view[b"c"], view.get("b"), list(view.values())) == ("4", "3", None, ["3", "4"])
    with pytest.raises(KeyError):
        view["b"]
    with pytest.raises(UnencodableKey):
        view[1.5]  # type: ignore[index]
    assert str(view.entry("a").position) == "prices/0/4"
    assert [entry.key for entry in view.entries()] == ["c", "a"]
    assert (view.state, view.lag, view.failure, view.split_keys) == ("caught-up", 0, None, [])
    assert (view.stats.added, view.stats.replaced, view.stats.deleted) == (4, 1, 1)
    assert "caught-up" in repr(view)


def test_r40_r41_its_items_and_values_leave_out_what_is_deleted_meanwhile(world: World) -> None:
    view = world.view()
    world.put(a="1", b="2", c="3")
    view.barrier()
    items, values = iter(view.items()), iter(view.values())
    assert (next(items), next(values)) == (("a", "1"), "1")
    world.put(b=None, c="4")
    view.barrier()
    assert (list(items), list(values)) == ([("c", "4")], ["4"])
    assert (len(view.items()), ("c", "4") in view.items(), ("b", "2") in view.items()) == (2, True, False)
    assert (len(view.values()), "4" in view.values(), "2" in view.values()) == (2, True, False)


def test_r40_r41_it_scans_in_byte_order_of_keys(world: World) -> None:
    view = world.view()
    long = "l" * 500
    world.put(**{"b2": "1", "a": "2", "b1": "3", "c": "4", long: "5"})
    view.barrier()
    assert [entry.key for entry in view.scan(prefix="b")] == ["b1", "b2"]
    assert list(view.scan(start="b", stop="c").keys()) == ["b1", "b2"]
    assert [key for key, _ in view.scan(start="c").headers()] == ["c", long]
    assert len(view.scan()) == 5


def test_g8_r40_r41_a_snapshot_is_one_cut_and_stays(world: World) -> None:
    view = world.view()
    world.put(a="1", b="2")
    view.barrier()
    snapshot = view.snapshot()
    world.put(a="3", b=None, c="4")
    view.barrier()
    assert (dict(snapshot), snapshot.offsets) == ({"a": "1", "b": "2"}, {0: 2})
    assert (dict(view.snapshot()), view.snapshot().offsets) == ({"a": "3", "c": "4"}, {0: 5})
    assert snapshot.topic == "prices"
    assert snapshot.topic_id == view.snapshot().topic_id != ""
    assert [entry.value for entry in snapshot.iter_entries()] == ["1", "2"]


def test_g8_r40_r41_a_key_is_looked_up_at_a_cut(world: World) -> None:
    view = world.view(partitions=2)
    world.put(partition=1, a="1", b="2")
    view.barrier()
    found, cut = view.look_up("a")
    assert found == view.entry("a")
    assert (cut.offsets, cut.topic_id) == ({0: 0, 1: 2}, view.snapshot().topic_id)
    assert view.look_up("missing") == (None, cut)
    world.put(partition=1, a=None)
    view.barrier()
    assert view.look_up("a") == (None, view.cut)
    assert view.cut.offsets == {0: 0, 1: 3}
    view.close()
    with pytest.raises(Closed):
        view.look_up("a")
    with pytest.raises(Closed):
        _ = view.cut


def test_g1_r40_r41_it_is_complete_once_it_has_caught_up(world: World) -> None:
    view = world.view()
    assert view.complete
    assert (view.queue, view.undecoded().queue) == ("prices", "prices")
    world.cluster.disconnect()
    eventually(lambda: view.state == "disconnected")
    assert view.complete, "a cut is complete, however old it is"


def test_r40_r41_another_face_of_it_has_bytes(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a="1", bad="{")
    view.barrier()
    face = view.undecoded()
    assert (view["a"], dict(face)) == (1, {"a": b"1", "bad": b"{"})
    assert (face.look_up("bad")[0], face.page().entries[1].value) == (face.entry("bad"), b"{")
    with face.watch(dump=True) as watch:
        assert [event.value for event in watch.drain()[:2] if isinstance(event, Entry)] == [b"1", b"{"]
    face.close()
    with pytest.raises(Closed):
        view["a"]


def test_r34_r40_r41_it_has_pages_that_a_watch_follows(world: World) -> None:
    view = world.view()
    world.put(a="1", b="1", c="1")
    view.barrier()
    first = view.page(limit=2)
    assert ([entry.key for entry in first.entries], first.last) == (["a", "b"], False)
    world.put(a="2", c="2")
    view.barrier()
    last = view.page(first.token)
    assert ([entry.value for entry in last.entries], last.last) == (["2"], True)
    with view.watch(since=last.token) as watch:
        events = [watch.poll(5) for _ in range(3)]
    assert [event.key for event in events if isinstance(event, Entry)] == ["a", "c"]
    assert isinstance(events[2], EndOfDump)
    with pytest.raises(ConfigError, match="is not the prefix of the pages before"):
        view.page(first, prefix="x")
    world.cluster.topics.delete("prices")
    world.cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    eventually(
        lambda: (view.snapshot().topic_id, view.state) == (world.cluster.topics.describe("prices").id, "caught-up")
    )
    with pytest.raises(TopicRecreated, match="since the first page"):
        view.page(last)


def test_r40_r41_a_watch_reports_what_changes(world: World) -> None:
    view = world.view()
    world.put(a="1", b="1")
    view.barrier()
    with view.watch() as watch, view.watch(dump=True) as dumping, view.watch(keys=["b"]) as of_b:
        assert [key_of(dumping.poll(5)) for _ in range(2)] == ["a", "b"]
        end = dumping.poll(5)
        assert isinstance(end, EndOfDump)
        assert end.offsets == {0: 2}
        world.put(a="2")
        event = watch.poll(5)
        assert isinstance(event, Entry)
        assert (event.key, event.value, str(event.position)) == ("a", "2", "prices/0/2")
        world.put(b=None)
        assert watch.poll(5) == dumping.poll(5) == of_b.poll(5) or dumping.poll(5) == Deleted("b")
        assert of_b.poll(0.0) is None


def test_r24_r40_r41_a_watch_of_values_says_what_left(world: World) -> None:
    view = world.view()
    with view.watch(headers={"side": "buy"}) as watch:
        world.put([("side", b"buy")], a="1", b="1")
        assert {key_of(watch.poll(5)), key_of(watch.poll(5))} == {"a", "b"}
        world.put([("side", b"sell")], a="2")
        assert watch.poll(5) == Deleted("a", left=True)
        world.put(b=None)
        assert watch.poll(5) == Deleted("b")


def test_r30_r40_r41_a_view_of_selected_values_says_what_left_it(world: World) -> None:
    view = world.view(headers={"side": "buy"})
    with view.watch() as watch:
        world.put([("side", b"buy")], a="1")
        assert key_of(watch.poll(5)) == "a"
        world.put([("side", b"sell")], a="2", b="2")
        assert watch.poll(5) == Deleted("a", left=True)
        view.barrier()
        assert dict(view) == {}


def test_r32_r40_r41_a_watch_adds_previous_values(world: World) -> None:
    view = world.view()
    world.put(a="1", b="1")
    view.barrier()
    with view.watch(previous=True) as watch:
        world.put(a="2", b=None)
        events = {event.key: event for event in (watch.poll(5), watch.poll(5)) if isinstance(event, Entry | Deleted)}
        assert {key: event.previous and event.previous.value for key, event in events.items()} == {"a": "1", "b": "1"}


def test_r40_r41_a_callback_gets_changes(world: World) -> None:
    view = world.view()
    seen: list[str] = []
    came = Flag()

    def note(event: Any) -> None:
        seen.append(event.key)
        came.set()

    end = view.on_change(note)
    world.put(a="1")
    assert came.wait(5)
    end()
    assert seen == ["a"]


def test_r40_r41_a_watch_in_asyncio(world: World) -> None:
    view = world.view()

    async def first() -> str:
        async with view.watch(dump=True) as watch:
            world.put(a="1")
            async for event in watch:
                if isinstance(event, Entry):
                    return event.key
        return ""

    assert asyncio.run(asyncio.wait_for(first(), 10)) == "a"


def test_g7_r40_r41_one_may_wait_for_a_position(world: World) -> None:
    view = world.view()
    world.put(a="1")
    view.wait_for("prices/0/0", 10)
    assert view["a"] == "1"
    with pytest.raises(CatchUpTimeout, match=r"did not reach the end within 0\.05 s"):
        view.wait_for("prices/0/7", 0.05)
    with pytest.raises(ConfigError, match="orders/0/0 is not in prices"):
        view.wait_for("orders/0/0")
    with pytest.raises(ConfigError, match="is not a position"):
        view.wait_for("prices")
    assert view.barrier(10) == {0: 1}
    view.wait_caught_up(10)


def test_r8_r10_r40_r41_an_expired_value_is_not_shown_and_its_end_is_an_event(world: World) -> None:
    view = world.view(ttl=Ttl(default=5.0))
    world.put(a="1")
    world.clock.now += 3.0
    world.put(b="2")
    view.barrier()
    with view.watch() as watch:
        assert dict(view) == {"a": "1", "b": "2"}
        snapshot = view.snapshot()
        world.clock.now += 2.5
        assert ("a" in view, len(view), list(view)) == (False, 1, ["b"])
        assert [entry.key for entry in view.scan()] == ["b"]
        assert watch.poll(5) == Deleted("a", expired=True)
        assert dict(snapshot) == {"a": "1", "b": "2"}
        assert dict(view.snapshot()) == {"b": "2"}
        view.barrier()
        assert watch.poll(0.0) is None
        world.put(a="3")
        assert key_of(watch.poll(5)) == "a"


def test_r11_r40_r41_a_message_counts_when_it_is_due(world: World) -> None:
    view = world.view(max_delay=100.0)
    world.put(a="1")
    world.put([("lvq-not-before", b"%d" % (1000 * (world.clock.now + 5)))], a="2")
    view.barrier()
    assert view["a"] == "1"
    world.clock.now += 6
    eventually(lambda: view["a"] == "2")


def test_r4_r20_r40_r41_the_order_is_that_of_the_queue(world: World) -> None:
    view = world.view(order="priority")
    for key, rank in ("a", b"1"), ("b", b"9"), ("c", b"1"):
        world.put([("lvq-priority", rank)], **{key: "v"})
    view.barrier()
    assert list(view) == ["a", "b", "c"]
    assert list(view.snapshot()) == ["b", "a", "c"]
    with view.watch(dump=True) as watch:
        assert [key_of(watch.poll(5)) for _ in range(3)] == ["b", "a", "c"]


def test_r14_r40_r41_keys_in_several_partitions_have_one_value(world: World) -> None:
    view = world.view(partitions=3)
    for partition in range(3):
        world.put(partition=partition, a=str(partition))
    view.barrier()
    assert len(view) == 1
    assert view.split_keys == ["a"]
    assert view.snapshot().offsets == {0: 1, 1: 1, 2: 1}


def test_r40_r41_a_value_that_cannot_be_decoded_is_an_error_or_bytes(world: World) -> None:
    view = world.view(value=JSON)
    world.put(a="{", b="1")
    view.barrier()
    with pytest.raises(DecodeError, match="prices/0/0"):
        view["a"]
    assert view["b"] == 1


def test_r40_r41_bytes_are_returned_raw(world: World) -> None:
    view = world.view(value=JSON, undecodable="raw")
    world.put(a="{")
    view.barrier()
    assert view["a"] == b"{"


def test_r40_r41_a_closed_view_says_so_and_ends_its_watches(world: World) -> None:
    view = world.view(value=BYTES)
    watch = view.watch()
    view.close()
    assert view.state == "closed"
    with pytest.raises(Closed, match="prices"):
        view["a"]
    with pytest.raises(Closed):
        view.snapshot()
    assert list(watch) == []


def recreated(world: World) -> None:
    world.cluster.topics.delete("prices")
    world.cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    world.put(b="1", c="9", d="4")


def test_g2_r40_r41_a_watch_goes_on_when_all_is_read_again(world: World) -> None:
    view = world.view()
    world.put(a="1", b="1", c="1")
    view.barrier()
    with view.watch() as watch:
        recreated(world)
        listener = {"a": "1", "b": "1", "c": "1"}
        renewed = set()
        # The new topic may be read in parts, so a key may be gone for a while.
        while listener != {"b": "1", "c": "9", "d": "4"} or len(renewed) < 3:
            event = watch.poll(10)
            if isinstance(event, Entry):
                listener[event.key] = event.value
                renewed.add(event.key)
            else:
                assert isinstance(event, Deleted)
                del listener[event.key]
        eventually(lambda: view.state == "caught-up" and dict(view) == listener)
