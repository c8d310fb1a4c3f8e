"""The ways to start ``lvq`` from outside."""

from __future__ import annotations

import signal
import subprocess
import sys
from importlib.metadata import entry_points

import pytest

from lvq_kafka import __version__
from lvq_kafka.cli import main


def python(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, *arguments], capture_output=True, text=True, check=False)


def test_the_package_installs_the_command_and_runs_as_a_module() -> None:
    (entry,) = (entry for entry in entry_points(group="console_scripts") if entry.name == "lvq")
    assert entry.load() is main
    ran = python("-m", "lvq_kafka", "--version")
    assert (ran.returncode, ran.stdout) == (0, f"lvq {__version__}\n")


@pytest.mark.parametrize("missing", ["click", "rich"])
def test_without_its_extra_it_says_what_to_install(missing: str) -> None:
    ran = python("-c", f"import sys; sys.modules[{missing!r}] = None; from lvq_kafka.cli import main; main()")
    assert ran.returncode == 2
    assert ran.stdout == ""
    assert ran.stderr == (
        f"lvq: The command line needs the package {missing}, which is not installed. "
        "Run: pip install 'lvq-kafka[cli]'\n"
    )


def test_a_selector_without_its_parser_ends_with_the_line_that_installs_it() -> None:
    program = (
        "import sys; sys.modules['lark'] = None\n"
        "from lvq_kafka.cli.app import lvq\n"
        "from lvq_kafka.cli.invocation import Invocation\n"
        "from lvq_kafka.testing import MemoryCluster\n"
        "declare = ['declare', 'nyse', '--key-header', 'ticker', '--selector', 'price > 100']\n"
        "lvq(declare, prog_name='lvq', obj=Invocation(cluster=MemoryCluster()))\n"
    )
    ran = python("-c", program)
    assert (ran.returncode, ran.stdout) == (2, "")
    assert ran.stderr == (
        "lvq: The option --selector needs the package lark, which is not installed. "
        "Run: pip install 'lvq-kafka[selectors]'\n"
    )


def test_the_library_itself_needs_neither_click_nor_rich() -> None:
    program = "import sys; from lvq_kafka import *; print({'click', 'rich', 'confluent_kafka'} & set(sys.modules))"
    assert python("-c", program).stdout == "set()\n"


def test_a_wrong_command_line_ends_with_2_and_names_what_was_meant() -> None:
    ran = python("-m", "lvq_kafka", "brows", "prices")
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr


HIDDEN = """
import os
from confluent_kafka import Producer
from lvq_kafka.cli import app, main

class Name(str):
    def __str__(self):
        os.kill(os.getpid(), int(os.environ["SIGNAL"]))
        while True:
            pass  # the handler runs here, within the client

@app.lvq.command()
def tick():
    Producer({"bootstrap.servers": "127.0.0.1:1"}).produce("ticks", headers=[(Name("ticker"), b"IBM")])

main()
"""


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_signal_that_the_client_makes_an_error_of_its_own_of_is_still_what_ended_the_run(
    number: signal.Signals, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SIGNAL", str(int(number)))
    ran = python("-c", HIDDEN, "--debug", "tick")
    assert "TypeError: expected header key to be unicode string" in ran.stderr
    assert "unexpected" not in ran.stderr
    assert ran.returncode == 128 + number
