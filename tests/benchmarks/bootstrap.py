"""Bootstrap from nothing to caught up, in a fresh process: a view, a bare client loop into a dict, and peers.

The peers are ktables, and a `GlobalKTable` in a JVM's memory. All read every partition of the same topic. They are done
when their position reaches the end offsets that they asked for at the start. The clock starts after the imports, before
the first object is created.
"""

from __future__ import annotations

import argparse
import asyncio
import logging
import statistics
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from tests.benchmarks.children import memory_in_use, peak_memory, result, say, start
from tests.benchmarks.topics import Content, Topic

JVM = "GlobalKTable"
PEERS = ("ktables", "ktables, read_committed", JVM)
"""Contestants that know record keys only."""

CONTESTANTS = ("view", "bare loop", "bare loop, positions", *PEERS)
"""A view keeps the position and timestamp of each value; so does the second bare loop, but not the first."""

TUNED = {
    "enable.auto.commit": False,
    "auto.offset.reset": "error",
    "isolation.level": "read_committed",
    "fetch.queue.backoff.ms": 1,  # the decisive one: by default a full queue waits for a second
    "queued.max.messages.kbytes": 4096,  # a seventh faster than the default, 64 MiB
}
"""The best known settings for a hand-written loop."""

BATCH = 500
"""The best batch size: with larger ones Python's cyclic collector runs, for up to a tenth of the time."""


@dataclass
class Stopwatch:
    """The time from construction to `stop`."""

    wall: float = 0.0
    cpu: float = 0.0
    reading_thread: float = 0.0

    def __post_init__(self) -> None:
        self._wall, self._cpu, self._thread = time.perf_counter(), time.process_time(), time.thread_time()

    def stop(self, reading_thread: float | None = None) -> None:
        """Stop the clock; ``reading_thread`` is the time of the thread that read, if that is another one."""
        self.wall = time.perf_counter() - self._wall
        self.cpu = time.process_time() - self._cpu
        self.reading_thread = time.thread_time() - self._thread if reading_thread is None else reading_thread

    def report(self, items: Callable[[], Iterable[tuple[bytes, bytes]]]) -> None:
        """Report the result. Read the contents last, since that also costs time and memory."""
        memory, peak = memory_in_use(), peak_memory()
        keys, checksum = Content.of(items())
        measured = {"wall": self.wall, "cpu": self.cpu, "reading_thread": self.reading_thread}
        say({**measured, "memory": memory, "peak": peak, "keys": keys, "checksum": checksum})


def view(servers: str, topic: str, key_header: str | None) -> None:
    import lvq_kafka.kafka  # noqa: F401  # before the clock starts
    from lvq_kafka.queue import LastValueQueue

    watch = Stopwatch()
    with LastValueQueue(topic, key_header=key_header, bootstrap_servers=servers) as queue, queue.view() as values:
        watch.stop(_thread_time(f"lvq-read-{topic}"))
        watch.report(lambda: ((entry.key.encode(), entry.value) for entry in values.entries()))


def bare_loop(servers: str, topic: str, key_header: str | None, *, positions: bool = False) -> None:
    from confluent_kafka import Consumer, TopicPartition

    watch = Stopwatch()
    consumer = Consumer({"bootstrap.servers": servers, "group.id": "bench", **TUNED})
    partitions = consumer.list_topics(topic, timeout=10).topics[topic].partitions
    starts, ends = {}, {}
    for partition in partitions:
        starts[partition], ends[partition] = consumer.get_watermark_offsets(TopicPartition(topic, partition), 10)
    consumer.assign([TopicPartition(topic, partition, offset) for partition, offset in starts.items()])
    mine = [TopicPartition(topic, partition) for partition in partitions]
    values: dict[Any, Any] = {}
    while any(max(at.offset, starts[at.partition]) < ends[at.partition] for at in consumer.position(mine)):
        for message in consumer.consume(BATCH, 0.02):
            if message.error():
                continue
            value, key = message.value(), message.key() if key_header is None else dict(message.headers())[key_header]
            if value is None:
                values.pop(key, None)
            elif positions:
                values[key] = (value, message.partition(), message.offset(), message.timestamp()[1])
            else:
                values[key] = value
    watch.stop()
    watch.report((lambda: ((key, kept[0]) for key, kept in values.items())) if positions else values.items)
    consumer.close()


