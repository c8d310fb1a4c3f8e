"""The page about browsers: its programs run in Node (R47)."""

from __future__ import annotations

import subprocess
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest

import lvq_kafka.kafka
from lvq_kafka.serve import app
from lvq_kafka.testing import MemoryCluster
from tests.listening import listening
from tests.nodejs import NODE, WEB
from tests.pages import blocks

PAGE = "docs/how-to/board.md"


def test_r47_the_programs_on_the_page_run_in_node(
    memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(lvq_kafka.kafka, "KafkaCluster", lambda config: memory_cluster)
    monkeypatch.setattr(memory_cluster, "close", lambda: None)
    (declaring,) = (each.body for each in blocks(PAGE) if each.language == "python")
    names: dict[str, Any] = {}
    exec(compile(declaring, PAGE, "exec"), names)
    on_page, in_node = (each for each in blocks(PAGE) if each.language == "js")
    with ExitStack() as opened:
        view = opened.enter_context(names["evening"].view())
        served = app(view)
        port = opened.enter_context(listening(served))
        opened.callback(served.end_streams)
        (tmp_path / "lvq.js").write_bytes((WEB / "lvq.js").read_bytes())
        (tmp_path / "package.json").write_text('{"type": "module"}')

        def run(program: str) -> str:
            (tmp_path / "program.js").write_text(program.replace("localhost:8080", f"127.0.0.1:{port}"))
            done = subprocess.run([NODE, "program.js"], cwd=tmp_path, capture_output=True, text=True, timeout=60)
            assert done.returncode == 0, done.stderr
            return done.stdout

        assert run(in_node.body) == in_node.output
        named = on_page.body.replace('"/lvq.js"', '"./lvq.js"').replace(
            'follow("evening-prices", {', 'follow("evening-prices", {\n  base: "http://localhost:8080",'
        )
        shown = run(f"{named}\nprices.close();\n").splitlines()
        assert "IBM undefined 118.50 loaded" in shown
        assert "118.50" in shown
        assert shown[-1].startswith("closed ")
