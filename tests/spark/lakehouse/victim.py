"""Processes that merge until they get ``kill -9``, together with their Java."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from random import Random

__all__ = ["Victims"]


class Victims:
    """Victims, one of which is always ready: a session takes long to start.

    Args:
        servers, place: the broker, and the folder of the tables.
    """

    def __init__(self, servers: str, place: Path) -> None:
        self._command = [sys.executable, "-m", __name__, servers, str(place)]
        self._choose, self._next = Random(place.name), self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            self._command,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )

    def kill(self, topic: str, table: str) -> str:
        """Merge a queue in a process, and kill it within two seconds. Return when that was."""
        process, after = self._next, self._choose.uniform(0, 2)
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stdout.readline() == b"ready\n", "the process could not start"
        process.stdin.write(f"{topic} {table}\n".encode())
        process.stdin.flush()
        time.sleep(after)
        self._end(process)
        self._next = self._start()
        return f"after {after:.2f} s"

    def _end(self, process: subprocess.Popen[bytes]) -> None:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait(20)
        for pipe in (process.stdin, process.stdout):
            assert pipe is not None
            pipe.close()

    def close(self) -> None:
        """Kill the process that is ready."""
        self._end(self._next)


def _main(servers: str, place: str) -> None:
    from lvq_kafka import LastValueQueue
    from lvq_kafka.kafka import KafkaCluster
    from lvq_spark import local_session
    from lvq_spark.store import merge
    from tests.spark.jars import with_jars
    from tests.spark.lakehouse.sessions import properties

    cluster = KafkaCluster(servers)
    spark = local_session("local[1]", with_jars(**properties(Path(place))))
    spark.range(1).count()
    print("ready", flush=True)
    topic, table = sys.stdin.readline().rstrip("\n").split(" ", 1)
    merge(spark, LastValueQueue(topic, key_header=None, cluster=cluster), table)


if __name__ == "__main__":
    _main(*sys.argv[1:])
