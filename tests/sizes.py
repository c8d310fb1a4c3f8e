"""The disk space that the extras take: ``python -m tests.sizes`` fails if one takes more than it may.

It counts the installed files of every package that an extra needs beyond the library's own, in the versions of
`requirements.lock`, without bytecode.
"""

from __future__ import annotations

import sys
from importlib.metadata import distribution

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lvq_kafka.embedded.jars import BROKER

LIMITS = {"embedded": 180}
"""The most megabytes that an extra may take."""


def needed(package: str, *extras: str) -> set[str]:
    """Return the names of the packages that a package needs, with some of its extras, on this platform."""
    seen: set[Requirement] = set()
    waiting = [Requirement(f"{package}[{','.join(extras)}]")]
    while waiting:
        requirement = waiting.pop()
        if requirement in seen:
            continue
        seen.add(requirement)
        for line in distribution(requirement.name).requires or ():
            found = Requirement(line)
            environments = [{"extra": extra} for extra in requirement.extras or {""}]
            if found.marker is None or any(map(found.marker.evaluate, environments)):
                found.marker = None
                waiting.append(found)
    return {canonicalize_name(requirement.name) for requirement in seen} - {canonicalize_name(package)}


def installed(package: str) -> int:
    """Return the size of a package's files in bytes."""
    files = [file for file in distribution(package).files or () if "__pycache__" not in file.parts]
    return sum(path.stat().st_size for path in map(distribution(package).locate_file, files) if path.exists())


def jars() -> str:
    """Return what the embedded broker's first start fetches, with its size if it is in the cache."""
    paths = [BROKER.home / jar.file for jar in BROKER.read_lock()]
    if not all(path.exists() for path in paths):
        return f"{len(paths)} jars come with the first start"
    return f"{len(paths)} jars, {sum(path.stat().st_size for path in paths) / 1e6:.0f} MB, come with the first start"


def main() -> None:
    library = needed("lvq-kafka")
    for extra, limit in LIMITS.items():
        sizes = {package: installed(package) / 1e6 for package in needed("lvq-kafka", extra) - library}
        total, largest = sum(sizes.values()), max(sizes, key=lambda package: sizes[package])
        print(f"extra {extra}: {total:.0f} MB of at most {limit} ({largest}: {sizes[largest]:.0f} MB); {jars()}")
        if total > limit:
            sys.exit(f"The extra {extra} takes more than {limit} MB with " + ", ".join(sorted(sizes)))


if __name__ == "__main__":
    main()
