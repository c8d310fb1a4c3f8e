"""The time until ``lvq broker start`` serves clients, with its jars and class archive already there."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lvq_kafka.embedded.cache import cache_dir
from lvq_kafka.kafka.connecting import connect

LVQ = Path(sys.executable).with_name("lvq")


def run(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each start, after one that does not count."""
    with tempfile.TemporaryDirectory(prefix="lvq-bench-") as folder:
        # A separate cache leaves a running broker untouched.
        for jars in cache_dir().glob("kafka-*"):
            Path(folder, jars.name).symlink_to(jars)
        environment = {**os.environ, "LVQ_CACHE_DIR": folder}
        for number in range(-1, rounds):
            began = time.monotonic()
            started = _lvq("start", "--port", "0", environment=environment)
            try:
                seconds = time.monotonic() - began
                cluster = connect(json.loads(started)["bootstrap_servers"])
                serves = cluster.broker_count(timeout=5.0)
                cluster.close()
            finally:
                _lvq("stop", environment=environment)
            if serves != 1:
                raise RuntimeError("the broker does not serve clients")
            if number >= 0:
                yield {"round": number, "seconds": seconds}


def _lvq(*arguments: str, environment: dict[str, str]) -> str:
    command = [str(LVQ), "broker", *arguments, "--json"]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=True, timeout=120).stdout
