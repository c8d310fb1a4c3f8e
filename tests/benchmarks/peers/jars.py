"""The peers' released jars, fetched once per user with the library's own Ivy, and checked against the locks here.

``python -m tests.benchmarks.peers.jars`` fetches them; with ``--relock`` it resolves them again and writes the locks.
"""

from __future__ import annotations

import argparse
import hashlib
import shutil
import tempfile
from collections.abc import Iterable, Sequence
from pathlib import Path

from lvq_kafka.embedded.cache import cache_dir, locked
from lvq_kafka.embedded.ivy import Module, retrieve
from lvq_kafka.embedded.jars import Jar

ARTEMIS = "2.55.0"  # the newest whose AMQP module can be fetched
BROKER_J = "10.1.0"

# Roots of the locks. Broker-J's own bundle depends on a database that the public repository lacks, so its parts are
# named here: the protocol, and the durable store that comes with it.
ROOTS = {
    "artemis": (
        Module("org.apache.artemis", "artemis-server", ARTEMIS, transitive=True),
        Module("org.apache.artemis", "artemis-amqp-protocol", ARTEMIS, transitive=True),
        Module("org.slf4j", "slf4j-simple", "2.0.18"),
    ),
    "broker-j": (
        Module("org.apache.qpid", "qpid-broker", BROKER_J),
        Module("commons-cli", "commons-cli", "1.11.0"),
        Module("org.apache.qpid", "qpid-broker-core", BROKER_J, transitive=True),
        Module("org.apache.qpid", "qpid-broker-plugins-amqp-1-0-protocol", BROKER_J, transitive=True),
        Module("org.apache.qpid", "qpid-broker-plugins-derby-store", BROKER_J, transitive=True),
        Module("org.apache.qpid", "qpid-broker-plugins-logging-logback", BROKER_J, transitive=True),
    ),
}


PATTERN = "jars/[artifact]-[revision].[ext]"


def ensure(peer: str) -> list[Path]:
    """Return the paths of a peer's jars, fetching them if they are not in the cache.

    Raises:
        RuntimeError: the jars do not match the lock. A bad download is not kept.
        EmbeddedBrokerError: the download failed.
    """
    lock = _read(peer)
    home = cache_dir() / f"peer-{peer}-{hashlib.sha256(_text(lock).encode()).hexdigest()[:8]}"
    with locked(cache_dir() / "jars.lock"):
        if not home.exists():
            _fetch(lock, home)
    _verify(lock, home)
    return [home / jar.file for jar in lock]


def relock(peer: str) -> None:
    """Resolve a peer's jars again and rewrite its lock.

    The digests come from a second, pinned fetch: where a module has platform jars next to its own (Netty's native
    transports), the first fetch brings either. Without those, the JVM's own sockets are used.
    """
    with tempfile.TemporaryDirectory() as work:
        pattern = "found/[organisation]/[module]/[revision]/[artifact].[ext]"
        retrieve(ROOTS[peer], pattern, Path(work), pinned=False)
        found = sorted(path.relative_to(Path(work, "found")).parts[:3] for path in Path(work, "found").rglob("*.jar"))
        jars = [Jar(organisation, name, version, "") for organisation, name, version in found]
        retrieve([Module(*jar[:3]) for jar in jars], PATTERN, Path(work), pinned=True)
        jars = [jar._replace(sha256=_sha256(Path(work, "jars", jar.file))) for jar in jars]
    header = "# organisation, name, version, sha256. Written by: python -m tests.benchmarks.peers.jars --relock\n"
    _lock_file(peer).write_text(header + _text(jars), encoding="ascii")


def _fetch(lock: Sequence[Jar], home: Path) -> None:
    with tempfile.TemporaryDirectory(prefix=".fetch-", dir=home.parent, ignore_cleanup_errors=True) as work:
        modules = [Module(jar.organisation, jar.name, jar.version) for jar in lock]
        retrieve(modules, PATTERN, Path(work), pinned=True)
        _verify(lock, Path(work, "jars"))
        shutil.move(Path(work, "jars"), home)


def _verify(lock: Iterable[Jar], directory: Path) -> None:
    for jar in lock:
        path = directory / jar.file
        if not path.exists() or _sha256(path) != jar.sha256:
            raise RuntimeError(f"{path} is missing or not the file that the lock names")


def _read(peer: str) -> tuple[Jar, ...]:
    lines = _lock_file(peer).read_text(encoding="ascii").splitlines()
    return tuple(Jar(*line.split()) for line in lines if not line.startswith("#"))


def _text(jars: Iterable[Jar]) -> str:
    return "".join(" ".join(jar) + "\n" for jar in jars)


def _lock_file(peer: str) -> Path:
    return Path(__file__).with_name(f"{peer}.lock")


def _sha256(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--relock", action="store_true")
    parser.add_argument("peer", nargs="*", choices=[*ROOTS, []])
    options = parser.parse_args()
    for peer in options.peer or ROOTS:
        if options.relock:
            relock(peer)
        print(peer, len(ensure(peer)), "jars")


if __name__ == "__main__":
    main()
