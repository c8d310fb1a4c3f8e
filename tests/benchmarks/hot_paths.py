"""Hot paths of a queue without options, before and after a change.

``python -m tests.benchmarks.hot_paths --against REVISION``: an option that is not used costs nothing, so the ratios
stay at 1 when one is added. Both revisions take turns, each in a fresh process with its own copy of this module, and do
the same without a broker: take records in, hand them out, send, consume, and look values up in a view. The table shows
processor time per message, the medians of the rounds, and their ratio; and the same of the least, which depends less
on what else the machine does. Ratios of one revision with itself show how noisy it is.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from random import Random
from statistics import median

import lvq_kafka
from lvq_kafka import LastValueQueue
from lvq_kafka.core.commit_map.commit_map import CommitMap
from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.testing import MemoryCluster

_ROOT = Path(__file__).parents[2]
_MESSAGES = 100_000
_AT_ONCE = 1000
_PATIENCE = 60.0  # seconds

Seconds = Mapping[str, float]
"""Processor time per message, by path."""


def measure(count: int) -> Seconds:
    """Return the processor time per message on each path of the `lvq_kafka` that this process imports."""
    found: dict[str, float] = {}
    for name, keys in (("few keys", count // 10), ("many keys", count)):
        found |= {f"{path}, {name}": seconds for path, seconds in _core(count, keys).items()}
    found |= _whole(count // 5)
    return found


def _core(count: int, keys: int) -> dict[str, float]:
    chance, ledger = Random(1), Ledger()
    ledger.assign(0, CommitMap(0), 0)
    batches = []
    for start in range(0, count, _AT_ONCE):
        offsets = list(range(start, min(start + _AT_ONCE, count)))
        size = len(offsets)
        names: list[bytes | None] = [b"%d" % chance.randrange(keys) for _ in offsets]
        batches.append(RecordBatch([0] * size, offsets, [1] * size, names, [b"v" * 100] * size, [None] * size))
    began = time.process_time()
    for batch in batches:
        ledger.add(batch)
    ledger.advance({0: count})
    added = time.process_time()
    handed_out = 0
    while (item := ledger.acquire()) is not None:
        ledger.ack(item)
        handed_out += 1
    return {"add": (added - began) / count, "acquire and ack": (time.process_time() - added) / handed_out}


def _whole(count: int) -> dict[str, float]:
    cluster, found = MemoryCluster(), {}
    with LastValueQueue.declare("hot", key_header="k", cluster=cluster) as queue:
        for name, at_once in (("consume one by one", 1), ("consume by the hundred", 100)):
            began = time.process_time()
            with queue.producer() as producer:
                for number in range(count):
                    producer.put(str(number), b"v")
            found["put"] = time.process_time() - began
            with queue.consumer() as consumer:
                began, left = time.process_time(), count
                while left:
                    deliveries = consumer.acquire_many(at_once, _PATIENCE)
                    consumer.ack_many(deliveries)
                    left -= len(deliveries)
                found[name] = time.process_time() - began
        with queue.view(catch_up_timeout=_PATIENCE) as view:
            began = time.process_time()
            for number in range(count):
                view[str(number)]
            found["look up"] = time.process_time() - began
    return {path: seconds / count for path, seconds in found.items()}


@contextmanager
def _tree(revision: str) -> Iterator[Path]:
    """Check a revision out, and yield its directory."""
    with tempfile.TemporaryDirectory(prefix="lvq-hot-paths-") as directory:
        tree = Path(directory) / "tree"
        subprocess.run(["git", "worktree", "add", "--quiet", "--detach", tree, revision], cwd=_ROOT, check=True)
        try:
            yield tree
        finally:
            subprocess.run(["git", "worktree", "remove", "--force", tree], cwd=_ROOT, check=True)


def _run(tree: Path, count: int) -> Seconds:
    """Measure in a fresh process, which imports the library of this tree."""
    own = tree / Path(__file__).relative_to(_ROOT)  # modules move
    command = [sys.executable, "-P", str(own), "--once", "--messages", str(count)]
    ran = subprocess.run(command, cwd=tree, env={"PYTHONPATH": str(tree)}, stdout=subprocess.PIPE, check=True)
    found: Seconds = json.loads(ran.stdout)
    return found


def table(new: Sequence[Seconds], old: Sequence[Seconds]) -> Iterator[str]:
    """Yield the rows of a Markdown table, from rounds of both revisions."""
    yield "| path | here, µs | there, µs | here / there | the least, µs | there, µs | here / there |"
    yield f"| --- {'| ---: ' * 6}|"
    for path in new[0]:
        cells = []
        for figure in (median, min):
            here, there = (figure(seconds[path] for seconds in rounds) for rounds in (new, old))
            cells += [f"{here * 1e6:.2f}", f"{there * 1e6:.2f}", f"{here / there:.2f}"]
        yield f"| {path} | {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.hot_paths", description=__doc__)
    parser.add_argument("--against", default="HEAD", metavar="REVISION", help="the older revision (default HEAD)")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--messages", type=int, default=_MESSAGES)
    parser.add_argument("--once", action="store_true", help="print one round of this revision, as JSON")
    options = parser.parse_args()
    if options.once:
        if Path(lvq_kafka.__file__).parents[1] != Path.cwd():
            raise RuntimeError(f"this would measure {lvq_kafka.__file__}")
        print(json.dumps(measure(options.messages)))
        return
    with _tree(options.against) as tree:
        rounds = [(_run(_ROOT, options.messages), _run(tree, options.messages)) for _ in range(options.rounds)]
    for row in table(*zip(*rounds)):
        print(row, flush=True)


if __name__ == "__main__":
    main()
