"""Processes that write and read a store, for tests with several of them (R41).

``python -m tests.attached_process write PLACE``: a view with a store, on a cluster in memory, to which the lines of the
standard input are written: ``KEY=VALUE``, or ``KEY`` for a delete.

``python -m tests.attached_process read PLACE``: an attached view, which answers each line of the standard input with a
line of JSON: its state and values. On ``watch`` it writes what a watch reports, until the end.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, Self

from lvq_kafka import TEXT, Deleted, Entry, LastValueQueue, attach
from lvq_kafka.testing import MemoryCluster

__all__ = ["Child"]


class Child:
    """A process with a line to say and a line to hear."""

    def __init__(self, role: str, place: Path, *options: str) -> None:
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
        command = [sys.executable, "-m", "tests.attached_process", role, str(place), *options]
        self.process = subprocess.Popen(command, text=True, cwd=Path(__file__).parents[1], **pipes)

    def say(self, line: str) -> None:
        print(line, file=self.process.stdin, flush=True)

    def ask(self, line: str = "") -> Any:
        self.say(line)
        return self.hear()

    def hear(self) -> Any:
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline() or "null")

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.process.kill()
        self.process.communicate()


def _write(place: str, *options: str) -> None:
    if "small" in options:
        from lvq_kafka.storing import value_file
        from lvq_kafka.storing.store_directory import StoreDirectory

        value_file._ROOM = 1 << 17
        StoreDirectory.__init__.__defaults__ = ((1 << 20,),)
    cluster = MemoryCluster()
    cluster.topics.create("prices", partitions=1, config={"cleanup.policy": "compact"})
    queue = LastValueQueue("prices", key_header="ticker", cluster=cluster, value=TEXT)
    with queue.view(store=place, metadata_interval=0.1) as view:
        print(json.dumps(view.state), flush=True)
        for line in sys.stdin:
            key, _, value = line.rstrip("\n").partition("=")
            cluster.write("prices", key.encode(), value.encode() if value else None, [])
            view.barrier()
            print(json.dumps(len(view)), flush=True)


def _read(place: str) -> None:
    with attach(place, value=TEXT) as view:
        print(json.dumps(view.state), flush=True)
        for line in sys.stdin:
            if line.strip() == "watch":
                break
            snapshot = view.snapshot()
            print(json.dumps({"state": view.state, "values": dict(snapshot), "offsets": snapshot.offsets}), flush=True)
        else:
            return
        watch = view.watch()
        print(json.dumps("watching"), flush=True)
        for event in watch:
            if isinstance(event, Entry):
                print(json.dumps([event.key, event.value]), flush=True)
            elif isinstance(event, Deleted):
                print(json.dumps([event.key, None]), flush=True)


if __name__ == "__main__":
    {"write": _write, "read": _read}[sys.argv[1]](*sys.argv[2:])
