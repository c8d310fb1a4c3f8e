"""Views with stores in processes that are killed at random moments, each time compared with a view in memory (R40).

``python -m tests.killed_stores --kills 200``: each process writes on the log of its seed, and reads it into the store
that the one before has left. No process closes it. After each kill, a copy of the store is opened, and has to show what
a view in memory shows, without reading the log from its start; and a watch of it that resumes from the end of the kill
before has to bring what was shown then to that (R44). The options of the queue depend on the seed.

``--attached`` kills readers, too: processes that have the store attached, and compare each snapshot, and the
events of a watch, with the log up to the same offset (R41).
"""

from __future__ import annotations

import argparse
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any

from lvq_kafka import BYTES, AttachedView, EndOfDump, Entry, LastValueQueue, Ttl, View, attach
from lvq_kafka.errors import ConfigError, DataLoss, StoreNotFound
from lvq_kafka.testing import MemoryCluster
from tests.clock import Clock
from tests.following import keep_up

__all__ = ["Shown", "World", "kill_attached", "kill_many"]

_CHUNK = 25
_KEYS = 400
_LONGEST = 60_000


class World:
    """A cluster with the log of a seed, up to a number of records: the same in every process."""

    def __init__(self, seed: int, *, plain: bool = False) -> None:
        chance = Random(seed)
        self.clock = Clock()
        self.cluster = MemoryCluster(clock=self.clock, fetch_limit=chance.choice([7, 100, 1000]))
        self._partitions = chance.choice([1, 1, 2, 3])
        self._options: dict[str, Any] = {
            "ttl": chance.choice([None, None, Ttl(default=5.0)]),
            "max_delay": chance.choice([None, None, 10.0]),
            "order": chance.choice(["tail", "in-place"]),
        }
        self.selection: dict[str, Any] = chance.choice([{}, {}, {"headers": {"side": "buy"}}, {"prefix": "1"}])
        self._compacts = not (plain or self._options["max_delay"])  # a broker would wait for what is due
        if plain:  # so that what is below an offset is known: all the records, whatever the time
            self._partitions, self._options["ttl"], self._options["max_delay"] = 1, None, None
        self._chance = Random(seed + 1)
        self._records = self.records()
        self.written = 0
        self.cluster.topics.create("prices", partitions=self._partitions, config={"cleanup.policy": "compact"})
        self.cluster._state.topics["prices"].id = f"topic-{seed}"

    @property
    def queue(self) -> LastValueQueue[bytes]:
        return LastValueQueue("prices", key_header="ticker", cluster=self.cluster, value=BYTES, **self._options)

    @property
    def in_place(self) -> bool:
        return self._options["order"] == "in-place"

    def records(self) -> Iterator[tuple[bytes, bytes | None, list[tuple[str, bytes | None]], int | None]]:
        """Yield the records of the log: key, value, headers, and a partition or None."""
        chance, written = self._chance, 0
        while True:
            written += 1
            self.clock.now += chance.choice([0.0, 0.001, 0.05])
            key = (
                b"%d" % chance.randrange(_KEYS) if chance.random() < 0.98 else b"l" * 500 + b"%d" % chance.randrange(5)
            )
            value = None if chance.random() < 0.2 else b"%d" % written * chance.choice([1, 1, 20, 2000])
            headers: list[tuple[str, bytes | None]] = [("ticker", key)]
            if self.selection and chance.random() < 0.8:
                headers.append(("side", chance.choice([b"buy", b"sell"])))
            if self._options["max_delay"] and chance.random() < 0.3:
                headers.append(("lvq-not-before", b"%d" % (1000 * self.clock.now + chance.randrange(9000))))
            yield key, value, headers, chance.randrange(self._partitions) if chance.random() < 0.3 else None

    def write_up_to(self, count: int) -> None:
        chance = self._chance
        while self.written < count:
            self.written += 1
            key, value, headers, where = next(self._records)
            self.cluster.write("prices", key, value, headers, partition=where)
            if chance.random() < 0.002 and self._compacts:
                self.cluster.compact("prices")

    def selects(self, key: bytes, headers: list[tuple[str, bytes | None]]) -> bool:
        """Return whether a view of this world holds a value."""
        if "prefix" in self.selection:
            return key.startswith(b"1")
        return not self.selection or ("side", b"buy") in headers


