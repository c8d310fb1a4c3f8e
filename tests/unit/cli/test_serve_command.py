"""`lvq serve`: current values over HTTP, from a process (R46)."""

from __future__ import annotations

import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest

from lvq_kafka.cli.server_sockets import open_listener
from tests.event_parser import EventParser
from tests.unit.cli.conftest import Run
from tests.waiting import eventually

ROOT = Path(__file__).parents[3]


@contextmanager
def serving(*arguments: str) -> Iterator[tuple[subprocess.Popen[str], httpx.Client]]:
    command = [sys.executable, "-m", "tests.unit.cli.memory_lvq", "serve", "prices", "--port", "0", *arguments]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as server:
        try:
            assert server.stdout is not None
            row = json.loads(server.stdout.readline())
            assert row["queues"] == ["prices"]
            with httpx.Client(base_url=row["url"], timeout=20) as client:
                eventually(lambda: client.get("/ready").status_code == 200)
                yield server, client
        finally:
            server.kill()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_r46_lvq_serve_serves_a_queue_and_ends_its_streams_with_the_signal(
    tmp_path: Path, number: signal.Signals
) -> None:
    with serving("--store", str(tmp_path), "--format", "text") as (server, client):
        reply = client.get("/v1/queues/prices/values/IBM")
        assert (reply.status_code, reply.text, reply.headers["content-type"]) == (
            200,
            "118.50",
            "text/plain; charset=utf-8",
        )
        assert "server" not in reply.headers
        known = client.get("/v1/queues/prices/values/IBM", headers={"If-None-Match": reply.headers["etag"]})
        assert known.status_code == 304
        changed = client.get("/v1/queues/prices/values/MSFT?wait=20")
        assert changed.text > "400.00"
        assert client.head("/v1/queues/prices/values/IBM").headers["content-length"] == "6"
        assert client.get("/live", headers={"Host": "evil.example"}).status_code == 421
        assert client.post("/live").status_code == 405
        parser, seen = EventParser(), []
        with client.stream("GET", "/v1/queues/prices/events?every=0.05") as stream:
            for part in stream.iter_raw():
                seen += parser.feed(part)
                if len(seen) > 5 and server.poll() is None:
                    server.send_signal(number)
        assert [event.name for event in seen[:2]] == ["state", "reset"]
        assert server.wait(20) == 128 + number
        assert server.stderr is not None
        assert server.stderr.read() == ""
    assert json.loads((tmp_path / "prices" / "store.json").read_text())["clean"] is True


def test_r46_lvq_serve_limits_requests_before_it_reads_them() -> None:
    with serving() as (_, client):
        address = (client.base_url.host, client.base_url.port)
        for head in (b"GET /" + b"a" * 20_000, b"GET / HTTP/1.1\r\nHost: localhost\r\nA: " + b"a" * 20_000):
            with socket.create_connection(address, timeout=20) as connection:
                connection.sendall(head)
                assert connection.recv(100).startswith(b"HTTP/1.1 4")


def test_r52_lvq_serve_writes_if_it_may_and_ends_with_the_signal(tmp_path: Path) -> None:
    tokens = tmp_path / "tokens"
    tokens.write_text("user:alice prices:write prices\nuser:bob prices\n")
    tokens.chmod(0o600)
    given = ["--token-file", str(tokens), "--user-header", "Remote-User", "--proxy", "127.0.0.0/8"]
    with serving("--writable", "--format", "json", *given) as (server, client):
        place = "/v1/queues/prices/values/FB"
        assert client.put(place, content=b"1", headers={"Remote-User": "bob"}).status_code == 403
        alice = {"Remote-User": "alice"}
        assert client.put(place, content=b"27.", headers=alice).json()["error"] == "EncodeError"
        reply = client.put(place, content=iter([b"27.", b"78"]), headers=alice)
        assert (reply.status_code, reply.content) == (204, b"")
        read = client.get(f"{place}?at-least={reply.headers['lvq-position']}", headers=alice)
        assert (read.content, read.headers["content-type"]) == (b"27.78", "application/json")
        large = client.put(place, content=b"1" * (1 << 20 | 1), headers=alice)
        assert (large.status_code, large.headers["connection"]) == (413, "close")
        assert client.delete(place, headers=alice).status_code == 204
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 128 + signal.SIGTERM
        assert server.stderr is not None
        assert server.stderr.read() == ""


def test_r52_lvq_serve_lets_nobody_write_who_is_not_named(run: Run) -> None:
    ran = run("serve", "prices", "--port", "0", "--host", "0.0.0.0", "--writable")
    assert (ran.code, "Without --token-file, everybody could write who can reach 0.0.0.0" in ran.stderr) == (2, True)
    assert run("declare", "prices", "--key-header", "ticker").code == 0
    ran = run("serve", "prices", "--port", "0", "--user-header", "Remote-User")
    assert (ran.code, ran.stderr.startswith("lvq: --user-header names users")) == (2, True), ran.stderr
    ran = run("serve", "prices", "--port", "0", "--proxy", "10.0.0.1")
    assert (ran.code, ran.stderr.startswith("lvq: --proxy names those")) == (2, True), ran.stderr


def test_lvq_serve_sends_a_body_without_waiting_for_the_client() -> None:
    with open_listener("127.0.0.1", 0) as listening, socket.create_connection(listening.getsockname()):
        accepted, _ = listening.accept()
        with accepted:
            assert accepted.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)


def test_lvq_serve_refuses_what_it_cannot_serve(run: Run, tmp_path: Path) -> None:
    assert run("serve", "prices", "--port", "0").code == 4
    assert run("declare", "prices", "--key-header", "ticker").code == 0
    (tmp_path / "tokens").write_text("short prices\n")
    ran = run("serve", "prices", "--port", "0", "--token-file", str(tmp_path / "tokens"))
    assert (ran.code, "Line 1 of" in ran.stderr, "short" in ran.stderr) == (2, True, False)
    with socket.create_server(("127.0.0.1", 0)) as taken:
        ran = run("serve", "prices", "--port", str(taken.getsockname()[1]))
    assert (ran.code, "in use" in ran.stderr) == (2, True)
    for host in ("http://localhost", "localhost:8080", "no.such.host.invalid", "", "a" * 70):
        ran = run("serve", "prices", "--port", "0", "--host", host)
        assert (ran.code, ran.stderr.startswith(f"lvq: --host is {host!r}, which is neither")) == (2, True), ran.stderr
        assert "--port is the port" in ran.stderr
    ran = run("serve", "prices", "--port", "0", "--allow-host", "http://a.example")
    assert (ran.code, ran.stderr.startswith("lvq: --allow-host has 'http://a.example'")) == (2, True), ran.stderr
    ran = run("serve", "other", "--host", "0.0.0.0", "--port", "0")
    assert "everybody may read who can reach 0.0.0.0" in ran.stderr
