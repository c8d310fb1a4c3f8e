"""The cost of metrics and traces: ``python -m tests.benchmarks.measuring``.

The table shows processor time. Metrics cost something when they are read, which a program does a few times a minute,
and for each message that a counted producer sends; the first rows are these two, alone. The last rows are hot paths of
a whole queue without a broker, as in `tests.benchmarks.hot_paths`: without metrics, with metrics that are read once a
second, and with traces that are sampled and dropped. All take turns, each in a fresh process.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from statistics import median

from confluent_kafka import Producer as Client
from opentelemetry.sdk.trace import TracerProvider

from lvq_kafka import LastValueQueue
from lvq_kafka.kafka.client import ClientConfig
from lvq_kafka.kafka.deliveries import Deliveries
from lvq_kafka.telemetry import Metrics, Tracing
from lvq_kafka.telemetry.prometheus_families import exposition
from lvq_kafka.testing import MemoryCluster

__all__ = ["MODES", "measure", "parts", "table"]

MODES = ("without", "metrics", "traces")

_OFTEN = 1.0  # seconds between two scrapes
_USUAL = 15.0  # seconds, in most programs
_PATIENCE = 60.0  # seconds


def parts(number: int) -> Mapping[str, float]:
    """Return the seconds that each part takes, alone."""
    found = {}
    with ExitStack() as opened:
        deliveries = _deliveries()
        opened.callback(deliveries.stop)
        found["the receipt of a message"] = _least(deliveries.make_receipt, number)
        deliveries.count()
        found["the same, counted"] = _least(deliveries.make_receipt, number)
        queue = LastValueQueue.declare("q", key_header="k", cluster=MemoryCluster())
        clients = opened.enter_context(queue.view()), opened.enter_context(queue.consumer())
        metrics = Metrics().add(*clients, opened.enter_context(queue.producer()))
        scrapes = max(1, number // 1000)
        found["reading a view, a consumer and a producer"] = _least(metrics.collect, scrapes)
        found["the same as text"] = _least(lambda: exposition(metrics.collect(), None), scrapes)
    return found


def _deliveries() -> Deliveries:
    from lvq_kafka.kafka.connect import Health
    from lvq_kafka.kafka.produce_errors import ProduceErrors

    config = ClientConfig("localhost:1")
    errors = ProduceErrors(Health(config.bootstrap_servers, config.properties), None, lambda: "")
    return Deliveries(Client({"bootstrap.servers": "localhost:1", "log_level": 0}), None, errors, lambda: None)


def _least(call: Callable[[], object], number: int) -> float:
    """Return the least seconds of a call, in five rounds."""
    rounds = []
    for _ in range(5):
        began = time.process_time()
        for _ in range(number):
            call()
        rounds.append((time.process_time() - began) / number)
    return min(rounds)


def measure(mode: str, count: int) -> Mapping[str, float]:
    """Return the processor time per message on each path."""
    cluster, found = MemoryCluster(), {}
    tracing = Tracing(TracerProvider()) if mode == "traces" else None
    with LastValueQueue.declare("hot", key_header="k", cluster=cluster) as queue, ExitStack() as opened:
        producer, view = opened.enter_context(queue.producer()), opened.enter_context(queue.view())
        if tracing is not None:
            tracing.add(producer)
        metrics = Metrics().add(producer, view) if mode == "metrics" else None
        opened.enter_context(_scraped(metrics))
        began = time.process_time()
        for number in range(count):
            producer.put(str(number), b"v")
        view.barrier(_PATIENCE)
        found["put, and a view that follows"] = time.process_time() - began
        consumer = opened.enter_context(queue.consumer())
        if metrics is not None:
            metrics.add(consumer)
        began, left = time.process_time(), count
        while left:
            for delivery in consumer.acquire_many(100, _PATIENCE):
                with delivery if tracing is None else tracing.process(delivery):
                    left -= 1
        found["consume"] = time.process_time() - began
    return {path: seconds / count for path, seconds in found.items()}


@contextmanager
def _scraped(metrics: Metrics | None) -> Iterator[None]:
    """Read metrics in the background, far more often than usual."""
    over = threading.Event()
    if metrics is not None:
        exposition(metrics.collect(), None)  # loads what it needs

    def scrape(metrics: Metrics) -> None:
        while not over.wait(_OFTEN):
            exposition(metrics.collect(), None)

    thread = None if metrics is None else threading.Thread(target=scrape, args=(metrics,))
    if thread is not None:
        thread.start()
    try:
        yield
    finally:
        over.set()
        if thread is not None:
            thread.join()


def table(alone: Mapping[str, float], rounds: Mapping[str, Sequence[Mapping[str, float]]]) -> Iterator[str]:
    """Yield the rows of Markdown tables."""
    yield "| alone | µs |"
    yield "| --- | ---: |"
    for what, seconds in alone.items():
        yield f"| {what} | {seconds * 1e6:.3f} |"
    share = alone["the same as text"] / _USUAL
    yield f"| of the processor, with a scrape every {_USUAL:g} s | {share:.4%} |"
    yield ""
    yield "| path, µs for a message | without | metrics | | traces | |"
    yield f"| --- {'| ---: ' * 5}|"
    for path in rounds["without"][0]:
        without, metrics, traces = (median(each[path] for each in rounds[mode]) for mode in MODES)
        yield (
            f"| {path} | {without * 1e6:.2f} | {metrics * 1e6:.2f} | {metrics / without:.3f} | {traces * 1e6:.2f} | "
            f"{traces / without:.2f} |"
        )


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.measuring", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=20_000)
    parser.add_argument("--once", choices=MODES, help="print one round, as JSON")
    options = parser.parse_args()
    if options.once:
        print(json.dumps(measure(options.once, options.messages)))
        return
    rounds: dict[str, list[Mapping[str, float]]] = {mode: [] for mode in MODES}
    for _ in range(options.rounds):
        for mode in MODES:
            command = [sys.executable, "-m", "tests.benchmarks.measuring", "--once", mode]
            command += ["--messages", str(options.messages)]
            rounds[mode].append(json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout))
    for row in table(parts(100_000), rounds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