def _live(seed: int, start: int, place: Path, *, plain: bool) -> None:
    """Read into a store, and write on, until killed: the body of a child."""
    world = World(seed, plain=plain)
    world.write_up_to(start)
    view = world.queue.view(store=place, metadata_interval=0.02, catch_up_timeout=None, **world.selection)
    _index(view)
    view.start()
    count = start
    while count < start + _LONGEST:
        count += _CHUNK
        print(count, flush=True)  # before they are written, so that nobody knows of fewer
        world.write_up_to(count)
        len(view)
        time.sleep(0.0005)


def _index(view: View[bytes]) -> None:
    view.index("side", by="side")
    view.index("length", by=lambda entry: len(entry.value), version="1")


class _Judge:
    """The log of a seed, folded up to an offset."""

    def __init__(self, seed: int) -> None:
        self._world = World(seed, plain=True)
        self._records, self._chance = self._world.records(), self._world._chance
        self._offset = 0
        self.held: dict[str, bytes] = {}

    def go_to(self, offset: int) -> None:
        assert offset >= self._offset, f"went back from {self._offset} to {offset}"
        while self._offset < offset:
            self._offset += 1
            key, value, headers, _ = next(self._records)
            self._chance.random()  # whether the writer compacts
            if value is not None and self._world.selects(key, headers):
                self.held[key.decode()] = value
            else:
                self.held.pop(key.decode(), None)


def _started(view: AttachedView[bytes]) -> None:
    """Wait for the store, but not until its writer has caught up."""
    while True:
        try:
            view.start()
        except StoreNotFound:
            time.sleep(0.005)
        else:
            return


def _watch(seed: int, place: Path) -> None:
    """Attach to a store, and judge it until killed: the body of a reader."""
    judge, told, judged, dumped = _Judge(seed), dict[str, bytes](), 0, False
    view = attach(place, value=BYTES)
    _started(view)

    def answer() -> None:
        for _ in sys.stdin:
            print(judged, flush=True)

    Thread(target=answer, daemon=True).start()
    with view.watch(dump=True) as watch:
        while True:
            snapshot = view.snapshot()
            judge.go_to(snapshot.offsets.get(0, 0))
            held = dict(snapshot)
            assert held == judge.held, f"seed {seed}, a snapshot at {snapshot.offsets}: {_differing(held, judge.held)}"
            events = watch.drain()
            keep_up(told, events)
            dumped = dumped or any(isinstance(event, EndOfDump) for event in events)
            if dumped and view.snapshot().offsets == snapshot.offsets:
                assert told == judge.held, f"seed {seed}, a watch at {snapshot.offsets}: {_differing(told, judge.held)}"
            judged += 1


def _differing(told: dict[str, bytes], held: dict[str, bytes]) -> list[tuple[str, bytes, bytes]]:
    """Return some keys whose values differ, and the beginnings of both."""
    keys = [key for key in told.keys() | held.keys() if told.get(key) != held.get(key)]
    return [(key[:20], told.get(key, b"-")[:20], held.get(key, b"-")[:20]) for key in keys[:5]]


def _kill_one(seed: int, start: int, place: Path, chance: Random, *how: str) -> int:
    """Start a child and kill it; return how many records its log may have had."""
    command = [sys.executable, "-m", "tests.killed_stores", "--child", str(seed), str(start), str(place), *how]
    last = start
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=Path(__file__).parents[1]) as child:
        assert child.stdout is not None
        try:
            if chance.random() < 0.9:
                last = int(child.stdout.readline())
            time.sleep(chance.choice([0.0, 0.02, 0.1, 0.4]) * chance.random())  # where it is killed must differ
        finally:
            child.kill()
        for line in child.stdout:
            last = int(line) if line.endswith("\n") else last
        assert child.wait() == -signal.SIGKILL
    return last


@dataclass
class Shown:
    """The values that a view has shown, and the point at which it did."""

    end: EndOfDump
    held: dict[str, bytes]

    @classmethod
    def by(cls, view: View[bytes]) -> Shown:
        """Return what a view shows now."""
        *entries, end = view.watch(dump=True).drain()
        assert isinstance(end, EndOfDump)
        return cls(end, {entry.key: entry.value for entry in entries if isinstance(entry, Entry)})

    def resume(self, view: View[bytes]) -> bool:
        """Bring it to what a view shows by a watch of that; return False if that is refused."""
        try:
            watch = view.watch(since=self.end)
        except (DataLoss, ConfigError):
            return False
        with watch:
            keep_up(self.held, watch.drain())
        return True


