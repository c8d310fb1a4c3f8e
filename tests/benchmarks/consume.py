"""One consumer that takes and acknowledges a queue's messages: this library, a bare client loop, and other brokers.

``backlog``: all messages exist before the consumer starts; a last value queue delivers the newest of each key.
``backlog, compacted``: the same after Kafka's cleaner has conflated the messages, as other brokers do on arrival; only
the remaining messages count.
``backlog, all keys differ``: the same with one key per message, so nothing can be left out.
``live``: a producer in another process sends at full speed to a consumer that is already connected.

The clock starts with the first assignment (other brokers: when the link is open) or, for ``live``, with the producer.
It stops when every ack is stored and the consumer has left. A contestant fails if it loses a newest value, delivers
twice, steps back, or leaves something unacknowledged.
"""

from __future__ import annotations

import argparse
import time
import uuid
from collections.abc import Callable, Iterator, Mapping
from contextlib import closing
from functools import partial
from types import SimpleNamespace
from typing import Any

from lvq_kafka.consuming.consumer import Consumer
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks import topics
from tests.benchmarks.children import result, say, start, wait_ready
from tests.benchmarks.peers.contest import Peer
from tests.benchmarks.workload import WARM_UP, Judge, Workload, outcome, value_of

KAFKA = ("consumer", "consumer.acquire_many", "bare loop", "bare loop, waiting")
"""Both bare loops commit after each batch; the second waits for the commit. Neither leaves anything out."""
COMPACTED = "backlog, compacted"
MODES = ("backlog", COMPACTED, "backlog, all keys differ", "live")
_BATCH = 100  # for acquire_many and ack_many
_PATIENCE = 60.0  # seconds


class Clock:
    """The time of the first assignment, and the processor time since."""

    def __init__(self) -> None:
        self._began = 0
        self._used = 0.0

    def start(self, *_: object) -> None:
        if not self._began:
            self._began, self._used = time.monotonic_ns(), time.process_time()

    def report(self, judge: Judge) -> None:
        cpu = time.process_time() - self._used
        say({"began": self._began, "ended": time.monotonic_ns(), "deliveries": judge.deliveries, "cpu": cpu})


class ClockedCluster(KafkaCluster):
    """A cluster that starts the clock when its members get an assignment."""

    def __init__(self, servers: str, clock: Clock) -> None:
        super().__init__(servers)
        self._clock = clock

    def member(self, group: str, topic: str, listener: Any) -> Any:
        def assigned(*arguments: Any) -> Any:
            self._clock.start()
            return listener.assigned(*arguments)

        watched = SimpleNamespace(assigned=assigned, revoked=listener.revoked, lost=listener.lost)
        return super().member(group, topic, watched)


# ------------------------------------------------------------------ the consumers


def consumer(servers: str, topic: str, name: str, work: Workload, *, batch: int = 1) -> None:
    judge, clock = Judge(work), Clock()
    with LastValueQueue.open(name, cluster=ClockedCluster(servers, clock)) as queue:
        with queue.consumer() as member:
            if batch == 1:
                one_by_one(member, judge)
            else:
                many_at_once(member, judge, batch)
        clock.report(judge)


def one_by_one(member: Consumer[bytes], judge: Judge) -> None:
    for delivery in member:
        if not judge.take(delivery.key, delivery.value):
            print("ready", flush=True)
        delivery.ack()
        if judge.complete:
            break


def many_at_once(member: Consumer[bytes], judge: Judge, batch: int) -> None:
    while not judge.complete:
        taken = member.acquire_many(batch, _PATIENCE)
        if not taken:
            raise RuntimeError(f"nothing came for {_PATIENCE:g} seconds")
        for delivery in taken:
            if not judge.take(delivery.key, delivery.value):
                print("ready", flush=True)
        member.ack_many(taken)


def bare_loop(servers: str, topic: str, name: str, work: Workload, *, waiting: bool = False) -> None:
    from confluent_kafka import Consumer as Client

    from tests.benchmarks.bootstrap import BATCH, TUNED

    judge, clock = Judge(work), Clock()
    own = {"bootstrap.servers": servers, "group.id": name, "auto.offset.reset": "earliest"}
    client: Any = Client({**TUNED, **own})
    client.subscribe([topic], on_assign=clock.start)
    while not judge.complete:
        batch = client.consume(BATCH, 0.02)
        for message in batch:
            if message.error():
                raise RuntimeError(message.error())
            value = message.value()
            # deletes are not work
            if value is not None and not judge.take(message.key().decode(), value):
                print("ready", flush=True)
        if batch:
            client.commit(asynchronous=not waiting)
    if not waiting:
        client.commit(offsets=client.position(client.assignment()), asynchronous=False)
    client.close()
    clock.report(judge)


