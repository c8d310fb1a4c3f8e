"""Carry out the cases on the other brokers, and compare: ``python -m tests.comparison [PART OF A NAME]``."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.benchmarks.peers.brokers import running
from tests.benchmarks.peers.contest import install_client
from tests.comparison.cases import CASES, Case, Other
from tests.running import ROOT


def main() -> int:
    client = install_client()
    wrong = 0
    for case in CASES:
        if not all(part in case.name for part in sys.argv[1:]):
            continue
        for name, other in case.others.items():
            expected = list(other.results if other.differs else case.results)
            found = _results(name, other, case, client)
            rule = f": {other.differs}" if other.differs else ""
            print(f"{'as expected' if found == expected else 'WRONG'}: {case.name}, {name}{rule}", flush=True)
            if found != expected:
                wrong += 1
                print(f"  expected {expected}\n  found    {found}", flush=True)
    return 1 if wrong else 0


def _results(name: str, other: Other, case: Case, client: Path) -> list[Any]:
    with running(name, other.attributes) as broker:
        command = [sys.executable, "-m", "tests.comparison.amqp_worker", broker.address]
        environment = {**os.environ, "PYTHONPATH": str(client)}
        done = subprocess.run(
            command,
            cwd=ROOT,
            input=json.dumps(case.script),
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            check=True,
        )
    results: list[Any] = json.loads(done.stdout)
    return results


if __name__ == "__main__":
    sys.exit(main())