def _entries(world: World, before: Shown | None = None, **how: Any) -> tuple[list[Entry[bytes]], int, str]:
    """Return what a view shows, as a whole and by its indexes, how many offsets it has read, and if it has resumed."""
    view = world.queue.view(**how, **world.selection)
    _index(view)
    with view:
        resumed = ""
        if before is not None:
            resumed = "resumed" if before.resume(view) else "refused"
        entries = view.entries()
        if world.in_place:  # places depend on compaction, and on the order in which partitions are read
            entries.sort(key=lambda entry: entry.key)
        by_length = view.top(10_000, by="length")
        assert len(by_length) == len(entries)
        return [*entries, *by_length, *view.find("side", "buy")], view.progress[1], resumed


def kill_many(seed: int, kills: int) -> Iterator[str]:
    """Kill children one after another, and compare; yield a line for each.

    Raises:
        AssertionError: a store shows something else than memory.
    """
    chance = Random(seed + 2)
    with TemporaryDirectory(prefix="lvq-killed-") as folder:
        place, copy, last = Path(folder) / "store", Path(folder) / "copy", 0
        before: Shown | None = None
        for kill in range(kills):
            last = _kill_one(seed, last, place, chance)
            world = World(seed)
            world.write_up_to(last)
            if place.exists():
                shutil.copytree(place, copy)
            kept, read, resumed = _entries(world, before, store=copy)
            expected, total, _ = _entries(world)
            differing = [(mine, other) for mine, other in zip_longest(kept, expected) if mine != other]
            keys = {entry.key for entry in kept} ^ {entry.key for entry in expected}
            assert not differing, f"seed {seed}, kill {kill}, {last} records: {keys or differing[:2]}"
            held = {entry.key: entry.value for entry in kept}
            if before is not None and resumed == "resumed":
                assert before.held == held, f"seed {seed}, kill {kill}: {_differing(before.held, held)}"
            with world.queue.view(**world.selection) as view:
                before = Shown.by(view)
            shutil.rmtree(copy)
            yield f"seed {seed}, kill {kill}: {len(kept)} keys, {read} of {total} offsets were read again, {resumed}"


def kill_attached(seed: int, kills: int, readers: int = 2) -> Iterator[str]:
    """Kill writers, and now and then a reader; yield a line for each.

    Raises:
        AssertionError: a reader has seen something else than the log up to an offset.
    """
    chance = Random(seed + 3)
    with TemporaryDirectory(prefix="lvq-killed-") as folder, ExitStack() as opened:
        place, last = Path(folder) / "store", 0

        def started() -> subprocess.Popen[str]:
            command = [sys.executable, "-m", "tests.killed_stores", "--reader", str(seed), str(place)]
            pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            child = subprocess.Popen(command, text=True, cwd=Path(__file__).parents[1], **pipes)
            opened.enter_context(child)
            opened.callback(child.kill)
            return child

        def judged(child: subprocess.Popen[str]) -> str:
            assert child.stdin is not None
            assert child.stdout is not None
            with suppress(BrokenPipeError):
                print(file=child.stdin, flush=True)
            said = child.stdout.readline().strip()
            assert said, child.communicate()[1]
            return said

        reading = [started() for _ in range(readers)]
        for kill in range(kills):
            last = _kill_one(seed, last, place, chance, "--attached")
            counts = [judged(child) for child in reading] if (place / "store.json").exists() else []
            if chance.random() < 0.5:
                reading.pop(0).kill()
                reading.append(started())
            yield f"seed {seed}, kill {kill}, {last} records: cuts judged {' and '.join(counts)}"
        for child in reading:
            judged(child)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.killed_stores", description=__doc__)
    parser.add_argument("--kills", type=int, default=200)
    parser.add_argument("--each", type=int, default=10, metavar="N", help="kills with one seed (default 10)")
    parser.add_argument("--seed", type=int, default=Random().randrange(1_000_000))
    parser.add_argument("--attached", action="store_true", help="kill readers in other processes, too")
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    parser.add_argument("--reader", nargs=2, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        seed, start, place = options.child
        _live(int(seed), int(start), Path(place), plain=options.attached)
        return
    if options.reader:
        seed, place = options.reader
        _watch(int(seed), Path(place))
        return
    kill = kill_attached if options.attached else kill_many
    for number in range(0, options.kills, options.each):
        for line in kill(options.seed + number, min(options.each, options.kills - number)):
            print(line, flush=True)


if __name__ == "__main__":
    main()
