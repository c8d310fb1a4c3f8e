"""Producer throughput against a bare client loop with the same settings, and the time to an acknowledgement.

Run alone: ``python -m tests.benchmarks.produce [--rounds 5] [--messages 200000] [--bootstrap-servers HOST:PORT]``
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

from lvq_kafka.kafka import ClientConfig, KafkaLog
from lvq_kafka.kafka.writer import DEFAULTS, OWNED
from lvq_kafka.producer import Message, Producer

VALUE = b"v" * 256
KEYS = [f"key-{number:06d}" for number in range(10_000)]
SYNCHRONOUS = 500


@contextlib.contextmanager
def topic(log: KafkaLog) -> Iterator[str]:
    name = f"bench-produce-{uuid.uuid4().hex[:8]}"
    config = {"cleanup.policy": "compact", "message.timestamp.type": "LogAppendTime"}
    log.create_topic(name, partitions=1, config=config)
    try:
        yield name
    finally:
        log.delete_topic(name)


def bare(servers: str, name: str, messages: int, *, reports: bool) -> Callable[[], None]:
    """What one would write with the client alone: produce, poll now and then, flush."""
    client = Client({"bootstrap.servers": servers, **DEFAULTS, **OWNED})
    client.produce(name, VALUE, KEYS[0])
    client.flush()

    def on_delivery(error: KafkaError | None, message: KafkaMessage) -> None:
        if error is not None:
            raise RuntimeError(error)

    def loop() -> None:
        extra: dict[str, Any] = {"on_delivery": on_delivery} if reports else {}
        for number in range(messages):
            key = KEYS[number % len(KEYS)]
            while True:
                try:
                    client.produce(name, VALUE, key, headers=[("ticker", key)], **extra)
                    break
                except BufferError:
                    client.poll(0.01)
            if number % 1000 == 0:
                client.poll(0)
        client.flush()
        client.close()

    return loop


def with_producer(log: KafkaLog, name: str, messages: int, *, send: bool) -> Callable[[], None]:
    producer = Producer(log, name, key_header="ticker")
    producer.put(KEYS[0], VALUE).result()

    def loop() -> None:
        with producer:
            for number in range(messages):
                key = KEYS[number % len(KEYS)]
                if send:
                    producer.send(Message(VALUE, headers={"ticker": key}))
                else:
                    producer.put(key, VALUE)

    return loop


def acknowledgements(log: KafkaLog, name: str) -> list[float]:
    """Seconds from a put to its receipt, one at a time."""
    with Producer(log, name, key_header="ticker") as producer:
        producer.put(KEYS[0], VALUE).result()
        seconds = []
        for number in range(SYNCHRONOUS):
            begin = time.perf_counter()
            producer.put(KEYS[number], VALUE).result()
            seconds.append(time.perf_counter() - begin)
    return sorted(seconds)


def run(bootstrap_servers: str, rounds: int = 5, messages: int = 200_000) -> list[dict[str, object]]:
    """One row per way to produce: messages/s (median over interleaved rounds), CPU, and the share of a bare loop."""
    log = KafkaLog(ClientConfig(bootstrap_servers))
    names = ["bare loop", "bare loop, reports", "Producer.put", "Producer.send"]
    rates: dict[str, list[float]] = {name: [] for name in names}
    cpu: dict[str, list[float]] = {name: [] for name in names}
    with topic(log) as name:
        acknowledgements(log, name)  # the broker's first minute is its slowest
        for number in range(rounds + 1):
            lanes = {
                "bare loop": lambda: bare(bootstrap_servers, name, messages, reports=False),
                "bare loop, reports": lambda: bare(bootstrap_servers, name, messages, reports=True),
                "Producer.put": lambda: with_producer(log, name, messages, send=False),
                "Producer.send": lambda: with_producer(log, name, messages, send=True),
            }
            for lane in names if number % 2 else reversed(names):
                loop = lanes[lane]()
                began, used = time.perf_counter(), time.process_time()
                loop()
                if number:  # the first round warms up
                    rates[lane].append(messages / (time.perf_counter() - began))
                    cpu[lane].append((time.process_time() - used) / messages * 1e6)
        waits = acknowledgements(log, name)
    log.close()
    rows: list[dict[str, object]] = []
    for lane in names:
        row: dict[str, object] = {"what": lane, "per_second": round(statistics.median(rates[lane]))}
        row["cpu_us"] = round(statistics.median(cpu[lane]), 2)
        for other, label in (("bare loop", "share_of_bare"), ("bare loop, reports", "share_of_bare_with_reports")):
            row[label] = round(statistics.median(a / b for a, b in zip(rates[lane], rates[other], strict=True)), 2)
        rows.append(row)
    quantiles = {f"p{p}_ms": round(waits[len(waits) * p // 100] * 1e3, 2) for p in (50, 99)}
    return [*rows, {"what": "put, then wait for its receipt", **quantiles}]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--bootstrap-servers", help="a broker that is there; without it an embedded one is started")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=200_000)
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
