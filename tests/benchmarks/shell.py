"""The processor time that ``lvq`` takes before it does anything, and the part of it that is not ours."""

from __future__ import annotations

import os
import resource
import subprocess
import sys
from collections.abc import Iterator, Mapping
from typing import Any

from tests.benchmarks.starting import LVQ
from tests.running import ROOT

_COMPLETING = {"_LVQ_COMPLETE": "bash_complete"}

_TO_THE_FIRST_REQUEST = """
import sys
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
{}
lvq(["get", "prices", "IBM", "-b", "127.0.0.1:1"], prog_name="lvq", obj=Invocation(cluster=cluster))
"""
_IN_MEMORY = """
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.declared import addressed
addressed.declared_at = lambda *_: sys.exit(0)
cluster = MemoryCluster()
"""
_ON_KAFKA = """
from lvq_kafka.kafka import KafkaCluster
KafkaCluster.broker_count = lambda self, **options: sys.exit(0)
cluster = None
"""

RUNS: Mapping[str, tuple[list[str], Mapping[str, str]]] = {
    "python": ([sys.executable, "-c", "pass"], {}),
    "python, with click": ([sys.executable, "-c", "import click"], {}),
    "python, with Kafka's client": ([sys.executable, "-c", "import confluent_kafka.admin"], {}),
    "lvq --version": ([str(LVQ), "--version"], {}),
    "lvq --help": ([str(LVQ), "--help"], {}),
    "lvq ge<Tab>": ([str(LVQ)], {**_COMPLETING, "COMP_WORDS": "lvq ge", "COMP_CWORD": "1"}),
    "lvq get <Tab>, no cluster": (
        [str(LVQ)],
        {**_COMPLETING, "COMP_WORDS": "lvq get --config /none p", "COMP_CWORD": "4"},
    ),
    "lvq get, to the first request in memory": ([sys.executable, "-c", _TO_THE_FIRST_REQUEST.format(_IN_MEMORY)], {}),
    "lvq get, to the first request to Kafka": ([sys.executable, "-c", _TO_THE_FIRST_REQUEST.format(_ON_KAFKA)], {}),
}
"""The programs that are started, each with its command line and environment."""


def run(rounds: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each start, after one that does not count: it may have to compile modules."""
    for number in range(-1, rounds):
        for what, (command, environment) in RUNS.items():
            before = resource.getrusage(resource.RUSAGE_CHILDREN)
            subprocess.run(
                command, cwd=ROOT, env={**os.environ, **environment}, capture_output=True, check=True, timeout=60
            )
            after = resource.getrusage(resource.RUSAGE_CHILDREN)
            if number >= 0:
                seconds = after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime
                yield {"round": number, "what": what, "seconds": seconds}