def produce(servers: str, topic: str, name: str, work: Workload) -> None:
    began = 0

    def records() -> Iterator[tuple[bytes, bytes]]:
        nonlocal began
        began = time.monotonic_ns()
        yield from ((key.encode(), value) for key, value in work)

    with closing(KafkaCluster(servers)) as cluster:
        topics.write(cluster, topic, records())
    say({"began": began, "ended": time.monotonic_ns()})


# ------------------------------------------------------------------ the parent process


class Kafka:
    """Contestants that consume from Kafka, each from its own queue."""

    def __init__(self, servers: str, cluster: KafkaCluster, work: Mapping[str, Workload]) -> None:
        self._servers, self._cluster, self._work = servers, cluster, work
        self._topics: dict[str, str] = {}

    def measure(self, contestant: str, mode: str) -> dict[str, Any]:
        work, name = self._work[mode], f"bench-{uuid.uuid4().hex[:8]}"
        topic = topics.create(self._cluster, "live") if mode == "live" else self._backlog(mode)
        queue = LastValueQueue.declare(name, topic=topic, key_header=None, cluster=self._cluster)
        # The bare loops join the queue's group, too: without a committed offset the client first waits for a timer.
        group = queue.definition.group
        joins = name if contestant.startswith("consumer") else group
        arguments = (self._servers, topic, joins, work.messages, work.keys)
        if mode == "live":
            consuming = start("consume", contestant, *arguments)
            topics.write(self._cluster, topic, [(WARM_UP.encode(), value_of(0))])
            wait_ready(consuming)
            began = result(start("consume", "producer", *arguments))["began"]
            measured = result(consuming)
        else:
            measured = result(start("consume", contestant, *arguments))
            began = measured["began"]
        commits, ends = self._cluster.groups.committed(group, topic), self._cluster.logs.end_offsets(topic)
        if {partition: commit.offset for partition, commit in commits.items()} != ends:
            raise RuntimeError(f"{contestant} has not acknowledged all there is: {commits}, and the log ends at {ends}")
        queue.drop(delete_topic=mode == "live")
        return outcome(Workload(work.keys, work.keys) if mode == COMPACTED else work, began, measured)

    def _backlog(self, mode: str) -> str:
        if mode not in self._topics:
            work, compacted = self._work[mode], mode == COMPACTED
            self._topics[mode] = topics.load(
                self._cluster, "backlog", work.messages, work.keys, compacted=compacted
            ).name
        return self._topics[mode]

    def close(self) -> None:
        for topic in self._topics.values():
            self._cluster.topics.delete(topic)


def run(
    servers: str, *, rounds: int, work: Workload, peers: Mapping[str, Peer], peer_rounds: int, peer_work: Workload
) -> Iterator[dict[str, Any]]:
    """Yield one result for each contestant, mode and round; other brokers take part in the first rounds only.

    They always conflate their backlog, so a compacted one would measure nothing new.
    """
    with closing(KafkaCluster(servers)) as cluster, closing(Kafka(servers, cluster, _modes(work))) as kafka:
        for number in range(rounds):
            for mode in MODES:
                names = [*KAFKA, *(peers if number < peer_rounds and mode != COMPACTED else ())]
                turn = number % len(names)
                for name in names[turn:] + names[:turn]:
                    if name in peers:
                        measured = peers[name].measure(_modes(peer_work)[mode], live=mode == "live")
                    else:
                        measured = kafka.measure(name, mode)
                    yield {"round": number, "mode": mode, "contestant": name, **measured}


def _modes(work: Workload) -> dict[str, Workload]:
    return dict(zip(MODES, (work, work, Workload(work.messages, work.messages), work)))


def main() -> None:
    roles: dict[str, Callable[[str, str, str, Workload], None]] = {
        "consumer": consumer,
        "consumer.acquire_many": partial(consumer, batch=_BATCH),
        "bare loop": bare_loop,
        "bare loop, waiting": partial(bare_loop, waiting=True),
        "producer": produce,
    }
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("role", choices=roles)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("name")
    parser.add_argument("messages", type=int)
    parser.add_argument("keys", type=int)
    options = parser.parse_args()
    work = Workload(options.messages, options.keys)
    roles[options.role](options.servers, options.topic, options.name, work)


if __name__ == "__main__":
    main()
