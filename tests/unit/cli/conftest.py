"""Fixtures that run ``lvq`` on an in-memory cluster."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import pytest
from click.testing import CliRunner

from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.output import Output
from lvq_kafka.testing import MemoryCluster


@dataclass(frozen=True)
class Ran:
    """The result of a run."""

    code: int
    stdout: bytes
    stderr: str

    @property
    def text(self) -> str:
        return self.stdout.decode()

    @property
    def rows(self) -> list[dict[str, Any]]:
        return [json.loads(line) for line in self.text.splitlines()]

    @property
    def row(self) -> dict[str, Any]:
        (row,) = self.rows
        return row


Run = Callable[..., Ran]


@pytest.fixture
def run(memory_cluster: MemoryCluster, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Return a function that runs ``lvq``; ``person`` means that a person reads the output."""
    monkeypatch.setenv("COLUMNS", "100")

    def run(*arguments: str, stdin: str | bytes | None = None, person: bool = False) -> Ran:
        invocation = Invocation(cluster=memory_cluster, out=Output(person))
        result = CliRunner().invoke(lvq, arguments, input=stdin, obj=invocation, prog_name="lvq")
        return Ran(result.exit_code, result.stdout_bytes, result.stderr)

    return run


@pytest.fixture
def prices(run: Run) -> Run:
    """Return ``run``, with a queue ``prices`` that holds IBM and MSFT."""
    assert run("declare", "prices", "--key-header", "ticker").code == 0
    assert run("send", "prices", "118.50", "-H", "ticker=IBM", "-H", "exchange=NYSE").code == 0
    assert run("put", "prices", "MSFT", "402.10").code == 0
    return run
