"""R40 on the in-memory cluster: views that keep their values in a store, and what comes of it after a restart."""

from __future__ import annotations

import errno
import gc
import json
import os
import pickle
import shutil
import stat
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import suppress
from itertools import count
from pathlib import Path
from threading import Event as Flag
from types import SimpleNamespace
from typing import Any

import lmdb
import pytest

from lvq_kafka import TEXT, Deleted, Entry, LastValueQueue, Ttl, attach
from lvq_kafka.core.latest import composed_fold
from lvq_kafka.core.latest.columns import Columns
from lvq_kafka.core.latest.index_rules import IndexRule, IndexRules
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.core.timing.expiry_times import ExpiryTimes
from lvq_kafka.errors import BoundToProcess, ConfigError, MissingExtra, StoreFailed, StoreFull, StoreInUse
from lvq_kafka.reading import reader_thread, store_keeper
from lvq_kafka.storing import places, store_directory, store_manifest, value_file
from lvq_kafka.storing.store_directory import StoreDirectory
from lvq_kafka.storing.stored_tables import StoredTables
from tests.unit.prices import DAY, Prices, held_back, recreate
from tests.unit.test_forking import in_child
from tests.waiting import eventually

# ---------------------------------------------------------------- reading on


def test_r40_a_view_with_a_store_reads_only_what_is_new_after_a_restart(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="2", c="3")
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"a": "1", "b": "2", "c": "3"}
        cluster.put(a="4", b=None)
        view.barrier()
        assert dict(view) == {"c": "3", "a": "4"}
        entry = view.entry("a")
    cluster.put(d="5")
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"c": "3", "a": "4", "d": "5"}
        assert view.entry("a") == entry
        assert (view.stats.added, view.progress) == (5, (1, 1))
    assert cluster.begun == [{0: 0}, {0: 5}]


def test_r40_a_store_whose_partitions_end_where_it_does_is_current_at_any_age(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    cluster.queue().view(store=place).open().close()
    cluster.clock.now += 1000 * DAY
    with cluster.queue().view(store=place) as view:
        assert (dict(view), view.state, view.progress) == ({"a": "1"}, "caught-up", (0, 0))
    assert cluster.begun == [{0: 0}, {0: 1}]


def test_r18_r40_a_store_that_may_have_missed_deletes_is_built_again(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="1")
    cluster.queue().view(store=place).open().close()
    cluster.put(a=None, b="2", c="3")
    cluster.compact("prices", drop_tombstones=True)
    cluster.clock.now += 2 * DAY
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"b": "2", "c": "3"}
    assert cluster.begun == [{0: 0}, {0: 2}, {0: 0}]
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"b": "2", "c": "3"}
    assert cluster.begun[3:] == [{0: 5}]


def test_r18_r40_an_old_store_is_read_on_from_if_nothing_is_missing_since(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="1")
    cluster.queue().view(store=place).open().close()
    cluster.put(a=None, c="3")
    cluster.clock.now += 2 * DAY
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"b": "1", "c": "3"}
    assert cluster.begun == [{0: 0}, {0: 2}]


def test_r40_the_age_of_a_store_counts_from_the_last_look_at_the_end_that_it_had_reached(
    cluster: Prices, place: Path
) -> None:
    cluster.put(a="1", b="1")
    with cluster.queue().view(store=place, metadata_interval=0.02) as view:
        cluster.clock.now += 10 * DAY
        keeper = view._follower.shared.keeper
        assert keeper is not None
        eventually(lambda: cluster.clock.now - keeper._kept[0].footing.known[0].time < 1)
    cluster.put(a=None, c="3")
    cluster.compact("prices", drop_tombstones=False)
    cluster.clock.now += DAY / 2
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"b": "1", "c": "3"}
    assert cluster.begun == [{0: 0}, {0: 2}]


# ---------------------------------------------------------------- guards


def cut_off(cluster: Prices) -> None:
    cluster.elect("prices", 0, end=2)
    cluster.put(d="4", e="5", f="6")


def cut_off_to_the_same_end(cluster: Prices) -> None:
    cluster.elect("prices", 0, end=2)
    cluster.put(d="4")


def shorten(cluster: Prices) -> None:
    cluster.elect("prices", 0, end=1)


