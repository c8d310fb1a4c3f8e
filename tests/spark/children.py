"""pytest in a process of its own, for tests whose Spark would clash with that of the others."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path

__all__ = ["ROOT", "own_environment", "run_tests"]

ROOT = Path(__file__).resolve().parents[2]


def own_environment() -> dict[str, str]:
    """The environment without what this process's Spark, or the options of this pytest, have put there."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("PYSPARK_", "SPARK_"))}
    kept.pop("PYTEST_ADDOPTS", None)
    return kept


def run_tests(
    python: Path | str, tests: Sequence[Path], environment: Mapping[str, str], *options: str, timeout: float
) -> None:
    """Run tests, and fail with what they print where one of them fails."""
    run = subprocess.run(
        [str(python), "-m", "pytest", "-q", "-p", "no:cacheprovider", *options, *map(str, tests)],
        cwd=ROOT,
        env=environment,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert run.returncode == 0, run.stdout[-30_000:]
