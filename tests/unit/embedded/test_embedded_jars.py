from __future__ import annotations

import errno
import re
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import pytest

from lvq_kafka.embedded import ensure_jars, jars
from lvq_kafka.embedded.repository import ATTEMPTS, Repository
from lvq_kafka.errors import CorruptDownload, DiskFull, EmbeddedBrokerError, MissingExtra
from tests.unit.embedded.serving import FakeRepository

FIRST, SECOND = "org/example/alpha/1.0/alpha-1.0.jar", "org/example/beta/1.0/beta-1.0.jar"


def test_the_lock_names_the_broker_its_logging_and_its_tools_with_versions_and_digests() -> None:
    lock = {jar.name: jar for jar in jars.BROKER.read_lock()}
    assert {"kafka_2.13", "kafka-clients", "kafka-tools", "log4j-slf4j-impl", "scala-logging_2.13"} <= lock.keys()
    assert lock["kafka_2.13"].version == lock["kafka-tools"].version == jars.KAFKA_VERSION
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in lock.values())
    assert len({jar.file for jar in lock.values()}) == len(lock)


def test_every_root_of_the_lock_is_in_it() -> None:
    locked = {(jar.organisation, jar.name, jar.version) for jar in jars.BROKER.read_lock()}
    assert {root[:3] for root in jars.BROKER.roots} <= locked


def test_the_jars_are_downloaded_once(repository: FakeRepository) -> None:
    first = ensure_jars()
    jars._are_good.cache_clear()
    assert ensure_jars() == first
    assert repository.names == ["alpha-1.0.jar", "beta-1.0.jar"]
    assert [path.read_text() for path in first] == ["the first jar", "the second jar"]
    assert sorted(first[0].parent.iterdir()) == first


def test_progress_is_reported_jar_by_jar(repository: FakeRepository) -> None:
    seen: list[tuple[str, int, int]] = []
    ensure_jars(lambda *step: seen.append(step))
    assert seen == [("downloading", done, 2) for done in range(3)]


def test_a_download_that_differs_from_the_lock_is_refused_and_not_kept(repository: FakeRepository, cache: Path) -> None:
    good = repository.files[SECOND]
    repository.files[SECOND] = b"something else"
    with pytest.raises(CorruptDownload, match=r"beta-1\.0\.jar is corrupt.*Run the command again") as caught:
        ensure_jars()
    assert caught.value.path.name == "beta-1.0.jar"
    assert [path.name for path in cache.rglob("*jar*") if path.suffix != ".lock"] == ["alpha-1.0.jar"]
    repository.files[SECOND] = good
    assert len(ensure_jars()) == 2
    assert repository.names.count("alpha-1.0.jar") == 1, "only the missing jar is fetched again"


@pytest.mark.parametrize("damage", ["changed", "missing"])
def test_a_damaged_jar_is_replaced_and_the_class_archives_made_from_it_go(
    repository: FakeRepository, damage: str
) -> None:
    victim, other = ensure_jars()
    archive = victim.with_name("classes-123.jsa")
    archive.write_text("classes")
    if damage == "changed":
        victim.write_text("damaged")
    else:
        victim.unlink()
    jars._are_good.cache_clear()
    assert [path.read_text() for path in ensure_jars()] == ["the first jar", "the second jar"]
    assert repository.names == ["alpha-1.0.jar", "beta-1.0.jar", "alpha-1.0.jar"]
    assert other.exists()
    assert not archive.exists()


def test_another_set_of_jars_has_its_own_directory_and_name(repository: FakeRepository, cache: Path) -> None:
    others = replace(jars.BROKER, what="jars of something else", directory="other")
    assert others.ensure()[0].parent.parent == cache
    assert others.ensure()[0].parent.name.startswith("other-")
    assert len(ensure_jars()) == 2
    assert len(repository.requests) == 4, "each is fetched for itself"
    repository.files.clear()
    with pytest.raises(EmbeddedBrokerError, match="Downloading the jars of something else failed"):
        replace(others, directory="another").ensure()


def test_threads_download_once(repository: FakeRepository) -> None:
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: ensure_jars(), range(4)))
    assert all(result == results[0] for result in results)
    assert len(repository.requests) == 2


