"""The cost per message of a producer and of a bare client loop with the same settings, and the time to a receipt.

Run alone: ``python -m tests.benchmarks.produce [--rounds 20] [--messages 50000] [--bootstrap-servers HOST:PORT]``
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import time
import uuid
from collections.abc import Callable, Iterator
from typing import Any

from confluent_kafka import KafkaError
from confluent_kafka import Message as KafkaMessage
from confluent_kafka import Producer as Client

from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.writer import DEFAULTS, OWNED
from lvq_kafka.producing.producer import Message, Producer
from tests.rules import rules

VALUE = b"v" * 256
Loop = tuple[Callable[[int], None], Callable[[], None]]
"""Two functions: one sends that many messages and waits until they are stored, the other closes the client."""
KEYS = [f"key-{number:06d}" for number in range(10_000)]
SYNCHRONOUS = 500


@contextlib.contextmanager
def topic(cluster: KafkaCluster) -> Iterator[str]:
    name = f"bench-produce-{uuid.uuid4().hex[:8]}"
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    cluster.topics.create(name, partitions=1, config=config)
    try:
        yield name
    finally:
        cluster.topics.delete(name)


def bare(servers: str, name: str, *, reports: bool) -> Loop:
    """Return a loop over the client alone. Only with reports does it learn that a message was not stored."""
    client = Client({"bootstrap.servers": servers, **DEFAULTS, **OWNED})

    def on_delivery(error: KafkaError | None, message: KafkaMessage) -> None:
        if error is not None:
            raise RuntimeError(error)

    def loop(messages: int) -> None:
        extra: dict[str, Any] = {"on_delivery": on_delivery} if reports else {}
        for number in range(messages):
            key = KEYS[number % len(KEYS)]
            while True:
                try:
                    client.produce(name, VALUE, key, headers=[("ticker", key)], **extra)
                    break
                except BufferError:
                    client.poll(0.01)
            if reports or number % 1000 == 0:
                client.poll(0)
        client.flush()

    return loop, client.close


def with_producer(cluster: KafkaCluster, name: str, *, send: bool) -> Loop:
    producer = Producer(cluster, rules(topic=name, key_header="ticker"))

    def loop(messages: int) -> None:
        for number in range(messages):
            key = KEYS[number % len(KEYS)]
            if send:
                producer.send(Message(VALUE, headers={"ticker": key}))
            else:
                producer.put(key, VALUE)
        producer.flush()

    return loop, producer.close


def acknowledgements(cluster: KafkaCluster, name: str) -> list[float]:
    """Return the seconds from a put to its receipt, sorted, for one put at a time."""
    with Producer(cluster, rules(topic=name, key_header="ticker")) as producer:
        producer.put(KEYS[0], VALUE).result()
        seconds = []
        for number in range(SYNCHRONOUS):
            begin = time.perf_counter()
            producer.put(KEYS[number], VALUE).result()
            seconds.append(time.perf_counter() - begin)
    return sorted(seconds)


def run(bootstrap_servers: str, rounds: int = 20, messages: int = 50_000) -> list[dict[str, object]]:
    """Return one row per way to produce: medians over short rounds that take turns, and of ratios within a round.

    Processor time is this process's, including the client's threads; other load on the machine disturbs it least.
    """
    cluster = KafkaCluster(ClientConfig(bootstrap_servers))
    names = ["bare loop, no reports", "bare loop", "Producer.put", "Producer.send"]
    wall: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    with topic(cluster) as name, contextlib.ExitStack() as stack:
        acknowledgements(cluster, name)  # the broker's first minute is its slowest
        opened = [
            bare(bootstrap_servers, name, reports=False),
            bare(bootstrap_servers, name, reports=True),
            with_producer(cluster, name, send=False),
            with_producer(cluster, name, send=True),
        ]
        lanes = {lane: loop for lane, (loop, _) in zip(names, opened, strict=True)}
        for _, close in opened:
            stack.callback(close)
        for number in range(rounds + 1):
            for lane in names if number % 2 else reversed(names):
                began, used = time.perf_counter(), time.process_time()
                lanes[lane](messages)
                if number:  # the first round warms up
                    wall[lane].append((time.perf_counter() - began) / messages)
                    cpu[lane].append((time.process_time() - used) / messages)
        waits = acknowledgements(cluster, name)
    cluster.close()
    rows: list[dict[str, object]] = []
    for lane in names:
        row: dict[str, object] = {"what": lane, "per_second": round(1 / statistics.median(wall[lane]))}
        row["cpu_us"] = round(statistics.median(cpu[lane]) * 1e6, 2)
        for times, label in ((wall, "speed"), (cpu, "cpu")):
            shares = [a / b for a, b in zip(times["bare loop"], times[lane], strict=True)]
            row[f"share_of_bare_by_{label}"] = round(statistics.median(shares), 2)
        rows.append(row)
    quantiles = {f"p{p}_ms": round(waits[len(waits) * p // 100] * 1e3, 2) for p in (50, 99)}
    return [*rows, {"what": "put, then wait for its receipt", **quantiles}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", help="a broker that is there; without it an embedded one is started")
    parser.add_argument("--rounds", type=int, default=20)
    parser.add_argument("--messages", type=int, default=50_000)
    options = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = options.bootstrap_servers
        if servers is None:
            from lvq_kafka.embedded import EmbeddedBroker

            servers = stack.enter_context(EmbeddedBroker()).bootstrap_servers
        for row in run(servers, options.rounds, options.messages):
            print(row)


if __name__ == "__main__":
    main()
