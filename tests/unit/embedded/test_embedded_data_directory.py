from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka.embedded.data_directory import PreparedStorage, new_id

META = "#\nnode.id=1\ndirectory.id=dir\nversion=1\ncluster.id=cluster\n"


@pytest.fixture
def prepared(tmp_path: Path) -> Path:
    """Return a data directory as Kafka's program leaves it."""
    data = tmp_path / "prepared"
    data.mkdir()
    (data / "meta.properties").write_text(META)
    (data / "bootstrap.checkpoint").write_bytes(b"\x00\xff")
    return data


def meta(data: Path) -> dict[str, str]:
    lines = (data / "meta.properties").read_text().splitlines()
    return {name: value for name, _, value in (line.partition("=") for line in lines) if not name.startswith("#")}


def test_a_copy_is_the_same_but_for_the_ids_that_are_its_own(tmp_path: Path, prepared: Path) -> None:
    storage = PreparedStorage(tmp_path / "storage")
    storage.keep(prepared)
    copies = [tmp_path / "one" / "data", tmp_path / "two" / "data"]
    copies[1].mkdir(parents=True)  # an empty directory may exist already
    for copy in copies:
        assert storage.copy_to(copy)
        assert (copy / "bootstrap.checkpoint").read_bytes() == b"\x00\xff"
        assert meta(copy).keys() == meta(prepared).keys()
        assert (meta(copy)["node.id"], meta(copy)["version"]) == ("1", "1")
    ids = [meta(data)[name] for data in (*copies, prepared) for name in ("cluster.id", "directory.id")]
    assert len(set(ids)) == 6


def test_where_nothing_was_kept_nothing_is_copied(tmp_path: Path) -> None:
    data = tmp_path / "data"
    assert not PreparedStorage(tmp_path / "storage").copy_to(data)
    assert not data.exists()


def test_the_files_kept_first_stay(tmp_path: Path, prepared: Path) -> None:
    storage = PreparedStorage(tmp_path / "storage")
    storage.keep(prepared)
    (prepared / "more").touch()
    storage.keep(prepared)
    assert storage.copy_to(tmp_path / "data")
    assert sorted(path.name for path in (tmp_path / "data").iterdir()) == ["bootstrap.checkpoint", "meta.properties"]
    assert sorted(path.name for path in tmp_path.iterdir()) == ["data", "prepared", "storage"]


def test_a_place_that_cannot_be_written_is_no_reason_to_fail(tmp_path: Path, prepared: Path) -> None:
    PreparedStorage(tmp_path / "missing" / "storage").keep(prepared)
    assert not (tmp_path / "missing").exists()


def test_ids_have_kafkas_form() -> None:
    ids = {new_id() for _ in range(100)}
    assert len(ids) == 100
    assert {len(one) for one in ids} == {22}
