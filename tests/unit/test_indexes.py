"""R45: indexes of views on the in-memory cluster: what they are by, and when they are built."""

from __future__ import annotations

import asyncio
import logging
import re
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from threading import Event as Flag
from threading import Thread
from typing import Any

import pytest

from lvq_kafka import TEXT, AttachedView, Codec, Entry, LastValueQueue, Ttl, View, attach
from lvq_kafka.core.latest.columns import ColumnTable
from lvq_kafka.errors import (
    Closed,
    ConfigError,
    DecodeError,
    MixedIndex,
    ReaderFailed,
    StateError,
    StoreFailed,
    StoreFull,
)
from lvq_kafka.reading import index_queries, reader_thread
from lvq_kafka.storing import index_keeper, value_file
from lvq_kafka.storing.stored_places import indexes_noted
from tests.unit.prices import Prices, recreate
from tests.waiting import eventually

Judge = Callable[[Entry[str]], Any]

pytestmark = pytest.mark.usefixtures("clock_of_readers")


@pytest.fixture(params=["memory", "store"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    return {} if request.param == "memory" else {"store": tmp_path / "store"}


def number(entry: Entry[str]) -> int:
    return int(entry.value)


class Counted:
    """A function that counts its calls."""

    def __init__(self) -> None:
        self.calls = 0

    def __call__(self, entry: Entry[str]) -> int:
        self.calls += 1
        return int(entry.value)


def keys(entries: list[Entry[str]]) -> str:
    return "".join(entry.key for entry in entries)


# ---------------------------------------------------------------- asking


def test_r45_values_are_found_by_a_header_and_sorted_by_a_function(cluster: Prices, store: dict[str, Any]) -> None:
    cluster.put([("desk", b"fx")], a="30", b="4")
    cluster.put([("desk", b"rates")], c="5")
    cluster.put(d="-1")
    view = cluster.queue().view(**store)
    view.index("desk", by="desk")
    view.index("number", by=number)
    with view:
        assert list(view.find("desk", "fx").keys()) == ["a", "b"]
        assert [entry.value for entry in view.find("desk", b"rates")] == ["5"]
        assert len(view.find("desk", "none")) == 0
        assert keys(view.top(2, by="number")) == "ac"
        assert keys(view.top(9, by="number", ascending=True)) == "dbca"
        assert keys(view.top(9, by="desk")) == "cab"
        cluster.put([("desk", b"fx")], c="31")
        cluster.put(a=None)
        view.barrier()
        assert [(key, dict(headers)["desk"]) for key, headers in view.find("desk", "fx").headers()] == [
            ("b", b"fx"),
            ("c", b"fx"),
        ]
        assert keys(view.top(2, by="number")) == "cb"


def test_r45_pages_go_on_after_an_entry_or_after_a_value_and_a_key(cluster: Prices, store: dict[str, Any]) -> None:
    cluster.put(a="1", b="2", c="2", d="2", e="3")
    view = cluster.queue().view(**store)
    view.index("number", by=number)
    with view:
        first = view.top(2, by="number")
        assert keys(first) == "eb"
        assert keys(view.top(2, by="number", after=first[-1])) == "cd"
        assert keys(view.top(9, by="number", after=(2, "c"))) == "da"
        assert keys(view.top(9, by="number", after=[2.0, "c"], ascending=True)) == "de"  # type: ignore[arg-type]
        cluster.put(b="0")
        view.barrier()
        assert keys(view.top(9, by="number", after=first[-1])) == "cdab"


def test_r45_values_of_several_kinds_are_found_and_have_no_order(cluster: Prices, store: dict[str, Any]) -> None:
    cluster.put(a="1", b="text", c="2")
    view = cluster.queue().view(**store)
    view.index("any", by=lambda entry: int(entry.value) if entry.value.isdigit() else entry.value)
    with view:
        with pytest.raises(MixedIndex, match="has numbers, for example of the key 'a', and text, of 'b'") as mixed:
            view.top(1, by="any")
        assert (mixed.value.index, mixed.value.keys) == ("any", {"numbers": "a", "text": "b"})
        assert list(view.find("any", "text").keys()) == ["b"]
        cluster.put(b=None)
        view.barrier()
        assert keys(view.top(2, by="any")) == "ca"


def test_r45_a_value_without_a_place_is_counted_and_stops_nothing(
    cluster: Prices, store: dict[str, Any], caplog: pytest.LogCaptureFixture
) -> None:
    cluster.put(a="1", b="one", c="nan", d="list", e="none", f="2")
    odd: dict[str, Any] = {"nan": float("nan"), "list": [], "none": None}
    view = cluster.queue().view(**store)
    view.index("number", by=lambda entry: odd[entry.value] if entry.value in odd else int(entry.value))
    with caplog.at_level(logging.WARNING, "lvq_kafka.index"), view:
        assert keys(view.top(9, by="number")) == "fa"
        assert len(view) == 6
        assert view.unindexed == 3
        cluster.put(b="3")
        view.barrier()
        assert keys(view.top(9, by="number")) == "bfa"
    (said,) = [record.getMessage() for record in caplog.records if record.name == "lvq_kafka.index"]
    assert re.match(r"The value at prices/0/[123] is not in the index 'number', which cannot tell its place: ", said)


def test_r45_a_value_that_cannot_be_decoded_is_found_by_its_header(cluster: Prices, store: dict[str, Any]) -> None:
    def decode(data: bytes) -> str:
        if data == b"bad":
            raise ValueError("bad")
        return data.decode()

    cluster.put([("desk", b"fx")], a="1", b="bad")
    queue = LastValueQueue("prices", cluster=cluster, key_header=None, value=Codec(str.encode, decode))
    view = queue.view(**store)
    view.index("desk", by="desk")
    view.index("number", by=number)
    with view:
        assert keys(view.top(9, by="number")) == "a"
        assert view.unindexed == 1
        found = view.find("desk", "fx")
        assert list(found.keys()) == ["a", "b"]
        with pytest.raises(DecodeError):
            list(found)
        with pytest.raises(DecodeError):
            view.top(9, by="desk")


def test_r45_expired_values_are_not_found_and_those_that_become_due_are(cluster: Prices, store: dict[str, Any]) -> None:
    cluster.put([("lvq-ttl", b"500")], a="1")
    cluster.put([("lvq-not-before", b"%d" % (1000 * cluster.clock.now + 700))], b="2")
    cluster.put(c="0")
    view = cluster.queue(ttl=Ttl(), max_delay=5.0).view(**store)
    view.index("number", by=number)
    with view:
        assert keys(view.top(9, by="number")) == "ac"
        cluster.clock.now += 0.6
        assert keys(view.top(9, by="number")) == "c"
        assert len(view.find("number", 1)) == 0
        cluster.clock.now += 0.2
        assert keys(view.top(9, by="number")) == "bc"


def test_r45_an_index_follows_its_view_to_another_topic(cluster: Prices, store: dict[str, Any]) -> None:
    cluster.put(a="1", b="2")
    view = cluster.queue().view(metadata_interval=0.02, **store)
    view.index("number", by=number)
    with view:
        assert keys(view.top(9, by="number")) == "ba"
        recreate(cluster)
        eventually(lambda: "x" in view and view.state == "caught-up")  # which it also was before
        assert keys(view.top(9, by="number")) == "azyx"


def test_r45_a_view_that_is_closed_or_was_not_opened_has_no_answers(cluster: Prices, store: dict[str, Any]) -> None:
    view = cluster.queue().view(**store)
    view.index("number", by=number)
    with pytest.raises(StateError, match="was not started"):
        view.find("number", 1)
    with view:
        assert view.top(1, by="number") == []
    with pytest.raises(Closed):
        view.top(1, by="number")


# ---------------------------------------------------------------- definitions


def test_r45_a_name_stands_for_one_index(cluster: Prices) -> None:
    view = cluster.queue().view()
    view.index("desk", by="desk")
    view.index("number", by=number)
    view.index("versioned", by=number, version="1")
    view.index("desk", by="desk")
    view.index("number", by=number)
    view.index("versioned", by=lambda entry: int(entry.value), version="1")
    for name, by, version in (
        ("desk", "book", None),
        ("desk", number, None),
        ("number", lambda entry: 1, None),
        ("number", number, "1"),
        ("versioned", number, "2"),
        ("versioned", number, None),
    ):
        with pytest.raises(ConfigError, match=f"There is an index '{name}' already") as refused:
            view.index(name, by=by, version=version)  # type: ignore[arg-type]
        assert refused.value.options == ("name", "by")


async def no_function(entry: Entry[str]) -> int:
    return 1


@pytest.mark.parametrize(
    ("arguments", "option"),
    [
        ({"name": "", "by": "desk"}, "name"),
        ({"name": 1, "by": "desk"}, "name"),
        ({"name": "a", "by": " "}, "by"),
        ({"name": "a", "by": 1}, "by"),
        ({"name": "a", "by": lambda: 1}, "by"),
        ({"name": "a", "by": no_function}, "by"),
        ({"name": "a", "by": Counted}, "by"),
        ({"name": "a", "by": number, "version": ""}, "version"),
        ({"name": "a", "by": number, "version": 1}, "version"),
        ({"name": "a", "by": "desk", "version": "1"}, "version"),
    ],
)
def test_r45_a_definition_that_makes_no_sense_is_refused(
    cluster: Prices, arguments: dict[str, Any], option: str
) -> None:
    with pytest.raises(ConfigError) as refused:
        cluster.queue().view().index(**arguments)
    assert option in refused.value.options


def test_r45_a_question_that_makes_no_sense_is_refused(cluster: Prices) -> None:
    cluster.put(a="1")
    view = cluster.queue().view()
    view.index("desk", by="desk")
    view.index("number", by=number)
    with view:
        (entry,) = view.entries()
        with pytest.raises(ConfigError, match=r"no index 'other'. There are desk, number. Call view.index"):
            view.find("other", 1)
        with pytest.raises(ConfigError, match="no index"):
            view.top(1, by=["desk"])  # type: ignore[arg-type]
        for value in (None, [], float("nan"), "\ud800"):
            with pytest.raises(ConfigError, match="is nothing that an index can have"):
                view.find("number", value)  # type: ignore[arg-type]
        with pytest.raises(ConfigError, match="is nothing that an index can have"):
            view.find("desk", None)  # type: ignore[arg-type]
        for after in (1, "a", (1,), (None, "a")):
            with pytest.raises(ConfigError) as refused:
                view.top(1, by="number", after=after)  # type: ignore[arg-type]
            assert refused.value.options == ("after",)
        with pytest.raises(ConfigError, match="nothing that an index can have"):
            view.top(1, by="desk", after=entry)  # which has no such header
        bad: Entry[str] = Entry("a", "one", entry.position, 0.0)
        with pytest.raises(ConfigError, match="has no place in the index: ValueError"):
            view.top(1, by="number", after=bad)
        for n in (0, -1, 1.5, 2_000_000):
            with pytest.raises(ConfigError):
                view.top(n, by="number")  # type: ignore[arg-type]


def test_r45_questions_can_be_asked_in_asyncio(cluster: Prices) -> None:
    cluster.put(a="1", b="2")
    view = cluster.queue().view()
    view.index("number", by=number)

    async def ask() -> None:
        async with view:
            assert keys(await view.top_async(1, by="number")) == "b"
            assert keys(await view.top_async(1, by="number", ascending=True, after=(1, "a"))) == "b"
            assert list((await view.find_async("number", 2)).keys()) == ["b"]

    asyncio.run(ask())


# ---------------------------------------------------------------- in memory


def test_r45_memory_calls_the_function_for_what_has_changed_and_only_when_it_is_asked(cluster: Prices) -> None:
    cluster.put(a="1", b="2", c="3")
    counted = Counted()
    view = cluster.queue().view()
    view.index("number", by=counted)
    with view:
        assert counted.calls == 0
        view.top(1, by="number")
        assert counted.calls == 3
        cluster.put(a="2")
        cluster.put(a="3")
        view.barrier()
        view.top(1, by="number")
        view.top(1, by="number")
        assert counted.calls == 4


def test_r45_an_answer_is_of_one_moment_although_the_function_holds_up_nobody(
    cluster: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    """While it runs, others read, and the view follows: what it reads then is not in the answer."""
    monkeypatch.setattr(index_queries, "_SOME", 100)
    cluster.put(a="1", b="2", c="3")
    seen: list[int] = []

    def judged(entry: Entry[str]) -> int:
        if not seen:
            seen.append(1)
            cluster.put(c="0", d="9")
            eventually(lambda: "d" in view)
            thread = Thread(target=lambda: seen.append(len(view)))
            thread.start()
            thread.join(10)
        return int(entry.value)

    view = cluster.queue().view()
    view.index("number", by=judged)
    with view:
        assert [(entry.key, entry.value) for entry in view.top(9, by="number")] == [("c", "3"), ("b", "2"), ("a", "1")]
        assert seen == [1, 4]
        assert keys(view.top(9, by="number")) == "dbac"


def test_r45_values_that_change_faster_than_they_are_judged_hold_up_no_answer(
    cluster: Prices, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_queries, "_SOME", 1)
    cluster.put(a="1", b="2", c="3")
    written = 0

    def judged(entry: Entry[str]) -> int:
        nonlocal written
        written += 1
        cluster.put(**{f"k{written}": "0", "a": "1"})
        view.barrier()
        return int(entry.value)

    view = cluster.queue().view()
    view.index("number", by=judged)
    with view:
        assert keys(view.top(3, by="number")) == "cba"


def test_r45_an_interrupt_loses_no_key(cluster: Prices) -> None:
    cluster.put(a="1", b="2")
    interrupted: list[int] = []

    def judged(entry: Entry[str]) -> int:
        if not interrupted:
            interrupted.append(1)
            raise KeyboardInterrupt
        return int(entry.value)

    view = cluster.queue().view()
    view.index("number", by=judged)
    with view:
        with pytest.raises(KeyboardInterrupt):
            view.top(9, by="number")
        assert keys(view.top(9, by="number")) == "ba"


def test_r45_a_function_that_asks_its_own_index_is_an_error_and_no_standstill(cluster: Prices) -> None:
    cluster.put(a="1", b="2")
    own = [True]

    def judged(entry: Entry[str]) -> int:
        return len(view.top(1, by="number")) if own[0] else int(entry.value)

    view = cluster.queue().view()
    view.index("number", by=judged)
    with view:
        assert view.top(9, by="number") == []
        assert view.unindexed == 2
        own[0] = False
        cluster.put(a="3", b="4")
        view.barrier()
        assert keys(view.top(9, by="number")) == "ba"


def test_r45_a_function_that_asks_another_index_is_an_error_so_that_two_never_wait_for_each_other(
    cluster: Prices,
) -> None:
    cluster.put(a="1", b="2")
    heard: list[str] = []

    def asking(other: str) -> Callable[[Entry[str]], int]:
        def judged(entry: Entry[str]) -> int:
            with pytest.raises(StateError) as caught:
                view.top(1, by=other)
            heard.append(str(caught.value))
            return int(entry.value)

        return judged

    view = cluster.queue().view()
    view.index("one", by=asking("two"))
    view.index("two", by=asking("one"))
    with view:
        assert keys(view.top(9, by="one")) == keys(view.top(9, by="two")) == "ba"
    assert {text.split(".")[0] for text in heard} == {
        "The function of the index 'one' has asked the index 'two'",
        "The function of the index 'two' has asked the index 'one'",
    }


def test_r45_keys_that_come_and_go_while_nobody_asks_take_no_memory() -> None:
    table = ColumnTable(partitions=1, key_header=None)
    changed: set[bytes] = set()
    table.note_changes(changed)
    for at in range(5000):
        key = b"%d" % at
        table.put(0, ([at], [0], [key], [b""], [None]), [None])
        table.remove([key])
        assert table.notes(changed) == (at <= 4096)
    assert not changed


# ---------------------------------------------------------------- in a store


def judged_by(cluster: Prices, place: Path, version: str | None, *, name: str = "number") -> tuple[int, str]:
    """Open a view, and return how many values its function was called for, and what it sorts."""
    counted = Counted()
    view = cluster.queue().view(store=place)
    view.index(name, by=counted, version=version)
    with view:
        return counted.calls, keys(view.top(9, by=name))


def test_r45_an_index_is_used_as_it_is_if_its_version_is_the_same(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="2", c="3")
    assert judged_by(cluster, place, "1") == (3, "cba")
    assert judged_by(cluster, place, "1") == (0, "cba")
    cluster.put(a="4", c=None)
    assert judged_by(cluster, place, "1") == (1, "ab")
    assert judged_by(cluster, place, "2") == (2, "ab")
    assert judged_by(cluster, place, None) == (2, "ab")
    assert judged_by(cluster, place, None) == (2, "ab")
    assert judged_by(cluster, place, "1") == (2, "ab")
    assert judged_by(cluster, place, "1", name="other") == (2, "ab")
    with cluster.queue().view(store=place):
        pass
    assert judged_by(cluster, place, "1", name="other") == (2, "ab"), "it was dropped by the view without it"


def test_r45_an_index_by_a_header_needs_no_version(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster.put([("desk", b"fx")], a="1", b="2")
    built: list[int] = []
    build = index_keeper.IndexKeeper._build_some
    monkeypatch.setattr(index_keeper.IndexKeeper, "_build_some", lambda *args: (built.append(1), build(*args)))
    for _ in range(2):
        view = cluster.queue().view(store=place)
        view.index("desk", by="desk")
        with view:
            assert list(view.find("desk", "fx").keys()) == ["a", "b"]
    assert len(built) == 1, "when the file was empty"


def test_r45_an_index_that_is_added_to_an_open_view_is_built_from_what_is_there(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_keeper, "_SOME", 2)
    cluster.put(**{f"k{at}": f"{at}" for at in range(9)})
    with cluster.queue().view(store=place) as view:
        view.index("number", by=number)
        assert [entry.value for entry in view.top(3, by="number")] == ["8", "7", "6"]
        cluster.put(k9="9")
        view.barrier()
        assert [entry.value for entry in view.top(1, by="number")] == ["9"]


def test_r45_an_index_that_was_not_complete_is_built_on(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that change meanwhile are in it, on both sides of where it has got to."""
    cluster.put(**{f"k{at}": f"{at}" for at in range(9)})
    with cluster.queue().view(store=place):
        pass
    monkeypatch.setattr(index_keeper, "_SOME", 2)
    monkeypatch.setattr(reader_thread, "_PATIENCE", 0.01)
    commit, commits = value_file.ValueFile.commit, 0

    def commit_some(file: value_file.ValueFile) -> None:
        nonlocal commits
        if file.writing:
            commits += 1
            if commits > 3:
                file.abort()
                raise StoreFull("No space left on device", path=str(place))
        commit(file)

    counted = Counted()
    view = cluster.queue().view(store=place, catch_up_timeout=0.1)
    view.index("number", by=counted, version="1")
    with monkeypatch.context() as patch:
        patch.setattr(value_file.ValueFile, "commit", commit_some)
        with closing(view.start()):
            eventually(lambda: view.state == "disconnected")
            with pytest.raises(StoreFailed):
                view.top(1, by="number")
    assert counted.calls > 0
    cluster.put(k0="10", k8="11", k1=None, k9="12")
    again = Counted()
    view = cluster.queue().view(store=place)
    view.index("number", by=again, version="1")
    with view:
        assert [entry.value for entry in view.top(9, by="number")] == ["12", "11", "10", "7", "6", "5", "4", "3", "2"]
    assert again.calls < 9 + 3


def test_r45_a_full_disk_leaves_an_index_as_the_values_are(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    full, commit = [False], value_file.ValueFile.commit

    def commit_if_there_is_room(file: value_file.ValueFile) -> None:
        if full[0] and file.writing:
            file.abort()
            raise StoreFull("No space left on device", path=str(place))
        commit(file)

    monkeypatch.setattr(value_file.ValueFile, "commit", commit_if_there_is_room)
    monkeypatch.setattr(reader_thread, "_PATIENCE", 0.01)
    cluster.put(a="1", b="2")
    view = cluster.queue().view(store=place)
    view.index("number", by=number)
    with view:
        full[0] = True
        cluster.put(a="3", c="4")
        eventually(lambda: view.state == "disconnected")
        assert keys(view.top(9, by="number")) == "ba"
        full[0] = False
        eventually(lambda: view.state == "caught-up" and "c" in view)
        assert keys(view.top(9, by="number")) == "cab"


@pytest.mark.parametrize("ask", [len, View.snapshot, lambda view: view.get("a"), lambda view: view.find("other", "1")])
@pytest.mark.parametrize("late", [False, True])
def test_r45_a_function_that_asks_the_view_while_its_store_is_written_is_an_error_and_spoils_nothing(
    cluster: Prices, place: Path, ask: Callable[[View[str]], object], *, late: bool
) -> None:
    asks = [True]

    def judged(entry: Entry[str]) -> int:
        if asks[0]:
            ask(view)
        return int(entry.value)

    def define() -> None:
        view.index("number", by=judged)
        view.index("other", by=lambda entry: entry.value)

    cluster.put(a="1", b="2")
    view = cluster.queue(ttl=Ttl(default=5.0)).view(store=place)
    if not late:
        define()
    with view:
        if late:
            define()
        assert view.top(9, by="number") == []
        assert view.unindexed == 2
        assert keys(view.top(9, by="other")) == "ba"
        cluster.clock.now += 6
        cluster.put(c="3")
        view.barrier()
        asks[0] = False
        cluster.put(d="4")
        view.barrier()
        assert keys(view.top(9, by="number")) == "d"
        assert keys(view.top(9, by="other")) == "dc"
        assert (view.status.trouble, dict(view)) == (None, {"c": "3", "d": "4"})


def test_r45_a_function_that_ends_the_thread_of_a_store_fails_the_view(cluster: Prices, place: Path) -> None:
    def judged(entry: Entry[str]) -> int:
        raise SystemExit(3)

    cluster.put(a="1")
    view = cluster.queue().view(store=place)
    view.index("number", by=judged)
    with closing(view.start()), pytest.raises(ReaderFailed, match=r"ended by SystemExit\(3\)"):
        view.wait_caught_up(20)


def test_r45_an_index_that_is_dropped_is_gone_from_the_file(
    cluster: Prices, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(index_keeper, "_SOME", 2)
    cluster.put(**{f"k{at}": f"{at}" for at in range(9)})
    judged_by(cluster, place, "1")
    with cluster.queue().view(store=place) as view:
        keeper = view._shared.keeper
        assert keeper is not None
        eventually(lambda: keeper.indexes_done)
        with view._shared.lock:
            file = keeper._kept[0].tables.file
            assert indexes_noted(file) == {}
            assert [file.txn.stat(file.tables[name])["entries"] for name in (b"places", b"entries")] == [0, 0]


# ---------------------------------------------------------------- attached


def indexed(view: View[str]) -> View[str]:
    view.index("desk", by="desk")
    view.index("number", by=number)
    return view


def test_r45_an_attached_reader_asks_the_indexes_of_the_writer(cluster: Prices, place: Path) -> None:
    cluster.put([("desk", b"fx")], a="1", b="2")
    with indexed(cluster.queue().view(store=place)) as view, attach(place, value=TEXT) as reader:
        first = reader.top(1, by="number")
        assert keys(first) == "b"
        assert list(reader.find("desk", "fx").keys()) == ["a", "b"]
        assert keys(reader.top(9, by="desk", after=reader.entry("a"))) == "b"
        assert keys(reader.top(9, by="number", after=(2, "b"))) == "a"
        with pytest.raises(ConfigError, match=r"only the process that writes the store has.*after=\(118.5, 'IBM'\)"):
            reader.top(1, by="number", after=first[-1])
        with pytest.raises(ConfigError, match=r"no index 'other'. There are desk, number. The process that writes"):
            reader.find("other", 1)
        cluster.put(c="3")
        view.barrier()
        eventually(lambda: keys(reader.top(9, by="number")) == "cba")


def test_r45_an_attached_reader_finds_nothing_that_has_expired_since(cluster: Prices, place: Path) -> None:
    cluster.put([("lvq-ttl", b"500")], a="3")
    cluster.put(b="2", c="1")
    with indexed(cluster.queue(ttl=Ttl()).view(store=place)), attach(place, value=TEXT) as reader:
        assert keys(reader.top(2, by="number")) == "ab"
    with closing(attach(place, value=TEXT).start()) as reader:
        cluster.clock.now += 0.6
        assert keys(reader.top(2, by="number")) == "bc"
        assert len(reader.find("number", 3)) == 0


@pytest.mark.parametrize(("expiring", "others"), [(["z", "y"], ["1", "2"]), (["1", "2"], ["z", "y"])])
def test_r45_values_that_have_expired_since_do_not_mix_with_others(
    cluster: Prices, place: Path, expiring: list[str], others: list[str]
) -> None:
    def judged(entry: Entry[str]) -> object:
        return int(entry.value) if entry.value.isdigit() else entry.value

    cluster.put([("lvq-ttl", b"500")], a=expiring[0], b=expiring[1])
    cluster.put(c=others[0], d=others[1])
    view = cluster.queue(ttl=Ttl()).view(store=place)
    view.index("mixed", by=judged)  # type: ignore[arg-type]  # as a function may be
    with view, attach(place, value=TEXT) as reader, pytest.raises(MixedIndex):
        reader.top(2, by="mixed")
    with closing(attach(place, value=TEXT).start()) as reader:  # without a writer
        cluster.clock.now += 0.6
        assert sorted(keys(reader.top(9, by="mixed"))) == ["c", "d"]


def test_r45_an_attached_reader_is_told_that_an_index_is_not_complete(cluster: Prices, place: Path) -> None:
    cluster.put(a="1", b="2")
    with cluster.queue().view(store=place):
        pass
    may_go_on = Flag()

    def judged(entry: Entry[str]) -> int:
        may_go_on.wait(20)
        return int(entry.value)

    view = cluster.queue().view(store=place)
    view.index("number", by=judged)
    with closing(view.start()), closing(attach(place, value=TEXT).start()) as reader:
        with pytest.raises(StateError, match="'number' is being built"):
            reader.top(1, by="number")
        may_go_on.set()
        eventually(lambda: is_complete(reader))
        assert keys(reader.top(1, by="number")) == "b"


def is_complete(reader: AttachedView[str]) -> bool:
    try:
        return reader.top(1, by="number") is not None
    except StateError:
        return False
