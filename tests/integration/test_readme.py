"""The README's first ten minutes, followed to the letter on a real broker."""

from __future__ import annotations

import os
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue
from lvq_kafka.cluster import Cluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.readme import after, block


@pytest.fixture
def prices(kafka_cluster: Cluster) -> object:
    yield None
    LastValueQueue.open("prices", cluster=kafka_cluster).drop(delete_topic=True)


def test_the_first_example_and_the_shell_commands_do_what_they_say(
    broker: ProvidedBroker, prices: object, capsys: pytest.CaptureFixture[str]
) -> None:
    program = block("python", "producer.send(Message(").replace("localhost:9092", broker.bootstrap_servers, 1)
    exec(program, {})
    assert capsys.readouterr().out == after(program.splitlines()[-1])

    environment = os.environ | {"LVQ_BOOTSTRAP_SERVERS": broker.bootstrap_servers}
    lvq = Path(sys.executable).parent / "lvq"
    for line in block("sh", "lvq put prices").splitlines():
        command = shlex.split(line, comments=True)
        if command[1] in ("watch", "broker"):
            continue  # one goes on for ever, the other is about another broker; tests/integration/test_cli.py has both
        done = subprocess.run([lvq, *command[1:]], env=environment, capture_output=True, text=True, timeout=60)
        assert done.returncode == 0, done.stderr
        if command[1] == "browse":
            assert '"119.25"' in done.stdout
            assert "27.95" not in done.stdout, "what was consumed is hidden"
