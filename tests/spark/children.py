"""pytest in its own process, for tests whose Spark would clash with that of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.running import run_while_it_speaks

__all__ = ["own_environment", "run_tests"]


def own_environment() -> dict[str, str]:
    """Return the environment without the variables of this process's Spark and the options of this pytest."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    kept.pop("PYTEST_ADDOPTS", None)
    return kept


def run_tests(python: Path | str, tests: Sequence[Path | str], environment: Mapping[str, str], *options: str) -> None:
    """Run tests, each with its own time limit; fail with their output if one fails."""
    command = [str(python), "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, *map(str, tests)]
    run = run_while_it_speaks(command, environment=environment, silence=1200)
    assert run.returncode == 0, (run.stdout + run.stderr)[-30_000:]
