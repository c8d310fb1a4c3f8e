"""Changed bytes in a store's files: an error names the file before anything is read from it or built on it."""

from __future__ import annotations

import errno
import json
import random
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow.parquet as pq
import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.core.log.records import Record
from lvq_kafka.errors import DataLoss
from lvq_spark import snapshot, task_errors
from lvq_spark.store import DataFile, Version, read_version, refresh
from lvq_spark.store.hadoop import HadoopStorage
from lvq_spark.store.layout.driver_overlay import overlaid
from lvq_spark.store.storage import LocalStorage, Storage
from lvq_spark.store.versions import Store
from tests.spark.test_store_driver_overlay import CHANGES, NOWHERE, delta, first
from tests.spark.test_store_refresh import append, values
from tests.spark.test_store_versions import rewrite

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

MakeQueue = Callable[..., LastValueQueue[bytes]]
Collect = Callable[["DataFrame"], dict[bytes, Record]]


def flip(path: Path, at: int) -> None:
    content = bytearray(path.read_bytes())
    content[at] ^= 0x10
    path.write_bytes(content)


def column(path: Path, name: str) -> int:
    """Return the offset of the end of a column's last page."""
    group = pq.ParquetFile(path).metadata.row_group(0)
    found = next(group.column(n) for n in range(group.num_columns) if group.column(n).path_in_schema == name)
    start = found.dictionary_page_offset or found.data_page_offset
    return int(start + found.total_compressed_size - 1)


# -- without a broker --------------------------------------------------------------------------------------------------


@pytest.fixture(params=["local", "hadoop"])
def storage(request: pytest.FixtureRequest, tmp_path: Path) -> Storage:
    if request.param == "local":
        return LocalStorage(str(tmp_path))
    spark = request.getfixturevalue("spark")
    jvm: Any = spark._jvm
    return HadoopStorage(jvm, spark._jsc.hadoopConfiguration(), f"file:{tmp_path}")


def test_the_content_of_a_file_has_a_checksum_on_every_file_system(storage: Storage, tmp_path: Path) -> None:
    storage.create("v1/f", b"123456789")
    storage.create("v1/large", bytes(range(256)) * 10_000)
    assert (storage.crc32("v1/f"), storage.crc32("v1/large")) == (0xCBF43926, 0x285F0649)
    with pytest.raises(FileNotFoundError):
        storage.crc32("v1/g")
    flip(tmp_path / "v1" / "f", 4)
    if isinstance(storage, LocalStorage):
        assert storage.crc32("v1/f") != 0xCBF43926
        return
    for look in (storage.crc32, lambda name: storage.open(name).read()):  # Hadoop has its own checksums here
        with pytest.raises(OSError, match="hecksum") as error:
            look("v1/f")
        assert error.value.errno == errno.EIO


def test_any_byte_that_has_changed_is_told_with_its_file(storage: Storage, tmp_path: Path) -> None:
    store = Store(storage)
    base = first(store, CHANGES[0])
    base = replace(base, files=store.sealed(base.files))
    above = overlaid(store, base, delta(CHANGES[1]), "v2-0123456789ab", NOWHERE).file
    version = replace(base, files=(*base.files, above))
    assert store.damage(version) == ""
    for file in version.files:
        path = tmp_path / file.name
        for at in random.Random(1).sample(range(file.bytes), 40):
            flip(path, at)
            assert store.damage(version).startswith(f"{storage.root}/{file.name} is not what was written"), at
            flip(path, at)
        path.write_bytes(path.read_bytes()[:-1])
        assert store.damage(version).startswith(f"{storage.root}/{file.name} has {file.bytes - 1} bytes")
        path.unlink()
        assert store.damage(version) == f"{storage.root}/{file.name} is missing"
        version = replace(version, files=tuple(one for one in version.files if one != file))


def test_the_overlay_and_some_other_files_of_a_large_store_are_looked_at_each_time(tmp_path: Path) -> None:
    store = Store(LocalStorage(str(tmp_path)))
    base = first(store, CHANGES[0])
    names = [f"v1-0123456789ab/{n}" for n in range(8)]
    for name in names:
        store.storage.create(name, b"0123456789")
    files = store.sealed([*(DataFile(name, 10) for name in names), DataFile(names[0], 10, overlay=True)])
    version = replace(base, files=files)
    flip(tmp_path / names[0], 3)
    assert names[0] in store.changed(version, 10)
    assert store.changed(version, 0) == ""
    version = replace(version, files=version.files[:-1])
    found = store.changed(version, 80)
    assert {store.changed(version, 10) for _ in range(200)} == {"", found}
    assert {store.changed(version, 5) for _ in range(200)} == {""}, "none is so small"
    assert {store.changed(version, 5, larger=True) for _ in range(200)} == {"", found}


