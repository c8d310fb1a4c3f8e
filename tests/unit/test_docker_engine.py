"""The image for Kafka in Docker: the cost to a test run of an engine that cannot reach its registry."""

from __future__ import annotations

import json
import logging
import socketserver
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from threading import Event, Thread

import pytest

from lvq_kafka.errors import BrokerStartFailed
from lvq_kafka.testing import docker_engine
from lvq_kafka.testing.brokers import _docker_unavailable, _resolve
from lvq_kafka.testing.docker_engine import OFFICIAL_IMAGE, STAND_IN_IMAGE, docker_unavailable_reason, kafka_image


class Engine(socketserver.ThreadingUnixStreamServer):
    """A Docker engine with these images, which pulls as configured."""

    daemon_threads = True

    def __init__(self, path: Path) -> None:
        super().__init__(str(path), Answers)
        self.images: set[str] = set()
        self.steps: list[dict[str, str]] = []
        """Reports of a pull before it ends or goes silent."""
        self.silent = False
        self.gone = Event()


class Answers(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    server: Engine

    def do_GET(self) -> None:
        if "/images/" in self.path:
            image = self.path.split("/images/")[1].removesuffix("/json")
            found = image in self.server.images
            self.answer(200 if found else 404, {"Id": image} if found else {"message": "No such image"})
        elif self.path.endswith("/version"):
            self.answer(200, {"ApiVersion": "1.44"})
        else:
            self.answer(200, {})

    def do_POST(self) -> None:
        self.send_response(200)
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        for step in self.server.steps:
            line = json.dumps(step).encode()
            self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        if self.server.silent:
            self.server.gone.wait(30)
        self.wfile.write(b"0\r\n\r\n")

    def answer(self, status: int, body: dict[str, str]) -> None:
        content = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def address_string(self) -> str:
        return "client"

    def log_message(self, *arguments: object) -> None:
        pass


@pytest.fixture
def engine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Engine]:
    for variable in ("LVQ_KAFKA_IMAGE", "LVQ_BOOTSTRAP_SERVERS", "LVQ_TEST_BROKER", "DOCKER_CONTEXT"):
        monkeypatch.delenv(variable, raising=False)
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/engine")
    kafka_image.cache_clear()
    with Engine(tmp_path / "engine") as engine:
        thread = Thread(target=engine.serve_forever, args=(0.01,))
        thread.start()
        yield engine
        engine.gone.set()
        engine.shutdown()
        thread.join(10)
    kafka_image.cache_clear()


def test_a_registry_that_swallows_packets_is_given_up_and_the_next_possibility_is_taken(
    engine: Engine, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(docker_engine, "_SILENCE", 0.2)
    engine.silent = True
    engine.steps = [{"status": "Pulling from apache/kafka"}]
    with caplog.at_level(logging.WARNING, "lvq_kafka.testing"):
        reason = docker_unavailable_reason()
    assert reason is not None
    assert f"{OFFICIAL_IMAGE} is missing and cannot be pulled (the registry did not answer for 0.2 s)" in reason
    assert f"{STAND_IN_IMAGE} is missing as well" in reason
    assert f"the image {OFFICIAL_IMAGE} cannot be pulled: the registry did not answer" in caplog.text
    assert _resolve(None) == ("embedded", None)
    engine.images.add(STAND_IN_IMAGE)
    assert kafka_image() == STAND_IN_IMAGE
    assert _docker_unavailable() is None
    assert _resolve(None) == ("docker", None)


def test_a_pull_that_never_ends_is_given_up_too(engine: Engine, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(docker_engine, "_PULL_LIMIT", 0.2)
    engine.silent = True
    with pytest.raises(BrokerStartFailed, match=r"not done within 0\.2 s"):
        kafka_image()


def test_why_an_image_cannot_be_pulled_is_said(engine: Engine) -> None:
    engine.steps = [{"error": "pull access denied"}]
    with pytest.raises(BrokerStartFailed, match=r"cannot be pulled \(pull access denied\)") as caught:
        kafka_image()
    assert "docker/build-kafka-image.sh" in caught.value.hint


def test_an_image_that_comes_is_used(engine: Engine) -> None:
    engine.steps = [{"status": "Pulling"}, {"status": "Download complete"}]
    assert kafka_image() == OFFICIAL_IMAGE
