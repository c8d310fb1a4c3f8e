"""A consumer process of the tour.

It consumes messages and writes each to a file, as a side effect outside Kafka.
"""

from __future__ import annotations

import logging
import signal
import sys
import time

from lvq_kafka import TEXT, LastValueQueue

__all__ = ["main"]

WORK = 0.004  # seconds that one message takes


def main(bootstrap_servers: str, queue_name: str, ledger: str) -> None:
    """Consume until terminated or killed.

    A line ``key<TAB>value`` is on disk before its message is acked.
    """
    logging.getLogger("lvq_kafka").addHandler(logging.NullHandler())  # the parent reports what happens
    queue = LastValueQueue.open(queue_name, bootstrap_servers=bootstrap_servers, value=TEXT)
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())  # exit through `with`
    with queue.consumer() as consumer, open(ledger, "a", buffering=1) as file:
        for delivery in consumer:
            with delivery:
                time.sleep(WORK)
                file.write(f"{delivery.key}\t{delivery.value}\n")


if __name__ == "__main__":
    main(*sys.argv[1:])
