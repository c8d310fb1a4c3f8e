"""Check a user program and the examples on all pages with pyright. mypy also checks the program."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from tempfile import TemporaryDirectory

from tests.pages import ROOT, python_examples

SETTINGS = {
    "typeCheckingMode": "standard",
    "extraPaths": [str(ROOT), str(ROOT / "spark")],
}


def main() -> int:
    """Run pyright; return its exit code."""
    with TemporaryDirectory(prefix="lvq-examples-") as folder:
        for name, program in python_examples():
            (Path(folder) / name).write_text(program)
        settings = Path(folder) / "pyrightconfig.json"
        settings.write_text(json.dumps(SETTINGS | {"include": [str(Path(__file__).parent), folder]}))
        pyright = Path(sys.executable).parent / "basedpyright"
        return subprocess.run([pyright, "--project", settings, "--pythonpath", sys.executable]).returncode


if __name__ == "__main__":
    sys.exit(main())
