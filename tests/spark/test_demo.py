"""`make demo`, as a stranger first runs it: with its own broker and its own Spark session."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from pathlib import Path

import pytest

from tests.waiting import eventually

MARK = "LVQ_TEST_DEMO"


COMMAND = [sys.executable, "-m", "lvq_kafka.demo"]


@pytest.fixture
def temporary(tmp_path: Path) -> Path:
    """Return the folder of all the tour's temporary files."""
    path = tmp_path / "temporary"
    path.mkdir()
    return path


@pytest.fixture
def mark() -> str:
    return uuid.uuid4().hex


@pytest.fixture
def environment(temporary: Path, mark: str) -> dict[str, str]:
    return {**os.environ, MARK: mark, "TMPDIR": str(temporary), "LVQ_TEST_BROKER": "embedded"}


@pytest.mark.timeout(300)
def test_the_tour_holds(environment: dict[str, str], mark: str, temporary: Path) -> None:
    tour = subprocess.run(COMMAND, capture_output=True, text=True, timeout=280, env=environment)
    assert tour.returncode == 0, tour.stdout + tour.stderr
    assert "✗" not in tour.stdout
    said = re.search(r"^All (\d+) checks passed\.$", tour.stdout, re.MULTILINE)
    assert said is not None, tour.stdout
    assert tour.stdout.count("✓") == int(said[1]) >= 12
    assert "the broker and its data are gone" in tour.stdout
    eventually(lambda: not marked_processes(mark), 30)
    assert [path.name for path in temporary.iterdir()] == [], "with its data, the broker's topics are gone"


@pytest.mark.parametrize("seen", ["lvq-kafka on a real Kafka", "killed the first worker"])
def test_ctrl_c_leaves_nothing_behind(environment: dict[str, str], mark: str, temporary: Path, seen: str) -> None:
    """At the first text, Spark is still starting; at the second, workers are busy."""
    settings = {"PYTHONUNBUFFERED": "1", "PYTHONFAULTHANDLER": "1"}
    with subprocess.Popen(
        COMMAND, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment | settings
    ) as tour:
        assert tour.stdout is not None
        assert any(seen in line for line in tour.stdout)
        tour.send_signal(signal.SIGINT)
        try:
            said, complained = tour.communicate(timeout=100)
        except subprocess.TimeoutExpired:
            tour.send_signal(signal.SIGABRT)  # it then says what each of its threads does
            pytest.fail("Ctrl-C did not end it:\n" + "".join(tour.communicate()))
    assert said.splitlines()[-1] == "stopped; broker and data are gone"
    assert complained == ""
    assert tour.returncode == 130
    eventually(lambda: not marked_processes(mark), 30)
    assert [path.name for path in temporary.iterdir()] == []


def marked_processes(mark: str) -> list[int]:
    """Return the processes that the tour has started, and their descendants."""
    wanted = f"{MARK}={mark}".encode()
    found = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            if wanted in (process / "environ").read_bytes().split(b"\0"):
                found.append(int(process.name))
        except OSError:  # it has ended, or belongs to another user
            continue
    return found
