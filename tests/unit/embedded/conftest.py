"""Fixtures for parts of the embedded broker that need neither a broker nor a network."""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from lvq_kafka.embedded import ivy, jars, java

LOCKED = {"alpha-1.0.jar": "the first jar", "beta-1.0.jar": "the second jar"}


@pytest.fixture(autouse=True)
def _fresh_caches() -> None:
    java._probe.cache_clear()
    jars._is_good.cache_clear()


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


@dataclass(frozen=True)
class FakeIvy:
    """A shell script in place of the Java that runs Ivy."""

    directory: Path
    write: Callable[[str, str], Path]

    def does(self, *commands: str) -> None:
        """Set the commands of a download; ``$out`` is the directory for the jars, ``$run`` counts the runs."""
        self.write(
            "java",
            "\n".join([
                'if [ "$1" = -version ]; then echo \'openjdk version "21.0.1"\'; exit 0; fi',
                f'echo "$@" >> "{self.directory}/runs"; run=$(wc -l < "{self.directory}/runs")',
                'for last in "$@"; do :; done; out=$(dirname "$last"); mkdir -p "$out"',
                *commands,
            ]),
        )  # fmt: skip

    def delivers(self, **contents: str) -> None:
        """Have it write the jars of the lock file, with ``contents`` changed or added."""
        files = LOCKED | {f"{name}-1.0.jar": content for name, content in contents.items()}
        self.does(*(f"printf '%s' '{content}' > \"$out/{name}\"" for name, content in files.items()))

    @property
    def runs(self) -> list[str]:
        """Return the arguments of each run so far."""
        path = self.directory / "runs"
        return path.read_text().splitlines() if path.exists() else []


@pytest.fixture
def fake_ivy(
    tmp_path: Path, script: Callable[[str, str], Path], two_jars: None, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> FakeIvy:
    monkeypatch.setenv("LVQ_JAVA", str(tmp_path / "java"))
    monkeypatch.setattr(ivy, "PAUSE", 0.0)
    return FakeIvy(tmp_path, script)
