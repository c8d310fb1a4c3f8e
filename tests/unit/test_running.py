"""The functions that run programs for the tests."""

from __future__ import annotations

import sys

import pytest

from tests.running import run_while_it_speaks

SPEAKS = """
import sys, time
for n in range(4):
    time.sleep(0.15)
    print(n, file=[sys.stdout, sys.stderr][n % 2])
sys.exit(3)
"""

HANGS = "echo begun; sleep 600 & wait"
"""A script for the shell, which starts much faster than Python on a busy machine."""


def test_a_program_may_take_its_time_while_it_speaks() -> None:
    done = run_while_it_speaks([sys.executable, "-c", SPEAKS], silence=30)
    assert (done.returncode, done.stdout, done.stderr) == (3, "0\n2\n", "1\n3\n")


def test_a_program_that_falls_silent_is_ended_with_its_children_and_what_it_said_is_shown() -> None:
    with pytest.raises(AssertionError, match=r"has said nothing for 2 s, after:\nbegun\n"):
        run_while_it_speaks(["sh", "-c", HANGS], silence=2.0)
