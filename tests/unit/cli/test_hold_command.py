"""`lvq hold`: a process that keeps a store for others (R40, R41)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from lvq_kafka import TEXT, attach
from tests.unit.cli.conftest import Run
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_r41_lvq_hold_keeps_a_store_that_others_attach_and_closes_it_when_it_is_told_to_end(
    tmp_path: Path, number: signal.Signals
) -> None:
    place = tmp_path / "store"
    command = [sys.executable, "-m", "tests.unit.cli.memory_lvq", "hold", "prices", "--store", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        try:
            assert holder.stdout is not None
            row = json.loads(holder.stdout.readline())
            while row["state"] != "caught-up":
                row = json.loads(holder.stdout.readline())
            assert row.keys() == {"queue", "store", "state", "lag", "read", "to_read"}
            with attach(place, value=TEXT) as reader:
                price = reader["MSFT"]
                eventually(lambda: reader["MSFT"] != price)
                holder.send_signal(number)
                assert holder.wait(20) == 128 + number
                eventually(lambda: reader.state == "disconnected")
                assert "was closed" in str(reader.status.trouble)
        finally:
            holder.kill()
    assert json.loads((place / "store.json").read_text())["clean"] is True


def test_lvq_hold_ends_with_the_reason_if_there_is_no_such_queue_or_store(run: Run, tmp_path: Path) -> None:
    ran = run("hold", "prices", "--store", str(tmp_path / "store"))
    assert ran.code == 4
    assert "prices" in ran.stderr
    assert run("declare", "prices", "--key-header", "ticker").code == 0
    (tmp_path / "file").write_text("")
    ran = run("hold", "prices", "--store", str(tmp_path))
    assert ran.code == 2
    assert "is not a store" in ran.stderr
