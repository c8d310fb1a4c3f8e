"""The cost of a prefetch of 1: one consumer takes and acknowledges a backlog, some messages at a time.

``plain``: an iteration with an ack for each message. ``durable_counts``: the same with delivery counts that are
committed before the hand-out. ``transactions``: a transaction for each batch, which takes with `acquire_many`, since a
transaction is not iterated. Each message has its own key, so all are delivered.

The clock runs from the first delivery until all acks are durable. Rounds are slower the smaller a batch is, so kinds
that commit for each batch get fewer messages; compare figures per message.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from itertools import islice
from typing import Any

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks import topics
from tests.benchmarks.children import result, say, start

KINDS = ("plain", "durable_counts", "transactions")
AT_ONCE = (1, 10, 100)
_SHARES = {"plain": 1, "durable_counts": 10, "transactions": 50}  # of the messages, one in so many
_PATIENCE = 60.0  # seconds


def iterate(queue: LastValueQueue[bytes], at_once: int, count: int, *, durable_counts: bool = False) -> dict[str, Any]:
    """Take and ack messages from an iteration."""
    with queue.consumer(prefetch=at_once, durable_counts=durable_counts) as consumer:
        clock, seen = _Clock(), set()
        for delivery in islice(consumer, count):
            clock.start()
            seen.add(delivery.key)
            settlement = delivery.ack()
        settlement.result(_PATIENCE)
        return clock.report(seen, count)


def transact(queue: LastValueQueue[bytes], at_once: int, count: int) -> dict[str, Any]:
    """Take and ack messages in transactions."""
    with queue.consumer() as consumer, queue.producer(transactional_id=queue.name) as producer:
        clock, seen = _Clock(), set()
        while len(seen) < count:
            with consumer.transaction(producer, timeout=_PATIENCE) as transaction:
                deliveries = transaction.acquire_many(at_once, timeout=_PATIENCE)
                clock.start()
                transaction.ack_many(deliveries)
            seen.update(delivery.key for delivery in deliveries)
        return clock.report(seen, count)


class _Clock:
    """The time since the first delivery, and the processor time."""

    def __init__(self) -> None:
        self._began = self._used = 0.0

    def start(self) -> None:
        if not self._began:
            self._began, self._used = time.monotonic(), time.process_time()

    def report(self, seen: set[str], count: int) -> dict[str, Any]:
        wall, cpu = time.monotonic() - self._began, time.process_time() - self._used
        if len(seen) < count:
            raise RuntimeError(f"only {len(seen)} of {count} messages came")
        return {"messages": len(seen), "wall": wall, "cpu": cpu}


def run(servers: str, rounds: int, messages: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each kind, size of a batch and round."""
    with closing(KafkaCluster(servers)) as cluster:
        topic = topics.load(cluster, "prefetch", messages, messages).name
        try:
            for number in range(rounds):
                for kind in KINDS:
                    for at_once in AT_ONCE:
                        name = f"bench-{uuid.uuid4().hex[:8]}"
                        count = max(AT_ONCE[-1], messages // _SHARES[kind])
                        with LastValueQueue.declare(name, topic=topic, key_header=None, cluster=cluster) as queue:
                            measured = result(start("prefetch", kind, servers, name, at_once, count))
                            queue.drop()
                        yield {"round": number, "what": kind, "at_once": at_once, **measured}
        finally:
            cluster.topics.delete(topic)


def main() -> None:
    kinds: dict[str, Callable[[LastValueQueue[bytes], int, int], dict[str, Any]]] = {
        "plain": iterate,
        "durable_counts": lambda queue, at_once, count: iterate(queue, at_once, count, durable_counts=True),
        "transactions": transact,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("kind", choices=kinds)
    parser.add_argument("servers")
    parser.add_argument("name")
    parser.add_argument("at_once", type=int)
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    with LastValueQueue.open(options.name, bootstrap_servers=options.servers) as queue:
        say(kinds[options.kind](queue, options.at_once, options.count))


if __name__ == "__main__":
    main()
