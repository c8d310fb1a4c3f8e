from __future__ import annotations

import re
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from lvq_kafka.embedded import ensure_jars, ivy, jars
from lvq_kafka.errors import CorruptDownload, DiskFull, EmbeddedBrokerError, MissingExtra

if TYPE_CHECKING:
    from conftest import FakeIvy


def test_the_lock_names_the_broker_its_logging_and_its_tools_with_versions_and_digests() -> None:
    lock = {jar.name: jar for jar in jars.BROKER.read_lock()}
    assert {"kafka_2.13", "kafka-clients", "kafka-tools", "log4j-slf4j-impl", "scala-logging_2.13"} <= lock.keys()
    assert lock["kafka_2.13"].version == lock["kafka-tools"].version == jars.KAFKA_VERSION
    assert all(re.fullmatch("[0-9a-f]{64}", jar.sha256) for jar in lock.values())
    assert len({jar.file for jar in lock.values()}) == len(lock)


def test_every_root_of_the_lock_is_in_it() -> None:
    locked = {(jar.organisation, jar.name, jar.version) for jar in jars.BROKER.read_lock()}
    assert {root[:3] for root in jars.BROKER.roots} <= locked


def test_the_jars_are_downloaded_once(fake_ivy: FakeIvy, cache: Path) -> None:
    fake_ivy.delivers()
    first = ensure_jars()
    jars._is_good.cache_clear()
    assert ensure_jars() == first
    assert len(fake_ivy.runs) == 1
    assert [path.read_text() for path in first] == ["the first jar", "the second jar"]
    assert [path.name for path in cache.iterdir() if path.name.startswith(".fetch-")] == []


def test_progress_is_reported_jar_by_jar(fake_ivy: FakeIvy) -> None:
    fake_ivy.does(
        "echo '\t[SUCCESSFUL ] org.example#alpha;1.0!alpha.jar (5ms)'; printf 'the first jar' > $out/alpha-1.0.jar",
        "echo '\t[SUCCESSFUL ] org.example#beta;1.0!beta.jar (5ms)'; printf 'the second jar' > $out/beta-1.0.jar",
    )
    seen: list[tuple[str, int, int]] = []
    ensure_jars(lambda *step: seen.append(step))
    assert seen == [("downloading", 0, 2), ("downloading", 1, 2), ("downloading", 2, 2), ("checking", 2, 2)]


def test_a_download_that_differs_from_the_lock_is_refused_and_not_kept(fake_ivy: FakeIvy, cache: Path) -> None:
    fake_ivy.delivers(beta="something else")
    with pytest.raises(CorruptDownload, match=r"beta-1\.0\.jar is corrupt.*Run the command again") as caught:
        ensure_jars()
    assert caught.value.path.name == "beta-1.0.jar"
    assert list(cache.rglob("*.jar")) == []
    fake_ivy.delivers()
    assert len(ensure_jars()) == 2


def test_a_download_that_lacks_a_jar_is_refused(fake_ivy: FakeIvy) -> None:
    fake_ivy.does("printf 'the first jar' > $out/alpha-1.0.jar")
    with pytest.raises(CorruptDownload, match=r"beta-1\.0\.jar"):
        ensure_jars()


def test_a_download_with_an_unexpected_jar_is_refused(fake_ivy: FakeIvy) -> None:
    fake_ivy.delivers(gamma="a stranger")
    with pytest.raises(CorruptDownload, match=r"gamma-1\.0\.jar"):
        ensure_jars()


@pytest.mark.parametrize("damage", ["changed", "missing", "added"])
def test_a_damaged_cache_is_replaced_by_a_fresh_download(fake_ivy: FakeIvy, damage: str) -> None:
    fake_ivy.delivers()
    victim = ensure_jars()[0]
    if damage == "changed":
        victim.write_text("damaged")
    elif damage == "missing":
        victim.unlink()
    else:
        victim.with_name("stranger.jar").write_text("a stranger")
    jars._is_good.cache_clear()
    assert ensure_jars()[0].read_text() == "the first jar"
    assert len(fake_ivy.runs) == 2
    assert {path.name for path in victim.parent.glob("*.jar")} == {"alpha-1.0.jar", "beta-1.0.jar"}


