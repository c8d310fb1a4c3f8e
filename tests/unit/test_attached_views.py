"""R41: stores that other processes read, and whatever may befall their writer, their files and their readers."""

from __future__ import annotations

import gc
import json
import os
import signal
import stat
import subprocess
import sys
import warnings
from collections.abc import Callable
from contextlib import closing
from itertools import count
from pathlib import Path
from threading import Thread
from types import SimpleNamespace
from typing import Any

import pytest

from lvq_kafka import TEXT, Deleted, Entry, LastValueQueue, Ttl, Watch, attach
from lvq_kafka.core.latest import reported
from lvq_kafka.declared import registry_watch
from lvq_kafka.errors import (
    BoundToProcess,
    CatchUpTimeout,
    ConfigError,
    LVQError,
    MissingExtra,
    ReaderFailed,
    StateError,
    StoreFailed,
    StoreNotFound,
)
from lvq_kafka.reading import attachment, follower_state
from lvq_kafka.storing import attached_directory, bell, change_log, store_manifest, value_file
from lvq_kafka.storing.attached_directory import AttachedDirectory
from tests.attached_process import Child
from tests.unit.prices import Prices, held_back
from tests.unit.test_forking import in_child
from tests.waiting import eventually

pytestmark = pytest.mark.usefixtures("clock_of_readers")


