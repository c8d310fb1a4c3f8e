"""``lvq`` as a process, on an in-memory cluster whose reader stops halfway until somebody types a line."""

from __future__ import annotations

import sys
import threading
from collections.abc import Mapping

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.signals import heed_signals
from lvq_kafka.cluster import LogReader
from lvq_kafka.core.log.records import Fetch, RecordBatch
from lvq_kafka.testing import MemoryCluster
from lvq_kafka.testing.memory_reader import MemoryReader

VALUES, HALF = 2_000, 800


class Slow(MemoryCluster):
    """A cluster whose readers of the queue return one batch, then nothing until `go_on` is set."""

    go_on = threading.Event()

    def reader(self, topic: str, positions: Mapping[int, int]) -> LogReader:
        read = super().reader(topic, positions)
        return Stopping(read, self.go_on) if topic == "prices" else read


class Stopping(MemoryReader):
    def __init__(self, reader: LogReader, go_on: threading.Event) -> None:
        self.__dict__ = reader.__dict__
        self.go_on = go_on
        self.begun = False

    def poll(self, timeout: float) -> Fetch:
        if self.begun and not self.go_on.wait(timeout):
            return Fetch(RecordBatch.of([]), {})
        self.begun = True
        return super().poll(timeout)


def main() -> None:
    cluster = Slow(fetch_limit=HALF)
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)
    with queue.producer() as producer:
        for number in range(VALUES):
            producer.put(str(number), "1")

    def wait_for_a_line() -> None:
        sys.stdin.readline()
        cluster.go_on.set()

    threading.Thread(target=wait_for_a_line, daemon=True).start()
    heed_signals()  # as the entry point does
    lvq(sys.argv[1:], prog_name="lvq", obj=Invocation(cluster=cluster))


if __name__ == "__main__":
    main()
