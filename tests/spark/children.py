"""pytest in a process of its own, for tests whose Spark would clash with that of the others."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from pathlib import Path

from tests.running import run_while_it_speaks

__all__ = ["own_environment", "run_tests"]


def own_environment() -> dict[str, str]:
    """The environment without what this process's Spark, or the options of this pytest, have put there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    kept.pop("PYTEST_ADDOPTS", None)
    return kept


def run_tests(python: Path | str, tests: Sequence[Path | str], environment: Mapping[str, str], *options: str) -> None:
    """Run tests, each of which has a limit of its own, and fail with what they print where one of them fails."""
    command = [str(python), "-m", "pytest", "-v", "-p", "no:cacheprovider", *options, *map(str, tests)]
    run = run_while_it_speaks(command, environment=environment, silence=400)
    assert run.returncode == 0, (run.stdout + run.stderr)[-30_000:]
