"""A separate Python for Delta and Iceberg, which do not run on the newest Spark that this library supports.

It has the packages of ``requirements.lock``, and lives under ``build``.
"""

from __future__ import annotations

import hashlib
import os
import shutil
import subprocess
import sys
from pathlib import Path

from tests.running import ROOT
from tests.spark.children import own_environment
from tests.spark.starting import SMALL, quick_start

__all__ = ["lakehouse_environment", "lakehouse_python"]

_LOCK = Path(__file__).with_name("requirements.lock")


def lakehouse_python() -> Path:
    """Return that Python, creating it if needed."""
    digest = hashlib.sha256(_LOCK.read_bytes() + sys.version.encode()).hexdigest()[:8]
    home = ROOT / "build" / f"lakehouse-{digest}"
    python, ready = home / "bin" / "python", home / ".ready"
    if not ready.exists():
        uv = shutil.which("uv", path=f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}")
        assert uv, "uv makes the environment; `make test` installs it"
        shutil.rmtree(home, ignore_errors=True)
        for command in (
            ["venv", "--quiet", "--python", sys.executable, str(home)],
            ["pip", "install", "--quiet", "--no-deps", "--require-hashes", "--python", str(python), "-r", str(_LOCK)],
        ):
            done = subprocess.run([uv, *command], capture_output=True, text=True, timeout=250, check=False)
            assert done.returncode == 0, done.stderr
        ready.touch()
    return python


def lakehouse_environment() -> dict[str, str]:
    """Return the environment for processes of that Python."""
    return (
        own_environment()
        | quick_start(ROOT, ROOT / "spark")
        | {"SPARK_SUBMIT_OPTS": SMALL, "LVQ_TEST_BROKER": "embedded"}  # the archive is for another Spark
    )
