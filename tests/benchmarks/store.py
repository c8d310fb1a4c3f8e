"""Views with stores: the first read and restarts, beside a view in memory and peers, each in a fresh process.

A restart finds nothing new, or one record in a hundred. Memory is what the process cannot give back (``RssAnon``):
pages of the store's file are the system's to reclaim. The peers are Kafka Streams' `GlobalKTable`, in memory and on
RocksDB, and KCache in memory; single gets of theirs would measure the bridge to their JVM.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks.bootstrap import Stopwatch
from tests.benchmarks.children import anonymous_memory, memory_in_use, result, say, start
from tests.benchmarks.report import Target, table
from tests.benchmarks.topics import PARTITIONS, Content, Topic, load, write
from tests.benchmarks.workload import key_of, value_of

MEMORY, FIRST, NOTHING, HUNDREDTH = "memory, first read", "store, first read", "store, nothing new", "store, 1 % new"
INDEXED = "store with an index, first read"
OURS = (MEMORY, INDEXED, FIRST, NOTHING, HUNDREDTH)
TABLE_MEMORY, TABLE_FIRST, TABLE_AGAIN = (
    "GlobalKTable in memory, first read",
    "GlobalKTable on RocksDB, first read",
    "GlobalKTable on RocksDB, nothing new",
)
CACHE = "KCache in memory, first read"
PEERS = (TABLE_MEMORY, TABLE_FIRST, TABLE_AGAIN, CACHE)

_GETS = 100_000
_SCANS = 10_000  # enough that a collection of garbage in between does not matter

Result = dict[str, Any]


def _read(servers: str, topic: str, keys: int, store: str | None, *, indexed: bool) -> None:
    import lvq_kafka.kafka  # noqa: F401  # before the clock starts
    from lvq_kafka.queue import LastValueQueue

    watch = Stopwatch()
    with LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue:
        view = queue.view(store=store, catch_up_timeout=None)
        if indexed:
            view.index("thousandth", by=lambda entry: int(entry.value[:16]) % 1000, version="1")
        with view:
            watch.stop()
            memory_in_use()
            anonymous = anonymous_memory()
            chance = Random(1)
            names = [key_of(chance.randrange(keys), keys) for _ in range(_GETS)]
            gets = _cpu(lambda: [view[name] for name in names])
            view.scan(stop="")  # in memory, the first one sorts the keys
            few = _cpu(lambda: [list(view.scan(start=name, stop=name + "~")) for name in names[:_SCANS]])
            whole = _cpu(lambda: sum(1 for _ in view.scan()))
            only_keys = _cpu(lambda: len(list(view.scan().keys())))
            content = Content.of((entry.key.encode(), entry.value) for entry in view.snapshot().iter_entries())
            say(
                {
                    "wall": watch.wall,
                    "cpu": watch.cpu,
                    "anonymous": anonymous,
                    "read": view.progress[1],
                    "get": gets / _GETS,
                    "few": few / _SCANS,
                    "scan": whole / keys,
                    "scan_keys": only_keys / keys,
                    "keys": content.keys,
                    "checksum": content.checksum,
                }
            )


def _cpu(act: Callable[[], object]) -> float:
    began = time.process_time()
    act()
    return time.process_time() - began


def _read_table(servers: str, topic: str, keys: int, place: str | None) -> None:
    from tests.benchmarks.peers.streams import global_table, streams_machine

    with streams_machine() as machine:
        watch = _MachineWatch(machine)
        with global_table(machine, servers, topic, place) as table:
            table.wait()
            watch.report(lambda: table.items(keys))


def _read_cache(servers: str, topic: str, keys: int, place: str) -> None:
    from tests.benchmarks.peers.kcache import cache_machine, key_value_cache

    with cache_machine() as machine:
        watch = _MachineWatch(machine)
        with key_value_cache(machine, servers, topic, PARTITIONS, place) as cache:
            watch.report(lambda: cache.items(keys))


class _MachineWatch:
    """The time of a JVM that already runs, from construction to `report`. It has compiled nothing by then."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._wall, self._cpu = time.perf_counter(), machine.cpu

    def report(self, items: Callable[[], Iterable[tuple[bytes, bytes]]]) -> None:
        wall, cpu = time.perf_counter() - self._wall, self._machine.cpu - self._cpu
        anonymous = self._machine.anonymous
        content = Content.of(items())
        say({"wall": wall, "cpu": cpu, "anonymous": anonymous, "keys": content.keys, "checksum": content.checksum})


