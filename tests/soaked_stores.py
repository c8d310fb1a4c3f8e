"""A store over months of writes, deletes, expiry, due messages and compaction: what it takes stays flat.

``python -m tests.soaked_stores --days 90``: the clock of a cluster in memory runs a thousand times as fast as ours. A
process reads the log into a store with an index, and another one has it attached and opens it again each day; both
resume a watch from the day before. Once the first days are over, none takes more memory, descriptors, threads or bytes
of the file than it did (R40, R41).
"""

from __future__ import annotations

import argparse
import gc
import subprocess
import sys
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory

import psutil

from lvq_kafka import BYTES, LastValueQueue, Ttl, View, attach
from lvq_kafka.testing import MemoryCluster
from tests.benchmarks.children import anonymous_memory
from tests.clock import Clock
from tests.following import keep_up
from tests.running import ROOT

__all__ = ["Taken", "soak"]

_KEYS = 300
_PER_HOUR = 50
_HOUR = 3600.0
_RETENTION = 30 * _HOUR  # watches resume after a day


@dataclass
class Taken:
    """The memory, descriptors and threads of a process."""

    memory: int
    """Bytes that it cannot give back."""
    descriptors: int
    threads: int

    @classmethod
    def now(cls) -> Taken:
        """Return those of this process."""
        gc.collect()
        return cls(anonymous_memory(), psutil.Process().num_fds(), threading.active_count())


@dataclass
class Day:
    """Figures of both processes, and of the file of the store, at the end of a day."""

    writer: Taken
    reader: Taken
    file: int
    keys: int


class _World:
    def __init__(self, seed: int) -> None:
        self._chance = Random(seed)
        self._hour_ago: dict[int, int] = {}
        self.clock = Clock()
        self.cluster = MemoryCluster(clock=self.clock)
        config = {"cleanup.policy": "compact", "delete.retention.ms": str(int(1000 * _RETENTION))}
        self.cluster.topics.create("prices", partitions=2, config=config)
        self.queue: LastValueQueue[bytes] = LastValueQueue(
            "prices",
            key_header="ticker",
            cluster=self.cluster,
            value=BYTES,
            ttl=Ttl(default=8 * _HOUR),
            max_delay=_HOUR,
        )

    def pass_an_hour(self) -> None:
        """Write and delete for an hour, and compact what is older than that: a younger one may not be due yet."""
        chance, ends = self._chance, dict[int, int]()
        for _ in range(_PER_HOUR):
            self.clock.now += _HOUR / _PER_HOUR
            key = b"%d" % chance.randrange(_KEYS)
            headers: list[tuple[str, bytes | None]] = [("ticker", key), ("side", chance.choice([b"buy", b"sell"]))]
            value = None if chance.random() < 0.2 else b"v" * chance.choice([10, 100, 3000])
            if value is not None and chance.random() < 0.1:
                due = int(1000 * (self.clock.now + chance.random() * _HOUR))
                headers.append(("lvq-not-before", b"%d" % due))
            at = self.cluster.write("prices", key, value, headers)
            ends[at.partition] = at.offset
        for partition, end in self._hour_ago.items():
            self.cluster.compact("prices", partition, up_to=end)
        self._hour_ago |= ends

    def drop_old_deletes(self) -> None:
        """Compact away the deletes as well. Each reader has to have seen them."""
        for partition, end in self._hour_ago.items():
            self.cluster.compact("prices", partition, up_to=end, drop_tombstones=True)


class _Follower:
    """Follows a view by watches, one a day, each from the end of the one before."""

    def __init__(self) -> None:
        self._token: str | None = None
        self.held: dict[str, bytes] = {}

    def follow(self, view: View[bytes]) -> None:
        """Come to what a view shows.

        Raises:
            AssertionError: the watch has missed something.
        """
        with view.watch(since=self._token) if self._token else view.watch(dump=True) as watch:
            keep_up(self.held, watch.drain())
            self._token = watch.token
        assert self.held == dict(view.items())


def _read(place: Path) -> None:
    """Attach to a store for each line of stdin, and print what this process takes: the body of a reader."""
    follower = _Follower()
    for _ in sys.stdin:
        with attach(place, value=BYTES) as view:
            follower.follow(view)
        taken = Taken.now()
        print(taken.memory, taken.descriptors, taken.threads, flush=True)


def soak(seed: int, days: int) -> Iterator[Day]:
    """Let days pass, and yield each.

    Raises:
        AssertionError: a watch has missed something.
    """
    world = _World(seed)
    with TemporaryDirectory(prefix="lvq-soaked-") as folder:
        place = Path(folder) / "store"
        command = [sys.executable, "-m", "tests.soaked_stores", "--reader", str(place)]
        view, follower = world.queue.view(store=place), _Follower()
        view.index("side", by="side")
        pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        with view, subprocess.Popen(command, text=True, cwd=ROOT, **pipes) as reader:
            assert reader.stdin is not None
            assert reader.stdout is not None
            for _ in range(days):
                for _ in range(24):
                    world.pass_an_hour()
                    len(view)
                view.barrier(60)  # then nothing changes while both are compared
                follower.follow(view)
                world.drop_old_deletes()
                print(file=reader.stdin, flush=True)
                taken = Taken(*map(int, reader.stdout.readline().split()))
                yield Day(Taken.now(), taken, _size(place), len(view))
            reader.stdin.close()


def _size(place: Path) -> int:
    """Return the bytes of the files of a store that are on the disk."""
    return sum(512 * path.stat().st_blocks for path in place.iterdir())


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.soaked_stores", description=__doc__)
    parser.add_argument("--days", type=int, default=90)
    parser.add_argument("--seed", type=int, default=Random().randrange(1_000_000))
    parser.add_argument("--reader", type=Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.reader:
        _read(options.reader)
        return
    print(f"seed {options.seed}")
    for number, day in enumerate(soak(options.seed, options.days)):
        print(
            f"day {number}: {day.keys} keys, {day.file:,} bytes on disk",
            *(
                f"{who}: {taken.memory:,} bytes, {taken.descriptors} descriptors, {taken.threads} threads"
                for who, taken in (("writer", day.writer), ("reader", day.reader))
            ),
            sep="; ",
            flush=True,
        )


if __name__ == "__main__":
    main()
