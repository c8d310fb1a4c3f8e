"""The cost of going by rank, without a broker: ``python -m tests.benchmarks.ranks``.

A backlog is handed out and acked one by one: in the order of arrival, by priority (ten levels at random), and sorted by
a text at random. *ledger*: the core alone, from the moment when all has been read. *consumer*: a whole consumer on the
cluster in memory, from its start. With 100,000 messages most lie beyond the window; with 15,000 none does. *beside
scheduled*: the core alone, while so many messages are scheduled among those that came before, and each is acked as it
comes: the text is full of them in the end.

Orders take turns. The table shows processor time per message, the median of the rounds, and the part of it that the
order of arrival takes.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from random import Random
from statistics import median

from lvq_kafka import BYTES, LastValueQueue
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER, SORT_HEADER, QueueOrder
from lvq_kafka.core.timing.due_times import NOT_BEFORE_HEADER
from lvq_kafka.testing import MemoryCluster
from tests.rules import new_ledger

_ORDERS: tuple[QueueOrder, ...] = ("tail", "priority", "sorted")
_MESSAGES = (15_000, 100_000)
_SCHEDULED = (10, 1_000, 20_000)
_BESIDE = 5_000  # messages
_AT_ONCE = 1000
_PATIENCE = 60.0  # seconds


def records(count: int) -> Iterator[tuple[bytes, list[tuple[str, bytes | None]]]]:
    """Yield keys and headers."""
    rng = Random(1)
    for number in range(count):
        ranks = b"%d" % rng.randrange(10), b"%06d" % rng.randrange(count)
        yield b"%d" % number, list(zip((PRIORITY_HEADER, SORT_HEADER), ranks))


def in_ledger(order: QueueOrder, count: int) -> float:
    """Return the seconds of processor time that the core takes."""
    ledger = new_ledger(order=order)
    ledger.assign(0, CommitMap(0), count)
    sent = list(records(count))
    for start in range(0, count, _AT_ONCE):
        part = sent[start : start + _AT_ONCE]
        size, keys, headers = len(part), [key for key, _ in part], [found for _, found in part]
        offsets = list(range(start, start + size))
        ledger.add(RecordBatch([0] * size, offsets, [0] * size, list(keys), [b"v"] * size, list(headers)))
    began = time.process_time()
    ledger.advance({0: count})
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
    used = time.process_time() - began
    if ledger.stats.acked < count:
        raise RuntimeError(f"only {ledger.stats.acked} of {count} messages came")
    return used


def in_consumer(order: QueueOrder, count: int) -> float:
    """Return the seconds of processor time that a consumer takes."""
    cluster = MemoryCluster()
    with LastValueQueue.declare("ranks", key_header=None, order=order, value=BYTES, cluster=cluster) as queue:
        for key, headers in records(count):
            cluster.write(queue.topic, key, b"v", headers)
        began = time.process_time()
        with queue.consumer() as consumer:
            for _ in range(count):
                delivery = consumer.acquire(_PATIENCE)
                if delivery is None:
                    raise RuntimeError(f"nothing came: {consumer.stats}")
                delivery.ack()
        return time.process_time() - began


def beside_scheduled(order: QueueOrder, scheduled: int) -> float:
    """Return the seconds of processor time that the core takes for `_BESIDE` messages beside scheduled ones."""
    ledger = new_ledger(order=order, max_delay=86_400.0)
    ledger.assign(0, CommitMap(0), 0)
    later = (NOT_BEFORE_HEADER, b"%d" % 80_000_000)
    began, number = 0.0, 0
    for key, headers in records(scheduled + _BESIDE):
        if number == 2 * scheduled:
            began = time.process_time()
        if number < 2 * scheduled:
            ledger.offer(0, number, b"later" + key, b"v", 1000, [*headers, later])
            number += 1
        ledger.offer(0, number, key, b"v", 1000, headers)
        number += 1
        ledger.advance({0: number})
        while (item := ledger.acquire()) is not None:
            ledger.ack(item)
    return time.process_time() - began


def table(rounds: int) -> Iterator[str]:
    """Yield the rows of a Markdown table."""
    yield f"| | messages | {' | '.join(f'{order}, µs | ratio' for order in _ORDERS)} |"
    yield f"| --- | ---: |{' ---: | ---: |' * len(_ORDERS)}"
    for where, measure in (("ledger", in_ledger), ("consumer", in_consumer)):
        for count in _MESSAGES:
            measured = [[measure(order, count) for order in _ORDERS] for _ in range(rounds)]
            times = [median(column) for column in zip(*measured)]
            cells = [f"{used / count * 1e6:.2f} | {times[0] / used:.2f}" for used in times]
            yield f"| {where} | {count:,} | {' | '.join(cells)} |"
    for scheduled in _SCHEDULED:
        measured = [[beside_scheduled(order, scheduled) for order in _ORDERS] for _ in range(rounds)]
        times = [median(column) for column in zip(*measured)]
        cells = [f"{used / _BESIDE * 1e6:.2f} | {times[0] / used:.2f}" for used in times]
        yield f"| beside scheduled | {scheduled:,} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.ranks", description=__doc__)
    parser.add_argument("--rounds", type=int, default=5)
    for row in table(parser.parse_args().rounds):
        print(row, flush=True)


if __name__ == "__main__":
    main()
