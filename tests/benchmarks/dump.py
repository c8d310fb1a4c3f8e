"""The time to deliver every key: a dump of the current values, then an update of each.

``watch`` and ``browser`` are plain loops. ``async watch`` shares its event loop with a heartbeat, and its ``pause`` is
the longest delay of a beat. Topics come in several sizes, since the time per key should be the same in all of them.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from collections.abc import Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass
from typing import Any

from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from lvq_kafka.reading.browser import Browser
from lvq_kafka.reading.entries import EndOfDump, Entry
from lvq_kafka.reading.view import View
from lvq_kafka.reading.watch import Watch
from tests.benchmarks.children import result, say, start, wait_ready
from tests.benchmarks.topics import Topic, load, write
from tests.benchmarks.workload import key_of, value_of

CONTESTANTS = ("watch", "browser", "async watch")
BEAT = 0.005  # seconds


@dataclass
class Stopwatch:
    """Wall time, and this thread's processor time, since construction."""

    def __post_init__(self) -> None:
        self._wall, self._cpu = time.perf_counter(), time.thread_time()

    def read(self, what: str) -> dict[str, float]:
        return {f"{what}_wall": time.perf_counter() - self._wall, f"{what}_cpu": time.thread_time() - self._cpu}


def loop(events: Watch[bytes] | Browser[bytes], keys: int) -> None:
    """Take the dump, report that it is done, and take an update of each key."""
    watch, dumped = Stopwatch(), 0
    for event in events:
        if isinstance(event, EndOfDump):
            break
        dumped += 1
    dump = watch.read("dump")
    _check("dump", dumped, keys)
    print("ready", flush=True)
    left = {key_of(number, keys) for number in range(keys)}
    for event in events:
        if len(left) == keys:
            watch = Stopwatch()
        assert isinstance(event, Entry)
        left.discard(event.key)
        if not left:
            break
    say({**dump, **watch.read("follow")})


async def loop_async(view: View[bytes], keys: int) -> None:
    """Take the dump while a heartbeat runs."""
    late = [0.0]

    async def beat() -> None:
        while True:
            due = time.perf_counter() + BEAT
            await asyncio.sleep(BEAT)
            late.append(time.perf_counter() - due)

    beating = asyncio.create_task(beat())
    await asyncio.sleep(10 * BEAT)
    watch, dumped = Stopwatch(), 0
    async for event in view.watch(dump=True):
        if isinstance(event, EndOfDump):
            break
        dumped += 1
    dump = watch.read("dump")
    await asyncio.sleep(2 * BEAT)
    beating.cancel()
    _check("dump", dumped, keys)
    say({**dump, "pause": max(late), "beats": len(late) - 1})


def _check(what: str, found: int, wanted: int) -> None:
    if found != wanted:
        raise RuntimeError(f"the {what} had {found} keys of {wanted}")


def contest(contestant: str, servers: str, topic: str, keys: int) -> None:
    with LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue:
        if contestant == "browser":
            with queue.browser() as browser:
                loop(browser, keys)
            return
        with queue.view() as view:
            if contestant == "async watch":
                asyncio.run(loop_async(view, keys))
            else:
                loop(view.watch(dump=True), keys)


# ------------------------------------------------------------------ the parent process


def run(servers: str, rounds: int, sizes: Sequence[int]) -> Iterator[dict[str, Any]]:
    """Yield one result for each contestant, size and round."""
    with closing(KafkaCluster(servers)) as cluster:
        for keys in sizes:
            topic = load(cluster, "dump", keys, keys)
            try:
                for number in range(rounds):
                    for contestant in CONTESTANTS:
                        measured = _measure(servers, cluster, topic, contestant, keys)
                        yield {"contestant": contestant, "keys": keys, "round": number, **measured}
            finally:
                cluster.topics.delete(topic.name)


def _measure(servers: str, cluster: KafkaCluster, topic: Topic, contestant: str, keys: int) -> dict[str, Any]:
    child = start("dump", contestant, servers, topic.name, keys)
    if contestant != "async watch":
        wait_ready(child)
        write(cluster, topic.name, ((key_of(number, keys).encode(), value_of(number)) for number in range(keys)))
    return result(child)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", choices=CONTESTANTS)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("keys", type=int)
    options = parser.parse_args()
    contest(options.contestant, options.servers, options.topic, options.keys)


if __name__ == "__main__":
    main()
