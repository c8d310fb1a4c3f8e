"""Fixtures for parts of the embedded broker that need neither a broker nor a network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path

import pytest

from lvq_kafka.embedded import jars, java
from tests.unit.embedded.serving import FakeRepository, serve

LOCKED = {"alpha-1.0.jar": "the first jar", "beta-1.0.jar": "the second jar"}


@pytest.fixture(autouse=True)
def _fresh_caches() -> None:
    java._probe.cache_clear()
    jars._are_good.cache_clear()


@pytest.fixture(autouse=True)
def _no_network_settings(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hide this machine's proxies and authorities."""
    named = ("HTTP_PROXY", "HTTPS_PROXY", "ALL_PROXY", "NO_PROXY")
    for name in (
        *named,
        *map(str.lower, named),
        "SSL_CERT_FILE",
        "REQUESTS_CA_BUNDLE",
        "CURL_CA_BUNDLE",
        "LVQ_IVY_SETTINGS",
    ):
        monkeypatch.delenv(name, raising=False)


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return an empty cache directory, which is the user's during the test."""
    path = tmp_path / "cache"
    monkeypatch.setenv("LVQ_CACHE_DIR", str(path))
    return path


@pytest.fixture
def script(tmp_path: Path) -> Callable[[str, str], Path]:
    """Return a function that writes an executable shell script."""

    def write(name: str, body: str) -> Path:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{body}\n")
        path.chmod(0o755)
        return path

    return write


@pytest.fixture
def two_jars(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use a lock file of two small jars."""
    lock = tmp_path / "small.lock"
    digests = {name: hashlib.sha256(content.encode()).hexdigest() for name, content in LOCKED.items()}
    lines = [f"org.example {name.removesuffix('-1.0.jar')} 1.0 {digest}" for name, digest in digests.items()]
    lock.write_text("\n".join(["# a comment", *lines, ""]))
    monkeypatch.setattr(jars, "BROKER", replace(jars.BROKER, lock_file=lock))


@pytest.fixture
def settings(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Return a function that names a mirror in the user's Maven settings, and adds other elements."""
    path = tmp_path / "settings.xml"
    monkeypatch.setenv("LVQ_MAVEN_SETTINGS", str(path))

    def write(url: str, others: str = "", pattern: str = "*") -> None:
        path.write_text(
            '<?xml version="1.0"?><settings xmlns="http://maven.apache.org/SETTINGS/1.2.0"><mirrors>'
            f"<mirror><id>ours</id><mirrorOf>{pattern}</mirrorOf><url>{url}</url></mirror></mirrors>{others}</settings>"
        )

    return write


@pytest.fixture
def repository(
    two_jars: None, cache: Path, settings: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> Iterator[FakeRepository]:
    """Return a repository that has the jars of the lock, and is the user's mirror of the public one."""
    files = {f"org/example/{name.partition('-')[0]}/1.0/{name}": content.encode() for name, content in LOCKED.items()}
    fake = FakeRepository(files)
    monkeypatch.setattr("lvq_kafka.embedded.repository.PAUSE", 0.0)
    monkeypatch.setattr("lvq_kafka.embedded.repository.CHUNK", 2)
    with serve(fake):
        settings(fake.url)
        yield fake
