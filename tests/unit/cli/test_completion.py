"""Completion in the shell: commands, queues and contexts, silently and in time."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest
from click.shell_completion import ShellComplete

from lvq_kafka.cli import completing
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.saved_contexts import SavedContexts
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.testing import MemoryCluster
from tests.unit.cli.conftest import Run

INSTALLER = "docker/install-test-tools.sh"
PROGRAM = str(Path(__file__).with_name("memory_lvq.py"))


def completed(invocation: Invocation, *words: str) -> list[str]:
    shell = ShellComplete(lvq, {"obj": invocation}, "lvq", "_LVQ_COMPLETE")
    return [item.value for item in shell.get_completions(list(words[:-1]), words[-1])]


def test_queues_are_completed_wherever_a_command_takes_one(prices: Run, memory_cluster: MemoryCluster) -> None:
    prices("declare", "prizes", "-k", "id")
    prices("declare", "users", "-k", "id")
    on = Invocation(cluster=memory_cluster)
    assert completed(on, "get", "pri") == ["prices", "prizes"]
    assert completed(on, "drop", "") == ["prices", "prizes", "users"]
    assert completed(on, "serve", "prices", "u") == ["users"]
    assert completed(on, "move", "prices", "us") == ["users"]
    for command in ("browse", "watch", "export", "stats", "alter", "consume", "put", "purge", "repair", "hold"):
        assert completed(on, command, "us") == ["users"], command
    assert completed(on, "que") == ["queues"]
    assert "--timeout" in completed(on, "get", "prices", "--ti")


def test_without_a_cluster_there_are_no_queues_and_not_a_word(
    monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    def fail(self: Invocation) -> None:
        os.write(2, b"as the client does")
        raise BrokerUnavailable("It does not answer.")

    monkeypatch.setattr(Invocation, "connect", fail)
    assert completed(Invocation(), "get", "") == []
    assert capfd.readouterr().err == ""


def test_a_cluster_that_does_not_answer_in_time_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    release = threading.Event()
    monkeypatch.setattr(completing, "_PATIENCE", 0.01)
    monkeypatch.setattr(Invocation, "connect", lambda self: release.wait(60))
    begin = time.monotonic()
    try:
        assert completed(Invocation(), "get", "") == []
        assert time.monotonic() - begin < 30
    finally:
        release.set()


def test_contexts_are_completed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    assert completed(Invocation(), "context", "use", "") == []
    SavedContexts().save("test", "bootstrap.servers=a:1\n")
    assert completed(Invocation(), "context", "use", "t") == ["test"]
    assert completed(Invocation(), "get", "--context", "") == ["test"]


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_each_shell_gets_its_script(run: Run, shell: str) -> None:
    script = run("completion", shell).text
    assert f"_LVQ_COMPLETE={shell}_complete" in script
    if shutil.which(shell) is None:
        pytest.skip(f"{shell} is not installed, so only the script's text was checked; {INSTALLER} helps")
    subprocess.run([shell, "-n"], input=script, text=True, check=True)


def test_a_shell_is_answered_with_the_queues(tmp_path: Path) -> None:
    environment = {**os.environ, "_LVQ_COMPLETE": "bash_complete", "COMP_WORDS": "lvq get pri", "COMP_CWORD": "2"}
    ran = subprocess.run([sys.executable, PROGRAM], env=environment, capture_output=True, text=True, check=True)
    assert (ran.stdout, ran.stderr) == ("plain,prices\n", "")
