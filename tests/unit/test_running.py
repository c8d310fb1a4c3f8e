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

HANGS = """
import subprocess, sys, time
print("begun")
subprocess.run([sys.executable, "-c", "import time; time.sleep(600)"])
"""


def test_a_program_may_take_its_time_while_it_speaks() -> None:
    done = run_while_it_speaks([sys.executable, "-c", SPEAKS], silence=30)
    assert (done.returncode, done.stdout, done.stderr) == (3, "0\n2\n", "1\n3\n")


def test_a_program_that_falls_silent_is_ended_with_its_children_and_what_it_said_is_shown() -> None:
    with pytest.raises(AssertionError, match=r"has said nothing for 0\.5 s, after:\nbegun\n"):
        run_while_it_speaks([sys.executable, "-c", f"{HANGS}"], silence=0.5)
