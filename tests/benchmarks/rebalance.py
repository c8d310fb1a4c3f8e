"""The time until partitions have moved, in both group protocols, and how long other partitions stand still.

A producer writes to four partitions all the time, and one member consumes all of them. Another member ``joins`` and
later ``leaves``, is ``killed`` with SIGKILL, or is ``replaced``: killed, and another one started at once. The figures
are what a user sees: the time until the last partition to move has its first message delivered by the new member, and,
for partitions that stay, the longest pause between two messages.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import threading
import time
import uuid
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import ExitStack, closing, contextmanager, suppress
from itertools import count, pairwise
from typing import Any

from confluent_kafka import Producer

from lvq_kafka.core.queue.topic_settings import TopicSpec
from lvq_kafka.errors import Closed
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks.children import start
from tests.benchmarks.topics import PARTITIONS
from tests.waiting import eventually

PROTOCOLS = ("classic", "consumer")
CHANGES = ("joins", "leaves", "is killed", "is replaced")
_EVERY = 0.005  # seconds between messages; each partition gets one in four
_KEYS = 100  # per partition
_PATIENCE = 120.0
_ALL = frozenset(range(PARTITIONS))


# ------------------------------------------------------------------ the consumers


def member(servers: str, name: str, protocol: str, session: float) -> None:
    """Report each delivery's time and partition; leave the group when standard input ends."""
    properties = (
        {"session.timeout.ms": round(session * 1000)} if protocol == "classic" else {"group.protocol": protocol}
    )
    with LastValueQueue.open(name, cluster=KafkaCluster(ClientConfig(servers, properties))) as queue:
        _say("begins")
        consumer = queue.consumer()

        def leave_when_told() -> None:
            sys.stdin.read()
            _say("begins")
            consumer.close()

        leaving = threading.Thread(target=leave_when_told)
        leaving.start()
        with suppress(Closed):
            for delivery in consumer:
                delivery.ack()
                _say(delivery.position.partition)
        leaving.join()


def _say(what: object) -> None:
    sys.stdout.write(f"{time.monotonic_ns()} {what}\n")  # one write, since two threads print
    sys.stdout.flush()


# ------------------------------------------------------------------ the parent process


