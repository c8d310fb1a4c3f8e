"""Two consumer processes share a queue; one is killed; nothing is lost."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from lvq_kafka import LastValueQueue
from lvq_kafka.demo.stage import Stage

__all__ = ["share"]

_PATIENCE = 60.0  # seconds for the survivor, including the killed member's session timeout


def share(stage: Stage, queue: LastValueQueue[str], bootstrap_servers: str, closes: dict[str, str]) -> None:
    """Fill a queue with one message for each key, and let two processes consume it."""
    with queue.producer() as producer:
        for month, close in closes.items():
            producer.put(month, "preliminary")
            producer.put(month, close)
    stage.say(f"{2 * len(closes)} messages for {len(closes)} keys in 4 partitions; two worker processes start")
    with tempfile.TemporaryDirectory(prefix="lvq-demo-") as folder:
        ledgers = [Path(folder, "first"), Path(folder, "second")]
        workers = [_start(bootstrap_servers, queue.name, ledger) for ledger in ledgers]
        try:
            both = _wait(lambda: all(_lines(ledger) for ledger in ledgers))
            stage.check(both, "both workers got messages")
            workers[0].kill()  # SIGKILL: no final commit, no goodbye
            workers[0].wait()
            stage.say(f"killed the first worker after {len(_lines(ledgers[0]))} messages")
            with stage.console.status("its partitions go to the second when its session times out: six seconds"):
                everything = _wait(lambda: set(closes) <= {key for key, _ in _all(ledgers)})
        finally:
            for worker in workers:
                worker.terminate()  # it leaves the group cleanly
                worker.wait(20)
        done = _all(ledgers)
    times = Counter(key for key, _ in done)
    again = sum(times.values()) - len(times)
    stage.check(everything, f"all {len(closes)} keys were processed: nothing lost")
    stage.check(
        all(value == closes[key] for key, value in done), "only the newest values came, none that was superseded"
    )
    stage.say(f"{again} messages came twice: the killed worker had processed but not yet committed them")


def _start(bootstrap_servers: str, queue: str, ledger: Path) -> subprocess.Popen[bytes]:
    ledger.touch()
    command = [sys.executable, "-m", "lvq_kafka.demo.worker", bootstrap_servers, queue, str(ledger)]
    return subprocess.Popen(command, process_group=0)  # Ctrl-C is for the tour, which ends them


def _lines(ledger: Path) -> list[tuple[str, str]]:
    lines = ledger.read_text().split("\n")[:-1]  # without a half-written line
    return [(key, value) for key, _, value in (line.partition("\t") for line in lines)]


def _all(ledgers: list[Path]) -> list[tuple[str, str]]:
    return [row for ledger in ledgers for row in _lines(ledger)]


def _wait(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False
