"""The cost of many keys, partitions, queues, and large values: processor time, memory, threads and descriptors.

``lvq`` runs as in a shell, and is charged for all that its process did. Its output goes to a file, or to a terminal of
our own. Idle things are measured once they have come to rest. A command's memory is at least this process's.
"""

from __future__ import annotations

import argparse
import os
import pty
import subprocess
import tempfile
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import ExitStack, closing, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from threading import Thread
from typing import Any

import psutil

from lvq_kafka.core.queue.topic_settings import TopicSpec
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.queue import LastValueQueue
from tests.benchmarks.children import memory_in_use, peak_memory, result, say, start
from tests.benchmarks.report import Target, table
from tests.benchmarks.starting import LVQ

__all__ = ["Scale", "progress", "queues_used", "run", "scale_table", "scale_targets"]

VALUE = 100  # bytes
LARGE = 1_000_000  # bytes, about a broker's default limit
REST = 8.0  # seconds; by then nothing is kept for the next request

USES: dict[str, Callable[[LastValueQueue[bytes], ExitStack], object]] = {
    "idle": lambda queue, opened: None,
    "with a view": lambda queue, opened: opened.enter_context(queue.view()),
    "with a browser": lambda queue, opened: opened.enter_context(queue.browser()),
    "with a consumer": lambda queue, opened: opened.enter_context(queue.consumer()),
    "with a producer": lambda queue, opened: opened.enter_context(queue.producer()).put("k", b"v").result(30),
}


@dataclass(frozen=True)
class Scale:
    """The number of each thing."""

    keys: int = 1_000_000
    view_keys: int = 5_000_000
    partitions: int = 1_000
    queues: int = 200
    large: int = 300
    rest: float = REST