class Watched:
    """A member in its own process, and its reports."""

    def __init__(self, *arguments: object) -> None:
        self.deliveries: list[tuple[float, int]] = []
        self.begins: list[float] = []
        self._process = start("rebalance", *arguments, stdin=subprocess.PIPE)
        self._listener = threading.Thread(target=self._listen)
        self._listener.start()

    def _listen(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            if not line.endswith("\n"):
                return  # killed in the middle of a line
            at, _, what = line.strip().partition(" ")
            if what == "begins":
                self.begins.append(int(at) / 1e9)
            else:
                self.deliveries.append((int(at) / 1e9, int(what)))

    def first(self, since: float) -> dict[int, float]:
        """Return when each partition's first message after ``since`` was delivered."""
        found: dict[int, float] = {}
        for at, partition in list(self.deliveries):
            if at > since:
                found.setdefault(partition, at)
        return found

    def longest_pause(self, partitions: Collection[int], since: float, until: float) -> float:
        """Return the longest time without a message, over partitions that this member had all the time."""
        pauses = [0.0]
        for partition in partitions:
            times = [at for at, number in list(self.deliveries) if number == partition]
            pauses += [b - a for a, b in pairwise(times) if b > since and a < until]
        return max(pauses)

    def leave(self) -> float:
        """Make it leave the group, and return the moment at which it begins to."""
        before = len(self.begins)
        assert self._process.stdin is not None
        self._process.stdin.close()
        eventually(lambda: len(self.begins) > before, _PATIENCE, every=0.01)
        return self.begins[-1]

    def kill(self) -> float:
        self._process.kill()
        return time.monotonic()

    def close(self) -> None:
        """Make it leave, if it has not: only an empty group can be deleted."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.close()
        try:
            self._process.wait(_PATIENCE)
        finally:
            self._process.kill()
            self._listener.join()
            self._process.stdout.close()


def run(servers: str, rounds: int, *, session: float) -> Iterator[dict[str, Any]]:
    """Yield one result for each protocol, change and round."""
    with closing(KafkaCluster(servers)) as cluster:
        for number in range(rounds):
            for protocol in PROTOCOLS if number % 2 else PROTOCOLS[::-1]:
                for change, seconds, stood_still in _moves(servers, cluster, protocol, session):
                    yield {
                        "round": number,
                        "protocol": protocol,
                        "change": change,
                        "seconds": seconds,
                        "stood_still": stood_still,
                    }


def _moves(servers: str, cluster: KafkaCluster, protocol: str, session: float) -> Iterator[tuple[str, float, float]]:
    name = f"bench-{uuid.uuid4().hex[:8]}"
    queue = LastValueQueue.declare(name, key_header=None, spec=TopicSpec(partitions=PARTITIONS), cluster=cluster)
    with ExitStack() as stack:
        stack.callback(queue.drop, delete_topic=True)
        stack.enter_context(_feeding(cluster, name))

        def new_member() -> Watched:
            return stack.enter_context(closing(Watched(servers, name, protocol, session)))

        stayer = new_member()
        eventually(lambda: stayer.first(0).keys() == _ALL, _PATIENCE, every=0.01)
        for number, (change, go) in enumerate((("leaves", Watched.leave), ("is killed", Watched.kill))):
            other = new_member()
            eventually(lambda other=other: len(other.first(0)) == PARTITIONS // 2, _PATIENCE, every=0.01)
            moved = other.first(0)
            kept = _ALL - moved.keys()
            if number == 0:  # the next one joins in the same way
                yield "joins", *_outcome(stayer, kept, other.begins[0], moved)
            gone = go(other)
            eventually(lambda gone=gone, moved=moved: stayer.first(gone).keys() >= moved.keys(), _PATIENCE, every=0.01)
            yield change, *_outcome(stayer, kept, gone, {p: at for p, at in stayer.first(gone).items() if p in moved})
        yield "is replaced", *_replace(stayer, new_member)


def _replace(stayer: Watched, new_member: Callable[[], Watched]) -> tuple[float, float]:
    """Kill a member and start another at once; to the group it looks like one more member."""
    other = new_member()
    eventually(lambda: len(other.first(0)) == PARTITIONS // 2, _PATIENCE, every=0.01)
    moved, gone = other.first(0).keys(), other.kill()
    newcomer = new_member()
    eventually(lambda: len(newcomer.first(gone)) == PARTITIONS // 2, _PATIENCE, every=0.01)
    theirs = newcomer.first(gone)
    eventually(lambda: stayer.first(gone).keys() | theirs.keys() == _ALL, _PATIENCE, every=0.01)
    firsts = {**stayer.first(gone), **theirs}
    return _outcome(stayer, _ALL - moved - theirs.keys(), gone, {p: firsts[p] for p in moved})


def _outcome(stayer: Watched, kept: Collection[int], began: float, firsts: Mapping[int, float]) -> tuple[float, float]:
    ended = max(firsts.values())
    # Wait for the end of a pause that began before.
    eventually(lambda: stayer.first(ended).keys() >= set(kept), _PATIENCE, every=0.01)
    return ended - began, stayer.longest_pause(kept, began, ended)


@contextmanager
def _feeding(cluster: KafkaCluster, topic: str) -> Iterator[None]:
    """Write to all partitions in turn, at a steady rate."""
    enough = threading.Event()

    def feed() -> None:
        producer = Producer({**cluster.config.for_producer(), "log_level": 3, "linger.ms": 0})
        for number in count():
            if enough.wait(_EVERY):
                break
            turn, partition = divmod(number, PARTITIONS)
            producer.produce(topic, b"%d" % number, f"{partition}-{turn % _KEYS}", partition)
            producer.poll(0)
        producer.flush(30)

    thread = threading.Thread(target=feed)
    thread.start()
    try:
        yield
    finally:
        enough.set()
        thread.join()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("name")
    parser.add_argument("protocol", choices=PROTOCOLS)
    parser.add_argument("session", type=float)
    options = parser.parse_args()
    member(options.servers, options.name, options.protocol, options.session)


if __name__ == "__main__":
    main()
