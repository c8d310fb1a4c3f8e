"""Random merge histories against the plain truth, on both formats in turn, for the given time."""

from __future__ import annotations

import argparse
import logging
import sys
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import closing
from pathlib import Path
from random import SystemRandom
from tempfile import TemporaryDirectory

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.kafka import KafkaCluster
from lvq_spark import local_session
from tests.spark.jars import with_jars
from tests.spark.lakehouse.formats import Delta, Format, Iceberg
from tests.spark.lakehouse.histories import History
from tests.spark.lakehouse.sessions import properties
from tests.spark.lakehouse.victim import Victims

_FORMATS = ("delta", "iceberg")
_STEPS = 25  # per history


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.spark.lakehouse", description=__doc__)
    parser.add_argument("--seconds", type=float, default=300, help="how long (default 300)")
    parser.add_argument("--seed", type=int, default=None, help="of the first history; the others count on from there")
    parser.add_argument("--format", choices=_FORMATS, help="only this one")
    options = parser.parse_args()
    seed = SystemRandom().randrange(1 << 32) if options.seed is None else options.seed
    print(f"seed {seed}; the same again: make prove-lakehouse SECONDS={options.seconds:g} SEED={seed}", flush=True)
    logging.getLogger("lvq_spark").setLevel(logging.ERROR)  # rebuilt tables are expected here
    with (
        TemporaryDirectory() as folder,
        EmbeddedBroker() as broker,
        closing(KafkaCluster(broker.bootstrap_servers)) as cluster,
    ):
        place = Path(folder)
        spark = local_session("local[2,2]", with_jars(**properties(place)))
        spark.sparkContext.setLogLevel("OFF")  # and so is the failure of one of two concurrent merges
        with closing(Victims(broker.bootstrap_servers, place)) as victims:

            def make(kind: str, number: int) -> History:
                topic = f"history-{number}"
                table: Format = Delta(spark, place, topic) if kind == "delta" else Iceberg(spark, topic)
                return History(spark, cluster, table, topic, number, victims.kill)

            counts = _histories(make, [options.format] if options.format else _FORMATS, seed, options.seconds)
        spark.stop()
    for what, times in sorted(counts.items()):
        print(f"  {times:>6,}  {what.replace('_', ' ')}")
    return 0


def _histories(make: Callable[[str, int], History], formats: Sequence[str], seed: int, seconds: float) -> Counter[str]:
    """Run one history after another; return the counts of their steps."""
    counts: Counter[str] = Counter()
    deadline, number = time.monotonic() + seconds, 0
    while time.monotonic() < deadline:
        kind = formats[number % len(formats)]
        history = make(kind, seed + number)
        steps = 0
        while steps < _STEPS and time.monotonic() < deadline:
            history.run(1)
            steps += 1
        counts += history.counts
        print(f"{kind}, seed {seed + number}: {steps} steps, each as the plain truth has it", flush=True)
        number += 1
    return counts


if __name__ == "__main__":
    sys.exit(main())
