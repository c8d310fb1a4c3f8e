"""`lvq exporter`: the metrics of all queues for Prometheus, from a process (R48)."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx

from tests.unit.cli.conftest import Run
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]
TOKEN = "a" * 32


@contextmanager
def exporting(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    command = [sys.executable, "-m", "tests.unit.cli.memory_lvq", "exporter", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            yield server, json.loads(server.stdout.readline())["url"]
        finally:
            server.kill()


def test_r48_lvq_exporter_shows_all_queues_until_a_signal_ends_it() -> None:
    with exporting("--every", "0.05") as (server, url):
        shown = 'lvq_queue_depth{lvq_priority="",lvq_queue="prices",messaging_destination_name="prices"} 2.0'
        text = eventually(lambda: shown in (found := httpx.get(url, timeout=20).text) and found)
        assert 'lvq_queue_consumers{lvq_queue="prices",messaging_destination_name="prices"} 0.0' in text
        assert httpx.get(url, headers={"Host": "evil.example"}, timeout=20).status_code == 421
        assert httpx.get(url.replace("/metrics", "/ready"), timeout=20).status_code == 200
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 128 + signal.SIGTERM
        assert server.stderr is not None
        assert server.stderr.read() == ""


def test_r46_r48_lvq_exporter_asks_for_a_token_where_there_are_tokens(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text(f"{TOKEN} *\n")
    with exporting("--token-file", str(tmp_path / "tokens")) as (_, url):
        assert httpx.get(url, timeout=20).status_code == 401
        authorized = {"Authorization": f"Bearer {TOKEN}"}
        eventually(lambda: "lvq_queue_up" in httpx.get(url, headers=authorized, timeout=20).text)


def test_lvq_exporter_warns_where_everybody_can_read_it(run: Run, tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("short *\n")
    ran = run("exporter", "--port", "0", "--token-file", str(tmp_path / "tokens"))
    assert (ran.code, "Line 1 of" in ran.stderr) == (2, True)
    ran = run("exporter", "--port", "0", "--every", "0")
    assert ran.code == 2
