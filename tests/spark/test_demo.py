"""`make demo`, as a stranger runs it first: with a broker of its own, and a Spark session of its own."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.waiting import eventually

MARK = "LVQ_TEST_DEMO"


@pytest.mark.timeout(300)
def test_the_tour_holds(tmp_path: Path) -> None:
    mark, temporary = uuid.uuid4().hex, tmp_path / "temporary"
    temporary.mkdir()
    environment = {**os.environ, MARK: mark, "TMPDIR": str(temporary), "LVQ_TEST_BROKER": "embedded"}
    command = [sys.executable, "-m", "lvq_kafka.demo"]
    tour = subprocess.run(command, capture_output=True, text=True, timeout=280, env=environment)
    assert tour.returncode == 0, tour.stdout + tour.stderr
    assert "✗" not in tour.stdout
    said = re.search(r"^All (\d+) checks hold\.$", tour.stdout, re.MULTILINE)
    assert said is not None, tour.stdout
    assert tour.stdout.count("✓") == int(said[1]) >= 12
    assert "the broker and its data are gone" in tour.stdout
    eventually(lambda: not marked_processes(mark), 30)
    assert [path.name for path in temporary.iterdir()] == [], "with its data, the broker's topics are gone"


def marked_processes(mark: str) -> list[int]:
    """The processes that the tour has started, and those that they have."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has ended, or is somebody else's
            continue
    return found
