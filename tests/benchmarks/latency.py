"""Latency from a put in one process to its value in another, and the cost of checking that one is up to date.

A separate producer sends values that carry the time of their `put` (``time.monotonic_ns``, one clock for the whole
machine). A view is measured twice: when its table has the value, so ``view[key]`` returns it, and when a loop over
``view.watch()`` gets it. The bare loop and ktables are measured once.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from typing import Any

from lvq_kafka.core.log.records import Fetch
from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks.children import result, say, start, wait_ready
from tests.benchmarks.peers.centrifugo import CHANNEL, CHANNEL_HEADER
from tests.benchmarks.topics import create

PROPAGATION = ("view", "view.watch", "bare loop", "ktables")
BARRIER = ("view", "ktables")
KEYS = 500
RATE = 200  # puts per second
_SIZE = 256


class Arrivals:
    """The travel times of values; `wait` returns when all have arrived."""

    def __init__(self, expected: int) -> None:
        self.milliseconds: list[float] = []
        self._expected = expected
        self._all = threading.Event()

    def take(self, value: bytes | None) -> None:
        assert value is not None
        self.milliseconds.append((time.monotonic_ns() - int(value[:19])) / 1e6)
        if self.complete:
            self._all.set()

    @property
    def complete(self) -> bool:
        return len(self.milliseconds) >= self._expected

    def wait(self) -> None:
        if not self._all.wait(120):
            raise RuntimeError(f"only {len(self.milliseconds)} of {self._expected} values came")


def quantiles(milliseconds: Sequence[float]) -> dict[str, float]:
    """Return the median and the 99th percentile."""
    ordered = sorted(milliseconds)
    return {f"p{percent}_ms": ordered[len(ordered) * percent // 100] for percent in (50, 99)}


def put_at_a_steady_rate(
    servers: str, topic: str, puts: int, rate: int = RATE, *, for_centrifugo: bool = False
) -> None:
    """Send values, each with the time of its put; for Centrifugo as JSON, with the header that names its channel."""
    from lvq_kafka.queue import LastValueQueue

    headers = {CHANNEL_HEADER: CHANNEL} if for_centrifugo else {}
    form = b'"%s"' if for_centrifugo else b"%s"
    with LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue, queue.producer() as producer:
        due = time.monotonic() + 0.2
        for number in range(puts):
            time.sleep(max(0.0, due - time.monotonic()))
            due += 1 / rate
            now = time.monotonic_ns()
            producer.put(f"key-{number % KEYS}", form % (b"%019d" % now).ljust(_SIZE, b"."), headers=headers)
    say({})


# ------------------------------------------------------------------ propagation: the receivers


def view(servers: str, topic: str, arrivals: Arrivals) -> None:
    from lvq_kafka.queue import LastValueQueue

    with LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue, queue.view() as values:
        reader_thread = values._follower._reader_thread
        take = reader_thread.apply

        def taking(fetch: Fetch) -> None:
            take(fetch)
            for value in fetch.batch.values:
                arrivals.take(value)

        reader_thread.apply = taking  # type: ignore[method-assign]  # a listener gets it a moment later
        _ready()
        arrivals.wait()


def watching(servers: str, topic: str, arrivals: Arrivals) -> None:
    from lvq_kafka.queue import LastValueQueue
    from lvq_kafka.reading.entries import Entry

    with LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue, queue.view() as values:
        changes = values.watch()
        _ready()
        for change in changes:
            assert isinstance(change, Entry)
            arrivals.take(change.value)
            if arrivals.complete:
                return


def bare_loop(servers: str, topic: str, arrivals: Arrivals) -> None:
    from confluent_kafka import Consumer, TopicPartition

    from tests.benchmarks.bootstrap import TUNED

    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", **TUNED})
    mine = [TopicPartition(topic, number) for number in consumer.list_topics(topic, 10).topics[topic].partitions]
    for partition in mine:
        partition.offset = consumer.get_watermark_offsets(partition, 10)[1]
    consumer.assign(mine)
    consumer.poll(1.0)
    _ready()
    values = {}
    while not arrivals.complete:
        message = consumer.poll(1.0)
        if message is not None and not message.error():
            values[message.key()] = message.value()
            arrivals.take(message.value())
    consumer.close()


def ktables(servers: str, topic: str, arrivals: Arrivals) -> None:
    from ktables import KafkaTable

    listening = threading.Event()  # set once caught up: earlier values do not count

    async def read() -> None:
        table: KafkaTable[bytes] = KafkaTable(
            connection=servers,
            topic=topic,
            value_decoder=bytes,
            ensure_topic=False,
            on_set=lambda _, value: arrivals.take(value) if listening.is_set() else None,
        )
        await table.start()
        listening.set()
        _ready()
        await asyncio.to_thread(arrivals.wait)
        await table.stop()

    logging.disable(logging.WARNING)
    asyncio.run(read())


def _ready() -> None:
    print("ready", flush=True)


# ------------------------------------------------------------------ barrier on an idle topic


def idle_barrier(contestant: str, servers: str, topic: str, times: int) -> None:
    """Report how long it takes to learn that one is up to date, while nothing changes."""
    if contestant == "view":
        from lvq_kafka.queue import LastValueQueue

        with LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue, queue.view() as values:
            say(quantiles([_timed(values.barrier) for _ in range(times)]))
        return

    from ktables import KafkaTable

    async def ask() -> None:
        table: KafkaTable[bytes] = KafkaTable(
            connection=servers, topic=topic, value_decoder=bytes, ensure_topic=False, catchup_timeout=120
        )
        await table.start()
        taken = []
        for _ in range(max(5, times // 10)):  # half a second each
            began = time.perf_counter()
            if not await table.barrier(timeout=30):
                raise RuntimeError("the barrier of ktables was not reached")
            taken.append((time.perf_counter() - began) * 1e3)
        say(quantiles(taken))
        await table.stop()

    logging.disable(logging.WARNING)
    asyncio.run(ask())


def _timed(barrier: Callable[[], object]) -> float:
    time.sleep(0.01)  # so neither side is still warm from the last call
    began = time.perf_counter()
    barrier()
    return (time.perf_counter() - began) * 1e3


# ------------------------------------------------------------------ the parent process


def run(servers: str, rounds: int, puts: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each contestant, question and round."""
    with closing(KafkaCluster(servers)) as cluster:
        topic = create(cluster, "ticks")
        try:
            for number in range(rounds):
                yield from _round(servers, topic, number, puts)
        finally:
            cluster.topics.delete(topic)


