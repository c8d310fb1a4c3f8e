"""The cost of a limit to producers, which follow the topic of a queue with the policy ``reject`` or ``block``.

Opening: a producer with a limit beside a view of the same topic, which keeps the values, too. Sending: updates and new
keys, with and without a limit. Processor time is that of all threads, less that of an empty topic for opening.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import Any

from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks import topics
from tests.benchmarks.children import result, say, start
from tests.benchmarks.workload import key_of, value_of

OPENING = ("view", "producer")
SENDING = ("update", "new key")
_HIGH = 1 << 40
_HEADER = "ticker"


def opening(queue: LastValueQueue[bytes], what: str, keys: int) -> dict[str, Any]:
    """Open a reader, or a producer with limits, until it knows all keys."""
    used = time.process_time()
    with queue.view() if what == "view" else queue.producer():
        return {"keys": keys, "cpu": time.process_time() - used}


def sending(queue: LastValueQueue[bytes], what: str, count: int) -> dict[str, Any]:
    """Send messages as fast as they go, and wait until they are stored."""
    prefix = uuid.uuid4().hex[:8]
    names = [key_of(number, count) if what == "update" else f"{prefix}-{number}" for number in range(count)]
    value = value_of(0)
    with queue.producer() as producer:
        producer.put(names[0], value).result(60.0)
        used, in_thread = time.process_time(), time.thread_time()
        for name in names:
            producer.put(name, value)
        in_thread = time.thread_time() - in_thread
        producer.flush(300.0)
        return {"messages": count, "cpu": time.process_time() - used, "thread": in_thread}


def run(servers: str, rounds: int, keys: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each kind and round."""
    with closing(KafkaCluster(servers)) as cluster:
        loaded = topics.load(cluster, "limits", keys, keys, key_header=_HEADER).name
        empty = topics.load(cluster, "no-limits", 0, 1, key_header=_HEADER).name
        try:
            for number in range(rounds):
                for what in OPENING:
                    full, none = (_measure(cluster, servers, topic, what, keys) for topic in (loaded, empty))
                    yield {"round": number, "what": what, "keys": keys, "cpu": full["cpu"] - none["cpu"]}
                for what in SENDING:
                    for limited in (False, True):
                        measured = _measure(cluster, servers, loaded, what, keys, limited=limited)
                        yield {"round": number, "what": what, "limited": limited, **measured}
        finally:
            for topic in (loaded, empty):
                cluster.topics.delete(topic)


def _measure(
    cluster: KafkaCluster, servers: str, topic: str, what: str, count: int, *, limited: bool = True
) -> dict[str, Any]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    limits = Limits(messages=_HIGH, policy="reject") if limited else None
    with LastValueQueue.declare(name, topic=topic, key_header=_HEADER, limits=limits, cluster=cluster) as queue:
        measured = result(start("limits", what, servers, name, count))
        queue.drop()
    return measured


def main() -> None:
    parts: dict[str, Callable[[LastValueQueue[bytes], str, int], dict[str, Any]]] = {
        **dict.fromkeys(OPENING, opening),
        **dict.fromkeys(SENDING, sending),
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("what", choices=parts)
    parser.add_argument("servers")
    parser.add_argument("name")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    with LastValueQueue.open(options.name, bootstrap_servers=options.servers) as queue:
        say(parts[options.what](queue, options.what, options.count))


if __name__ == "__main__":
    main()
