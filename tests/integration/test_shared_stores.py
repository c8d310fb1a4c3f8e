"""R41 on a real broker: a holder that is killed and replaced, and the workers of a pre-forking server that attach."""

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

import pytest

from lvq_kafka import TEXT, LastValueQueue, attach
from lvq_kafka.kafka import KafkaCluster
from tests.integration.guarantees.writing import put
from tests.running import ROOT
from tests.waiting import eventually

PATIENCE = 60.0

SERVER = """
import json, os, signal, socket, sys
from http.server import BaseHTTPRequestHandler, HTTPServer
from lvq_kafka import TEXT, attach

place, workers = sys.argv[1], 4
listening = socket.create_server(("127.0.0.1", 0))


class Worker(BaseHTTPRequestHandler):
    def do_GET(self):
        body = json.dumps({"pid": os.getpid(), "state": view.state, "values": dict(view)}).encode()
        self.send_response(200 if view.state == "caught-up" else 503)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_):
        pass


children = []
for _ in range(workers):
    child = os.fork()
    if child == 0:
        view = attach(place, value=TEXT).open()  # after the fork, as the page says
        server = HTTPServer(listening.getsockname(), Worker, bind_and_activate=False)
        server.socket = listening
        server.serve_forever()
    children.append(child)
print(listening.getsockname()[1], flush=True)
sys.stdin.read()
for child in children:
    os.kill(child, signal.SIGKILL)
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


def test_r41_workers_of_a_pre_forking_server_attach_in_any_order_and_say_when_the_holder_is_gone(
    queue: LastValueQueue[str], kafka_cluster: KafkaCluster, place: Path
) -> None:
    put(queue, a="1")
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    with subprocess.Popen([sys.executable, "-c", SERVER, str(place)], text=True, cwd=ROOT, **pipes) as server:
        assert server.stdout is not None
        port = int(server.stdout.readline())
        with holding(queue, kafka_cluster, place) as holder:
            pids: set[object] = set()

            def has_seen_all() -> bool:
                status, said = asked(port)
                assert status == 200
                pids.add(said["pid"])
                return len(pids) >= 2

            eventually(has_seen_all, PATIENCE)
            put(queue, a="2")
            eventually(lambda: asked(port)[1]["values"] == {"a": "2"}, PATIENCE)
            os.kill(int(str(asked(port)[1]["pid"])), signal.SIGKILL)  # the others do not mind
            put(queue, b="3")
            eventually(lambda: asked(port)[1]["values"] == {"a": "2", "b": "3"}, PATIENCE)
            holder.send_signal(signal.SIGTERM)
            assert holder.wait(PATIENCE) == 128 + signal.SIGTERM
            eventually(lambda: asked(port)[0] == 503, PATIENCE)
            assert asked(port)[1]["values"] == {"a": "2", "b": "3"}
        server.communicate("")