def _round(servers: str, topic: str, number: int, puts: int) -> Iterator[dict[str, Any]]:
    for contestant in PROPAGATION if number % 2 else PROPAGATION[::-1]:
        receiver = start("latency", contestant, servers, topic, puts)
        wait_ready(receiver)
        result(start("latency", "producer", servers, topic, puts))
        yield {"what": "propagation", "contestant": contestant, "round": number, **result(receiver)}
    for contestant in BARRIER:
        measured = result(start("latency", f"barrier of {contestant}", servers, topic, puts // 10))
        yield {"what": "idle barrier", "contestant": contestant, "round": number, **measured}


def main() -> None:
    receivers = {"view": view, "view.watch": watching, "bare loop": bare_loop, "ktables": ktables}
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=["producer", *receivers, *(f"barrier of {name}" for name in BARRIER)])
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("count", type=int)
    parser.add_argument("--rate", type=int, default=RATE, help="puts per second of the producer")
    parser.add_argument("--for-centrifugo", action="store_true", help="let the producer write what Centrifugo reads")
    options = parser.parse_args()
    if options.role == "producer":
        put_at_a_steady_rate(
            *(options.servers, options.topic, options.count, options.rate), for_centrifugo=options.for_centrifugo
        )
    elif options.role in receivers:
        arrivals = Arrivals(options.count)
        receivers[options.role](options.servers, options.topic, arrivals)
        say(quantiles(arrivals.milliseconds))
    else:
        idle_barrier(options.role.removeprefix("barrier of "), options.servers, options.topic, options.count)


if __name__ == "__main__":
    main()
