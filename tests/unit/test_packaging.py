"""What a user gets from the package index: one wheel with both packages and the files that they read."""

from __future__ import annotations

import configparser
import subprocess
import sys
from email.parser import Parser
from pathlib import Path
from zipfile import ZipFile

from lvq_kafka import __version__
from tests.running import ROOT


def sources(*packages: str) -> set[str]:
    """The files of these packages, by their names in a wheel."""
    return {
        f"{Path(package).name}/{path.relative_to(ROOT / package)}"
        for package in packages
        for path in (ROOT / package).rglob("*")
        if path.is_file() and path.parent.name != "__pycache__"
    }


def test_one_wheel_has_both_packages_and_their_data(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "hatchling", "build", "--target", "wheel", "--directory", str(tmp_path)]
    built = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=120)
    assert built.returncode == 0, built.stderr
    (wheel,) = tmp_path.glob("*.whl")
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
        "lvq_spark/connector/connector.lock",
        "lvq_kafka/embedded/log4j2.properties",
        f"{info}/licenses/LICENSE",
    } <= held
    assert {name for name in held if not name.startswith(info)} == sources("lvq_kafka", "spark/lvq_spark")

    assert entry_points["console_scripts"]["lvq"] == "lvq_kafka.cli:main"
    assert entry_points["pytest11"]["lvq_kafka"] == "lvq_kafka.testing.plugin"
    required = metadata.get_all("Requires-Dist", [])
    assert [line.split(">")[0] for line in required if "extra ==" not in line] == ["confluent-kafka"]
    assert set(metadata.get_all("Provides-Extra", [])) == {"cli", "spark", "embedded", "demo", "testing", "all"}
    assert metadata["Requires-Python"] == ">=3.11"
    assert metadata["Description-Content-Type"] == "text/markdown"