@pytest.fixture
def _brisk(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make writers report often, and readers impatient."""
    monkeypatch.setattr(follower_state, "BEAT", 0.02)
    monkeypatch.setattr(reported, "_SILENT", 0.5)
    monkeypatch.setattr(attachment, "_LOOK", 0.02)


# ---------------------------------------------------------------- opening


def test_r41_entering_waits_for_the_store_and_start_does_not(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    reader = attach(place, value=TEXT)
    with pytest.raises(StoreNotFound, match="Start its writer"):
        reader.start()
    with pytest.raises(StateError, match="was not started"):
        reader["a"]
    found: list[dict[str, str]] = []

    def read() -> None:
        with reader:
            found.append(dict(reader))

    waiting = Thread(target=read)
    waiting.start()
    with cluster.queue().view(store=place):
        waiting.join(20)
    assert found == [{"a": "1"}]
    with pytest.raises(StoreNotFound):
        attach(place / "other", catch_up_timeout=0.05).open()


_LEFT_OPEN = """
import atexit, sys, time
def wait():  # registered first, so it runs last
    print("exiting", flush=True)
    until = time.monotonic() + 20
    while view["a"] != "2" and time.monotonic() < until:
        time.sleep(0.01)
    print(view["a"], view.state, flush=True)
atexit.register(wait)
from lvq_kafka import TEXT, attach
view = attach(sys.argv[1], value=TEXT).open()
"""


def test_r41_a_reader_that_is_left_open_follows_until_its_process_is_gone(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view:
        child = subprocess.Popen(
            [sys.executable, "-c", _LEFT_OPEN, str(place)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        )
        with child:
            assert child.stdout is not None
            assert child.stdout.readline() == "exiting\n"
            cluster.put(a="2")
            view.barrier()
            assert child.communicate() == ("2 caught-up\n", "")


def test_r41_a_watch_that_begins_while_a_commit_is_about_to_be_shown_misses_none_of_it(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view, attach(place, value=TEXT) as reader:
        begun: list[Watch[str]] = []
        made = attachment._AttachedThread._made

        def beginning(thread: Any, pages: Any) -> Any:
            if not begun and "b" in view:
                begun.append(reader.watch(dump=True))
                assert getattr(begun[0].poll(5), "key", None) == "a"
            return made(thread, pages)

        monkeypatch.setattr(attachment._AttachedThread, "_made", beginning)
        cluster.put(b="2")
        view.barrier()
        eventually(lambda: "b" in reader)
        with begun[0] as watch:
            assert [getattr(watch.poll(5), "key", None) for _ in range(2)] == [None, "b"]  # first, the end of the dump


def another_namespace(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attached_directory, "pid_namespace", lambda: "another")


def read_only(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(attached_directory, "mounted_read_only", lambda path: True)


def another_format(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store_manifest, "FORMAT", 0)


def another_boot(place: Path, patch: pytest.MonkeyPatch) -> None:
    patch.setattr(store_manifest, "boot_id", lambda: "another")


def left_in_use(place: Path, patch: pytest.MonkeyPatch) -> None:
    said = json.loads((place / "store.json").read_text())
    (place / "store.json").write_text(json.dumps(said | {"clean": False, "boot": "another"}))


def no_right(place: Path, patch: pytest.MonkeyPatch) -> None:
    def refuse(path: Path) -> Any:
        raise PermissionError(13, "Permission denied")

    patch.setattr(attached_directory, "read_manifest", refuse)


def cut_off(place: Path, patch: pytest.MonkeyPatch) -> None:
    said = json.loads((place / "store.json").read_text())
    (place / "store.json").write_text(json.dumps(said | {"size": 1 << 40}))


def no_file(place: Path, patch: pytest.MonkeyPatch) -> None:
    said = json.loads((place / "store.json").read_text())
    (place / "store.json").write_text(json.dumps(said | {"file": "none.lmdb"}))


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (another_namespace, "in another PID namespace.* Share the PID namespace"),
        (read_only, "mounted read-only.* Mount it writable"),
        (another_format, "its format is 3, and this version of the library has 0"),
        (another_boot, "the system has started since"),
        (no_right, "Permission denied. Run this process as the user who writes"),
        (cut_off, "its file was cut off"),
        (no_file, "its file is missing"),
    ],
)
def test_r41_a_store_that_cannot_be_read_safely_is_refused_and_the_error_says_what_to_do(
    cluster: Prices,
    place: Path,
    change: Callable[[Path, pytest.MonkeyPatch], None],
    why: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    with cluster.queue().view(store=place):
        change(place, monkeypatch)
        with pytest.raises(StoreFailed, match=why) as refused:
            attach(place, value=TEXT).start()
        assert refused.value.path == str(place)


@pytest.mark.parametrize("change", [another_namespace, left_in_use, no_file])
def test_r41_a_store_that_its_next_writer_makes_readable_is_waited_for(
    cluster: Prices,
    place: Path,
    change: Callable[[Path, pytest.MonkeyPatch], None],
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    cluster.put(a="1")
    cluster.queue().view(store=place).open().close()
    found: list[dict[str, str]] = []

    def read() -> None:
        with attach(place, value=TEXT) as reader:
            found.append(dict(reader))

    with monkeypatch.context() as patch:
        change(place, patch)
        with pytest.raises(StoreFailed, match="cannot be attached"):
            attach(place, value=TEXT, catch_up_timeout=0.0).open()
        waiting = Thread(target=read)
        waiting.start()
        eventually(lambda: "waiting for a store: The store" in caplog.text)
    with cluster.queue().view(store=place):
        waiting.join(20)
    assert found == [{"a": "1"}]


def test_r41_a_network_file_system_is_refused(cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with cluster.queue().view(store=place):
        monkeypatch.setattr(attached_directory, "network_file_system", lambda path: "nfs4")
        with pytest.raises(ConfigError, match="is on nfs4, a network file system"):
            attach(place).start()


def test_r41_the_extra_is_named_where_it_is_missing(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import sys

    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingExtra, match="needs the package lmdb"):
        attach(place).start()


def test_r41_wrong_arguments_are_refused(place: Path) -> None:
    with pytest.raises(ConfigError, match="Only the writer of a store can skip values"):
        attach(place, undecodable="skip")
    with pytest.raises(ConfigError, match="is not a codec"):
        attach(place, value=str)  # type: ignore[call-overload,arg-type]
    with pytest.raises(ConfigError, match="catch_up_timeout"):
        attach(place, catch_up_timeout="soon")  # type: ignore[arg-type]


# ---------------------------------------------------------------- the writer


@pytest.mark.usefixtures("_brisk")
def test_r41_a_reader_is_disconnected_while_its_writer_stands_still_and_shows_what_there_is(
    cluster: Prices, place: Path
) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view, attach(place, value=TEXT) as reader:
        with view._shared.lock:
            eventually(lambda: reader.state == "disconnected")
            assert "is dead or stands still" in str(reader.status.trouble)
            assert reader["a"] == "1"
            with pytest.raises(CatchUpTimeout, match="stands still"):
                reader.wait_caught_up(0.01)
            with pytest.raises(CatchUpTimeout, match="has not looked at the log's end"):
                reader.barrier(0.01)
        eventually(lambda: reader.state == "caught-up")
        assert reader.status.trouble is None


def test_r41_a_reader_says_that_its_writer_was_closed_and_goes_on_with_the_next(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view:
        reader = attach(place, value=TEXT).open()
        assert (reader.state, reader.lag, reader.progress, reader.silence < 60) == ("caught-up", 0, (1, 1), True)
    assert view.state == "closed"
    eventually(lambda: reader.state == "disconnected")
    assert "was closed" in str(reader.status.trouble)
    assert dict(reader) == {"a": "1"}
    with pytest.raises(CatchUpTimeout, match="was closed"):
        attach(place, value=TEXT, catch_up_timeout=0.05).open()
    with closing(attach(place, value=TEXT).start()) as late:
        assert (late.state, dict(late)) == ("disconnected", {"a": "1"})
    cluster.put(b="2")
    with cluster.queue().view(store=place), closing(reader):
        eventually(lambda: (reader.state, dict(reader)) == ("caught-up", {"a": "1", "b": "2"}))


@pytest.mark.usefixtures("_brisk")
def test_r41_a_reader_has_the_state_of_its_writer(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place, metadata_interval=0.02) as view, attach(place, value=TEXT) as reader:
        cluster.may_read.clear()
        numbers = count()

        def is_behind() -> bool:
            cluster.put(b=str(next(numbers)))
            return reader.lag > 0

        eventually(is_behind)
        assert reader.lag_by_partition.keys() == {0}
        cluster.may_read.set()
        eventually(lambda: reader.lag == 0)
        with view._shared.lock:
            view._shared.catch_up.lose_touch(reported.Trouble.NO_METADATA, LVQError("nobody answers"))
        eventually(lambda: reader.state in ("disconnected", "caught-up"))
        cluster.topics.delete("prices")
        eventually(lambda: view.state == "failed", 20)
        eventually(lambda: "has failed: " in str(reader.status.trouble))
        assert reader.state == "disconnected"
        assert dict(reader).keys() == {"a", "b"}


def test_r8_r10_r41_a_value_that_expires_while_the_writer_is_dead_is_not_shown(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    queue = cluster.queue(ttl=Ttl(default=5.0))
    with queue.view(store=place) as view, attach(place, value=TEXT) as reader, reader.watch() as watch:
        cluster.clock.now += 2.0
        cluster.put(b="2", a="2")  # a is renewed, and stays where it is in the index
        view.barrier()
        cluster.put(c="3")
        view.barrier()
        eventually(lambda: len(reader) == 3)
        view.close()
        watch.drain()
        cluster.clock.now += 4.0
        assert dict(reader) == {"b": "2", "a": "2", "c": "3"}
        before = reader.snapshot()
        cluster.clock.now += 2.0
        assert (dict(reader), len(reader), reader.get("a"), list(reader.scan())) == ({}, 0, None, [])
        events = [watch.poll(5) for _ in range(3)]
        assert sorted(event.key for event in events if isinstance(event, Deleted) and event.expired) == ["a", "b", "c"]
        assert len(before) == 3
        assert len(reader.snapshot()) == 0
        with queue.view(store=place) as again:
            again.barrier()
            eventually(lambda: reader.state == "caught-up")
            assert watch.poll(0.1) is None


@pytest.mark.parametrize("at_once", [True, False])
def test_r10_r41_a_value_that_was_written_and_has_expired_while_the_writer_stood_still_is_no_delete(
    cluster: Prices, place: Path, at_once: bool
) -> None:
    queue = cluster.queue(ttl=Ttl(default=5.0))
    with queue.view(store=place) as view, attach(place, value=TEXT) as reader, reader.watch() as watch:
        cluster.put(e="1")
        eventually(lambda: "e" in reader)
        watch.drain()
        with view._shared.lock:  # the writer stands still
            cluster.clock.now += 6.0
            assert "e" not in reader
            cluster.put(e="2")
            if at_once:
                cluster.clock.now += 6.0
        if not at_once:
            with reader._shared.lock:  # the reader sees the value when it has expired
                view.barrier()
                cluster.clock.now += 6.0
        view.barrier()
        cluster.put(f="1")
        events: list[Any] = []
        while not events or getattr(events[-1], "key", None) != "f":
            events.append(watch.poll(20))
        assert {event.expired for event in events if isinstance(event, Deleted)} == {True}


def test_r11_r41_a_message_that_becomes_due_while_the_writer_is_dead_counts_once_there_is_one(
    cluster: Prices, place: Path
) -> None:
    queue = cluster.queue(max_delay=100.0)
    cluster.put(a="1")
    cluster.put([("lvq-not-before", b"%d" % (1000 * (cluster.clock.now + 5)))], a="2")
    with queue.view(store=place) as view, attach(place, value=TEXT) as reader:
        view.close()
        cluster.clock.now += 6
        eventually(lambda: reader.state == "disconnected")
        assert reader["a"] == "1"
        with queue.view(store=place):
            eventually(lambda: reader["a"] == "2")


# ---------------------------------------------------------------- another file


def recreate(cluster: Prices) -> None:
    cluster.topics.delete("prices")
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    cluster.put(x="1", a="4")


def test_r41_readers_are_stale_while_a_store_is_built_again_and_move_over_with_their_watches(
    cluster: Prices, place: Path
) -> None:
    cluster.put(a="1", b="2")
    with cluster.queue().view(store=place):  # what is attached meanwhile leaves the next one its file to write
        reader = attach(place, value=TEXT).start()
    with closing(reader), reader.watch() as watch:
        old = reader.snapshot()
        recreate(cluster)
        with held_back(cluster):
            view = cluster.queue().view(store=place).start()
            eventually(lambda: reader.state == "stale")
            assert dict(reader) == {"a": "1", "b": "2"}
            assert watch.poll(0.0) is None
        with view:
            eventually(lambda: (reader.state, dict(reader)) == ("caught-up", {"x": "1", "a": "4"}))
            events = [watch.poll(5) for _ in range(3)]
            assert {event.key: getattr(event, "value", None) for event in events if event} == {
                "a": "4",
                "b": None,
                "x": "1",
            }
            assert dict(old) == {"a": "1", "b": "2"}
            assert old.topic_id != reader.snapshot().topic_id


def test_r41_a_reader_fails_when_its_store_holds_other_values(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    cluster.topics.create("orders", partitions=1, config={"cleanup.policy": "compact"})
    with cluster.queue().view(store=place):  # what is attached meanwhile leaves the next one its file to write
        reader = attach(place, value=TEXT).start()
    with closing(reader), reader.watch() as watch:
        with cluster.queue(key_header="symbol").view(store=place):
            eventually(lambda: reader.state == "failed")
        with pytest.raises(ReaderFailed, match="has other values now: of prices, by another key header"):
            reader["a"]
        with pytest.raises(ReaderFailed):
            watch.poll(5)


def test_r41_a_store_that_was_removed_and_made_again_is_followed(cluster: Prices, place: Path) -> None:
    import shutil

    cluster.put(a="1")
    with cluster.queue().view(store=place), attach(place, value=TEXT) as reader:
        pass
    reader = attach(place, value=TEXT).start()
    shutil.rmtree(place)
    assert reader["a"] == "1"
    cluster.put(b="2")
    with cluster.queue().view(store=place), closing(reader):
        eventually(lambda: (reader.state, dict(reader)) == ("caught-up", {"a": "1", "b": "2"}))
        cluster.put(c="3")
        eventually(lambda: "c" in reader)


# ---------------------------------------------------------------- changes


def test_r41_a_watch_that_falls_behind_the_log_of_changes_compares(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(change_log, "_MOST", 1)
    cluster.put(a="1", b="1", c="1")
    with cluster.queue().view(store=place) as view, attach(place, value=TEXT) as reader, reader.watch() as watch:
        with reader._shared.lock:
            for change in {"a": "2"}, {"b": None}, {"d": "1"}, {"a": "3"}:
                cluster.put(**change)
                view.barrier()
        told: dict[str, str | None] = {}

        def all_told() -> bool:
            told.update({event.key: getattr(event, "value", None) for event in watch.drain()})
            return told == {"a": "3", "b": None, "d": "1"}

        eventually(all_told)  # the reader may have begun to show the first commit before


def test_r41_where_the_system_cannot_wake_readers_they_look(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bell._Inotify, "opened", lambda path: None)
    with cluster.queue().view(store=place) as view, attach(place, value=TEXT) as reader, reader.watch() as watch:
        for number in range(20):
            cluster.put(a=str(number))
            event = watch.poll(5)
            assert isinstance(event, Entry)
            assert event.value == str(number)
        assert view["a"] == "19"


def test_r41_a_user_without_inotify_is_told_once(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(bell, "_libc", lambda: SimpleNamespace(inotify_init1=lambda flags: -1))
    with cluster.queue().view(store=place), attach(place, value=TEXT) as reader:
        cluster.put(a="1")
        eventually(lambda: "a" in reader)
    assert [record for record in caplog.records if "no inotify left" in record.message] != []


# ---------------------------------------------------------------- processes


def test_r41_another_process_sees_what_the_writer_has_committed_without_a_broker(place: Path) -> None:
    with Child("write", place) as writer, Child("read", place) as reader:
        assert writer.hear() == reader.hear() == "caught-up"
        assert writer.ask("a=1") == 1
        eventually(lambda: reader.ask() == {"state": "caught-up", "values": {"a": "1"}, "offsets": {"0": 1}})
        assert reader.ask("watch") == "watching"
        for line, event in ("b=2", ["b", "2"]), ("a=3", ["a", "3"]), ("b", ["b", None]):
            writer.ask(line)
            assert reader.hear() == event


def test_r41_a_killed_writer_makes_readers_disconnected_and_not_wrong(place: Path) -> None:
    with Child("write", place) as writer, Child("read", place) as reader:
        assert writer.hear() == reader.hear() == "caught-up"
        writer.ask("a=1")
        writer.kill()
        said = eventually(lambda: (found := reader.ask())["state"] == "disconnected" and found, 30)
        assert said["values"] == {"a": "1"}


def test_r41_killed_readers_free_their_slots_and_do_not_stop_the_writer(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place, metadata_interval=0.02) as view:
        keeper = view._shared.keeper
        assert keeper is not None
        (kept,) = keeper._kept
        environment = kept.tables.file._env
        for number in range(3):
            with Child("read", place) as reader:
                assert reader.hear() == "caught-up"
                assert str(reader.process.pid) in environment.readers()
                os.kill(reader.process.pid, signal.SIGKILL)
            cluster.put(a=str(number))
            view.barrier()
            eventually(lambda pid=reader.process.pid: f"{pid} " not in environment.readers())
            assert view["a"] == str(number)


def test_r41_a_reader_that_stands_still_does_not_stop_the_writer(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view, Child("read", place) as reader:
        assert reader.hear() == "caught-up"
        os.kill(reader.process.pid, signal.SIGSTOP)
        try:
            for number in range(50):
                cluster.put(a=str(number))
            view.barrier()
            assert view["a"] == "49"
        finally:
            os.kill(reader.process.pid, signal.SIGCONT)
        eventually(lambda: reader.ask()["values"] == {"a": "49"})


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="this system has no inotify")
def test_r41_a_reader_that_was_closed_keeps_no_inotify(cluster: Prices, place: Path) -> None:
    with cluster.queue().view(store=place):
        reader = attach(place).open()
        ears = reader._attachment._thread._ears
        assert ears is not None
        assert ears._inotify is not None
        assert ears._inotify.close.alive
        reader.close()
        assert not ears._inotify.close.alive


def test_r41_readers_follow_when_the_writer_needs_a_larger_map(place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(AttachedDirectory.__init__, "__defaults__", ((1 << 20,),))
    with Child("write", place, "small") as writer:
        assert writer.hear() == "caught-up"
        with attach(place, value=TEXT) as reader, reader.watch() as watch:
            for number in range(40):
                writer.ask(f"k{number}={'v' * 100_000}")
                event = watch.poll(10)
                assert event is not None
            eventually(lambda: len(reader) == 40)
            assert reader.state == "caught-up"


def test_r41_more_readers_than_slots_get_an_error_that_says_so(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_file, "_READERS", 3)
    view = cluster.queue().view(store=place).open()
    monkeypatch.setattr(value_file, "_READERS", 1024)
    held: list[Any] = []
    with view, pytest.raises(StoreFailed, match="readers, and can have no more"):
        held.extend(attach(place).start() for _ in range(200))
    for reader in held:
        reader.close()


def test_r41_a_forked_child_cannot_use_an_attached_view_and_can_attach_again(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place), attach(place, value=TEXT) as reader:

        def use() -> str:
            with pytest.raises((ReaderFailed, BoundToProcess), match="belongs to the process that opened it"):
                reader["a"]
            with attach(place, value=TEXT) as own:
                return own["a"]

        assert in_child(use) == repr("1")
        assert reader["a"] == "1"


@pytest.mark.parametrize("copied", [True, False], ids=["with a table of its own", "where there is none"])
def test_g8_r41_a_fork_takes_no_pages_from_the_snapshots_of_the_parent(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch, copied: bool
) -> None:
    """The writer would use them again, whatever the child does or leaves undone."""
    if not copied:
        monkeypatch.setattr(value_file, "copy_mappings", lambda _: False)
    keys = [f"k{number:03}" for number in range(400)]
    cluster.put(**dict.fromkeys(keys, "old" * 20))
    with cluster.queue().view(store=place) as view:
        snapshot = view.snapshot()
        whole = dict(snapshot.items())

        def attach_again() -> str:
            gc.collect()
            with attach(place, value=TEXT) as own:
                return own["k000"][:3]

        answer = in_child(attach_again)
        assert answer == repr("old") if copied else answer.startswith("StoreFailed"), answer
        for turn in range(12):
            cluster.put(**dict.fromkeys(keys, f"{turn:03}" * 20))
            eventually(lambda turn=turn: view["k399"] == f"{turn:03}" * 20)
            for file in list(value_file._open_files.by_path.values()):
                file.check_readers()  # as the writer does now and then
            assert dict(snapshot.items()) == whole


def test_r39_r41_an_attached_view_says_that_the_queue_was_declared_otherwise(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer waits, and tells so: its silence would look as if it were dead."""
    monkeypatch.setattr(registry_watch, "_LOOK", 0.5)
    queue = LastValueQueue.declare("levels", key_header="ticker", cluster=cluster, value=TEXT)
    with queue.view(store=place), attach(place, value=TEXT) as reader:
        LastValueQueue.open("levels", cluster=cluster).drop()
        LastValueQueue.declare("levels", key_header="ticker", cluster=cluster, ttl=Ttl(maximum=60.0))

        def is_told() -> bool:
            cluster.write("levels", b"IBM", b"1", [("ticker", b"IBM")])  # which has to wait
            return reader.state == "disconnected"

        eventually(is_told, 20)
        assert "was dropped, and declared otherwise" in str(reader.status.trouble)


def test_r41_a_process_that_has_attached_a_store_does_not_write_it(cluster: Prices, place: Path) -> None:
    with Child("write", place) as writer:
        assert writer.hear() == "caught-up"
        reader = attach(place, value=TEXT).open()
    with closing(reader), pytest.raises(StoreFailed, match=r"This process has attached .* so it cannot write it"):
        cluster.queue().view(store=place).start()
    del reader
    gc.collect()
    cluster.queue().view(store=place).open().close()


def test_r41_only_its_user_may_ring(cluster: Prices, place: Path) -> None:
    with cluster.queue().view(store=place):
        assert stat.S_IMODE((place / store_manifest.BELL).stat().st_mode) == 0o600


def test_r41_an_attached_view_that_is_dropped_ends_with_a_warning(cluster: Prices, place: Path) -> None:
    with cluster.queue().view(store=place):
        reader = attach(place).start()
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            del reader
            gc.collect()
        assert "unclosed reader of prices" in str([one.message for one in caught])
