"""Compare with a bare loop of the client and with ktables, on one broker, in one run.

Contestants take turns, each in a fresh process, and have to hold the right value of every key. Times depend on the
machine and on what else it does, so ratios within the same round count. Nothing is asserted about time.
"""

from __future__ import annotations

import argparse
import contextlib
import json
from dataclasses import asdict
from pathlib import Path
from typing import Any

from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.kafka import KafkaLog
from tests.benchmarks import bootstrap, latency, produce, report
from tests.benchmarks.topics import create, load


def run(servers: str, *, rounds: int, records: int, messages: int, puts: int) -> dict[str, Any]:
    """Measure all there is to measure, and print as it comes."""
    found: dict[str, Any] = {"before": report.machine()}
    print(f"{records:,} records of 256 bytes, {rounds} rounds, load average {found['before']['load_average'][0]}\n")
    with contextlib.closing(KafkaLog(servers)) as log, contextlib.ExitStack() as at_the_end:
        topics = [load(log, "unique", records, records), load(log, "overwrites", records, records // 10)]
        empty, ticks = load(log, "empty", 0, 1), create(log, "ticks")
        for name in (*(topic.name for topic in topics), empty.name, ticks):
            at_the_end.callback(log.delete_topic, name)
        found["bootstrap"] = list(bootstrap.run(servers, topics, empty, rounds))
        print(report.reading_table(found["bootstrap"]), "\n", flush=True)
        found["produce"] = produce.run(servers, rounds, messages)
        print(report.produce_table(found["produce"]), "\n", flush=True)
        found["latency"] = list(latency.run(servers, ticks, min(rounds, 3), puts))
        print(report.latency_table(found["latency"]), "\n", flush=True)
    targets = report.targets(found["bootstrap"], found["produce"], found["latency"])
    print(report.target_table(targets))
    found["targets"] = [asdict(target) for target in targets]
    found["after"] = report.machine()
    print(f"\nload average {found['after']['load_average'][0]}")
    return found


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--quick", action="store_true", help="small: shows that everything runs, and little else")
    parser.add_argument("--output", type=Path, help="write all results to this file, as JSON")
    parser.add_argument("--bootstrap-servers", help="a broker to use; without it an embedded one is started")
    options = parser.parse_args()
    sizes = (
        {"records": 100_000, "messages": 5_000, "puts": 100}
        if options.quick
        else {"records": 1_000_000, "messages": 200_000, "puts": 2_000}
    )
    with contextlib.ExitStack() as stack:
        servers = options.bootstrap_servers
        if servers is None:
            servers = stack.enter_context(EmbeddedBroker(heap="1g")).bootstrap_servers
        found = run(servers, rounds=options.rounds, **sizes)
    if options.output is not None:
        options.output.write_text(json.dumps(found, indent=1))


if __name__ == "__main__":
    main()