# ------------------------------------------------------------------ the parent process


def run(servers: str, rounds: int, records: int, *, peers: bool = True) -> Iterator[Result]:
    """Yield one result for each contestant and round."""
    with contextlib.closing(KafkaCluster(servers)) as cluster:
        for number in range(rounds):
            topic = load(cluster, "unique", records, records)
            try:
                for measured in _round(servers, cluster, topic, records, PEERS if peers else ()):
                    yield {"round": number, **measured}
            finally:
                cluster.topics.delete(topic.name)


def _round(servers: str, cluster: KafkaCluster, topic: Topic, records: int, peers: Sequence[str]) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="lvq-bench-store-") as folder:
        for contestant in (*peers, *OURS):
            expected: Content | None = topic.content
            if contestant == HUNDREDTH:
                new = [(key_of(row, records).encode(), value_of(records + row)) for row in range(records // 100)]
                write(cluster, topic.name, new)
                expected = None
            place = Path(folder) / _place(contestant)
            measured = result(start("store", contestant, servers, topic.name, records, place), timeout=3600)
            found = Content(measured["keys"], measured.pop("checksum"))
            if found.keys != records or expected not in (None, found):
                raise RuntimeError(f"{contestant} does not hold the newest value of every key")
            size = sum(path.stat().st_size for path in place.rglob("*") if path.is_file())
            yield {"contestant": contestant, **measured, "disk": size}


def _place(contestant: str) -> str:
    """Return the name of the folder of a contestant: restarts have that of the first read."""
    return contestant.partition(",")[0].replace(" ", "-")


def store_table(results: Sequence[Result]) -> str:
    rows = []
    for contestant in (*OURS, *PEERS):
        mine = [one for one in results if one["contestant"] == contestant]
        if mine:
            rows.append(
                [
                    contestant,
                    f"{mine[0]['read']:,}" if "read" in mine[0] else "",
                    *(f"{_median(mine, 'wall'):.3f}", f"{_median(mine, 'cpu'):.3f}"),
                    f"{_median(mine, 'anonymous') / 1e6:.0f}",
                    f"{_median(mine, 'disk') / mine[0]['keys']:.0f}",
                    *(
                        f"{1e6 * _median(mine, what):.2f}" if what in mine[0] else ""
                        for what in ("get", "few", "scan", "scan_keys")
                    ),
                ]
            )
    head = ["values in", "offsets read", "seconds", "CPU seconds", "anonymous MB"]
    scans = ["µs for a scan of one key", "µs for an entry of a scan", "µs for a key of a scan of keys"]
    return table([*head, "bytes on disk per key", "µs for a get", *scans], rows)


def store_targets(results: Sequence[Result]) -> list[Target]:
    def ratio(above: str, below: str, what: str) -> float:
        return _median([one for one in results if one["contestant"] == above], what) / _median(
            [one for one in results if one["contestant"] == below], what
        )

    found = [
        Target.at_most("restart with nothing new / first read: seconds", 0.02, ratio(NOTHING, FIRST, "wall")),
        Target.at_most("get from a store / from memory: CPU seconds", 3.0, ratio(FIRST, MEMORY, "get")),
    ]
    if any(one["contestant"] == TABLE_FIRST for one in results):
        for name, what in (("seconds", "wall"), ("CPU seconds", "cpu")):
            against = ratio(FIRST, TABLE_FIRST, what)
            found.append(Target.at_most(f"first read to a store / GlobalKTable on RocksDB: {name}", 1.0, against))
    return found


def _median(results: Sequence[Result], what: str) -> float:
    return statistics.median(one[what] for one in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("contestant", choices=[*OURS, *PEERS])
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("keys", type=int)
    parser.add_argument("place")
    options = parser.parse_args()
    place = None if options.contestant in (MEMORY, TABLE_MEMORY) else options.place
    if options.contestant in OURS:
        indexed = options.contestant == INDEXED
        _read(options.servers, options.topic, options.keys, place, indexed=indexed)
    elif options.contestant == CACHE:
        _read_cache(options.servers, options.topic, options.keys, options.place)
    else:
        _read_table(options.servers, options.topic, options.keys, place)


if __name__ == "__main__":
    main()
