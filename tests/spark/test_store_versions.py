"""The commit of versions, each by one manifest that one writer creates as a whole; and their removal."""

from __future__ import annotations

import errno
import json
import os
import time
import uuid
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from lvq_kafka.errors import ConfigError, DataLoss
from lvq_spark.store.hadoop import HadoopStorage
from lvq_spark.store.manifest import DataFile, Version, decode, encode
from lvq_spark.store.open_storage import open_storage
from lvq_spark.store.read_version import versions
from lvq_spark.store.storage import LocalStorage, Storage
from lvq_spark.store.versions import Store

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

NOW = datetime(2026, 5, 4, 3, 2, 1, 123456, tzinfo=UTC)

VERSION = Version(
    number=7,
    kind="delta",
    queue="prices",
    topic="prices",
    topic_id="abc",
    key_header="ticker",
    key_mismatch="header",
    start={0: 0, 1: 3},
    end={0: 10, 1: 12},
    read_from={0: 9, 1: 11},
    pinned=NOW,
    committed=NOW + timedelta(seconds=5),
    rows=4,
    kept=1,
    overlaid=2,
    upserts=2,
    deletes=1,
    cut="00ff",
    schema="key binary",
    data="v7-0123456789ab",
    files=(DataFile("v6-0123456789ab/part-0.parquet", 11), DataFile("v7-0123456789ab/part-0.parquet", 7, overlay=True)),
    reasons=("it was time",),
    base=6,
    stream=("query", 3),
)


@pytest.fixture(params=["local", "renaming", "object store"])
def make_storage(request: pytest.FixtureRequest, spark: SparkSession, tmp_path: Path) -> Callable[[], Storage]:
    """Return a function that opens the directory in one way; Hadoop's local file system stands in for its others."""

    def make() -> Storage:
        if request.param == "local":
            return LocalStorage(str(tmp_path / "store"))
        jvm: Any = spark._jvm
        storage = HadoopStorage(jvm, spark._jsc.hadoopConfiguration(), f"file:{tmp_path}/store")
        storage._renames = request.param == "renaming"
        return storage

    return make


# -- storage -----------------------------------------------------------------------------------------------------------


def test_a_file_is_created_once_and_read_as_it_was_written(make_storage: Callable[[], Storage]) -> None:
    storage = make_storage()
    assert storage.read("a/b.json") is None
    assert (storage.names("a"), storage.files("a"), storage.touched("a")) == ([], [], 0.0)
    assert storage.create("a/b.json", b"one \x00\xff")
    assert not storage.create("a/b.json", b"two")
    assert storage.read("a/b.json") == b"one \x00\xff"
    assert [name for name in storage.names("a") if not name.endswith(".crc")] == ["b.json"]
    assert [tuple(entry) for entry in storage.files("a") if entry.name.endswith("json")] == [("a/b.json", 6)]
    assert abs(storage.touched("a") - time.time()) < 60
    storage.delete("a")
    storage.delete("a")
    assert storage.names("") == []


def test_a_file_is_read_here_and_there(make_storage: Callable[[], Storage]) -> None:
    storage = make_storage()
    content = bytes(range(256)) * 10_000
    storage.create("v1/f", content)
    with storage.open("v1/f") as file:
        assert file.seek(-3, os.SEEK_END) == len(content) - 3
        assert file.read() == content[-3:]
        assert file.read(1) == b""
        file.seek(1_000_001)
        assert file.read(1_200_000) == content[1_000_001:2_200_001]
        assert file.tell() == 2_200_001
    with pytest.raises(FileNotFoundError):
        storage.open("v1/g")


def test_of_many_that_create_a_file_at_once_one_does(tmp_path: Path) -> None:
    storages = [LocalStorage(str(tmp_path)) for _ in range(8)]
    with ThreadPoolExecutor(8) as pool:
        for turn in range(30):
            won = list(pool.map(lambda n, at=turn: storages[n].create(f"f/{at}", b"%d" % n * 5000), range(8)))
            assert sum(won) == 1
            assert storages[0].read(f"f/{turn}") == b"%d" % won.index(True) * 5000
    assert len(os.listdir(tmp_path / "f")) == 30


def test_a_folder_is_as_young_as_the_youngest_in_it(make_storage: Callable[[], Storage], tmp_path: Path) -> None:
    storage = make_storage()
    storage.create("v1/deep/file", b"")
    for path in (tmp_path / "store" / "v1", *(tmp_path / "store" / "v1").rglob("*")):
        os.utime(path, (1000, 1000))
    assert storage.touched("v1") == 1000
    os.utime(tmp_path / "store" / "v1" / "deep" / "file", (2000, 2000))
    assert storage.touched("v1") == 2000


# -- manifests ---------------------------------------------------------------------------------------------------------


