"""The cost of tracking every acknowledgement: time until it is durable, length of the commits' text, and memory.

``latency``: acknowledges one message at a time and waits for it; a bare loop commits each message by itself.
``text``: the length of the metadata in the group's commits while messages are done in some order, read ten times a
second, as any client can. The broker accepts 4,096 bytes.
``memory``: the resident memory of a consumer with waiting messages, beyond that of one with an empty queue; the same
for messages in work, held and not yet acknowledged, and for those that wait once no more may be in work.
"""

from __future__ import annotations

import argparse
import random
import threading
import time
import uuid
from collections import deque
from collections.abc import Iterator
from contextlib import closing
from typing import Any

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks import topics
from tests.benchmarks.children import memory_in_use, result, say, start
from tests.benchmarks.latency import quantiles
from tests.waiting import eventually

LATENCY = ("consumer", "bare loop")
ORDERS = ("in order", "at random", "with stragglers")
"""The next held message to finish: the oldest; any; or any but one in fifty, which stay held as long as possible."""
HELD = 1000
IN_WORK = 4000
"""The number of messages in work for the memory figure: about half of what one commit has room for."""
_SAMPLE = 0.1  # seconds
_PATIENCE = 60.0


# ------------------------------------------------------------------ the time until an ack is durable


def consumer_latency(servers: str, topic: str, name: str, count: int) -> None:
    with LastValueQueue.open(name, bootstrap_servers=servers) as queue, queue.consumer() as consumer:
        say(quantiles([_timed(_next(consumer).ack, wait=True) for _ in range(count)][count // 10 :]))


def bare_latency(servers: str, topic: str, name: str, count: int) -> None:
    from confluent_kafka import Consumer

    from tests.benchmarks.bootstrap import TUNED

    consumer = Consumer({**TUNED, "bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest"})
    consumer.subscribe([topic])
    taken: list[float] = []
    while len(taken) < count:
        message = consumer.poll(_PATIENCE)
        if message is None or message.error():
            raise RuntimeError("nothing came")
        taken.append(_timed(consumer.commit, message, asynchronous=False))
    consumer.close()
    say(quantiles(taken[count // 10 :]))


def _timed(call: Any, *arguments: Any, **options: Any) -> float:
    began = time.perf_counter()
    call(*arguments, **options)
    return (time.perf_counter() - began) * 1e3


def _next(consumer: Any) -> Any:
    delivery = consumer.acquire(_PATIENCE)
    if delivery is None:
        raise RuntimeError("nothing came")
    return delivery


# ------------------------------------------------------------------ the commits' text


def text(servers: str, topic: str, name: str, count: int, order: str) -> None:
    """Take and settle ``count`` messages, holding up to a thousand at a time."""
    lengths: list[tuple[float, int]] = []
    done, finished = 0, threading.Event()

    def watch() -> None:
        while not finished.wait(_SAMPLE):
            commits = cluster.groups.committed(queue.definition.group, topic)
            lengths.append((done / count, max(len(commit.metadata) for commit in commits.values())))

    with closing(KafkaCluster(servers)) as cluster, LastValueQueue.open(name, bootstrap_servers=servers) as queue:
        watcher = threading.Thread(target=watch)
        watcher.start()
        try:
            with queue.consumer(max_in_work=HELD) as consumer:
                for delivery in _in_order(consumer, count, order):
                    delivery.ack()
                    done += 1
        finally:
            finished.set()
            watcher.join()
    say({"lengths": lengths})


def _in_order(consumer: Any, count: int, order: str) -> Iterator[Any]:
    """Yield deliveries in the order in which they are done; the consumer limits how many are held."""
    dice = random.Random(7)
    held: deque[Any] = deque()
    stragglers: deque[Any] = deque()
    taken = 0
    while taken < count or held or stragglers:
        while taken < count and len(held) + len(stragglers) < HELD:
            delivery = consumer.acquire(0.0 if held or stragglers else _PATIENCE)
            if delivery is None:
                break  # others must be done first
            taken += 1
            late = order == "with stragglers" and not dice.randrange(50)
            (stragglers if late else held).append(delivery)
        if not held and not stragglers:
            raise RuntimeError(f"nothing came after {taken} messages")
        if not held or len(stragglers) > HELD // 2:
            yield stragglers.popleft()
        for _ in range(min(len(held), HELD // 10)):
            if order != "in order":
                held.rotate(dice.randrange(len(held)))
            yield held.popleft()


# ------------------------------------------------------------------ memory


def memory(servers: str, topic: str, name: str, count: int) -> None:
    """Report a consumer's resident memory with ``count`` messages: all waiting, some in work, the most in work.

    The most is some thousand, since one commit must fit the acks of all of them, in any order. The consumer sets the
    others aside when it first refuses one, so the figure for some in work is taken before.
    """
    with (
        LastValueQueue.open(name, bootstrap_servers=servers) as queue,
        queue.consumer(max_in_work=max(1, count)) as consumer,
    ):

        def all_wait() -> bool:
            stats = consumer.stats
            assert stats.available >= count, f"{stats.available} messages of {count} wait"
            return bool(stats.partitions) and not stats.catching_up

        eventually(all_wait, _PATIENCE, every=0.05)
        waiting = memory_in_use()
        held = [_next(consumer) for _ in range(min(count, IN_WORK))]
        in_work = memory_in_use()
        while len(held) < count and (delivery := consumer.acquire(1.0)) is not None:
            held.append(delivery)
        say({"waiting": waiting, "in_work": in_work, "held": len(held), "full": memory_in_use()})


# ------------------------------------------------------------------ the parent process


def run(servers: str, *, rounds: int, acks: int, messages: int) -> Iterator[dict[str, Any]]:
    """Yield one result for each question, contestant and round; text and memory only once."""
    with closing(KafkaCluster(servers)) as cluster:
        full = topics.load(cluster, "full", messages, messages).name
        empty = topics.create(cluster, "empty")

        def ask(role: str, topic: str, count: int) -> dict[str, Any]:
            name = f"bench-{uuid.uuid4().hex[:8]}"
            queue = LastValueQueue.declare(name, topic=topic, key_header=None, cluster=cluster)
            found = result(start("acks", role, servers, topic, name, count))
            queue.drop()
            return found

        try:
            for number in range(rounds):
                for contestant in LATENCY if number % 2 else LATENCY[::-1]:
                    found = ask(f"latency of {contestant}", full, acks)
                    yield {"what": "ack until durable", "contestant": contestant, "round": number, **found}
            for order in ORDERS:
                yield {"what": "commit text", "order": order, **ask(f"text {order}", full, messages)}
            resting, holding = ask("memory", empty, 0), ask("memory", full, messages)
            yield from _memory_rows(resting["waiting"], holding, messages)
        finally:
            cluster.topics.delete(full)
            cluster.topics.delete(empty)


def _memory_rows(resting: float, holding: dict[str, Any], messages: int) -> Iterator[dict[str, Any]]:
    """Yield the bytes per message, beyond those of a consumer with an empty queue."""

    def row(state: str, count: int, each: float) -> dict[str, Any]:
        return {"what": "memory", "state": state, "messages": count, "bytes_per_message": each}

    waiting = (holding["waiting"] - resting) / messages
    in_work = waiting + (holding["in_work"] - holding["waiting"]) / min(messages, IN_WORK)
    yield row("they wait", messages, waiting)
    yield row("they are in work", min(messages, IN_WORK), in_work)
    if refused := messages - holding["held"]:
        set_aside = holding["full"] - holding["waiting"] - holding["held"] * (in_work - waiting)
        yield row("they wait, and no more may be in work", refused, waiting + set_aside / refused)


def main() -> None:
    roles = [*(f"latency of {name}" for name in LATENCY), *(f"text {order}" for order in ORDERS), "memory"]
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=roles)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("name")
    parser.add_argument("count", type=int)
    options = parser.parse_args()
    arguments = (options.servers, options.topic, options.name, options.count)
    if options.role.startswith("text "):
        text(*arguments, options.role.removeprefix("text "))
    else:
        {
            "latency of consumer": consumer_latency,
            "latency of bare loop": bare_latency,
            "memory": memory,
        }[options.role](*arguments)


if __name__ == "__main__":
    main()
