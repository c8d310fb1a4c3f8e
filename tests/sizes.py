"""The disk space that the extras take: ``python -m tests.sizes`` installs each in a fresh environment.

It installs the packages that an extra needs beyond the library's own, in the versions of `requirements.lock`, and
counts their files without bytecode. An extra that takes more than `pyproject.toml` allows is an error, and so is one of
which the README says something else.
"""

from __future__ import annotations

import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterable, Iterator, Mapping
from importlib.metadata import distribution
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

from lvq_kafka.embedded.jars import BROKER
from tests.pages import page
from tests.running import ROOT

_PYPROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())

EXTRAS = tuple(_PYPROJECT["project"]["optional-dependencies"])
LIMITS: Mapping[str, float] = _PYPROJECT["tool"]["lvq-kafka"]["megabytes"]
"""The most megabytes that an extra may take."""

NOT_LOCKED = ("bridge",)
"""Extras that the lock does not have: their packages are built where they are installed, by a compiler of C."""

_UV = Path(sys.executable).with_name("uv")
_TOLERANCE = 0.15  # by which the README may differ: it gives round numbers
_SMALL = 0.1  # megabytes


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


def stated(extra: str) -> float | None:
    """Return the megabytes that the README says of an extra; None if it says nothing."""
    said = re.search(rf"`{extra}`\s([0-9.]+) (MB|GB)", page("README.md"))
    return None if said is None else float(said[1]) * (1000 if said[2] == "GB" else 1)


def agrees(stated: float, measured: float) -> bool:
    """Return whether a statement is about what was measured, both in megabytes."""
    return abs(stated - measured) <= max(_SMALL, _TOLERANCE * measured)


def measure(packages: Iterable[str]) -> float:
    """Return the megabytes of these packages in an environment that has nothing else."""
    # Beside our own environment, to which uv links its cache as well: nothing is copied.
    with tempfile.TemporaryDirectory(prefix="sizes-", dir=Path(sys.prefix)) as folder:
        wanted, there = Path(folder, "wanted.txt"), Path(folder, "environment")
        wanted.write_text("\n".join(_locked(set(packages))))
        python = ["--python", str(there)]
        _run("venv", "--quiet", "--python", sys.executable, str(there))
        before = _size(there)
        # Without looking at what they need: for PySpark that alone would fetch and unpack half a gigabyte.
        _run("pip", "install", "--quiet", "--no-deps", "--require-hashes", *python, "-r", str(wanted))
        _run("pip", "check", "--quiet", *python)
        return (_size(there) - before) / 1e6


def _run(*arguments: str) -> None:
    done = subprocess.run([str(_UV), *arguments], capture_output=True, text=True, check=False, timeout=600)
    if done.returncode:
        sys.exit(f"uv {' '.join(arguments)} failed: {done.stderr}")


def _locked(packages: set[str]) -> Iterator[str]:
    """Yield the lines of the lock for these packages, with their hashes."""
    for entry in re.split(r"\n(?=\S)", (ROOT / "requirements.lock").read_text()):
        if canonicalize_name(re.split("[=; \\[]", entry)[0]) in packages:
            yield entry.rstrip()


def _size(folder: Path) -> int:
    return sum(path.lstat().st_size for path in folder.rglob("*") if path.is_file() and "__pycache__" not in path.parts)


def jars() -> str:
    """Return what the embedded broker's first start fetches, with its size if it is in the cache."""
    paths = [BROKER.home / jar.file for jar in BROKER.read_lock()]
    if not all(path.exists() for path in paths):
        return f"{len(paths)} jars come with the first start"
    return f"{len(paths)} jars, {sum(path.stat().st_size for path in paths) / 1e6:.0f} MB, come with the first start"


def main(extras: Iterable[str] = EXTRAS) -> None:
    library = needed("lvq-kafka")
    faults = []
    print(f"{'extra':<12} {'MB':>7} {'README':>7} {'limit':>6}  largest")
    for extra in extras:
        if extra in NOT_LOCKED:
            print(f"{extra:<12} {'':>7} {'':>7} {'':>6}  (not in requirements.lock)")
            continue
        packages = needed("lvq-kafka", extra) - library
        taken, limit, said = measure(packages), LIMITS[extra], stated(extra)
        largest = max(packages, key=installed)
        more = f"; {jars()}" if extra == "embedded" else ""
        print(
            f"{extra:<12} {taken:7.1f} {'' if said is None else format(said, 'g'):>7} {limit:6g}  "
            f"{largest} {installed(largest) / 1e6:.1f}{more}",
            flush=True,
        )
        if taken > limit:
            faults.append(
                f"The extra {extra} takes {taken:.1f} MB, more than {limit:g}, with {', '.join(sorted(packages))}."
            )
        if said is not None and not agrees(said, taken):
            faults.append(f"The extra {extra} takes {taken:.1f} MB, and README.md says {said:g}.")
    if faults:
        sys.exit("\n".join(faults))


if __name__ == "__main__":
    main()
