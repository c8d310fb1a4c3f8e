"""``make prove-lakehouse``: the proof, run in the Python that has Spark with Delta and Iceberg."""

from __future__ import annotations

import subprocess
import sys

from tests.running import ROOT
from tests.spark.lakehouse.environment import lakehouse_environment, lakehouse_python

if __name__ == "__main__":
    command = [str(lakehouse_python()), "-m", "tests.spark.lakehouse.proof", *sys.argv[1:]]
    sys.exit(subprocess.run(command, cwd=ROOT, env=lakehouse_environment(), check=False).returncode)
