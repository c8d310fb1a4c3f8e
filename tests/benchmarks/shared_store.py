"""A store that four other processes attach: how late they see a change, and what they take.

Each change is a value with the time at which it was sent. The writer's own watch is the measure for the readers'.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import statistics
import subprocess
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.reading.entries import Entry
from tests.benchmarks.children import say, start, wait_ready
from tests.benchmarks.report import table
from tests.benchmarks.topics import load

_WORKERS = 4
_PROBE = "probe"
_IDLE = 5.0  # seconds

Result = dict[str, Any]


def _read(place: str, keys: int, probes: int) -> None:
    """Attach, and tell the parent when each probe is seen: the body of a worker."""
    from lvq_kafka.reading.attached_view import attach

    began, cpu = time.perf_counter(), time.process_time()
    with attach(place, catch_up_timeout=None) as view, view.watch(keys=[_PROBE]) as watch:
        took, cpu = time.perf_counter() - began, time.process_time() - cpu
        assert len(view) >= keys
        sum(len(value) for value in view.values())  # so that all pages were used
        print("ready", flush=True)
        input()
        idle = time.process_time()
        time.sleep(_IDLE)
        idle = (time.process_time() - idle) / _IDLE
        print("ready", flush=True)
        late = []
        for _ in range(probes):
            event = watch.poll(60)
            assert isinstance(event, Entry)
            late.append(time.monotonic() - float(event.value))
            print(flush=True)
        say({"attach": took, "attach cpu": cpu, "idle": idle, "late": late})


def run(servers: str, records: int, probes: int = 300) -> Result:
    """Return what the readers of a store have measured."""
    with (
        contextlib.closing(KafkaCluster(servers)) as cluster,
        tempfile.TemporaryDirectory(prefix="lvq-bench-shared-") as folder,
    ):
        topic = load(cluster, "unique", records, records)
        place = Path(folder) / "store"
        try:
            with (
                LastValueQueue(topic.name, key_header=None, cluster=cluster) as queue,
                queue.view(store=place, catch_up_timeout=None) as view,
                view.watch(keys=[_PROBE]) as watch,
                queue.producer() as producer,
                contextlib.ExitStack() as opened,
            ):
                workers = [
                    opened.enter_context(start("shared_store", place, records, probes, stdin=subprocess.PIPE))
                    for _ in range(_WORKERS)
                ]
                for worker in workers:
                    wait_ready(worker)
                shares = [_share(worker.pid) for worker in workers]
                for worker in workers:
                    assert worker.stdin is not None
                    print(file=worker.stdin, flush=True)
                for worker in workers:
                    wait_ready(worker)
                own = []
                for _ in range(probes):
                    producer.put(_PROBE, b"%.6f" % time.monotonic())
                    event = watch.poll(60)
                    assert isinstance(event, Entry)
                    own.append(time.monotonic() - float(event.value))
                    for worker in workers:
                        assert worker.stdout is not None
                        worker.stdout.readline()
                found = [json.loads(worker.stdout.readline()) for worker in workers if worker.stdout is not None]
        finally:
            cluster.topics.delete(topic.name)
    late = [moment for one in found for moment in one["late"]]
    return {
        "keys": records,
        "attach": statistics.median(one["attach"] for one in found),
        "idle": statistics.median(one["idle"] for one in found),
        "proportional": statistics.median(shares),
        "own": _percentiles(own),
        "attached": _percentiles(late),
    }


def _share(pid: int) -> int:
    """Return the memory of a process in bytes, in which shared pages count by its share of them."""
    [line] = [line for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines() if line.startswith("Pss:")]
    return int(line.split()[1]) * 1024


def _percentiles(moments: Sequence[float]) -> list[float]:
    ordered = sorted(moments)
    return [ordered[len(ordered) // 2], ordered[int(0.99 * (len(ordered) - 1))]]


def shared_table(found: Result) -> str:
    rows = [
        ["from sending to the writer's watch, ms: median, 99 %", *(f"{1000 * each:.2f}" for each in found["own"])],
        ["from sending to a watch in another process", *(f"{1000 * each:.2f}" for each in found["attached"])],
        ["to attach, ms", f"{1000 * found['attach']:.1f}", ""],
        ["processor time of an idle reader, % of a core", f"{100 * found['idle']:.2f}", ""],
        ["proportional memory of each of 4 readers, MB", f"{found['proportional'] / 1e6:.0f}", ""],
    ]
    return table([f"a store of {found['keys']:,} keys, attached by {_WORKERS} processes", "", ""], rows)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("place")
    parser.add_argument("keys", type=int)
    parser.add_argument("probes", type=int)
    options = parser.parse_args()
    _read(options.place, options.keys, options.probes)


if __name__ == "__main__":
    main()
