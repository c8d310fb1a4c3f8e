"""Views with stores: the first read and restarts, beside a view in memory, each in a fresh process.

A restart finds nothing new, or one record in a hundred. Memory is what the process cannot give back (``RssAnon``):
pages of the store's file are the system's to reclaim.
"""

from __future__ import annotations

import argparse
import contextlib
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from random import Random
from typing import Any

from lvq_kafka.kafka import KafkaCluster
from tests.benchmarks.bootstrap import Stopwatch
from tests.benchmarks.children import memory_in_use, result, say, start
from tests.benchmarks.report import Target, table
from tests.benchmarks.topics import Content, Topic, load, write
from tests.benchmarks.workload import key_of, value_of

MEMORY, FIRST, NOTHING, HUNDREDTH = "memory, first read", "store, first read", "store, nothing new", "store, 1 % new"
CONTESTANTS = (MEMORY, FIRST, NOTHING, HUNDREDTH)

_GETS = 100_000
_SCANS = 10_000  # enough that a collection of garbage in between does not matter

Result = dict[str, Any]


def _read(servers: str, topic: str, keys: int, store: str | None) -> None:
    import lvq_kafka.kafka  # noqa: F401  # before the clock starts
    from lvq_kafka.queue import LastValueQueue

    watch = Stopwatch()
    with (
        LastValueQueue(topic, key_header=None, bootstrap_servers=servers) as queue,
        queue.view(store=store, catch_up_timeout=None) as view,
    ):
        watch.stop()
        memory_in_use()
        anonymous = _anonymous()
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


def _anonymous() -> int:
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("RssAnon:")]
    return int(line.split()[1]) * 1024


# ------------------------------------------------------------------ the parent process


def run(servers: str, rounds: int, records: int) -> Iterator[Result]:
    """Yield one result for each contestant and round."""
    with contextlib.closing(KafkaCluster(servers)) as cluster:
        for number in range(rounds):
            topic = load(cluster, "unique", records, records)
            try:
                for measured in _round(servers, cluster, topic, records):
                    yield {"round": number, **measured}
            finally:
                cluster.topics.delete(topic.name)


def _round(servers: str, cluster: KafkaCluster, topic: Topic, records: int) -> Iterator[Result]:
    with tempfile.TemporaryDirectory(prefix="lvq-bench-store-") as folder:
        place = Path(folder) / "store"
        for contestant in CONTESTANTS:
            expected: Content | None = topic.content
            if contestant == HUNDREDTH:
                new = [(key_of(row, records).encode(), value_of(records + row)) for row in range(records // 100)]
                write(cluster, topic.name, new)
                expected = None
            store = () if contestant == MEMORY else (str(place),)
            measured = result(start("store", servers, topic.name, records, *store), timeout=1800)
            found = Content(measured["keys"], measured.pop("checksum"))
            if found.keys != records or expected not in (None, found):
                raise RuntimeError(f"{contestant} does not hold the newest value of every key")
            size = 0 if contestant == MEMORY else sum(path.stat().st_size for path in place.iterdir())
            yield {"contestant": contestant, **measured, "disk": size}


def store_table(results: Sequence[Result]) -> str:
    rows = []
    for contestant in CONTESTANTS:
        mine = [one for one in results if one["contestant"] == contestant]
        if mine:
            rows.append(
                [
                    contestant,
                    f"{mine[0]['read']:,}",
                    *(f"{_median(mine, 'wall'):.3f}", f"{_median(mine, 'cpu'):.3f}"),
                    f"{_median(mine, 'anonymous') / 1e6:.0f}",
                    f"{_median(mine, 'disk') / mine[0]['keys']:.0f}",
                    *(f"{1e6 * _median(mine, what):.2f}" for what in ("get", "few", "scan", "scan_keys")),
                ]
            )
    head = ["a view with its values in", "offsets read", "seconds", "CPU seconds", "anonymous MB"]
    scans = ["µs for a scan of one key", "µs for an entry of a scan", "µs for a key of a scan of keys"]
    return table([*head, "bytes on disk per key", "µs for a get", *scans], rows)


def store_targets(results: Sequence[Result]) -> list[Target]:
    def ratio(above: str, below: str, what: str) -> float:
        return _median([one for one in results if one["contestant"] == above], what) / _median(
            [one for one in results if one["contestant"] == below], what
        )

    return [
        Target.at_most("restart with nothing new / first read: seconds", 0.02, ratio(NOTHING, FIRST, "wall")),
        Target.at_most("get from a store / from memory: CPU seconds", 3.0, ratio(FIRST, MEMORY, "get")),
    ]


def _median(results: Sequence[Result], what: str) -> float:
    return statistics.median(one[what] for one in results)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("servers")
    parser.add_argument("topic")
    parser.add_argument("keys", type=int)
    parser.add_argument("store", nargs="?")
    options = parser.parse_args()
    _read(options.servers, options.topic, options.keys, options.store)


if __name__ == "__main__":
    main()