def test_a_manifest_says_all_there_is_to_say_of_a_version() -> None:
    content = encode(VERSION)
    assert decode(content, "m") == VERSION
    document = json.loads(content)
    assert (document["format"], document["end"], document["pinned"]) == (
        1,
        {"0": 10, "1": 12},
        "2026-05-04T03:02:01.123456+00:00",
    )
    bare = replace(VERSION, stream=None, base=None, key_header=None, reasons=(), files=())
    assert decode(encode(bare), "m") == bare


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({"format": 2}, "the format 2, but this library knows 1.* upgrade"),
        ({"format": 2, "end": None}, "the format 2"),
        ({"colour": "blue"}, "unknown fields: colour.* upgrade"),
    ],
)
def test_a_manifest_of_a_newer_library_is_refused(changes: dict[str, Any], said: str) -> None:
    document = json.loads(encode(VERSION))
    del document["crc32"]
    with pytest.raises(ConfigError, match=f"^/data/m .*{said}") as error:
        decode(json.dumps({**document, **changes}).encode(), "/data/m")
    assert error.value.options == ("path",)


@pytest.mark.parametrize("changes", [{"format": None}, {"end": 5}, {"pinned": "yesterday"}])
def test_r18_a_damaged_manifest_is_never_trusted(changes: dict[str, Any]) -> None:
    document = json.loads(encode(VERSION))
    del document["crc32"]
    for content in (json.dumps({**document, **changes}).encode(), encode(VERSION)[:-20], b"", b"[]", b"\xff"):
        with pytest.raises(DataLoss, match=r"^/data/m is not a version's manifest, or is damaged"):
            decode(content, "/data/m")


def test_a_manifest_with_a_byte_that_has_changed_is_refused_and_one_without_a_checksum_is_not() -> None:
    content = encode(VERSION)
    at = content.index(b'"1": 12')
    damaged = content[:at] + b'"1": 13' + content[at + 7 :]
    with pytest.raises(DataLoss, match=r"^/data/m .* damaged"):
        decode(damaged, "/data/m")
    document = json.loads(damaged)
    del document["crc32"], document["places"]
    assert decode(json.dumps(document).encode(), "m") == replace(VERSION, end={0: 10, 1: 13})


# -- versions ----------------------------------------------------------------------------------------------------------


def put(store: Store, number: int, age: float, *, data: str | None = None) -> Version:
    """Commit a version with one file, as of ``age`` seconds ago."""
    data = data or f"v{number}-{uuid.uuid4().hex[:12]}"
    committed = datetime.now(UTC) - timedelta(seconds=age)
    store.storage.create(f"{data}/part-0.parquet", b"0123")
    version = replace(
        VERSION, number=number, data=data, files=(DataFile(f"{data}/part-0.parquet", 4),), committed=committed
    )
    assert store.commit(version)
    return version


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(LocalStorage(str(tmp_path)))


def rewrite(manifest: Path, **changes: object) -> None:
    """Change fields of a manifest."""
    document = {**json.loads(manifest.read_text()), **changes}
    del document["crc32"]
    manifest.write_text(json.dumps(document))


def folders(store: Store) -> set[str]:
    return set(store.storage.names("")) - {"versions"}


def test_a_number_is_given_once_even_if_its_version_was_pruned(store: Store) -> None:
    made = [put(store, number, 0) for number in (1, 2, 3)]
    assert not store.commit(made[1])
    assert (store.latest(), store.all(), store.get(2)) == (made[2], made, made[1])
    store.clean(1, 0.0)
    assert store.numbers() == [3]
    assert not store.commit(made[0])
    assert store.numbers() == [3]


def test_old_versions_go_when_they_are_too_many_and_nobody_can_have_just_begun_to_read_them(store: Store) -> None:
    made = [put(store, number, 100 - 10 * number) for number in range(1, 7)]  # committed 90, 80, 70, 60, 50, 40 s ago
    store.clean(6, 0.0)
    assert store.all() == made
    store.clean(2, 65.0)
    assert store.numbers() == [3, 4, 5, 6], "3 has been the newest until 60 s ago"
    for version in made[:2]:
        assert version.data not in folders(store) or store.storage.touched(version.data) > time.time() - 65
    store.clean(2, 0.0)
    assert store.numbers() == [5, 6]
    assert folders(store) == {made[4].data, made[5].data}


def test_files_that_a_later_version_shares_stay(store: Store) -> None:
    first = put(store, 1, 100)
    store.commit(replace(first, number=2, committed=datetime.now(UTC)))
    store.clean(1, 0.0)
    assert store.numbers() == [2]
    assert folders(store) == {first.data}
    assert store.damage(replace(first, number=2)) == ""
    store.discard(replace(first, number=2))
    assert folders(store) == {first.data}, "what belongs to version 1 is not discarded with an attempt at 2"