def test_a_failing_download_is_tried_again(fake_ivy: FakeIvy) -> None:
    fake_ivy.does(
        'if [ "$run" -lt 3 ]; then echo "connection reset"; exit 1; fi',
        "printf 'the first jar' > $out/alpha-1.0.jar; printf 'the second jar' > $out/beta-1.0.jar",
    )
    assert len(ensure_jars()) == 2
    assert len(fake_ivy.runs) == 3


def test_a_download_that_keeps_failing_ends_with_what_ivy_said(fake_ivy: FakeIvy) -> None:
    fake_ivy.does("echo ':::: WARNINGS'; echo 'module not found: org.example#alpha'; exit 1")
    with pytest.raises(
        EmbeddedBrokerError,
        match=r"(?s)the broker's jars failed in 3 attempts.*module not found.*LVQ_IVY_SETTINGS",
    ):
        ensure_jars()
    assert len(fake_ivy.runs) == ivy.ATTEMPTS


def test_another_set_of_jars_has_its_own_directory_and_name(fake_ivy: FakeIvy, cache: Path) -> None:
    others = replace(jars.BROKER, what="jars of something else", directory="other")
    fake_ivy.delivers()
    assert others.ensure()[0].parent.parent == cache
    assert others.ensure()[0].parent.name.startswith("other-")
    assert len(ensure_jars()) == 2
    assert len(fake_ivy.runs) == 2, "each is fetched for itself"
    fake_ivy.does("exit 1")
    with pytest.raises(EmbeddedBrokerError, match="Downloading the jars of something else failed"):
        replace(others, directory="another").ensure()


def test_a_certificate_that_java_does_not_trust_is_explained(fake_ivy: FakeIvy) -> None:
    fake_ivy.does("echo 'SSLHandshakeException: PKIX path building failed'; exit 1")
    with pytest.raises(EmbeddedBrokerError, match="SSL_CERT_FILE"):
        ensure_jars()


def test_a_full_disk_during_the_download_names_the_cache(fake_ivy: FakeIvy, cache: Path) -> None:
    fake_ivy.does("echo 'java.io.IOException: No space left on device'; exit 1")
    with pytest.raises(DiskFull) as caught:
        ensure_jars()
    assert caught.value.path == cache
    assert len(fake_ivy.runs) == 1


def test_concurrent_callers_download_once(fake_ivy: FakeIvy) -> None:
    fake_ivy.delivers()
    with ThreadPoolExecutor(4) as pool:
        results = list(pool.map(lambda _: ensure_jars(), range(4)))
    assert all(result == results[0] for result in results)
    assert len(fake_ivy.runs) == 1


def test_what_a_killed_download_left_behind_is_removed(fake_ivy: FakeIvy, cache: Path) -> None:
    stale = cache / ".fetch-stale" / "jars"
    stale.mkdir(parents=True)
    (stale / "alpha-1.0.jar").write_text("half of")
    fake_ivy.delivers()
    ensure_jars()
    assert not stale.parent.exists()


def test_a_mirror_is_given_by_an_ivy_settings_file(
    fake_ivy: FakeIvy, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = tmp_path / "mirror.xml"
    monkeypatch.setenv("LVQ_IVY_SETTINGS", str(settings))
    fake_ivy.delivers()
    with pytest.raises(EmbeddedBrokerError, match="does not exist"):
        ensure_jars()
    settings.write_text("<ivysettings/>")
    ensure_jars()
    assert f"-settings {settings} " in fake_ivy.runs[0]


def test_without_pyspark_the_error_says_which_extra_to_install(
    fake_ivy: FakeIvy, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake_ivy.delivers()
    monkeypatch.setattr(ivy.importlib.util, "find_spec", lambda name: None)
    with pytest.raises(MissingExtra, match=r"lvq-kafka\[embedded\]") as caught:
        ensure_jars()
    assert caught.value.extra == "embedded"


def test_an_unwritable_cache_names_the_variable_that_moves_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("LVQ_CACHE_DIR", str(tmp_path / "file" / "cache"))
    with pytest.raises(EmbeddedBrokerError, match="LVQ_CACHE_DIR"):
        ensure_jars()
