"""R41 on a real broker: a holder that is killed and replaced, and workers of gunicorn that attach."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing, contextmanager
from http.client import HTTPConnection
from pathlib import Path
from threading import Thread

import pytest

from lvq_kafka import TEXT, LastValueQueue, attach
from lvq_kafka.kafka import KafkaCluster
from tests.integration.guarantees.writing import put
from tests.pages import block
from tests.running import ROOT
from tests.waiting import eventually

PATIENCE = 60.0

APP = """
import json, os


def app(environ, start_response):
    view = app.parities
    values = dict(view)
    said = {"pid": os.getpid(), "state": view.state, "size": sum(map(len, values.values())), "a": values.get("a")}
    start_response("200 OK" if view.state == "caught-up" else "503 Service Unavailable", [])
    return [json.dumps(said).encode()]
"""


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[str]]:
    with LastValueQueue.declare(topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster) as declared:
        yield declared
        declared.drop(delete_topic=True)


@pytest.fixture
def place(tmp_path: Path) -> Path:
    return tmp_path / "store"


@contextmanager
def holding(queue: LastValueQueue[str], cluster: KafkaCluster, place: Path) -> Iterator[subprocess.Popen[str]]:
    """Run ``lvq hold``, which has caught up."""
    servers = str(cluster.config.bootstrap_servers)
    command = [sys.executable, "-m", "lvq_kafka", "-b", servers, "hold", queue.name, "--store", str(place)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True, cwd=ROOT) as holder:
        try:
            assert holder.stdout is not None
            while json.loads(holder.stdout.readline())["state"] != "caught-up":
                pass
            yield holder
        finally:
            holder.kill()


def test_r41_readers_outlive_a_holder_that_is_killed_and_go_on_with_the_next(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, place: Path
) -> None:
    put(queue, a="1", b="1")
    with closing(attach(place, value=TEXT)) as reader:
        with holding(queue, kafka_cluster, place) as holder:
            reader.open()
            assert dict(reader) == {"a": "1", "b": "1"}
            with queue.producer() as producer, reader.watch() as watch:
                position = producer.put("a", "2").result(PATIENCE)
                reader.wait_for(str(position), PATIENCE)
                assert reader["a"] == "2"
                event = watch.poll(PATIENCE)
                assert event is not None
                assert event == reader.entry("a")
            assert reader.barrier(PATIENCE) == reader.snapshot().offsets
            holder.kill()
            eventually(lambda: reader.state == "disconnected", PATIENCE)
            assert dict(reader) == {"b": "1", "a": "2"}
        put(queue, c="3")
        with holding(queue, kafka_cluster, place):
            eventually(lambda: (reader.state, dict(reader)) == ("caught-up", {"b": "1", "a": "2", "c": "3"}), PATIENCE)


def asked(port: int) -> tuple[int, dict[str, object]]:
    with closing(HTTPConnection("127.0.0.1", port, timeout=PATIENCE)) as connection:
        connection.request("GET", "/")
        answer = connection.getresponse()
        found: dict[str, object] = json.loads(answer.read())
        return answer.status, found


@contextmanager
def gunicorn(folder: Path, place: Path) -> Iterator[int]:
    """Run gunicorn with the configuration of the page; yield its port."""
    conf = block("docs/how-to/shared-stores.md", "python", "def post_worker_init(worker)")
    (folder / "gunicorn.conf.py").write_text(conf.replace("/var/lib/parities", str(place)))
    (folder / "app.py").write_text(APP)
    command = [sys.executable, "-m", "gunicorn", "app:app", "--bind", "127.0.0.1:0", "--timeout", "120"]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, cwd=folder) as server:
        try:
            assert server.stderr is not None
            listening = next(line for line in server.stderr if "Listening at" in line)
            Thread(target=server.stderr.read, daemon=True).start()
            yield int(listening.split(":")[-1].split()[0])
        finally:
            server.terminate()


def mapped(pid: int, place: Path) -> tuple[int, int]:
    """Return how many bytes of a store a process has in memory, and its share of them."""
    sizes, inside = {"Rss:": 0, "Pss:": 0}, False
    for line in Path(f"/proc/{pid}/smaps").read_text().splitlines():
        words = line.split()
        if not words[0].endswith(":"):
            inside = words[-1].startswith(str(place)) and words[-1].endswith(".lmdb")
        elif inside and words[0] in sizes:
            sizes[words[0]] += int(words[1]) * 1024
    return sizes["Rss:"], sizes["Pss:"]


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="only Linux says how memory is shared")
def test_r41_four_workers_of_gunicorn_share_one_copy_in_any_order_and_say_when_the_holder_is_gone(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, place: Path, tmp_path: Path
) -> None:
    put(queue, a="1", **{f"k{number}": "v" * 10_000 for number in range(2000)})
    with gunicorn(tmp_path, place) as port, holding(queue, kafka_cluster, place) as holder:
        pids: dict[int, None] = {}

        def know_all(workers: int) -> bool:
            status, said = asked(port)
            assert (status, said["size"]) == (200, 20_000_001)
            pids[int(str(said["pid"]))] = None
            return len(pids) == workers

        eventually(lambda: know_all(4), PATIENCE)
        resident, shares = zip(*(mapped(pid, place) for pid in pids))
        assert min(resident) > 20_000_000
        assert sum(shares) < 1.5 * max(resident)
        put(queue, a="2")
        eventually(lambda: asked(port)[1]["a"] == "2", PATIENCE)
        os.kill(next(iter(pids)), signal.SIGKILL)  # the others do not mind, and another one takes its place
        eventually(lambda: know_all(5), PATIENCE)
        put(queue, a="3")
        eventually(lambda: asked(port)[1]["a"] == "3", PATIENCE)
        holder.send_signal(signal.SIGTERM)
        assert holder.wait(PATIENCE) == 128 + signal.SIGTERM
        eventually(lambda: asked(port)[0] == 503, PATIENCE)
        assert asked(port)[1]["a"] == "3"
