"""``lvq`` as a process, on an in-memory cluster with a queue ``prices`` in which MSFT keeps rising."""

from __future__ import annotations

import itertools
import sys
import threading

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.cli.app import lvq
from lvq_kafka.cli.invocation import Invocation
from lvq_kafka.cli.signals import heed_signals
from lvq_kafka.testing import MemoryCluster


def main() -> None:
    cluster = MemoryCluster()
    queue = LastValueQueue.declare("prices", key_header="ticker", value=TEXT, cluster=cluster)

    def change() -> None:
        with queue.producer() as producer:
            for value in itertools.count(401):
                producer.put("MSFT", f"{value}.00").result(5)
                threading.Event().wait(0.05)

    with queue.producer() as producer:
        producer.put("IBM", "118.50")
        producer.put("MSFT", "400.00")
    threading.Thread(target=change, daemon=True).start()
    heed_signals()  # as the entry point does
    lvq(sys.argv[1:], prog_name="lvq", obj=Invocation(cluster=cluster))


if __name__ == "__main__":
    main()
