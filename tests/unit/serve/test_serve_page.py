"""The page about HTTP: every command on it runs, with the real curl, and prints what the page shows (R46)."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from fastapi.testclient import TestClient

import lvq_kafka.kafka
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.serve import app
from lvq_kafka.serve.event_routes import answer_events
from lvq_kafka.serve.problems import STATUS
from lvq_kafka.serve.routes import ROUTES
from lvq_kafka.testing import MemoryCluster
from tests.event_parser import EventParser
from tests.listening import listening
from tests.pages import Block, blocks, lvq_commands, page
from tests.waiting import eventually

PAGE = "docs/how-to/serve.md"
TIMED_OUT = 28  # curl's exit code with --max-time


class Reader:
    """Somebody who does what the page says, in a directory of his own."""

    def __init__(self, cluster: MemoryCluster, place: Path, opened: ExitStack) -> None:
        self._cluster = cluster
        self._place = place
        self._opened = opened
        self.names: dict[str, Any] = {}
        self.served: Any = None
        self._port = 0
        self._waiting: subprocess.Popen[str] | None = None
        self.printed: list[tuple[str, str]] = []
        """The output of each block that calls curl, and that on the page."""

    def do(self, block: Block) -> None:
        if block.language == "python":
            exec(compile(block.body, PAGE, "exec"), self.names)
        elif "lvq serve" in block.body:
            noon = self.names["noon"]
            view = self._opened.enter_context(noon.view())
            self.served = app(view, writable=[noon] if "--writable" in block.body else False)
            self._port = self._opened.enter_context(listening(self.served, "on"))
        elif "curl" in block.body:
            self._call(block)
        elif block.language == "sh" and block.body.startswith("lvq put"):
            self._write(block)

    def _call(self, block: Block) -> None:
        script = block.body.replace("localhost:8080", f"localhost:{self._port}")
        curl = subprocess.Popen(["bash", "-c", script], stdout=subprocess.PIPE, text=True, cwd=self._place)
        if "wait=30" in script:
            self._waiting = curl
            eventually(lambda: self.served.open_streams == 1)
            return
        printed, _ = curl.communicate(timeout=30)
        assert curl.returncode in (0, TIMED_OUT), script
        self.printed.append((printed, block.output or ""))

    def _write(self, block: Block) -> None:
        commands: Iterator[Sequence[str]] = lvq_commands(block.body)
        for command in commands:
            invocation = Invocation(cluster=self._cluster, out=Output(False))
            assert CliRunner().invoke(lvq, command, obj=invocation, prog_name="lvq").exit_code == 0
        assert self._waiting is not None
        self.printed.append((self._waiting.communicate(timeout=30)[0], block.output or ""))


def events(text: str) -> list[str]:
    return [event.name for event in EventParser().feed(text.encode())]


def test_r46_curl_does_what_the_page_shows(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lvq_kafka.kafka, "KafkaCluster", lambda config: memory_cluster)
    monkeypatch.setattr(memory_cluster, "close", lambda: None)
    with ExitStack() as opened:
        reader = Reader(memory_cluster, tmp_path, opened)
        for block in blocks(PAGE):
            reader.do(block)
        got, known, changed, read, listed, exported, followed, resumed, *written, authorized = reader.printed
        assert len(written) == 4
        for printed, shown in (got, known, changed, read, *written):
            assert printed.strip() == shown.strip() != ""
        assert [row["value"] for row in json.loads(listed[0])["values"]] == ["119.00"]
        assert json.loads((tmp_path / "noon-prices.jsonl").read_text().splitlines()[-1])["event"] == "end-of-dump"
        assert (tmp_path / "noon-prices.csv").read_text().startswith("key,value,position,timestamp,base64")
        assert exported[0] == ""
        assert events(followed[0]) == ["state", "reset", "value", "value", "end-of-dump"]
        assert list(dict.fromkeys(events(followed[0]))) == events(f"{followed[1]}\n")
        assert events(resumed[0]) == ["state", "end-of-dump"], "nothing has changed since, and nothing starts over"
        assert authorized[0] == "119.00"
        with TestClient(reader.names["service"], base_url="http://localhost") as client:
            eventually(lambda: client.get("/lvq/ready").status_code == 200)
            assert client.get("/lvq/v1/queues/noon-prices/values/IBM").text == "119.00"


def test_the_page_names_all_routes_events_and_statuses() -> None:
    text = page(PAGE)
    for route in ROUTES:
        words = route.path.replace("{queue}", "noon-prices").replace("{key}", "")
        assert words in text, route.path
    assert answer_events in {route.answer for route in ROUTES}
    for status in {status for _, status in STATUS} - {500, 501}:
        assert f"| {status}" in text or f", {status}" in text, status
