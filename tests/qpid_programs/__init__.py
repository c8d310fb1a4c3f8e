"""Programs for Qpid's API ``qpid.messaging``, which tests run as processes after changing their import line.

`quotes` is the example in Qpid's documentation of last value queues. `spout` and `drain` are this project's own, and do
what the examples of these names do that come with that API: they send messages to an address, and fetch all from one.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

__all__ = ["LVQ", "changed", "running"]

LVQ = "prices;{create:always, node:{type:queue,x-declare:{arguments:{'qpid.last_value_queue_key':ticker}}}}"
"""The address in Qpid's documentation."""

_HERE = Path(__file__).parent


def changed(name: str, folder: Path) -> Path:
    """Write a program into a folder, with its import line changed and nothing else."""
    source = (_HERE / f"{name}.py").read_text()
    assert source.count("from qpid.messaging import") == 1
    program = folder / f"{name}.py"
    program.write_text(source.replace("from qpid.messaging import", "from lvq_kafka.compat.qpid_messaging import"))
    return program


def running(program: Path, *arguments: str, servers: str | None) -> subprocess.Popen[str]:
    """Start a program, whose hosts are this cluster."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("LVQ_")}
    if servers is not None:
        environment["LVQ_BOOTSTRAP_SERVERS"] = servers
    return subprocess.Popen(
        [sys.executable, "-X", "dev", "-W", "error", program, *arguments],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment, "PYTHONUNBUFFERED": "1"},
    )
