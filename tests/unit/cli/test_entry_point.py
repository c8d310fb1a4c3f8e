"""``lvq`` as it is started from outside."""

from __future__ import annotations

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
    assert ran.stderr == f"lvq: {missing} not installed. Run: pip install 'lvq-kafka[cli]'\n"


def test_the_library_itself_needs_neither_click_nor_rich() -> None:
    ran = python("-c", "import sys, lvq_kafka; print({'click', 'rich', 'confluent_kafka'} & set(sys.modules))")
    assert ran.stdout == "set()\n"


def test_a_wrong_command_line_ends_with_2_and_names_what_was_meant() -> None:
    ran = python("-m", "lvq_kafka", "brows", "prices")
    assert ran.returncode == 2
    assert "Traceback" not in ran.stderr