def test_leftovers_of_attempts_go_when_they_are_old_and_nothing_else_does(store: Store, tmp_path: Path) -> None:
    kept = put(store, 1, 0)
    store.storage.create("v2-00000000beef/_temporary/0/part", b"")
    store.storage.create("somebody else's/file", b"")
    (tmp_path / "versions" / ".0000000002.json.dead").touch()
    store.clean(1, 3600.0)
    assert folders(store) == {kept.data, "v2-00000000beef", "somebody else's"}
    store.clean(1, 0.0)
    assert folders(store) == {kept.data, "somebody else's"}
    assert store.storage.names("versions") == ["0000000001.json"]


def test_the_files_of_a_failed_attempt_go_and_those_of_others_stay(store: Store) -> None:
    with store.attempt(2) as mine:
        store.storage.create(f"{mine}/part-0.parquet", b"0123")
    assert folders(store) == {mine}, "it has succeeded"

    def interrupted() -> None:
        with store.attempt(2) as other:
            store.storage.create(f"{other}/_temporary/0/part", b"0123")
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        interrupted()
    assert folders(store) == {mine}


@pytest.mark.parametrize(("there", "settles", "left"), [(False, True, False), (True, True, True), (False, False, True)])
def test_a_version_whose_commit_fails_loses_its_files_unless_its_manifest_may_be_there(
    store: Store, monkeypatch: pytest.MonkeyPatch, there: bool, settles: bool, left: bool
) -> None:
    first, create = put(store, 1, 0), LocalStorage.create

    def full(storage: LocalStorage, name: str, content: bytes) -> bool:
        if name.startswith("versions/"):
            if there:
                create(storage, name, content)
            raise OSError(errno.ENOSPC, "No space left on device")
        return create(storage, name, content)

    monkeypatch.setattr(LocalStorage, "create", full)
    monkeypatch.setattr(LocalStorage, "settles", settles)
    with pytest.raises(OSError, match="No space left"):
        put(store, 2, 0, data="v2-0123456789ab")
    assert folders(store) == {first.data} | ({"v2-0123456789ab"} if left else set())
    assert (len(store.all()) == 2) == there


def test_the_files_of_a_version_with_a_damaged_manifest_stay_until_nobody_can_be_reading_them(
    store: Store, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    made = [put(store, number, age) for number, age in ((1, 100), (2, 90), (3, 5))]
    manifest = tmp_path / "versions" / "0000000002.json"
    manifest.write_bytes(manifest.read_bytes()[:-30])
    for folder in tmp_path.iterdir():
        os.utime(folder, (1000, 1000))
    assert store.all() == [made[0], made[2]]
    assert "0000000002.json is not a version's manifest, or is damaged" in caplog.text
    assert store.as_of(made[2].pinned) == made[2]
    store.clean(1, 60.0)
    assert store.numbers() == [1, 2, 3], "2 may have been the newest until 5 s ago, and have files of 1"
    assert folders(store) == {version.data for version in made}
    store.clean(1, 0.0)
    assert store.numbers() == [3]
    assert folders(store) == {made[2].data}


@pytest.mark.parametrize(
    ("name", "said"),
    [("_delta_log/0.json", "holds a Delta table"), ("metadata/v1", "an Iceberg table"), ("f", "something else: f")],
)
def test_a_store_does_not_begin_where_something_else_lies(store: Store, name: str, said: str) -> None:
    store.storage.create("v1-0123456789ab/part-0", b"")
    store.check_vacant()
    store.storage.create(name, b"")
    with pytest.raises(ConfigError, match=said) as error:
        store.check_vacant()
    assert error.value.options == ("path",)


def test_a_path_is_text_or_a_path_but_no_url_that_a_path_has_spoilt(spark: SparkSession, tmp_path: Path) -> None:
    open_storage(spark, str(tmp_path / "store")).create("here", b"1")
    assert open_storage(spark, tmp_path / "store").read("here") == b"1"
    assert versions(spark, tmp_path / "store") == []
    for wrong, said in ((Path("s3a://bucket/store"), "s3a:/bucket/store has lost slashes"), (7, "7 is not a path")):
        with pytest.raises(ConfigError, match=said) as error:
            open_storage(spark, wrong)  # type: ignore[arg-type]
        assert error.value.options == ("path",)


def test_a_store_of_a_newer_library_is_refused(spark: SparkSession, store: Store, tmp_path: Path) -> None:
    put(store, 1, 0)
    store.storage.create("versions/0000000002.json", b'{"format": 99}')
    with pytest.raises(ConfigError, match="upgrade"):
        store.latest()
    with pytest.raises(ConfigError, match="upgrade"):
        versions(spark, str(tmp_path))
