"""The cost of message groups: a consumer takes and acknowledges a backlog, with and without them.

``none``: a standard queue. ``sticky`` and ``shared``: the same with groups, of which the messages are in few, in a
thousand, or each in one of its own. One session takes all, or four take turns, and each holds what it got until its
next turn, as busy threads would.

Measured is the processor time of the consumer's process: for reading, until the backlog is in memory, and for taking
and acknowledging it from there. Both depend on the machine, so compare those of one round.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections import deque
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing
from itertools import product
from typing import Any

from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks import topics
from tests.benchmarks.children import result, say, start
from tests.waiting import eventually

CONTESTANTS = ("none", "sticky", "shared")
SESSIONS = (1, 4)
AT_ONCE = (1, 100)
WAYS = tuple(product(SESSIONS, AT_ONCE))
_HEADER = "group"
_MANY = 10_000
_PATIENCE = 60.0  # seconds


def numbers_of_groups(messages: int) -> tuple[int, ...]:
    """Return how many groups so many messages are in, in turn: few if there are few messages."""
    return (10, messages // 50, messages) if messages >= _MANY else (10,)


def consume(queue: LastValueQueue[bytes], sessions: int, at_once: int, count: int) -> dict[str, Any]:
    """Take and ack all messages, and return the processor time."""
    began = time.process_time()
    with queue.consumer() as consumer, ExitStack() as at_the_end:

        def has_read_all() -> bool:
            stats = consumer.stats
            return stats.available >= count and not stats.catching_up

        eventually(has_read_all, _PATIENCE, every=0.05)
        read = time.process_time()
        _take_turns([at_the_end.enter_context(consumer.session()) for _ in range(sessions)], at_once, count)
        used = time.process_time()
    return {"sessions": sessions, "at_once": at_once, "messages": count, "reading": read - began, "cpu": used - read}


def _take_turns(sessions: Sequence[Any], at_once: int, count: int) -> None:
    """Let each session ack the messages that it holds and take more, in turn.

    One that finds nothing is left out while others find something.
    """
    held: dict[Any, list[Any]] = {session: [] for session in sessions}
    held[sessions[0]] = sessions[0].acquire_many(at_once, _PATIENCE)
    turns, done, before = deque((*sessions[1:], sessions[0])), 0, -1
    while done < count:
        session = turns.popleft()
        for delivery in held[session]:
            delivery.ack()
        done += len(held[session])
        held[session] = session.acquire_many(at_once, 0.0)
        if held[session]:
            turns.append(session)
        elif not turns:
            if done == before:
                raise RuntimeError(f"only {done} of {count} messages came")
            before = done
            turns.extend(sessions)


def run(servers: str, rounds: int, messages: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each number of groups, mode, way of taking and round."""
    with closing(KafkaCluster(servers)) as cluster:
        for groups in numbers_of_groups(messages):
            topic = topics.load(cluster, "groups", messages, groups, key_header=_HEADER).name
            try:
                for number in range(rounds):
                    for contestant in CONTESTANTS if number % 2 else CONTESTANTS[::-1]:
                        for measured in _measure(servers, cluster, topic, contestant, messages):
                            yield {"round": number, "groups": groups, "contestant": contestant, **measured}
            finally:
                cluster.topics.delete(topic)


def _measure(servers: str, cluster: KafkaCluster, topic: str, contestant: str, messages: int) -> list[dict[str, Any]]:
    grouping = None if contestant == "none" else Groups(header=_HEADER, mode=contestant)  # type: ignore[arg-type]
    queues = [
        LastValueQueue.declare(
            f"bench-{uuid.uuid4().hex[:8]}",
            topic=topic,
            key_header=None,
            conflate=False,
            on_mismatch="reconcile",
            groups=grouping,
            cluster=cluster,
        )
        for _ in WAYS
    ]
    try:
        said = result(start("groups", servers, messages, *(queue.name for queue in queues)))
        return list(said["found"])
    finally:
        for queue in queues:
            queue.drop()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("count", type=int)
    parser.add_argument("names", nargs=len(WAYS))
    options = parser.parse_args()
    found = []
    for name, (sessions, at_once) in zip(options.names, WAYS):
        with LastValueQueue.open(name, bootstrap_servers=options.servers) as queue:
            found.append(consume(queue, sessions, at_once, options.count))
    say({"found": found})


if __name__ == "__main__":
    main()
