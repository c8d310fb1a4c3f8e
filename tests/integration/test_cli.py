"""``lvq`` as a process on a real broker: its output, its exit codes, and what Ctrl-C leaves."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from queue import Empty, Queue
from typing import Any

import pytest

from lvq_kafka import TEXT, LastValueQueue
from lvq_kafka.embedded import ensure_jars
from lvq_kafka.errors import LVQError
from lvq_kafka.kafka import KafkaCluster
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.waiting import eventually

DEADLINE = 60.0  # seconds


class Shell:
    """Runs ``lvq`` against a broker."""

    def __init__(self, servers: str | None, **environment: str) -> None:
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LVQ_")}
        self._environment = {**kept, **environment}
        if servers is not None:
            self._environment["LVQ_BOOTSTRAP_SERVERS"] = servers

    def run(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> subprocess.CompletedProcess[bytes]:
        """Run a command to its end, and check its exit code."""
        ran = subprocess.run(
            [sys.executable, "-m", "lvq_kafka", *arguments],
            input=stdin,
            capture_output=True,
            env=self._environment,
            timeout=DEADLINE,
            check=False,
        )
        assert ran.returncode == code, ran.stderr.decode()
        assert b"Traceback" not in ran.stderr
        return ran

    def rows(self, *arguments: str, stdin: bytes = b"", code: int = 0) -> list[dict[str, Any]]:
        """Run a command to its end, and return its output as rows."""
        return parsed(self.run(*arguments, stdin=stdin, code=code).stdout.splitlines())

    @contextmanager
    def running(self, *arguments: str) -> Iterator[Running]:
        """Run a command that does not end by itself."""
        process = subprocess.Popen(
            [sys.executable, "-m", "lvq_kafka", *arguments],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            env=self._environment,
        )
        running = Running(process)
        try:
            yield running
        finally:
            process.kill()
            process.wait()
            running.close()


class Running:
    """A running command, and the lines that it writes."""

    def __init__(self, process: subprocess.Popen[bytes]) -> None:
        self.process = process
        self._lines: Queue[bytes] = Queue()
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self._lines.put(line)

    def row(self) -> dict[str, Any]:
        """Return the next line."""
        try:
            return parsed([self._lines.get(timeout=DEADLINE)])[0]
        except Empty:
            raise AssertionError("no line came") from None

    def end(self, number: signal.Signals) -> tuple[int, bytes]:
        """Send a signal, and return the exit code and standard error."""
        self.process.send_signal(number)
        assert self.process.stderr is not None
        code = self.process.wait(DEADLINE)
        return code, self.process.stderr.read()

    def close(self) -> None:
        self._reading.join(DEADLINE)
        for stream in (self.process.stdout, self.process.stderr):
            assert stream is not None
            stream.close()


def parsed(lines: Sequence[bytes]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines]


def values(rows: list[dict[str, Any]]) -> dict[str, str]:
    return {row["key"]: row["value"] for row in rows if "value" in row}


@pytest.fixture
def shell(broker: ProvidedBroker) -> Shell:
    return Shell(broker.bootstrap_servers)


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[str]:
    """Declare a queue with two values."""
    with LastValueQueue.declare(
        topic_name, key_header="ticker", value=TEXT, cluster=kafka_cluster
    ).producer() as producer:
        producer.put("IBM", "118.50")
        producer.put("MSFT", "402.10")
    yield topic_name
    with suppress(LVQError):
        LastValueQueue.open(topic_name, cluster=kafka_cluster).drop()


def test_a_queue_lives_from_its_declaration_to_its_drop(shell: Shell, topic_name: str) -> None:
    (declared,) = shell.rows("declare", topic_name, "-k", "ticker", "--partitions", "2")
    assert (declared["created_topic"], declared["created_queue"], declared["findings"]) == (True, True, [])
    assert topic_name in [row["name"] for row in shell.rows("queues")]

    (sent,) = shell.rows("send", topic_name, "118.50", "-H", "ticker=IBM", "-H", "exchange=NYSE")
    shell.rows("put", topic_name, "MSFT", "-1.5")
    shell.run("put", topic_name, "GONE", "-", stdin=b"\xff")
    shell.run("delete", topic_name, "GONE")
    (got,) = shell.rows("get", topic_name, "IBM")
    assert (got["value"], got["position"], got["headers"]) == (
        "118.50",
        sent["position"],
        {"ticker": "IBM", "exchange": "NYSE"},
    )
    assert shell.run("get", topic_name, "IBM", "--raw").stdout == b"118.50"
    assert shell.rows("get", topic_name, "GONE", code=1) == []

    *browsed, end = shell.rows("browse", topic_name)
    assert values(browsed) == {"IBM": "118.50", "MSFT": "-1.5"}
    assert sum(end["offsets"].values()) == 4
    assert end["blocked"] == []

    consumed = shell.rows("consume", topic_name, "--count", "2")
    assert values(consumed) == values(browsed)
    assert values(shell.rows("browse", topic_name)) == {}
    assert values(shell.rows("browse", topic_name, "--all")) == values(browsed)
    (status,) = shell.rows("stats", topic_name)
    assert (status["values"], status["waiting"], status["problems"]) == (2, 0, [])

    assert shell.rows("drop", topic_name, "--with-topic", "--yes")[0]["topic_deleted"] is True
    assert b"lvq declare" in shell.run("get", topic_name, "IBM", code=4).stderr


def test_g8_an_export_is_the_view_s_snapshot_and_can_be_put_elsewhere(
    shell: Shell, queue: str, kafka_cluster: KafkaCluster, tmp_path: Path
) -> None:
    lines = b"".join(b'{"key": "k%d", "value": "%d"}\n' % (number % 3000, number) for number in range(5000))
    positions = shell.rows("put", queue, "--from-jsonl", "-", stdin=lines)
    assert [row["key"] for row in positions[:2]] == ["k0", "k1"]
    assert len({row["position"] for row in positions}) == 5000
    shell.run("put", queue, "bin", "-", "--format", "bytes", stdin=bytes(range(256)))

    file = tmp_path / "export.jsonl"
    shell.run("export", queue, str(file), "--format", "bytes")
    head, *rows = parsed(file.read_bytes().splitlines())
    with LastValueQueue.open(queue, cluster=kafka_cluster).view() as view:
        snapshot = view.snapshot()
    assert head["offsets"] == {str(partition): offset for partition, offset in snapshot.offsets.items()}
    assert (head["topic_id"], head["values"]) == (snapshot.topic_id, len(snapshot))
    assert [(row["key"], row["position"], row["timestamp"]) for row in rows] == [
        (entry.key, str(entry.position), entry.timestamp) for entry in snapshot.entries()
    ]

    shell.run("declare", f"{queue}.copy", "-k", "ticker")
    try:
        shell.run("put", f"{queue}.copy", "--from-jsonl", str(file), "--quiet")
        with LastValueQueue.open(f"{queue}.copy", cluster=kafka_cluster).view() as view:
            copy = view.snapshot()
        assert {entry.key: (entry.value, entry.headers) for entry in copy.entries()} == {
            entry.key: (entry.value, entry.headers) for entry in snapshot.entries()
        }
    finally:
        shell.run("drop", f"{queue}.copy", "--with-topic", "--yes")


@pytest.mark.parametrize("command", [["browse", "--follow"], ["watch"]], ids=["browse", "watch"])
def test_updates_come_as_they_happen_until_ctrl_c(shell: Shell, queue: str, command: list[str]) -> None:
    with shell.running(command[0], queue, *command[1:]) as running:
        assert values([running.row(), running.row()]) == {"IBM": "118.50", "MSFT": "402.10"}
        assert running.row()["event"] == "end-of-dump"
        shell.run("put", queue, "IBM", "119")
        assert values([running.row()]) == {"IBM": "119"}
        shell.run("delete", queue, "IBM")
        assert running.row() == {"event": "deleted", "key": "IBM"}
        assert running.end(signal.SIGINT) == (130, b"")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)], ids=["ctrl-c", "term"])
def test_a_consumer_that_is_ended_has_acked_what_it_wrote_and_left_its_group(
    shell: Shell, queue: str, number: signal.Signals, code: int
) -> None:
    with shell.running("consume", queue) as running:
        assert values([running.row(), running.row()]) == {"IBM": "118.50", "MSFT": "402.10"}
        shell.run("put", queue, "AAPL", "189")
        assert values([running.row()]) == {"AAPL": "189"}  # the first two were acked before this was written
        assert running.end(number) == (code, b"")
    shell.run("put", queue, "TSLA", "242")
    # If it had not left, the next one would wait for its session to expire. If it had not acked, the others would come
    # again.
    (row,) = shell.rows("consume", queue, "--count", "1", "--timeout", "20")
    assert row["key"] in {"AAPL", "TSLA"}
    shell.run("drop", queue, "--yes")


def test_a_message_whose_command_was_interrupted_comes_again(shell: Shell, queue: str, tmp_path: Path) -> None:
    started = tmp_path / "started"
    with shell.running("consume", queue, "--exec", f"touch {started}; exec sleep 60") as running:
        eventually(started.exists, DEADLINE)
        assert running.end(signal.SIGINT) == (130, b"")
    assert list(values(shell.rows("consume", queue, "--count", "1"))) == ["IBM"]


def test_a_reader_that_goes_away_ends_the_run_silently(shell: Shell, queue: str) -> None:
    with shell.running("browse", queue, "--follow") as running:
        running.row()
    lvq = f"{sys.executable} -m lvq_kafka"
    lines = b"".join(b'{"key": "k%d", "value": "%s"}\n' % (number, b"x" * 1000) for number in range(2000))
    shell.run("put", queue, "--from-jsonl", "-", "--quiet", stdin=lines)
    ran = subprocess.run(
        ["bash", "-c", f"{lvq} browse {queue} | head -n 1; echo ${{PIPESTATUS[0]}}"],
        capture_output=True,
        env=shell._environment,
        timeout=DEADLINE,
        check=True,
    )
    assert ran.stdout.splitlines()[1:] == [b"141"]
    assert ran.stderr == b""


def completed(servers: str, word: str) -> list[str]:
    """Return the words that bash would offer; nothing else is written."""
    words = {"_LVQ_COMPLETE": "bash_complete", "COMP_WORDS": f"lvq get -b {servers} {word}", "COMP_CWORD": "4"}
    ran = Shell(None, **words).run()
    assert ran.stderr == b""
    return [line.removeprefix("plain,") for line in ran.stdout.decode().split()]


def test_the_shell_completes_the_names_of_queues_on_the_cluster_that_the_line_names(
    queue: str, broker: ProvidedBroker
) -> None:
    # Without an answer within two seconds there are none, which a busy machine may take.
    eventually(lambda: completed(broker.bootstrap_servers, queue[:-1]) == [queue], DEADLINE)
    assert completed("127.0.0.1:1", queue[:-1]) == []


def test_a_cluster_that_is_not_there_ends_with_3_and_one_line() -> None:
    (error,) = Shell("127.0.0.1:1").run("queues", code=3).stderr.decode().splitlines()
    assert error.startswith("lvq: ")
    assert "127.0.0.1:1" in error


def test_a_message_that_is_too_large_ends_with_5_and_says_so(shell: Shell, queue: str) -> None:
    errors = shell.run("put", queue, "IBM", "-", stdin=b"x" * 3_000_000, code=5).stderr.decode()
    assert len(errors.splitlines()) == 1
    assert "3000012 bytes" in errors
    assert "max.message.bytes" in errors
    assert values(shell.rows("get", queue, "IBM")) == {"IBM": "118.50"}


@pytest.fixture
def own_cache(tmp_path: Path) -> Path:
    """Return a private cache that has the jars, and no broker on record."""
    jars = ensure_jars()[0].parent
    (tmp_path / jars.name).symlink_to(jars)
    return tmp_path


def test_the_broker_of_lvq_is_used_without_being_named_while_it_runs(own_cache: Path) -> None:
    shell = Shell(None, LVQ_CACHE_DIR=str(own_cache))
    shell.run("broker", "status", code=1)
    assert b"lvq broker start" in shell.run("queues", code=2).stderr
    (started,) = shell.rows("broker", "start", "--port", "0")
    try:
        assert started.pop("started") is True
        assert shell.rows("broker", "start", "--port", "0") == [started | {"started": False}]
        assert shell.rows("broker", "status") == [started]
        shell.run("declare", "prices", "-k", "ticker")
        shell.run("put", "prices", "IBM", "118.50")
        assert shell.run("get", "prices", "IBM", "--raw").stdout == b"118.50"
    finally:
        (stopped,) = shell.rows("broker", "stop")
    assert stopped["running"] is False
    shell.run("broker", "stop", code=1)
    assert not Path(started["data_dir"]).exists()
