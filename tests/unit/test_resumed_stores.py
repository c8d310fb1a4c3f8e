"""R44: watches that resume where a store knows what has changed since, and the points from which they are refused."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, EndOfDump, LastValueQueue, Ttl, View, Watch, attach
from lvq_kafka.core.latest import checkpoints
from lvq_kafka.core.latest.checkpoints import Checkpoints
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import CatchUpTimeout, ConfigError, DataLoss, StoreFull, TopicRecreated
from lvq_kafka.reading import reader_thread
from lvq_kafka.storing import change_traces, value_file
from tests.unit.prices import DAY, Prices
from tests.unit.test_resuming import shown
from tests.waiting import eventually

MORTAL = {"ttl": Ttl(default=5.0)}

pytestmark = pytest.mark.usefixtures("clock_of_readers")


def end_of_dump(view: View[str]) -> EndOfDump:
    *_, end = view.watch(dump=True).drain()
    assert isinstance(end, EndOfDump)
    return end


def goes_by_time(view: View[str]) -> bool:
    with view._shared.lock:
        return view._shared.timed and view.state == "caught-up"


# ---------------------------------------------------------------- what it brings


def test_r44_a_watch_of_a_store_says_what_has_expired_while_nobody_ran(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(**MORTAL)
    cluster.put(a="1")
    with queue.view(store=place) as view:
        cluster.clock.now += 3
        cluster.put(b="1")
        view.barrier()
        end = end_of_dump(view)
    cluster.clock.now += 3
    cluster.put(c="1")
    with queue.view(store=place) as view, view.watch(since=end) as watch:
        expired, *rest = watch.drain()
        assert expired == Deleted("a", expired=True)
        assert shown(rest) == ["c=1", "|"]
        cluster.clock.now += 3
        assert watch.poll(10) == Deleted("b", expired=True)


def test_r44_no_log_is_read_and_a_delete_that_compaction_removed_is_known(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue().view(store=place) as view:
        end = end_of_dump(view)
        cluster.put(a=None)
        view.barrier()
    cluster.put(b="2")
    cluster.compact("prices", drop_tombstones=True)
    begun = len(cluster.begun)
    with cluster.queue().view(store=place) as view:
        assert shown(view.watch(since=end).drain()) == ["-a", "b=2", "|"]
        assert shown(view.watch(since={0: 2}).drain()) == ["-a", "b=2", "|"]
    assert len(cluster.begun) == begun + 1  # that of the view
    with cluster.queue().view() as view, pytest.raises(DataLoss, match="1 records are missing"):
        view.watch(since={0: 2})


def test_r44_a_watch_of_an_attached_view_goes_on_where_one_of_another_process_was(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(max_delay=60.0, **MORTAL)
    cluster.put(a="1", b="1")
    with queue.view(store=place) as view, attach(place, value=TEXT) as reader:
        points = [end_of_dump(view), end_of_dump(reader), reader.snapshot(), view.page(), reader.watch().token]
        cluster.put([("lvq-not-before", b"1000002000"), ("lvq-ttl", b"60000")], c="1")
        cluster.put(b=None)
        view.barrier()
        cluster.clock.now += 2
        assert dict(view) == {"a": "1", "c": "1"}
        cluster.clock.now += 4
        assert dict(view) == {"c": "1"}
        eventually(lambda: dict(reader) == {"c": "1"})
        for since in points:
            for one in (view, reader):
                assert since is not None
                with one.watch(since=since) as watch:
                    events = watch.drain()
                    assert sorted(shown(events)) == ["-a", "-b", "c=1", "|"]
                    assert [event.key for event in events if isinstance(event, Deleted) and event.expired] == ["a"]
        cluster.put(d="1")
        view.barrier()
        point = view.snapshot()
    with closing(attach(place, value=TEXT).start()) as reader:  # without a writer
        assert shown(reader.watch(since=points[0]).drain())[-2:] == ["d=1", "|"]
        assert shown(reader.watch(since=point).drain()) == ["|"]


def test_r24_r44_a_key_that_has_left_the_selection_is_said_to(cluster: Prices, place: Path) -> None:
    options = {"store": place, "selector": "desk = 'x'"}
    cluster.put([("desk", b"x")], a="1", b="1")
    with cluster.queue().view(**options) as view:
        end = end_of_dump(view)
        cluster.put([("desk", b"y")], a="2", c="2")
        view.barrier()
    with cluster.queue().view(**options) as view:
        assert shown(view.watch(since=end).drain()) == ["-a left", "|"]


def test_r14_r44_keys_that_have_moved_with_new_partitions_are_named(place: Path) -> None:
    cluster = Prices(partitions=2)
    moving = next(
        key
        for key in map(str, range(99))
        if home_partition(key.encode(), 2) == 0 and home_partition(key.encode(), 3) == 1
    )
    cluster.put(**{moving: "old"}, partition=1)
    cluster.put(**{moving: "new"}, partition=0)
    with cluster.queue().view(store=place, metadata_interval=0.02) as view, attach(place, value=TEXT) as reader:
        ends = [end_of_dump(view), end_of_dump(reader)]
        assert view[moving] == "new"
        cluster.topics.add_partitions("prices", 3)
        eventually(lambda: view[moving] == "old")
        eventually(lambda: reader[moving] == "old")
        for end in ends:
            for one in (view, reader):
                assert shown(one.watch(since=end).drain()) == [f"{moving}=old", "|"]
        assert shown(view.watch(since=end_of_dump(view)).drain()) == ["|"]


def test_r42_r44_options_of_the_watch_hold_for_what_it_begins_with(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="1", c="1")
    with cluster.queue().view(store=place) as view, attach(place, value=TEXT) as reader:
        end = end_of_dump(view)
        cluster.put(a=None, b="2", c="2", d="4")
        view.barrier()
        eventually(lambda: "d" in reader)
        for one in (view, reader):
            assert shown(one.watch(since=end, prefix=["a", "b"]).drain()) == ["-a", "b=2", "|"]
            chosen = one.watch(since=end, where=lambda entry: entry.value > "2")
            assert shown(chosen.drain()) == ["-a", "-b left", "-c left", "d=4", "|"]
            assert shown(one.watch(since=end, changed=True, previous=True).drain()) == ["-a", "b=2", "c=2", "d=4", "|"]


# ---------------------------------------------------------------- what it refuses


def test_r44_removals_are_kept_as_long_as_the_topic_keeps_deletes(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_traces, "_SOME", 2)
    queue = cluster.queue(**MORTAL)
    with queue.view(store=place, metadata_interval=0.01) as view:
        old = end_of_dump(view)
        for number in range(5):
            cluster.put(**{f"k{number}": "1"})
            view.barrier()
            cluster.clock.now += 6
            assert dict(view) == {}
        young = end_of_dump(view)
        assert len(view.watch(since=old).drain()) == 6
        cluster.clock.now += DAY + 60
        for key in "ab":  # there are two later checkpoints then
            cluster.put(**{key: "1"})
            view.barrier()
            cluster.clock.now += 6
            assert dict(view) == {}
        with pytest.raises(DataLoss, match="It is unknown what has changed in prices since that point"):
            view.watch(since=old)
        assert shown(view.watch(since=young).drain()) == ["-a", "-b", "|"]
        kept = view._shared.keeper._kept[0]  # type: ignore[union-attr]
        traces = kept.tables.file

        def count() -> int:
            with view._shared.lock:
                return int(traces.txn.stat(traces.tables[b"traces"])["entries"])

        eventually(lambda: count() == 2)


def test_r44_a_point_before_the_first_complete_read_is_refused_or_read_from_the_log(
    cluster: Prices, place: Path
) -> None:
    cluster.put(a="1")
    with cluster.queue().view() as view:
        before = end_of_dump(view)
    cluster.put(a=None, b="1")
    with cluster.queue().view(store=place) as view, attach(place, value=TEXT) as reader:
        assert shown(view.watch(since=before).drain()) == ["-a", "b=1", "|"]  # by the log
        with pytest.raises(DataLoss, match="was first complete later"):
            reader.watch(since=before)


def test_r44_a_store_that_was_built_again_knows_nothing_of_before(cluster: Prices, place: Path) -> None:
    with cluster.queue(**MORTAL).view(store=place) as view:
        end = end_of_dump(view)
    cluster.clock.now += 1
    with cluster.queue(ttl=Ttl(default=9.0)).view(store=place) as view, pytest.raises(DataLoss, match="is unknown"):
        view.watch(since=end)


def test_r44_points_without_a_time_and_of_other_topics_are_refused(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(**MORTAL)
    with queue.view(store=place) as view, attach(place, value=TEXT, catch_up_timeout=0.2) as reader:
        end = end_of_dump(view)
        for one in (view, reader):
            with pytest.raises(ConfigError, match="offsets alone do not say which ones counted"):
                one.watch(since={0: 0})
            with pytest.raises(TopicRecreated):
                one.watch(since=EndOfDump({0: 0}, as_of=end.as_of, topic_id="another"))
            with pytest.raises(ConfigError, match="later than the time"):
                one.watch(since=EndOfDump({0: 0}, as_of=end.as_of + DAY))
        with pytest.raises(CatchUpTimeout):
            reader.watch(since=EndOfDump({0: 7}, as_of=end.as_of))
        with pytest.raises(ConfigError, match="names offset 7 of partition 0"):
            view.watch(since=EndOfDump({0: 7}, as_of=end.as_of))


def test_r44_a_delete_that_had_to_be_read_again_is_known(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, commit = [False], value_file.ValueFile.commit

    def commit_if_there_is_room(file: value_file.ValueFile) -> None:
        if full[0] and file.writing:
            full[0] = False
            file.abort()
            raise StoreFull("No space left on device", path=str(place))
        commit(file)

    monkeypatch.setattr(value_file.ValueFile, "commit", commit_if_there_is_room)
    monkeypatch.setattr(reader_thread, "_PATIENCE", 0.01)
    cluster.put(a="1", b="1", c="1")
    with cluster.queue().view(store=place) as view:
        cluster.put(a=None)
        view.barrier()
        point = view.snapshot()
        full[0] = True
        cluster.put(b=None)
        view.barrier()
        assert not full[0]
        assert shown(view.watch(since=point).drain()) == ["-b", "|"]


def test_r39_r44_a_reader_of_a_store_knows_that_the_queue_was_altered_meanwhile(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    declared = LastValueQueue.declare("altered", key_header="ticker", topic="prices", cluster=cluster, value=TEXT)
    with (
        declared as queue,
        queue.view(store=place, metadata_interval=0.05) as view,
        attach(place, value=TEXT) as reader,
    ):
        queue.alter(ttl=Ttl(default=5.0))
        eventually(lambda: goes_by_time(view))
        cluster.clock.now += 60
        cluster.put(b="1")
        view.barrier()
        eventually(lambda: "b" in reader)
        point = reader.snapshot()
        cluster.clock.now += 6
        view.barrier()
        eventually(lambda: dict(view) == dict(reader) == {"a": "1"})
        assert shown(reader.watch(since=point).drain()) == ["-b", "|"]
        with pytest.raises(ConfigError, match="do not say which ones counted"):
            reader.watch(since={0: 1})


def test_r34_without_a_store_a_watch_of_messages_that_expire_does_not_resume(cluster: Prices) -> None:
    with (
        cluster.queue(**MORTAL).view() as view,
        pytest.raises(ConfigError, match="keep the view in a store"),
    ):
        view.watch(since=view.snapshot())


# ---------------------------------------------------------------- tokens


class TestToken:
    """R34, R44: the text from which another watch goes on."""

    @pytest.fixture(params=["memory", "store"])
    def view(self, request: pytest.FixtureRequest, cluster: Prices, place: Path) -> Any:
        cluster.put(a="1", b="1")
        with cluster.queue().view(store=place if request.param == "store" else None) as view:
            yield view

    def rest(self, view: View[str], watch: Watch[str]) -> list[str]:
        """Return what a watch says that goes on from the token of this one."""
        token = watch.token
        assert token is not None
        return shown(view.watch(since=token).drain())

    def test_there_is_none_before_the_end_of_a_dump(self, view: View[str]) -> None:
        watch = view.watch(dump=True)
        for _ in range(2):
            assert watch.token is None
            watch.poll(10)
        assert watch.token is None
        assert isinstance(watch.poll(10), EndOfDump)
        assert self.rest(view, watch) == ["|"]

    def test_without_a_dump_it_begins_where_the_watch_does(self, cluster: Prices, view: View[str]) -> None:
        watch = view.watch()
        cluster.put(a="2")
        view.barrier()
        assert self.rest(view, watch) == ["a=2", "|"]

    def test_a_watch_from_it_returns_what_was_not_and_may_repeat_what_was(
        self, cluster: Prices, view: View[str]
    ) -> None:
        watch = view.watch()
        cluster.put(a="2", b="2", c="2")
        view.barrier()
        assert shown([watch.poll(10)]) == ["a=2"]
        assert self.rest(view, watch) == ["a=2", "b=2", "c=2", "|"]
        cluster.put(b="3", d="3")
        view.barrier()
        assert shown([watch.poll(10)]) == ["c=2"]
        assert self.rest(view, watch) == ["a=2", "c=2", "b=3", "d=3", "|"]
        assert shown([watch.poll(10)]) == ["b=3"]
        assert self.rest(view, watch) == ["b=3", "d=3", "|"]
        assert shown(watch.drain()) == ["d=3"]
        assert self.rest(view, watch) == ["|"]

    def test_in_batches_too(self, cluster: Prices, view: View[str]) -> None:
        watch = view.watch(every=0.001)
        cluster.put(a="2", b="2")
        view.barrier()
        assert shown([watch.poll(10)]) == ["a=2"]
        cluster.put(a="3")
        view.barrier()
        assert self.rest(view, watch) == ["b=2", "a=3", "|"]
        assert shown([watch.poll(10), watch.poll(10)]) == ["b=2", "a=3"]
        assert watch.poll(0.0) is None
        assert self.rest(view, watch) == ["|"]

    def test_of_a_watch_that_resumes_it_is_the_point_until_the_end_of_what_it_begins_with(
        self, cluster: Prices, view: View[str]
    ) -> None:
        point = view.snapshot()
        cluster.put(a="2", b="2")
        view.barrier()
        watch = view.watch(since=point)
        assert shown([watch.poll(10)]) == ["a=2"]
        assert self.rest(view, watch) == ["a=2", "b=2", "|"]
        assert shown(watch.drain()) == ["b=2", "|"]
        assert self.rest(view, watch) == ["|"]

    def test_it_is_of_one_queue(self, cluster: Prices, view: View[str]) -> None:
        other: LastValueQueue[str] = LastValueQueue.declare("other", key_header=None, value=TEXT, cluster=cluster)
        with other.view() as another, pytest.raises(ConfigError, match="is of the queue 'prices', not of 'other'"):
            another.watch(since=view.watch().token)


# ---------------------------------------------------------------- checkpoints


def test_r44_a_point_lacks_what_came_after_the_last_checkpoint_that_precedes_it() -> None:
    line = Checkpoints()
    assert line.preceding({0: 9}, None) is None
    for moment, positions in (10, {0: 1}), (20, {0: 5}), (20, {0: 5, 1: 0}), (30, {0: 7, 1: 2}):
        line.add(moment, positions)
    numbers = {
        (0, 0): None,
        (1, 0): 0,
        (4, 9): 0,
        (5, 0): 2,
        (7, 1): 2,
        (7, 2): 3,
    }
    for (zero, one), number in numbers.items():
        found = line.preceding({0: zero, 1: one}, None)
        assert (None if found is None else found.number) == number
    assert line.preceding({0: 7}, None) == line.preceding({0: 5}, None) == (1, 20, {0: 5})
    assert line.preceding({0: 9, 1: 9}, 9) is None


def test_r44_many_checkpoints_are_thinned_out_and_the_newest_stay(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(checkpoints, "_MOST", 16)
    line = Checkpoints()
    for number in range(1000):
        line.add(number, {0: number})
        dropped = line.forget(0)
        assert not {one.number for one in dropped} & {one.number for one in line}
    numbers = [one.number for one in line]
    assert (len(numbers) <= 16, numbers[0], numbers[-6:]) == (True, 0, list(range(994, 1000)))
    assert [one.number for one in line.forget(998)] == numbers[: numbers.index(997)]
    assert line.first.number == 997
    line.forget(5000)
    assert [one.number for one in line] == [999]