def lose_the_start(cluster: Prices) -> None:
    cluster.put(d="4", e="5")
    cluster.delete_records("prices", 0, 4)


def add_partition(cluster: Prices) -> None:
    cluster.topics.add_partitions("prices", 2)
    cluster.put(partition=1, d="4")


@pytest.mark.parametrize(
    ("change", "why"),
    [
        (recreate, "deleted and created again"),
        (cut_off, "truncation"),
        (cut_off_to_the_same_end, "truncation"),
        (shorten, "ends at offset 1"),
        (lose_the_start, "starts at offset 4"),
        (add_partition, "1 partitions, and has 2"),
    ],
)
def test_r40_a_store_is_built_again_if_the_log_does_not_go_on_from_it_and_shown_as_stale_until_then(
    cluster: Prices, place: Path, change: Callable[[Prices], None], why: str, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put(a="1", b="2", c="3")
    cluster.queue().view(store=place).open().close()
    change(cluster)
    with cluster.queue().view() as expected:
        held = dict(expected)
    with held_back(cluster):
        view = cluster.queue().view(store=place).start()
        assert view.state == "stale"
        assert dict(view) == {"a": "1", "b": "2", "c": "3"}
        assert view.lag > 0
        assert why in caplog.text
        assert len(list(place.glob("*.lmdb"))) == 2
        watch = view.watch()
    with view:
        assert (view.state, dict(view), view.lag) == ("caught-up", held, 0)
        assert len(list(place.glob("*.lmdb"))) == 1
        events = [event for _ in range(10) if (event := watch.poll(0)) is not None]
        assert {event.key for event in events if isinstance(event, Deleted)} == {"a", "b", "c"} - held.keys()
        assert {event.key: event.value for event in events if isinstance(event, Entry)}.items() <= held.items()
    begun = len(cluster.begun)
    with cluster.queue().view(store=place) as view:
        assert (dict(view), view.progress) == (held, (0, 0))
    assert len(cluster.begun) == begun + 1


Change = Callable[[Path, pytest.MonkeyPatch], dict[str, Any]]


def another_key_header(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"key_header": "symbol"}


def another_selection(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"keys": ["a", "c"]}


def another_format(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    for module in (store_manifest, store_directory):
        patch.setattr(module, "FORMAT", 0)
    return {}


def another_boot(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The system was restarted, and nobody had closed the store."""
    said = json.loads((place / "store.json").read_text())
    (place / "store.json").write_text(json.dumps(said | {"clean": False}))
    patch.setattr(store_manifest, "boot_id", lambda: "another")
    return {}


def no_boot_id(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    """The system does not say, so only a store that was closed can be trusted."""
    said = json.loads((place / "store.json").read_text())
    (place / "store.json").write_text(json.dumps(said | {"clean": False, "boot": ""}))
    patch.setattr(store_manifest, "boot_id", lambda: "")
    return {}


def no_manifest(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (place / "store.json").write_bytes(b"\0" * 50)
    return {}


def garbage(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (file,) = place.glob("*.lmdb")
    file.write_bytes(b"garbage" * 10_000)
    return {}


def a_short_file(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (file,) = place.glob("*.lmdb")
    os.truncate(file, file.stat().st_size - 8192)
    return {}


def no_file(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    (file,) = place.glob("*.lmdb")
    file.unlink()
    return {}


def a_function(place: Path, patch: pytest.MonkeyPatch) -> dict[str, Any]:
    return {"where": lambda entry: entry.value != "2"}


@pytest.mark.parametrize(
    "change",
    [
        *(another_key_header, another_selection, another_format, another_boot, no_boot_id, no_manifest, garbage),
        *(a_short_file, no_file, a_function),
    ],
)
def test_r40_a_store_that_cannot_be_trusted_or_has_another_meaning_is_built_again_and_not_shown(
    cluster: Prices, place: Path, change: Change, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put(a="1", b="2", c="3")
    with cluster.queue().view(store=place) as view:
        view.snapshot()
    del view
    gc.collect()  # a file that this process has open is not opened again
    options = change(place, monkeypatch)
    queue = cluster.queue(**({"key_header": options.pop("key_header")} if "key_header" in options else {}))
    with queue.view(**options) as view:
        held = dict(view)
    with held_back(cluster):
        view = queue.view(store=place, **options).start()
        assert (view.state, dict(view)) == ("catching-up", {})
    with view:
        assert dict(view) == held
    assert "again: " in caplog.text
    begun = len(cluster.begun)
    with queue.view(store=place, **options) as view:
        assert dict(view) == held
    assert cluster.begun[begun:] == [{0: 0 if "where" in options else 3}]


def test_r40_a_store_that_was_closed_outlives_a_start_of_the_system(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(a="1")
    cluster.queue().view(store=place).open().close()
    for module in (store_directory, store_keeper):
        monkeypatch.setattr(module, "boot_id", lambda: "another")
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"a": "1"}
    assert cluster.begun == [{0: 0}, {0: 1}]


def test_r40_a_store_in_use_is_never_trusted_after_a_power_cut_even_if_it_was_closed_before(
    cluster: Prices, place: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put(a="1")
    cluster.queue().view(store=place).open().close()
    with cluster.queue().view(store=place):
        shutil.copytree(place, tmp_path / "disk")  # what a disk may have then
    monkeypatch.setattr(store_manifest, "boot_id", lambda: "another")
    with cluster.queue().view(store=tmp_path / "disk") as view:
        assert dict(view) == {"a": "1"}
    assert cluster.begun == [{0: 0}, {0: 1}, {0: 0}]


# ---------------------------------------------------------------- one writer


def test_r40_a_second_writer_is_refused_and_the_error_names_the_first(cluster: Prices, place: Path) -> None:
    with cluster.queue().view(store=place):
        with pytest.raises(StoreInUse, match=f"process {os.getpid()} on ") as refused:
            cluster.queue().view(store=place).open()
        assert refused.value.holder["pid"] == str(os.getpid())
        assert refused.value.path == str(place)
    with cluster.queue().view(store=place):
        pass


@pytest.mark.skipif(not hasattr(os, "fork"), reason="this system knows no fork")
def test_r40_a_forked_child_neither_uses_a_store_nor_keeps_others_from_it(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    view = cluster.queue().view(store=place).open()
    snapshot = view.snapshot()
    assert in_child(lambda: view["a"]).startswith("ReaderFailed")
    assert in_child(lambda: snapshot["a"]).startswith("BoundToProcess")
    assert in_child(lambda: cluster.queue().view(store=place).open()).startswith("StoreInUse")
    read, write = os.pipe()
    child = os.fork()
    if child == 0:
        os.read(read, 1)  # lives on, with all that it inherited
        os._exit(0)
    view.close()
    with cluster.queue().view(store=place) as view:
        assert view["a"] == snapshot["a"] == "1"
    os.write(write, b"x")
    os.waitpid(child, 0)


def test_r40_a_closed_store_is_free_though_a_child_still_has_its_files(cluster: Prices, place: Path) -> None:
    """A child that was forked an instant ago has not let go of them yet."""
    directory = StoreDirectory(place)
    directory.open()
    assert directory._lock is not None
    lives_on = [sys.executable, "-c", "input()"]
    with subprocess.Popen(lives_on, stdin=subprocess.PIPE, pass_fds=[directory._lock.fileno()]) as child:
        directory.close()
        with cluster.queue().view(store=place):
            pass
        child.communicate(b"\n")


def test_a_store_cannot_be_pickled(cluster: Prices, place: Path) -> None:
    with cluster.queue().view(store=place) as view, pytest.raises(BoundToProcess):
        pickle.dumps(view.snapshot())


# ---------------------------------------------------------------- the directory


def test_r40_only_its_user_may_read_a_store(cluster: Prices, place: Path) -> None:
    before = os.umask(0)
    try:
        with cluster.queue().view(store=place):
            modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in place.iterdir()}
    finally:
        os.umask(before)
    assert stat.S_IMODE(place.stat().st_mode) == 0o700
    assert len(modes) == 5
    assert set(modes.values()) == {0o600}


def test_a_directory_of_something_else_is_no_store(cluster: Prices, place: Path) -> None:
    place.mkdir()
    (place / "letter.txt").write_text("dear")
    with pytest.raises(ConfigError, match="is not a store"):
        cluster.queue().view(store=place).open()
    assert [path.name for path in place.iterdir()] == ["letter.txt"]
    with pytest.raises(ConfigError, match="is not a store"):
        cluster.queue().view(store=place / "letter.txt").open()
    with pytest.raises(StoreFailed, match="No such file"):
        cluster.queue().view(store=place / "missing" / "store").open()


@pytest.mark.parametrize("kind", ["nfs4", "cifs", "9p", "fuse.sshfs", "fuse.glusterfs"])
def test_r40_a_network_file_system_is_refused_by_name(
    cluster: Prices, place: Path, tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    mounts = tmp_path / "mountinfo"
    mounts.write_text(
        "27 1 254:0 / / rw,relatime - ext4 /dev/vda rw\n"
        f"28 27 0:9 / {str(tmp_path).replace(' ', chr(92) + '040')} rw shared:1 master:2 - {kind} server:/x rw\n"
        "29 27 0:9 / /elsewhere rw - tmpfs tmpfs rw\n"
    )
    monkeypatch.setattr(places, "_MOUNTS", mounts)
    with pytest.raises(ConfigError, match=f"would be on {kind}, a network file system"):
        cluster.queue().view(store=place).open()
    assert not place.exists()


def test_a_read_only_file_system_is_refused(cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    original = os.open

    def refuse(path: Any, flags: int, *rest: Any, **how: Any) -> int:
        if flags & os.O_RDWR:
            raise OSError(errno.EROFS, "Read-only file system", str(path))
        return original(path, flags, *rest, **how)

    place.mkdir()
    monkeypatch.setattr(os, "open", refuse)
    with pytest.raises(StoreFailed, match="mounted read-only"):
        cluster.queue().view(store=place).open()


def test_the_extra_is_named_where_it_is_missing(cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "lmdb", None)
    with pytest.raises(MissingExtra, match="needs the package lmdb") as missing:
        cluster.queue().view(store=place).open()
    assert missing.value.extra == "store"


# ---------------------------------------------------------------- room


def test_r40_a_view_goes_on_by_itself_once_its_full_disk_has_room(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Until then it shows what it has, is disconnected, and names the reason."""
    full, commit = Flag(), value_file.ValueFile.commit

    def commit_if_there_is_room(file: value_file.ValueFile) -> None:
        if full.is_set() and file.writing:
            file.abort()
            raise StoreFull("No space left on device", path=str(place))
        commit(file)

    monkeypatch.setattr(value_file.ValueFile, "commit", commit_if_there_is_room)
    monkeypatch.setattr(reader_thread, "_PATIENCE", 0.01)
    cluster.put(a="1", b="2")
    with cluster.queue().view(store=place) as view, view.watch() as watch:
        full.set()
        cluster.put(a="3", c="4")
        eventually(lambda: view.state == "disconnected")
        assert isinstance(view.status.trouble, StoreFull)
        assert dict(view) == {"a": "1", "b": "2"}
        assert dict(view.snapshot().offsets) == {0: 2}
        assert watch.poll(0.05) is None
        full.clear()
        cluster.put(d="5")
        eventually(lambda: view.state == "caught-up" and "d" in view)
        assert dict(view) == {"b": "2", "a": "3", "c": "4", "d": "5"}
        assert view.stats.added == 5
        assert [event.key for _ in range(3) if (event := watch.poll(5))] == ["a", "c", "d"]
        assert watch.poll(0) is None


@pytest.mark.parametrize("replaced", [False, True])
def test_r40_r41_a_view_whose_store_was_removed_is_disconnected_and_leaves_another_store_alone(
    cluster: Prices, place: Path, caplog: pytest.LogCaptureFixture, replaced: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reader_thread, "_PATIENCE", 0.01)
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view:
        shutil.rmtree(place)
        other = cluster.queue().view(store=place).open() if replaced else None
        eventually(lambda: view.state == "disconnected")
        assert "was removed, or replaced" in str(view.status.trouble)
        cluster.put(b="2")
        assert dict(view) == {"a": "1"}
        if other is not None:
            other.close()
    assert sum("was removed, or replaced" in message and "restart" in message for message in caplog.messages) >= 1
    with cluster.queue().view(store=place) as again:
        assert dict(again) == {"a": "1", "b": "2"}
        assert cluster.begun[-1] == {0: 2 if replaced else 0}


def test_r40_a_map_that_is_too_small_grows_but_not_below_snapshots(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_file, "_ROOM", 1 << 17)
    monkeypatch.setattr(store_directory, "MAP_SIZES", (1 << 20,))
    monkeypatch.setattr(reader_thread, "_PATIENCE", 0.01)
    monkeypatch.setattr(StoreDirectory.__init__, "__defaults__", ((1 << 20,),))
    with cluster.queue().view(store=place) as view:
        for number in range(30):
            cluster.put(**{f"k{number}": "v" * 100_000})
        view.barrier()
        assert len(view) == 30
        snapshot = view.snapshot()
        more = count()

        def has_outgrown_its_map() -> bool:
            cluster.put(**{f"l{next(more)}": "v" * 100_000})
            return view.state == "disconnected"

        eventually(has_outgrown_its_map, 30)
        assert "while snapshots of it are in use (1)" in str(view.status.trouble)
        assert len(snapshot) == 30
        del snapshot
        gc.collect()
        total = 30 + next(more)
        eventually(lambda: view.state == "caught-up" and len(view) == total, 30)


# ---------------------------------------------------------------- snapshots


def test_g8_a_snapshot_of_a_store_does_not_change_and_outlives_its_view(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="2")
    with cluster.queue().view(store=place) as view:
        snapshot = view.snapshot()
        cluster.put(a="3", b=None, c="4")
        view.barrier()
        assert dict(view) == {"a": "3", "c": "4"}
        assert dict(snapshot) == {"a": "1", "b": "2"}
    assert dict(snapshot) == {"a": "1", "b": "2"}
    with cluster.queue().view(store=place) as again:
        assert dict(again) == {"a": "3", "c": "4"}
        assert [entry.key for entry in snapshot.scan(prefix="")] == ["a", "b"]
    assert cluster.begun == [{0: 0}, {0: 5}]


def test_r32_a_watch_of_a_store_adds_previous_values(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="1")
    with (
        cluster.queue().view(store=place) as view,
        view.watch(previous=True) as watch,
        view.watch(dump=True, previous=True) as dumping,
    ):
        assert [getattr(dumping.poll(5), "key", None) for _ in range(3)] == ["a", "b", None]
        cluster.put(a="2", b=None)
        cluster.put(a="3")
        view.barrier()
        for each in (watch, dumping):
            events = [each.poll(5) for _ in range(2)]
            assert {event.key: event.previous.value for event in events} == {"a": "1", "b": "1"}


def test_a_store_has_a_limited_number_of_snapshots_and_the_error_says_so(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(value_file, "_READERS", 4)
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view:
        snapshots: list[Any] = []
        with pytest.raises(StoreFailed, match="has 2 snapshots in use"):
            snapshots.extend(view.snapshot() for _ in range(9))
        assert view["a"] == "1"
        snapshots.clear()
        gc.collect()
        assert view.snapshot()["a"] == "1"
        cluster.put(b="2")
        view.barrier()
        assert dict(view) == {"a": "1", "b": "2"}


# ---------------------------------------------------------------- options of queues


def test_r8_r40_a_value_that_expires_while_nobody_has_the_store_open_is_gone(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(ttl=Ttl(default=60))
    cluster.put(a="1")
    cluster.clock.now += 50
    cluster.put(b="2")
    with queue.view(store=place) as view:
        assert dict(view) == {"a": "1", "b": "2"}
    cluster.clock.now += 30
    with queue.view(store=place) as view:
        assert dict(view) == {"b": "2"}
        assert view.stats.expired == 1
    assert cluster.begun == [{0: 0}, {0: 2}]


def test_r11_r40_a_message_that_is_due_while_nobody_has_the_store_open_counts(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(max_delay=600)
    cluster.put(a="1", b="2")
    due = b"%d" % (1000 * (cluster.clock.now + 60))
    cluster.put(headers=[("lvq-not-before", due)], a="3")
    with queue.view(store=place) as view:
        assert (dict(view), view.stats.scheduled) == ({"a": "1", "b": "2"}, 1)
    cluster.clock.now += 100
    with queue.view(store=place) as view:
        assert (dict(view), view.stats.scheduled) == ({"b": "2", "a": "3"}, 0)
    assert cluster.begun == [{0: 0}, {0: 3}]


def test_r20_r40_a_snapshot_of_a_store_is_by_rank(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(order="priority")
    for key, priority in (("a", b"1"), ("b", b"9"), ("c", b"5")):
        cluster.put(headers=[("lvq-priority", priority)], **{key: "v"})
    for _ in range(2):
        with queue.view(store=place) as view:
            assert list(view) == ["a", "b", "c"]
            assert list(view.snapshot()) == ["b", "c", "a"]


def test_r4_r40_keys_keep_their_places_in_a_store(cluster: Prices, place: Path) -> None:
    queue = cluster.queue(order="in-place")
    cluster.put(c="1", a="1", b="1", d="1")
    queue.view(store=place).open().close()
    cluster.put(a="2", c=None, e="1")
    cluster.put(c="3")
    with queue.view(store=place) as view:
        assert list(view) == ["a", "b", "d", "e", "c"]


def test_r14_r40_keys_in_several_partitions_have_one_value_after_a_restart(place: Path) -> None:
    cluster = Prices(partitions=2)
    home = home_partition(b"a", 2)
    cluster.put(partition=1 - home, a="elsewhere")
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {"a": "elsewhere"}
    cluster.put(partition=home, a="home")
    cluster.put(partition=1 - home, a="later")
    with cluster.queue().view(store=place) as view:
        assert (dict(view), view.split_keys) == ({"a": "home"}, ["a"])
    cluster.put(partition=home, a=None)
    with cluster.queue().view(store=place) as view:
        assert dict(view) == {}


def test_r30_r40_a_store_of_selected_values_goes_on_with_its_selection(cluster: Prices, place: Path) -> None:
    def put(value: bytes, **keys: str) -> None:
        cluster.put(headers=[("exchange", value)], **keys)

    put(b"NYSE", a="1", b="1")
    put(b"XETRA", c="1")
    with cluster.queue().view(store=place, headers={"exchange": "NYSE"}) as view:
        assert dict(view) == {"a": "1", "b": "1"}
    put(b"XETRA", a="2")
    put(b"NYSE", c="2")
    with cluster.queue().view(store=place, headers={"exchange": "NYSE"}) as view:
        assert dict(view) == {"b": "1", "c": "2"}
    assert cluster.begun == [{0: 0}, {0: 3}]


def test_r30_r40_very_many_keys_outside_their_partition_make_a_store_remember_all(
    place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(composed_fold, "_MOST_STRAYS", 3)
    cluster = Prices(partitions=2)

    def put(exchange: bytes, partition: int, *keys: str) -> None:
        for key in keys:
            cluster.put(headers=[("exchange", exchange)], partition=partition, **{key: "1"})

    names = [f"k{number}" for number in range(200)]
    at_home = [name for name in names if home_partition(name.encode(), 2) == 0]
    put(b"XETRA", 0, *at_home)
    put(b"NYSE", 1, *names)
    expected = {name: "1" for name in names if name not in at_home}
    for _ in range(2):
        with cluster.queue().view(store=place, headers={"exchange": "NYSE"}) as view:
            assert dict(view) == expected
    assert len(cluster.begun) == 3, "two reads, and a restart"


def test_r39_r40_a_store_of_a_queue_that_was_altered_is_built_again_and_shown_until_then(place: Path) -> None:
    cluster = Prices()
    with LastValueQueue.declare("altered", key_header="ticker", topic="prices", cluster=cluster, value=TEXT) as queue:
        cluster.put(a="1", b="2")
        queue.view(store=place).open().close()
        queue.alter(ttl=Ttl(default=60))
    cluster.clock.now += 40
    cluster.put(a="3")
    with LastValueQueue.open("altered", cluster=cluster, value=TEXT) as queue:
        with held_back(cluster):
            view = queue.view(store=place).start()
            assert (view.state, dict(view)) == ("stale", {"a": "1", "b": "2"})
        with view:
            assert dict(view) == {"b": "2", "a": "3"}
            cluster.clock.now += 70
            assert dict(view) == {"b": "2"}
        begun = len(cluster.begun)
        with queue.view(store=place) as view:
            assert dict(view) == {"b": "2"}
        assert {0: 3} in cluster.begun[begun:]


@pytest.mark.parametrize(("room", "kind"), [(0, StoreFull), (1 << 30, StoreFailed)])
def test_r40_a_write_that_was_cut_short_is_a_full_disk(
    room: int, kind: type[StoreFailed], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("os.statvfs", lambda path: SimpleNamespace(f_bavail=room, f_frsize=1))
    error = value_file.failure(lmdb.Error("mdb_txn_commit: Input/output error"), tmp_path / "file", "write")
    assert type(error) is kind


# ---------------------------------------------------------------- open files


def files_open_in(folder: Path) -> list[str]:
    """Return the names of the files below a folder that this process has open."""
    found = []
    for descriptor in Path("/proc/self/fd").iterdir():
        with suppress(OSError):  # such as that of this loop
            target = descriptor.readlink()
            found += [target.name] if target.is_relative_to(folder.resolve()) else []
    return found


@pytest.fixture
def no_garbage_collector() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


needs_proc = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says which files are open")


@needs_proc
@pytest.mark.usefixtures("no_garbage_collector")
def test_r40_a_closed_view_has_no_file_open(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view:
        assert view["a"] == "1"
        assert files_open_in(place) != []
    assert files_open_in(place) == []
    assert view.state == "closed"


@needs_proc
@pytest.mark.usefixtures("no_garbage_collector")
def test_r40_a_closed_view_has_no_file_of_a_removed_store_open(cluster: Prices, place: Path) -> None:
    with cluster.queue().view(store=place):
        shutil.rmtree(place)
    assert files_open_in(place) == []


@needs_proc
@pytest.mark.usefixtures("no_garbage_collector")
def test_r40_a_file_stays_open_for_the_snapshots_of_a_closed_view(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place) as view:
        old = view.snapshot()
    assert old["a"] == "1"
    cluster.put(a="2")
    with cluster.queue().view(store=place) as view:
        assert (view["a"], old["a"]) == ("2", "1")
    del old, view
    assert files_open_in(place) == []


def test_r41_a_file_stays_open_for_a_reader_in_the_process_of_its_writer(cluster: Prices, place: Path) -> None:
    cluster.put(a="1")
    with cluster.queue().view(store=place):
        reader = attach(place, value=TEXT).start()
    assert reader["a"] == "1"
    cluster.put(b="2")
    with cluster.queue().view(store=place):
        eventually(lambda: dict(reader) == {"a": "1", "b": "2"})
    reader.close()


# ---------------------------------------------------------------- a first read


@pytest.mark.parametrize("ttl", [None, Ttl(default=60.0)], ids=["plain", "with TTL"])
def test_r40_records_of_new_keys_are_written_all_or_not_at_all(tmp_path: Path, ttl: Ttl | None) -> None:
    """A first read writes them without a look, until the first key comes again."""
    file, rules = value_file.open_file(tmp_path / "values"), IndexRules()
    rules.add(IndexRule("key", None, {"header": "key"}, lambda record: record.key))
    tables = StoredTables(file, rules)
    table = tables.table(1, None) if ttl is None else tables.expiring(1, None, ExpiryTimes(ttl))

    def columns(first: int, *keys: bytes) -> Columns:
        count = len(keys)
        return [*range(first, first + count)], [1000] * count, list(keys), [b"v"] * count, [()] * count

    def content() -> dict[bytes, list[tuple[bytes, bytes]]]:
        found = {name: file.txn.cursor(db) for name, db in file.tables.items()}
        return {name: [(bytes(key), bytes(data)) for key, data in cursor] for name, cursor in found.items()}

    while tables.indexes.advance(table):
        pass
    assert table.append_new(0, columns(0, b"a", b"c"))
    before = content()
    assert len(before[value_file.PLACES]) == 2
    assert len(before[value_file.EXPIRIES]) == (0 if ttl is None else 2)
    assert not table.append_new(0, columns(2, b"b", b"c", b"d", b"x" * 1000))
    assert not table.append_new(0, columns(2, b"b", b"b"))
    assert content() == before
    assert table.append_new(0, columns(2, b"b", b"d", b"x" * 1000))
    assert list(table.keys()) == [b"a", b"c", b"b", b"d", b"x" * 1000]
    file.close()
