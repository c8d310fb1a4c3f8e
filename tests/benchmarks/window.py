"""The order of a priority queue, as far as commit texts have room: ``python -m tests.benchmarks.window``.

A number of messages wait, with ten priorities at random, and are handed out and acked a hundred at a time. After each
hundred, the claim is committed to a real broker, with its default limit, and read back. *dense*: offsets are
consecutive; *sparse*: compaction has left gaps of random length, ten offsets on average. With *counts*, delivery counts
are committed, too, and every tenth message comes back once.

The table says after how many messages the first one had to wait that should have been next, what part of all messages
overtook such a one, and the longest text. A broker that refuses a text, or changes it, ends the run with an error.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from random import Random
from typing import Any, NamedTuple

from confluent_kafka import Consumer, TopicPartition

from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.consumer.commits import Answer, Commits
from lvq_kafka.core.ledger.ledger import Item
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.queue.ranking import PRIORITY_HEADER
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks import topics
from tests.rules import new_ledger

__all__ = ["Exactness", "Store", "broker_store", "exactness", "window_table"]

_AT_ONCE = 100
_WAITING = (1_000, 1_500, 2_000, 3_000, 6_000, 8_000, 10_000, 17_000, 18_000, 20_000, 50_000)
_PATIENCE = 60.0  # seconds

Store = Callable[[CommitMap], CommitMap]
"""Commits a map, and returns what was stored."""


class Exactness(NamedTuple):
    """Figures on one run."""

    first: int
    """The number of messages that were handed out before the first one that overtook a better one."""
    overtaking: int
    """The number of messages that did."""
    longest: int
    """The length of the longest text, in characters."""


def exactness(waiting: int, *, sparse: bool, counted: bool, store: Store) -> Exactness:
    """Hand out and commit a backlog."""
    rng, offsets, end = Random(1), [], 0
    for _ in range(waiting):
        offsets.append(end)
        end += 1 + (int(rng.expovariate(1 / 9.5)) if sparse else 0)
    ledger = new_ledger(order="priority", count_deliveries=counted)
    ledger.assign(0, CommitMap(0), end)
    keys: list[bytes | None] = [b"%d" % offset for offset in offsets]
    headers = [[(PRIORITY_HEADER, b"%d" % rng.randrange(10))] for _ in offsets]
    ledger.add(RecordBatch([0] * waiting, offsets, [0] * waiting, keys, [b""] * waiting, list(headers)))
    ledger.advance({0: end})
    commits: Commits[None] = Commits(ledger)
    commits.track(0, CommitMap(0), tag=bytes(range(8)), partitions=1)
    taken, first, longest = 0, waiting, 0
    items: list[Item] = []
    while (item := ledger.acquire()) is not None:
        if ledger.stats.out_of_order and first == waiting:
            first = taken
        taken += 1
        items.append(item)
        if len(items) < _AT_ONCE and ledger.assignment.available:
            continue
        for one in items:
            if counted and not one.redelivered and rng.random() < 0.1:
                ledger.release(one)
            else:
                ledger.ack(one)
        items.clear()
        flight = commits.prepare()
        if flight is not None:
            (said,) = flight.maps.values()
            if store(said) != said:
                raise RuntimeError("the broker has stored another map")
            longest = max(longest, len(said.encode()))
            commits.landed(flight, Answer.STORED)
        if commits.text_is_full:
            raise RuntimeError("an ack found no room")
    if ledger.assignment.outstanding:
        raise RuntimeError(f"{ledger.assignment.outstanding} messages never came")
    return Exactness(first, ledger.stats.out_of_order, longest)


def window_table(store: Store) -> Iterator[str]:
    """Yield the rows of a Markdown table."""
    yield "| waiting | offsets | exact for | overtake | longest text | with counts | overtake | longest text |"
    yield "| ---: | --- | ---: | ---: | ---: | ---: | ---: | ---: |"
    for waiting in _WAITING:
        for sparse, offsets in ((False, "dense"), (True, "sparse")):
            cells = [f"{waiting:,}", offsets]
            for counted in (False, True):
                found = exactness(waiting, sparse=sparse, counted=counted, store=store)
                exact = "all" if not found.overtaking else f"{found.first:,}"
                cells += [exact, f"{found.overtaking / waiting:.0%}", f"{found.longest:,}"]
            yield f"| {' | '.join(cells)} |"


@contextmanager
def broker_store(servers: str, topic: str) -> Iterator[Store]:
    """Yield what commits to a broker, with a group of its own."""
    client: Any = Consumer({"bootstrap.servers": servers, "group.id": f"bench-{uuid.uuid4().hex[:8]}"})

    def store(said: CommitMap) -> CommitMap:
        client.commit(offsets=[TopicPartition(topic, 0, said.base, said.encode())], asynchronous=False)
        (stored,) = client.committed([TopicPartition(topic, 0)], _PATIENCE)
        return CommitMap.decode(stored.offset, stored.metadata)

    try:
        yield store
    finally:
        client.close()


def main() -> None:
    with EmbeddedBroker() as broker, closing(KafkaCluster(broker.bootstrap_servers)) as cluster:
        topic = topics.create(cluster, "window")
        with broker_store(broker.bootstrap_servers, topic) as store:
            for row in window_table(store):
                print(row, flush=True)


if __name__ == "__main__":
    main()
