"""The view on the in-memory cluster: a live mapping that is complete, current and honest."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from itertools import islice
from pathlib import Path
from threading import Event
from typing import Any

import pytest

from lvq_kafka import JSON, TEXT, Codec, Deleted, EndOfDump, Entry, LastValueQueue, Position, Producer, View
from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.records import header_value
from lvq_kafka.errors import (
    BrokerUnavailable,
    CatchUpTimeout,
    Closed,
    ConfigError,
    DecodeError,
    KeyMismatch,
    ReaderFailed,
    TopicNotFound,
    TopicRecreated,
    UnencodableKey,
)
from lvq_kafka.testing import MemoryCluster
from tests.unit.polling import before_polls
from tests.waiting import eventually


@pytest.fixture
def queue(memory_cluster: MemoryCluster) -> LastValueQueue[str]:
    memory_cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    return LastValueQueue("prices", key_header="ticker", cluster=memory_cluster, value=TEXT)


@pytest.fixture
def producer(queue: LastValueQueue[str]) -> Iterator[Producer[str]]:
    with queue.producer() as producer:
        yield producer


def test_g1_a_view_holds_everything_acknowledged_before_it_was_entered(
    queue: LastValueQueue[str], producer: Producer[str]
) -> None:
    for key in ["1", "2", "3", "4", "2", "1"]:
        producer.put(key, f"v{key}")
    producer.delete("4")
    with queue.view() as view:
        assert dict(view) == {"3": "v3", "2": "v2", "1": "v1"}
        assert list(view) == ["3", "2", "1"]
        assert (len(view), view.state, view.lag) == (3, "caught-up", 0)
        assert view.progress == (7, 7)


def test_g1_an_empty_queue_is_caught_up(queue: LastValueQueue[str]) -> None:
    with queue.view() as view:
        assert dict(view) == {}


def test_keys_can_be_asked_for_in_any_form(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put(1, "one")
    producer.put(True, "yes")
    with queue.view() as view:
        assert view["1"] == view[1] == view[b"1"] == "one"
        assert view[True] == view["true"] == "yes"
        assert 1 in view
        assert "2" not in view
        with pytest.raises(KeyError):
            view["2"]
        assert view.get("2") is None


@pytest.mark.parametrize("key", [1.5, None, object(), ["a"], "\ud800"])
def test_an_object_that_can_be_no_key_is_in_no_view(queue: LastValueQueue[str], key: Any) -> None:
    with queue.view() as view:
        assert key not in view
        assert key not in view.keys()  # noqa: SIM118  # a separate view with its own lookup
        assert key not in view.snapshot()
    with pytest.raises(Closed):
        key in view  # noqa: B015


def test_an_entry_tells_position_time_and_headers(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    with queue.producer() as producer:
        producer.put("IBM", "1", headers={"exchange": "NYSE"}).result()
    with queue.view() as view:
        entry = view.entry("IBM")
        assert entry.position == Position("prices", 0, 0)
        assert entry.header("exchange") == "NYSE"
        assert entry.header("ticker") == "IBM"
        assert entry.header("none") is None
        assert entry.timestamp == pytest.approx(memory_cluster.records("prices")[0].timestamp / 1000)


def test_ranges_and_prefixes_are_in_byte_order(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    for key in ["b2", "a", "b1", "c", b"\xff\xff"]:
        producer.put(key, "v")
    with queue.view() as view:
        assert [entry.key for entry in view.scan(prefix="b")] == ["b1", "b2"]
        assert [entry.key for entry in view.scan(start="a", stop="b2")] == ["a", "b1"]
        assert [entry.key for entry in view.scan(prefix=b"\xff")] == ["\udcff\udcff"]
        assert [entry.key for entry in view.scan(prefix="b", start="b2")] == ["b2"]
        assert [entry.key for entry in view.scan(prefix="b", stop="b2")] == ["b1"]
        assert len(view.scan(prefix="b", start="c")) == len(view.scan(start="c", stop="b")) == 0
        assert len(view.scan()) == len(view.entries()) == 5


@pytest.mark.parametrize("stored", [False, True], ids=["memory", "store"])
def test_a_scan_is_of_one_moment_can_be_repeated_and_decodes_what_is_reached(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str], tmp_path: Path, *, stored: bool
) -> None:
    for key in "cab":
        memory_cluster.write("prices", key.encode(), b"1", (("ticker", key.encode()), ("venue", b"NYSE")))
    memory_cluster.write("prices", b"d", b"\xff")
    with queue.view(store=tmp_path / "store" if stored else None) as view:
        scan = view.scan(start="a")
        reached = iter(scan)
        assert next(reached).key == "a"
        memory_cluster.write("prices", b"b", b"2")
        memory_cluster.write("prices", b"c", None)
        memory_cluster.write("prices", b"bb", b"2")
        view.barrier()
        assert [(entry.key, entry.value) for entry in islice(reached, 2)] == [("b", "1"), ("c", "1")]
        with pytest.raises(DecodeError):
            next(reached)
        assert (list(scan.keys()), len(scan)) == (["a", "b", "c", "d"], 4)
        assert [(key, header_value(headers, "venue")) for key, headers in scan.headers()] == [
            *((key, b"NYSE") for key in "abc"),
            ("d", None),
        ]
        assert list(view.scan().keys()) == ["a", "b", "bb", "d"]
        assert list(view.snapshot().scan(start="b").keys()) == ["b", "bb", "d"]
        assert list(asyncio.run(view.scan_async(prefix="b")).keys()) == ["b", "bb"]
    assert next(iter(scan)).value == "1", "it outlives the view"
    with pytest.raises(Closed):
        view.scan()


@pytest.mark.parametrize("name", ["prefix", "start", "stop"])
def test_a_scan_refuses_what_cannot_be_a_key(queue: LastValueQueue[str], name: str) -> None:
    with queue.view() as view, pytest.raises(UnencodableKey):
        view.scan(**{name: 1.5})  # type: ignore[arg-type]


def test_g7_a_barrier_makes_earlier_writes_visible(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    with queue.view() as view:
        for round_ in range(50):
            producer.put("k", str(round_)).result()
            assert view.barrier() == {0: round_ + 1}
            assert view["k"] == str(round_)


def test_g7_a_position_can_be_waited_for_as_text(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    with queue.view() as view:
        view.wait_for(str(producer.put("k", "v").result()))
        assert view["k"] == "v"


def test_g7_a_position_is_not_reached_by_passing_the_hole_that_compaction_left_there() -> None:
    cluster = MemoryCluster(fetch_limit=1)
    cluster.topics.create("prices", partitions=1, config={})
    for key, value in [(b"k", b"old"), (b"x", b"x"), (b"k", b"new"), (b"z", b"z")]:
        cluster.write("prices", key, value)
    cluster.compact("prices")
    behind, go_on = Event(), Event()

    def hold(reader: int, poll: int) -> None:
        if poll == 2:
            behind.set()
            go_on.wait(10)

    before_polls(cluster, hold)
    view = LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT).view().start()
    try:
        assert behind.wait(10)
        with pytest.raises(CatchUpTimeout):
            view.wait_for("prices/0/0", 0.1)
        go_on.set()
        view.wait_for("prices/0/0", 10)
        assert view["k"] == "new"
    finally:
        go_on.set()
        view.close()


@pytest.mark.parametrize("position", ["prices/0", "prices/x/1", "", Position("other", 0, 1)])
def test_a_position_that_is_none_of_this_topic_is_an_error(queue: LastValueQueue[str], position: Any) -> None:
    with queue.view() as view, pytest.raises(ConfigError):
        view.wait_for(position)


def test_a_position_that_does_not_come_times_out_and_says_what_is_missing(queue: LastValueQueue[str]) -> None:
    with queue.view() as view, pytest.raises(CatchUpTimeout, match="partition 0 is at offset 0 of 8") as caught:
        view.wait_for(Position("prices", 0, 7), timeout=0.05)
    assert caught.value.shortfalls[0].target == 8
    assert not caught.value.shortfalls[0].blocked, "there is no transaction to blame"
    assert isinstance(caught.value, TimeoutError)


def test_g8_a_snapshot_is_frozen_and_tells_its_cut(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put("a", "1")
    with queue.view() as view:
        cut = view.snapshot()
        view.wait_for(producer.put("a", "2").result())
        assert (dict(cut), cut.offsets) == ({"a": "1"}, {0: 1})
        assert cut.entry("a").position.offset == 0
        assert view["a"] == "2"


def test_a_snapshot_makes_each_entry_when_its_turn_comes(memory_cluster: MemoryCluster) -> None:
    read: list[bytes] = []
    codec = Codec(bytes, lambda data: read.append(data) or data)  # type: ignore[func-returns-value]
    with LastValueQueue.declare("lazy", key_header=None, value=codec, cluster=memory_cluster) as queue:
        with queue.producer() as producer:
            stored = [producer.put(key, key.encode()) for key in "abc"]
            stored[-1].result()
        with queue.view() as view:
            snapshot = view.snapshot()
        entries = snapshot.iter_entries()
        assert (next(entries).key, read) == ("a", [b"a"])
        assert ([entry.key for entry in entries], read) == (["b", "c"], [b"a", b"b", b"c"])


def test_a_watch_gives_changes_conflated_and_in_order(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put("old", "x")
    with queue.view() as view:
        watch = view.watch()
        for key in ["1", "2", "3", "2"]:
            producer.put(key, f"v{key}")
        producer.delete("1").result()
        view.barrier()
        seen = watch.drain()
        assert [getattr(event, "key", None) for event in seen] == ["3", "2", "1"]
        assert seen[-1] == Deleted("1")


def test_g4_a_watch_with_a_dump_marks_its_end(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    producer.put("a", "1")
    with queue.view() as view:
        watch = view.watch(dump=True)
        a = next(watch)
        view.wait_for(producer.put("b", "2").result())
        end, b = watch.drain()
        assert isinstance(a, Entry)
        assert isinstance(b, Entry)
        assert (a.value, b.value) == ("1", "2")
        assert end == EndOfDump({0: 1})


def test_a_watch_can_be_followed_with_async_for(queue: LastValueQueue[str], producer: Producer[str]) -> None:
    async def first_three(view: View[str]) -> list[str]:
        found: list[str] = []
        loop = asyncio.get_running_loop()
        watch = view.watch()
        for number in range(3):
            loop.call_later(0.01 * number, lambda number=number: producer.put(str(number), "v"))
        async for event in watch:
            assert isinstance(event, Entry)
            found.append(event.key)
            if len(found) == 3:
                break
        return found

    with queue.view() as view:
        assert asyncio.run(asyncio.wait_for(first_three(view), 10)) == ["0", "1", "2"]


def test_closing_the_view_ends_a_waiting_async_watch(queue: LastValueQueue[str]) -> None:
    async def follow(view: View[str]) -> int:
        watch = view.watch()
        asyncio.get_running_loop().call_later(0.05, view.close)
        return len([event async for event in watch])

    view = queue.view().start()
    assert asyncio.run(asyncio.wait_for(follow(view), 10)) == 0


def test_a_callback_that_fails_does_not_end_the_callbacks(
    queue: LastValueQueue[str], producer: Producer[str], caplog: pytest.LogCaptureFixture
) -> None:
    seen: list[str] = []

    def callback(event: Any) -> None:
        seen.append(event.key)
        if event.key == "bad":
            raise RuntimeError("mine")

    with queue.view() as view:
        stop = view.on_change(callback)
        producer.put("bad", "1").result()
        eventually(lambda: "bad" in seen)
        producer.put("good", "1").result()
        eventually(lambda: "good" in seen)
        stop()
    assert "a change callback has failed" in caplog.text


@pytest.fixture
def numbers(memory_cluster: MemoryCluster) -> LastValueQueue[Any]:
    memory_cluster.topics.create("numbers", partitions=1, config={})
    memory_cluster.write("numbers", b"good", b"1")
    memory_cluster.write("numbers", b"bad", b"7")
    memory_cluster.write("numbers", b"bad", b"{")
    return LastValueQueue("numbers", key_header=None, cluster=memory_cluster, value=JSON)


def test_an_unreadable_value_raises_for_its_own_key_only(numbers: LastValueQueue[Any]) -> None:
    with numbers.view() as view:
        assert view["good"] == 1
        with pytest.raises(DecodeError, match="numbers/0/2") as caught:
            view["bad"]
        assert caught.value.raw == b"{"
        assert view.state == "caught-up"


def test_an_unreadable_value_can_be_skipped_and_counted(
    memory_cluster: MemoryCluster, numbers: LastValueQueue[Any]
) -> None:
    with numbers.view(undecodable="skip") as view:
        assert dict(view) == {"good": 1}
        assert view.skipped == 1
        memory_cluster.write("numbers", b"bad", b"8")
        view.barrier()
        assert view["bad"] == 8


def test_an_unreadable_value_can_be_kept_raw(numbers: LastValueQueue[Any]) -> None:
    with numbers.view(undecodable="raw") as view:
        assert view["bad"] == b"{"


def test_an_unknown_policy_is_refused(numbers: LastValueQueue[Any]) -> None:
    with pytest.raises(ConfigError, match="undecodable"):
        numbers.view(undecodable="ignore")  # type: ignore[arg-type]


def test_g5_an_open_transaction_is_named_and_waited_for(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"b", b"b1")
    memory_cluster.write("prices", b"c", b"c1")
    view = queue.view(catch_up_timeout=0.1)
    with pytest.raises(CatchUpTimeout, match="transaction open since offset 0"), view:
        pass
    assert view.state == "closed"


def test_g5_a_view_behind_an_open_transaction_says_blocked_until_it_is_decided(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    writer = memory_cluster.writer(transactional_id="x")
    writer.begin_transaction()
    writer.append("prices", b"b", b"b1")
    memory_cluster.write("prices", b"c", b"c1")
    view = queue.view(metadata_interval=0.05).start()
    try:
        eventually(lambda: view.state == "blocked")
        assert [shortfall.partition for shortfall in view.blocked_by] == [0]
        assert len(view) == 0
        writer.abort_transaction()
        view.wait_caught_up(10)
        assert dict(view) == {"c": "c1"}
    finally:
        view.close()


def test_g5_a_lost_cluster_shows_and_comes_back(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    memory_cluster.write("prices", b"a", b"1")
    with queue.view(metadata_interval=0.05) as view:
        memory_cluster.disconnect()
        eventually(lambda: view.state == "disconnected")
        assert view["a"] == "1"
        with pytest.raises(BrokerUnavailable):
            view.barrier(1.0)
        memory_cluster.reconnect()
        memory_cluster.write("prices", b"a", b"2")
        eventually(lambda: view.state == "caught-up" and view["a"] == "2")


def test_g5_a_deleted_topic_fails_the_view(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    with queue.view(metadata_interval=0.05) as view:
        memory_cluster.topics.delete("prices")
        eventually(lambda: view.state == "failed")
        with pytest.raises(ReaderFailed, match="deleted") as caught:
            view.get("a")
        assert isinstance(caught.value.__cause__, TopicRecreated)


def test_a_recreated_topic_is_read_anew_and_listeners_are_told(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    memory_cluster.write("prices", b"a", b"1")
    memory_cluster.write("prices", b"gone", b"1")
    with queue.view(metadata_interval=0.05) as view:
        watch, before = view.watch(), view.snapshot()
        memory_cluster.topics.delete("prices")
        memory_cluster.topics.create("prices", partitions=1, config={})
        memory_cluster.write("prices", b"a", b"2")
        eventually(lambda: view.state == "caught-up" and view.get("a") == "2" and "gone" not in view)
        assert view.snapshot().topic_id != before.topic_id
        events = []
        eventually(lambda: events.extend(watch.drain()) or Deleted("gone") in events)
        assert any(isinstance(event, Entry) and event.value == "2" for event in events)


def test_r14_partitions_that_are_added_are_read(memory_cluster: MemoryCluster, queue: LastValueQueue[str]) -> None:
    with queue.view(metadata_interval=0.05) as view, queue.producer() as producer:
        for number in range(20):
            producer.put(number, "old").result()
        memory_cluster.topics.add_partitions("prices", 4)
        positions = [producer.put(number, "new").result() for number in range(20)]
        assert len({position.partition for position in positions}) > 1
        view.barrier()
        assert dict(view) == {str(number): "new" for number in range(20)}
        assert len(view.split_keys) == view.stats.split > 0


def test_r16_a_mismatch_fails_the_view_where_the_policy_says_so(memory_cluster: MemoryCluster) -> None:
    memory_cluster.topics.create("t", partitions=1, config={})
    queue = LastValueQueue("t", key_header="k", key_mismatch="fail", cluster=memory_cluster)
    with queue.view() as view:
        memory_cluster.write("t", b"a", b"1", [("k", b"b")])
        eventually(lambda: view.state == "failed")
        assert isinstance(view.failure, KeyMismatch)


def test_r18_records_that_are_gone_make_the_view_start_over(
    memory_cluster: MemoryCluster, queue: LastValueQueue[str]
) -> None:
    for number in range(5):
        memory_cluster.write("prices", b"%d" % number, b"v")

    original = memory_cluster.reader

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        memory_cluster.reader = original  # type: ignore[method-assign]
        found = original(topic, positions)
        memory_cluster.delete_records("prices", 0, 3)
        return found

    memory_cluster.reader = reader  # type: ignore[method-assign]
    with queue.view() as view:
        assert list(view) == ["3", "4"]


def test_g1_a_value_compacted_away_before_it_was_read_is_not_missing(memory_cluster: MemoryCluster) -> None:
    cluster = MemoryCluster(fetch_limit=1)
    cluster.topics.create("prices", partitions=1, config={})
    for key in (b"a", b"b", b"c"):
        cluster.write("prices", key, b"old")
    original = cluster.reader

    def reader(topic: str, positions: Mapping[int, int]) -> LogReader:
        found = original(topic, positions)
        cluster.write("prices", b"a", b"new")  # past the end that the view has just asked for ...
        cluster.write("prices", b"z", b"z")
        cluster.compact("prices")  # ... and the value below it is gone
        return found

    cluster.reader = reader  # type: ignore[method-assign]
    with LastValueQueue("prices", key_header=None, cluster=cluster, value=TEXT).view() as view:
        assert view["a"] == "new"


def test_a_view_of_a_missing_topic_is_refused(memory_cluster: MemoryCluster) -> None:
    nowhere = LastValueQueue("nowhere", key_header=None, cluster=memory_cluster)
    with pytest.raises(TopicNotFound, match="nowhere"), nowhere.view():
        pass


def test_a_closed_view_says_so(queue: LastValueQueue[str]) -> None:
    with queue.view() as view:
        watch = view.watch()
    assert view.state == "closed"
    assert watch.poll() is None
    assert list(watch) == []
    with pytest.raises(Closed):
        view.get("a")
    with pytest.raises(Closed):
        view.barrier()
    view.close()


def test_two_views_are_equal_only_if_they_are_one(queue: LastValueQueue[str]) -> None:
    with queue.view() as one, queue.view() as other:
        assert one != other
        assert len({one, other}) == 2


def test_reads_go_on_while_a_fast_producer_writes(queue: LastValueQueue[str]) -> None:
    done = Event()
    with queue.view() as view, queue.producer() as producer:
        watch = view.watch()
        for number in range(2000):
            producer.put(number % 7, str(number))
            if number % 50 == 0:
                for key, value in view.items():
                    assert int(value) % 7 == int(key)
        producer.flush()
        done.set()
        view.barrier()
        assert sorted(map(int, view.values())) == list(range(1993, 2000))
        assert len(watch.drain()) == 7