def test_a_manifest_of_before_has_no_checksums_and_stays_good(tmp_path: Path) -> None:
    store = Store(LocalStorage(str(tmp_path)))
    version = replace(first(store, CHANGES[0]), number=1, data="v1-0123456789ab")
    assert store.commit(replace(version, files=store.sealed(version.files)))
    manifest = tmp_path / "versions" / "0000000001.json"
    (file,) = json.loads(manifest.read_text())["files"]
    assert file.pop("crc32") is not None
    rewrite(manifest, files=[file])
    assert store.latest() == version
    flip(tmp_path / version.files[0].name, 3)
    assert store.damage(version) == "", "its size is all that is known"


def test_files_read_by_the_driver_are_compared_page_by_page(tmp_path: Path) -> None:
    """A file that was never checked as a whole: an overlay built on it reads only its keys."""
    store = Store(LocalStorage(str(tmp_path)))
    base = first(store, CHANGES[0])
    above = overlaid(store, base, delta(CHANGES[1]), "v2-0123456789ab", NOWHERE)
    base = replace(base, files=(*base.files, above.file), overlaid=above.records)
    path = tmp_path / above.file.name
    flip(path, column(path, "key"))
    with pytest.raises(DataLoss, match=rf"{above.file.name} is damaged.*Refresh the store"):
        overlaid(store, base, delta(CHANGES[2]), "v3-0123456789ab", NOWHERE)


# -- on a broker -------------------------------------------------------------------------------------------------------


def sealed(version: Version) -> bool:
    return bool(version.files) and all(file.crc32 is not None for file in version.files)


@pytest.mark.parametrize("overlay", [False, True])
def test_a_flipped_byte_has_the_store_rebuilt_and_readers_told(
    spark: SparkSession, make_queue: MakeQueue, collect: Collect, tmp_path: Path, overlay: bool
) -> None:
    queue, path = make_queue(), tmp_path / "store"
    append(queue, *[(f"k{n:02}", "1") for n in range(40)])
    refresh(spark, queue, path)
    append(queue, ("k01", "2"), ("k02", None))
    second = refresh(spark, queue, path)
    assert sealed(second)
    (damaged,) = {file.name for file in second.files if file.overlay == overlay}
    flip(path / damaged, column(path / damaged, "value"))
    with pytest.raises(DataLoss, match=f"Version 2 is damaged: .*{damaged} is not what was written"):
        read_version(spark, path)
    with pytest.raises(DataLoss, match=f"Version 2 is damaged: .*{damaged}.*on_stale='rebuild'"):
        refresh(spark, queue, path, on_stale="fail")
    version = refresh(spark, queue, path)
    assert (version.number, version.kind, len(version.reasons)) == (3, "full", 1)
    assert re.search(rf"{damaged} is not what was written", version.reasons[0])
    assert collect(read_version(spark, path)) == collect(snapshot(spark, queue, end=version.end))


def test_a_flipped_byte_in_what_nobody_looked_at_is_found_when_it_is_read(
    spark: SparkSession,
    make_queue: MakeQueue,
    collect: Collect,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    way: str,
) -> None:
    """As in a store that is too large to be checked in full each time."""
    monkeypatch.setattr(Store, "changed", lambda *_, **__: "")
    queue, path = make_queue(), tmp_path / "store"
    append(queue, *[(f"k{n:02}", "1") for n in range(40)])
    (file,) = refresh(spark, queue, path).files
    flip(path / file.name, column(path / file.name, "value" if way == "rebuilt" else "key"))  # overlays read only keys
    (path / file.name).with_name(f".{Path(file.name).name}.crc").unlink()  # Hadoop's own, on a local disk
    with pytest.raises(DataLoss, match=f"{file.name} is damaged and cannot be read"), task_errors():
        read_version(spark, path).collect()
    append(queue, ("k01", "2"), ("k02", None))
    with pytest.raises(DataLoss, match=f"{file.name} is damaged"):
        refresh(spark, queue, path, on_stale="fail")
    version = refresh(spark, queue, path)
    assert (version.kind, len(version.reasons)) == ("full", 1)
    assert values(collect(read_version(spark, path))) == values(collect(snapshot(spark, queue)))