def test_a_process_waits_for_the_download_of_another_one(repository: FakeRepository) -> None:
    """The other one is in the middle of it: it fetches the second jar only after the first process waits."""
    program = (
        "import dataclasses, sys; from pathlib import Path; from lvq_kafka.embedded import jars;"
        "mine = dataclasses.replace(jars.BROKER, lock_file=Path(sys.argv[1]));"
        "mine.ensure(lambda doing, *_: print(doing, flush=True))"
    )
    others: list[subprocess.Popen[str]] = []

    def progress(_: str, done: int, __: int) -> None:
        if done == 1:
            command = [sys.executable, "-c", program, str(jars.BROKER.lock_file)]
            others.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True))
            assert others[0].stdout is not None
            assert others[0].stdout.readline() == "waiting for another download\n"

    ensure_jars(progress)
    assert others[0].communicate(timeout=30)[0] == ""
    assert others[0].returncode == 0
    assert len(repository.requests) == 2


@pytest.mark.parametrize("ranges", [True, False])
def test_a_broken_off_download_continues(repository: FakeRepository, ranges: bool) -> None:
    repository.broken_off, repository.ranges = 2, ranges
    assert [path.read_text() for path in ensure_jars()] == ["the first jar", "the second jar"]
    asked = [(target.rpartition("/")[2], headers.get("range")) for target, headers in repository.requests]
    assert asked[:2] == [("alpha-1.0.jar", None), ("alpha-1.0.jar", "bytes=6-")]
    assert len(asked) == 4


def test_a_later_process_continues_a_broken_off_download(repository: FakeRepository) -> None:
    repository.broken_off = ATTEMPTS
    repository.ranges = False
    with pytest.raises(EmbeddedBrokerError, match=rf"failed at alpha-1\.0\.jar.*IncompleteRead.*{ATTEMPTS} attempts"):
        ensure_jars()
    repository.ranges = True
    assert len(ensure_jars()) == 2
    assert repository.requests[ATTEMPTS][1]["range"] == "bytes=6-"


def test_a_download_that_was_killed_at_its_end_is_fetched_again(repository: FakeRepository) -> None:
    home = jars.BROKER.home
    home.mkdir()
    (home / "alpha-1.0.jar.part").write_text("the first jar")
    assert [path.read_text() for path in ensure_jars()] == ["the first jar", "the second jar"]


def test_a_busy_server_is_asked_again(repository: FakeRepository) -> None:
    repository.statuses = [503, 429, 200]
    assert len(ensure_jars()) == 2
    assert repository.names == ["alpha-1.0.jar"] * 3 + ["beta-1.0.jar"]


def test_a_download_that_keeps_failing_names_the_file_the_reason_and_the_mirror(repository: FakeRepository) -> None:
    repository.statuses = [503] * ATTEMPTS
    with pytest.raises(
        EmbeddedBrokerError, match=r"alpha-1\.0\.jar from the mirror ours: the answer was 503"
    ) as caught:
        ensure_jars()
    assert "settings.xml" in caught.value.hint
    assert len(repository.requests) == ATTEMPTS


def test_a_jar_that_the_mirror_lacks_is_not_asked_for_again(repository: FakeRepository) -> None:
    del repository.files[FIRST]
    with pytest.raises(EmbeddedBrokerError, match=r"alpha-1\.0\.jar from the mirror ours: the answer was 404"):
        ensure_jars()
    assert len(repository.requests) == 1


def test_a_full_disk_during_the_download_names_the_cache(
    repository: FakeRepository, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, *_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(Repository, "_append", full)
        with pytest.raises(DiskFull, match="LVQ_CACHE_DIR") as caught:
            ensure_jars()
    assert caught.value.path == cache


def test_without_jgo_the_error_says_which_extra_to_install(
    repository: FakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "jgo.maven", None)
    monkeypatch.delitem(sys.modules, "lvq_kafka.embedded.repository")
    with pytest.raises(MissingExtra, match=r"the package jgo.*lvq-kafka\[embedded\]") as caught:
        ensure_jars()
    assert caught.value.extra == "embedded"


def test_an_unwritable_cache_names_the_variable_that_moves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LVQ_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(EmbeddedBrokerError, match="LVQ_CACHE_DIR"):
        ensure_jars()


def test_a_cache_that_cannot_be_written_names_the_variable_that_moves_it(
    repository: FakeRepository, monkeypatch: pytest.MonkeyPatch
) -> None:
    jars.BROKER.home.write_text("a file in its place")
    with pytest.raises(EmbeddedBrokerError, match=r"cache cannot be written: File exists\..*LVQ_CACHE_DIR"):
        ensure_jars()