def ktables(servers: str, topic: str, _: None, **consumer_options: str) -> None:
    from ktables import KafkaConnectionConfig, KafkaTable

    logging.disable(logging.WARNING)

    async def read() -> None:
        watch = Stopwatch()
        table: KafkaTable[bytes] = KafkaTable(
            connection=KafkaConnectionConfig(servers, consumer_opts=consumer_options),
            topic=topic,
            value_decoder=bytes,
            ensure_topic=False,
            catchup_timeout=120,
        )
        await table.start()
        watch.stop()
        if table.status != "caught_up":
            raise RuntimeError(f"ktables is {table.status}")
        watch.report(lambda: ((key.encode(), value) for key, value in table.items()))
        await table.stop()

    asyncio.run(read())


def global_k_table(servers: str, topic: str, _: None) -> None:
    """The clock starts once the JVM runs, and before its first object. It has compiled nothing by then."""
    from tests.benchmarks.peers.streams import global_table, streams_machine

    with streams_machine() as machine:
        wall, cpu = time.perf_counter(), machine.cpu
        with global_table(machine, servers, topic) as table:
            table.wait()
            wall, cpu = time.perf_counter() - wall, machine.cpu - cpu
            memory, peak = machine.memory_in_use(), machine.peak
            keys, checksum = Content.of(table.items())
    measured = {"wall": wall, "cpu": cpu, "reading_thread": cpu}  # of all its threads
    say({**measured, "memory": memory, "peak": peak, "keys": keys, "checksum": checksum})


def _thread_time(name: str) -> float | None:
    for thread in threading.enumerate():
        if thread.name == name and thread.ident is not None:
            return time.clock_gettime(time.pthread_getcpuclockid(thread.ident))
    return None


# ------------------------------------------------------------------ the parent process


def measure(servers: str, topic: Topic, contestant: str) -> dict[str, Any]:
    """Let one contestant read a topic, and check that it holds the right values."""
    arguments = [topic.name] if topic.key_header is None else [topic.name, topic.key_header]
    measured = result(start("bootstrap", contestant, servers, *arguments))
    if (measured["keys"], measured.pop("checksum")) != topic.content:
        raise RuntimeError(f"{contestant} does not hold the newest value of every key of the topic {topic.label}")
    return {"contestant": contestant, "topic": topic.label, **measured}


def run(
    servers: str,
    topics: Iterable[Topic],
    empty: Topic,
    rounds: int,
    contestants: Sequence[str] = CONTESTANTS,
) -> Iterator[dict[str, Any]]:
    """Yield one result for each contestant, topic and round.

    ``bytes_per_key`` is what a contestant holds once caught up, beyond what it holds on an empty topic, divided by the
    number of keys. It counts resident memory after a garbage collection and ``malloc_trim``, so without the client's
    buffers; of a JVM, the live objects.
    """
    resting = {
        contestant: statistics.median(measure(servers, empty, contestant)["memory"] for _ in range(min(rounds, 3)))
        for contestant in contestants
    }
    for number in range(rounds):
        turn = number % len(contestants)
        for topic in topics:
            for contestant in (*contestants[turn:], *contestants[:turn]):
                if topic.key_header is not None and contestant in PEERS:
                    continue
                measured = measure(servers, topic, contestant)
                per_key = (measured["memory"] - resting[contestant]) / topic.content.keys
                yield {"round": number, **measured, "bytes_per_key": per_key}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("key_header", nargs="?")
    options = parser.parse_args()
    contestants: dict[str, Callable[[str, str, Any], None]] = {
        "view": view,
        "bare loop": bare_loop,
        "bare loop, positions": partial(bare_loop, positions=True),
        "ktables": ktables,
        "ktables, read_committed": partial(ktables, isolation_level="read_committed"),
        JVM: global_k_table,
    }
    contestants[options.contestant](options.servers, options.topic, options.key_header)


if __name__ == "__main__":
    main()