def run(servers: str, scale: Scale) -> Iterator[dict[str, Any]]:
    """Yield one result for each experiment."""
    with (
        closing(KafkaCluster(servers)) as cluster,
        tempfile.TemporaryDirectory(prefix="lvq-bench-") as folder,
        ExitStack() as at_the_end,
    ):
        declared = partial(_declared, cluster, at_the_end)
        shell = partial(_lvq, servers)
        lines = Path(folder, "lines.jsonl")
        write_lines(lines, scale.keys, VALUE)
        yield from _commands(shell, declared("scale-many", 4), lines, f"{scale.keys:,} keys")
        write_lines(lines, scale.keys // 10, VALUE)
        of_them = f"{scale.keys // 10:,} keys in {scale.partitions:,} partitions"
        yield from _commands(shell, declared("scale-wide", scale.partitions), lines, of_them)
        write_lines(lines, scale.large, LARGE)
        yield from _commands(shell, declared("scale-large", 2), lines, f"{scale.large} values of 1 MB")
        write_lines(lines, scale.view_keys, VALUE)
        shell("put", more := declared("scale-more", 4), "--from-jsonl", str(lines), "-q")
        yield _child("view", servers, more) | {"what": f"view, {scale.view_keys:,} keys"}
        yield from queues_used(servers, scale.queues, scale.rest)


def queues_used(servers: str, count: int, rest: float, uses: Collection[str] = USES.keys()) -> Iterator[dict[str, Any]]:
    """Yield the cost of each of ``count`` queues in a process, for each way of using them."""
    with closing(KafkaCluster(servers)) as cluster, ExitStack() as at_the_end:
        for number in range(count):
            _declared(cluster, at_the_end, f"scale-{number}", 1)
        for use in uses:
            yield _child("queues", servers, use, count, rest) | {"what": f"a queue {use}"}


def _declared(cluster: KafkaCluster, at_the_end: ExitStack, name: str, partitions: int) -> str:
    queue = LastValueQueue.declare(name, key_header="id", cluster=cluster, spec=TopicSpec(partitions=partitions))
    at_the_end.callback(queue.drop, delete_topic=True)
    return name


def _commands(shell: Callable[..., dict[str, Any]], name: str, lines: Path, of_what: str) -> Iterator[dict[str, Any]]:
    yield shell("put", name, "--from-jsonl", str(lines), "-q", what=f"put --from-jsonl, {of_what}")
    yield shell("export", name, what=f"export, {of_what}")
    yield shell("browse", name, what=f"browse, {of_what}")
    yield shell("browse", name, what=f"browse on a terminal, {of_what}", terminal=True)


def write_lines(path: Path, keys: int, size: int) -> None:
    """Write one line per key, with distinct values of ``size`` bytes."""
    noise = os.urandom(size // 2 + 1).hex()[: size - 9]
    with path.open("w") as file:
        file.writelines(f'{{"key": "k{n * 7919 % keys:08d}", "value": "{n:09d}{noise}"}}\n' for n in range(keys))


def _lvq(servers: str, *arguments: str, what: str = "", terminal: bool = False) -> dict[str, Any]:
    """Run a command to its end; return its processor time and peak memory."""
    command = [str(LVQ), "-b", servers, *arguments]
    master, screen = pty.openpty() if terminal else (None, None)
    with tempfile.TemporaryFile() as file:
        child = subprocess.Popen(command, stdout=file if screen is None else screen)
        if master is not None and screen is not None:
            os.close(screen)
            reading = Thread(target=_drain, args=(master,))
            reading.start()
        _, status, used = os.wait4(child.pid, 0)
        child.returncode = os.waitstatus_to_exitcode(status)
        if master is not None:
            reading.join()
            os.close(master)
    if child.returncode:
        raise RuntimeError(f"{' '.join(command)} ended with {child.returncode}")
    return {"what": what, "cpu": used.ru_utime + used.ru_stime, "memory": used.ru_maxrss * 1024}


def _drain(master: int) -> None:
    with suppress(OSError):  # the terminal is closed at the other end
        while os.read(master, 65_536):
            pass


def _child(*arguments: object) -> dict[str, Any]:
    return result(start("scale", *arguments), 1800)


def view(servers: str, name: str) -> dict[str, Any]:
    with LastValueQueue.open(name, bootstrap_servers=servers) as queue:
        began = time.process_time()
        with queue.view(catch_up_timeout=1200) as opened:
            return {"cpu": time.process_time() - began, "memory": peak_memory(), "keys": len(opened)}


def queues(servers: str, use: str, count: int, rest: float) -> dict[str, Any]:
    """Return the cost of each of ``count`` queues to this process, beyond its own."""

    def open_one(number: int, opened: ExitStack) -> None:
        queue = LastValueQueue.open(f"scale-{number}", bootstrap_servers=servers)
        USES[use](opened.enter_context(queue), opened)

    me = psutil.Process()
    with ExitStack() as opened, closing(KafkaCluster(servers)) as cluster:
        cluster.broker_count()  # shared things do not count
        before = me.num_threads(), me.num_fds(), memory_in_use()
        began = time.process_time()
        for number in range(count):
            open_one(number, opened)
        cpu = time.process_time() - began
        time.sleep(rest)
        now = me.num_threads(), me.num_fds(), memory_in_use()
        threads, descriptors, memory = ((there - then) / count for there, then in zip(now, before))
        return {"cpu": cpu / count, "memory": memory, "threads": threads, "descriptors": descriptors}


def progress(measured: dict[str, Any]) -> str:
    """Return a line of progress."""
    return ", ".join(f"{name} {value:,.2f}" if name != "what" else value for name, value in sorted(measured.items()))


def scale_table(results: Sequence[dict[str, Any]]) -> str:
    """Return a table of the results."""
    head = ["what", "processor time, s", "memory, MB", "threads", "descriptors"]
    return table(head, [_cells(one) for one in results])


def _cells(one: dict[str, Any]) -> list[str]:
    counted = [f"{one[name]:.1f}" if name in one else "" for name in ("threads", "descriptors")]
    return [one["what"], f"{one['cpu']:.2f}", f"{one['memory'] / 1e6:,.1f}", *counted]


def scale_targets(results: Sequence[dict[str, Any]]) -> list[Target]:
    """Return the targets."""
    export = next(one for one in results if one["what"].startswith("export"))
    idle = next(one for one in results if one["what"] == "a queue idle")
    return [
        Target.at_most(f"{export['what']}: seconds of processor time", 10, export["cpu"]),
        Target.at_most("a queue idle: threads", 0, idle["threads"]),
    ]


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("what", choices=["view", "queues"])
    parser.add_argument("servers")
    parser.add_argument("name", help="of the queue, or what is done with each")
    parser.add_argument("count", type=int, nargs="?")
    parser.add_argument("rest", type=float, nargs="?")
    options = parser.parse_args()
    if options.what == "view":
        say(view(options.servers, options.name))
    else:
        say(queues(options.servers, options.name, options.count, options.rest))


if __name__ == "__main__":
    main()
