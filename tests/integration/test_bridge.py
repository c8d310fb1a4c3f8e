"""``lvq bridge`` between Kafka and the released Artemis and Broker-J, killed in the middle on each side."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trustme
from click.testing import CliRunner

from lvq_kafka import LastValueQueue
from lvq_kafka.cli.app import lvq
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.timing.ttl import Ttl
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.reading.entries import Entry
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.benchmarks.children import result, start
from tests.benchmarks.peers.brokers import QUEUE, Access, PeerBroker, running
from tests.benchmarks.peers.contest import install_client
from tests.benchmarks.workload import Workload
from tests.integration.secure import PASSWORD
from tests.integration.test_tls import key
from tests.pages import after, run
from tests.running import ROOT
from tests.waiting import eventually

DEADLINE = 120.0  # seconds
DEEP = Workload(2_400, 2_400)
UPDATES = Workload(2_400, 600)

PEERS = ["artemis", "broker-j"]
_THOROUGH = pytest.mark.parametrize(
    "peer", [PEERS[0], pytest.param(PEERS[1], marks=pytest.mark.thorough)], indirect=True
)
"""Both in long runs: what these tests prove is the bridge's own, and the same with either broker."""


@pytest.fixture(scope="module")
def client() -> Path:
    """Return the directory of Qpid Proton, which is built once. In CI, skips are failures."""
    installed = subprocess.run([ROOT / "docker/install-compiler.sh"], stderr=subprocess.PIPE, text=True, check=False)
    if installed.returncode:
        pytest.skip(f"Qpid Proton is built from source: {installed.stderr.strip()}")
    return install_client()


@pytest.fixture(scope="module", params=PEERS)
def peer(request: pytest.FixtureRequest) -> Iterator[PeerBroker]:
    """Run another broker, with an empty last value queue."""
    with running(request.param) as broker:
        yield broker


class Bridging:
    """Runs ``lvq`` and clients of the other broker."""

    def __init__(self, servers: str, peer: PeerBroker, client: Path, log: Path) -> None:
        self.servers = servers
        self.log = log
        self.peer = peer
        self.address = f"amqp://{peer.address}/{QUEUE}"
        kept = {name: value for name, value in os.environ.items() if not name.startswith("LVQ_")}
        self._environment = kept | {"PYTHONPATH": str(client), "LVQ_BOOTSTRAP_SERVERS": servers}
        self._client = client

    def run(self, *arguments: str, code: int = 0, **environment: str) -> dict[str, Any]:
        """Run a bridge to its end; return its counts, and what it said on stderr as ``said``."""
        ran = subprocess.run(
            self._command(arguments),
            capture_output=True,
            env=self._environment | environment,
            timeout=DEADLINE,
            check=False,
            text=True,
        )
        assert ran.returncode == code, ran.stderr
        assert "Traceback" not in ran.stderr
        counts = json.loads(ran.stdout) if ran.stdout else {}
        return counts | {"said": ran.stderr}

    @contextmanager
    def running(self, *arguments: str) -> Iterator[subprocess.Popen[str]]:
        """Run a bridge in the background, with its stderr in `log`; it is killed at the end."""
        with self.log.open("w") as log:
            process = subprocess.Popen(
                self._command(arguments), env=self._environment, stdout=subprocess.PIPE, stderr=log, text=True
            )
        try:
            yield process
        finally:
            process.kill()
            process.communicate()

    def end(self, process: subprocess.Popen[str]) -> dict[str, Any]:
        """End a bridge with Ctrl-C, and return its counts."""
        process.send_signal(signal.SIGINT)
        counts: dict[str, Any] = json.loads(process.communicate(timeout=DEADLINE)[0])
        assert process.returncode == 130
        assert "Traceback" not in self.log.read_text()
        return counts

    def produce(self, work: Workload) -> None:
        """Send a workload to the other broker, and wait until it has accepted all of it."""
        result(start("peers.amqp", "produce", self.peer.address, work.messages, work.keys, packages=self._client))

    def drain(self) -> None:
        """Remove all messages from the other broker."""
        self._client_of("drain")

    def wait_alone(self) -> None:
        """Wait until the other broker has noticed that all consumers are gone, as the page about bridges says.

        Broker-J cannot be asked.
        """
        if self.peer.name == "artemis":
            self._client_of("alone")

    def left(self) -> int:
        """Return how many messages the other broker has, a thousand at most."""
        counted = result(start("peers.amqp", "count", self.peer.address, 1, 1, packages=self._client))
        return int(counted["left"])

    def send(self, *messages: Mapping[str, Any]) -> None:
        """Send messages one by one, each as arguments of Proton's own."""
        self._client_of("send", json.dumps(messages))

    def _client_of(self, role: str, messages: str = "") -> None:
        subprocess.run(
            [sys.executable, "-m", "tests.integration.amqp_client", role, self.peer.address],
            cwd=ROOT,
            input=messages,
            env=self._environment,
            check=True,
            timeout=DEADLINE,
            text=True,
        )

    def _command(self, arguments: Sequence[str]) -> list[str]:
        return [sys.executable, "-m", "lvq_kafka", "bridge", *arguments]


@pytest.fixture
def bridging(broker: ProvidedBroker, peer: PeerBroker, client: Path, tmp_path: Path) -> Iterator[Bridging]:
    bridging = Bridging(broker.bootstrap_servers, peer, client, tmp_path / "log")
    yield bridging
    print(bridging.log.read_text() if bridging.log.exists() else "no bridge ran in the background")
    print(peer.said())
    left = bridging.left()
    if left:
        bridging.drain()  # or the next test would find it
    assert left == 0


@pytest.fixture
def queue(kafka_cluster: KafkaCluster, topic_name: str) -> Iterator[LastValueQueue[bytes]]:
    with LastValueQueue.declare(topic_name, key_header="key", cluster=kafka_cluster) as queue:
        yield queue
        queue.drop()


def log_of(queue: LastValueQueue[bytes]) -> list[tuple[bytes, int]]:
    """Return the key and the number of each message of a workload in the log."""
    found: list[tuple[bytes, int]] = []
    reader = queue.cluster.reader(queue.topic, {0: 0})
    end = queue.cluster.logs.end_offsets(queue.topic)[0]
    try:
        while len(found) < end:
            for batch in reader.poll(1.0).batches:
                found += [(key, int(value[:16])) for key, value in zip(batch.keys, batch.values)]
    finally:
        reader.close()
    return found


def newest(queue: LastValueQueue[bytes]) -> dict[str, int]:
    """Return the number of each key's newest value."""
    with queue.view() as view:
        return {key: int(view[key][:16]) for key in view}


def expected(work: Workload) -> dict[str, int]:
    return {key: number for number, (key, _) in enumerate(work)}


def differing(queue: LastValueQueue[bytes], wanted: Mapping[str, int]) -> dict[str, tuple[int | None, int | None]]:
    """Return the keys whose newest value is another than wanted, with its number and the wanted one."""
    found = newest(queue)
    keys = found.keys() | wanted.keys()
    return {key: (found.get(key), wanted.get(key)) for key in keys if found.get(key) != wanted.get(key)}


def test_a_queue_is_copied_moved_and_brought_back(bridging: Bridging, queue: LastValueQueue[bytes]) -> None:
    bridging.produce(UPDATES)
    assert bridging.run(bridging.address, queue.name, "--once")["copied"] == UPDATES.keys
    assert not differing(queue, expected(UPDATES))
    assert bridging.left() == UPDATES.keys
    moved = bridging.run(bridging.address, queue.name, "--once", "--consume")
    assert (moved["copied"], moved["left"], bridging.left()) == (UPDATES.keys, 0, 0)
    back = bridging.run(queue.name, bridging.address, "--once")
    assert (back["copied"], queue.stats().depth) == (UPDATES.keys, 0)
    assert bridging.run(bridging.address, queue.name, "--once", "--consume")["copied"] == UPDATES.keys
    assert not differing(queue, expected(UPDATES))


def has_grown(queue: LastValueQueue[bytes], beyond: int) -> bool:
    return queue.cluster.logs.end_offsets(queue.topic)[0] > beyond


def kill(process: subprocess.Popen[str]) -> None:
    process.send_signal(signal.SIGKILL)
    process.wait(DEADLINE)


@_THOROUGH
@pytest.mark.parametrize("mode", ["--consume", "--browse"])
def test_g10_a_bridge_that_is_killed_loses_nothing_and_ends_with_the_newest_values(
    bridging: Bridging, queue: LastValueQueue[bytes], mode: str
) -> None:
    sending = threading.Thread(target=bridging.produce, args=(UPDATES,))
    bridging.produce(DEEP)
    sending.start()
    for _ in range(3):
        before = queue.cluster.logs.end_offsets(queue.topic)[0]
        with bridging.running(bridging.address, queue.name, mode) as process:
            eventually(partial(has_grown, queue, before), DEADLINE)
            kill(process)
        bridging.wait_alone()
    sending.join()
    bridging.run(bridging.address, queue.name, "--once", mode)
    assert not differing(queue, expected(DEEP) | expected(UPDATES))
    if mode == "--browse":
        bridging.run(bridging.address, queue.name, "--once", "--consume")


@_THOROUGH
def test_g10_a_bridge_to_the_other_broker_that_is_killed_loses_nothing(
    bridging: Bridging, queue: LastValueQueue[bytes], kafka_cluster: KafkaCluster
) -> None:
    with queue.producer() as producer:
        for key, value in DEEP:
            producer.put(key, value)
    for part in range(1, 4):
        with bridging.running(queue.name, bridging.address) as process:
            eventually(lambda part=part: bridging.left() >= min(300 * part, 1000), DEADLINE)  # type: ignore[misc]
            kill(process)
    bridging.run(queue.name, bridging.address, "--once")
    assert queue.stats().depth == 0
    with LastValueQueue.declare(f"{queue.name}-back", key_header="key", cluster=kafka_cluster) as back:
        assert bridging.run(bridging.address, back.name, "--once", "--consume")["copied"] == DEEP.keys
        assert not differing(back, expected(DEEP))
        back.drop(delete_topic=True)


@_THOROUGH
def test_a_bridge_waits_for_the_other_broker_and_goes_on_when_it_is_back(
    bridging: Bridging, queue: LastValueQueue[bytes]
) -> None:
    def trouble() -> bool:
        return "no link to amqp://" in bridging.log.read_text()

    bridging.produce(UPDATES)
    with bridging.running(bridging.address, queue.name, "--consume") as process:
        eventually(partial(has_grown, queue, 0), DEADLINE)
        bridging.peer.kill()
        eventually(trouble, DEADLINE)
        bridging.peer.start()
        eventually(lambda: not differing(queue, expected(UPDATES)), DEADLINE)
        eventually(lambda: not bridging.left(), DEADLINE)
        assert bridging.end(process)["left"] == 0
    with bridging.running(queue.name, bridging.address) as process:
        eventually(lambda: bridging.left() > 0, DEADLINE)
        bridging.peer.kill()
        eventually(trouble, DEADLINE)
        bridging.peer.start()
        eventually(lambda: queue.stats().depth == 0, DEADLINE)
        bridging.end(process)
    assert bridging.run(bridging.address, queue.name, "--once", "--consume")["copied"] == UPDATES.keys
    assert not differing(queue, expected(UPDATES))


@pytest.mark.parametrize("peer", PEERS[:1], indirect=True)
def test_a_bridge_outlives_an_outage_of_kafka_beyond_its_time_outs(
    private_broker: ProvidedBroker, peer: PeerBroker, client: Path, tmp_path: Path
) -> None:
    config = tmp_path / "client.properties"
    config.write_text("delivery.timeout.ms=1500\nsocket.timeout.ms=1500\n")
    config.chmod(0o600)
    bridging = Bridging(private_broker.bootstrap_servers, peer, client, tmp_path / "log")
    cluster = KafkaCluster(ClientConfig(private_broker.bootstrap_servers))
    with LastValueQueue.declare("prices", key_header="key", cluster=cluster) as queue:
        bridging.produce(UPDATES)
        with bridging.running("--config", str(config), bridging.address, "prices", "--consume") as process:
            eventually(partial(has_grown, queue, UPDATES.keys - 1), DEADLINE)
            eventually(lambda: not bridging.left(), DEADLINE)
            private_broker.pause()
            bridging.send(*({"properties": {"key": f"k{n}"}, "body": f"{n}"} for n in range(20)))
            eventually(lambda: "takes no messages" in bridging.log.read_text(), DEADLINE)
            private_broker.resume()
            eventually(lambda: "takes messages again" in bridging.log.read_text(), DEADLINE)
            eventually(lambda: not bridging.left(), DEADLINE)
            bridging.end(process)
        with queue.view() as view:
            assert {f"k{n}": view[f"k{n}"] for n in range(20)} == {f"k{n}": b"%d" % n for n in range(20)}


@_THOROUGH
def test_a_bridge_that_only_looks_sees_what_comes_later_and_repeats_nothing(
    bridging: Bridging, queue: LastValueQueue[bytes]
) -> None:
    messages = [{"properties": {"key": key}, "body": key} for key in "ab"]
    bridging.send(*messages, {"body": "without a key"})
    with bridging.running(bridging.address, queue.name) as process:
        eventually(partial(has_grown, queue, 2), DEADLINE)
        bridging.send({"properties": {"key": "a"}, "body": "newer"}, {"properties": {"key": "c"}, "body": "c"})
        eventually(partial(has_grown, queue, 4), DEADLINE)
        assert bridging.end(process)["copied"] in (4, 5)  # Ctrl-C may be faster than the report of the last one
    dry = bridging.run(bridging.address, queue.name, "--dry-run")
    assert dry["copied"] == 4
    assert queue.cluster.logs.end_offsets(queue.topic)[0] == 5
    bridging.run(bridging.address, queue.name, "--once", "--consume")


@pytest.mark.parametrize("peer", PEERS[:1], indirect=True)
def test_the_page_about_bridges_does_what_it_shows(
    bridging: Bridging, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Run docs/how-to/bridge.md; `lvq bridge` runs in a process that has Qpid Proton."""
    monkeypatch.setenv("LVQ_BOOTSTRAP_SERVERS", bridging.servers)
    bridging.produce(UPDATES)
    ran = []

    def shell(command: Sequence[str]) -> None:
        if command[0] == "bridge":
            counts = bridging.run(*command[1:])
            ran.append({name: counts[name] for name in counts if name != "said"})
        else:
            result = CliRunner().invoke(lvq, command, prog_name="lvq")
            assert result.exit_code == 0, result.output

    replacing = {"amqp://broker.example/quotes": bridging.address, "localhost:9092": bridging.servers}
    run("docs/how-to/bridge.md", shell, lambda: capsys.readouterr().out, replacing)
    assert ran == [json.loads(after("docs/how-to/bridge.md", "it shows that all the time, too:"))] * 3
    for name in ("quotes-here", "quotes-check"):
        shell(["drop", name, "--with-topic", "--yes"])
    bridging.drain()


def test_messages_that_cannot_be_copied_stay_and_do_not_stop_the_others(
    bridging: Bridging, queue: LastValueQueue[bytes]
) -> None:
    good = [{"properties": {"key": f"k{n}"}, "body": f"{n}"} for n in range(3)]
    bad = [
        {"properties": {"key": "decimal"}, "body": {"decimal": 1}, "id": "odd-1"},
        {"properties": {"key": "header", "price": {"decimal": 1}}, "body": "1"},
        {"properties": {"key": "large"}, "body": {"size": 2_000_000}},
        {"properties": {"key": "reserved", "lvq-ttl": "5"}, "body": "1"},
    ]
    bridging.send(good[0], *bad, *good[1:])
    for mode in ("--dry-run", "--browse", "--consume"):
        ran = bridging.run(bridging.address, queue.name, *(["--once"] * (mode != "--dry-run")), mode, code=5)
        assert "message 2 with the id 'odd-1' stays in amqp://" in ran["said"]
        assert "its body is a decimal128" in ran["said"]
        assert "the application property 'price' is a decimal128" in ran["said"]
        assert ran["left"] == (2 if mode == "--dry-run" else 4)
    with queue.view() as view:
        assert sorted(view) == ["k0", "k1", "k2"]
    assert bridging.left() == 4
    bridging.drain()


def test_bodies_and_terms_go_to_the_other_broker_and_come_back(
    bridging: Bridging, kafka_cluster: KafkaCluster, topic_name: str
) -> None:
    with LastValueQueue.declare(
        topic_name, key_header="key", ttl=Ttl(), order="priority", groups=Groups(), cluster=kafka_cluster
    ) as queue:
        bridging.send(
            {"properties": {"key": "map", "price": 1.5}, "body": {"a": [1, None, "b"]}, "priority": 9, "ttl": 3600.0},
            {"properties": {"key": "text"}, "body": "é", "group_id": "desk", "subject": "quote"},
            {"properties": {"key": "bytes"}, "body": {"size": 3}},
        )
        for _ in range(2):
            assert bridging.run(bridging.address, queue.name, "--once", "--consume")["not_carried"] == {}
            with queue.browser(follow=False) as browser:
                found = {entry.key: entry for entry in browser if isinstance(entry, Entry)}
            assert found["map"].value == b'{"a":[1,null,"b"]}'
            assert (found["text"].value, found["bytes"].value) == ("é".encode(), bytes(3))
            headers = {key: dict(entry.headers) for key, entry in found.items()}
            assert (headers["map"]["price"], headers["map"]["lvq-priority"]) == (b"1.5", b"9")
            assert 3_500 < int(headers["map"]["lvq-ttl"]) / 1000 <= 3_600
            assert (headers["text"]["amqp-subject"], headers["text"][Groups().header]) == (b"quote", b"desk")
            bridging.run(queue.name, bridging.address, "--once")
        bridging.run(bridging.address, queue.name, "--once", "--consume")
        queue.drop()


def test_a_user_logs_in_over_tls_and_no_output_has_the_password(
    broker: ProvidedBroker, queue: LastValueQueue[bytes], client: Path, tmp_path: Path
) -> None:
    authority = trustme.CA()
    issued = authority.issue_cert("127.0.0.1", key_type=trustme.KeyType.RSA)  # the other broker reads no other keys
    authority.cert_pem.write_to_path(tmp_path / "ca.pem")
    (tmp_path / "cert.pem").write_bytes(b"".join(part.bytes() for part in issued.cert_chain_pems))
    (tmp_path / "key.pem").write_text(key(issued))
    access = Access("reader", PASSWORD, tmp_path / "cert.pem", tmp_path / "key.pem")
    with running("broker-j", access=access) as peer:
        bridging = Bridging(broker.bootstrap_servers, peer, client, tmp_path / "log")
        with queue.producer() as producer:
            producer.put("IBM", b"118.50")
        secure = f"amqps://reader@{peer.address}/{QUEUE}"
        trusted = ("--ssl-ca", str(tmp_path / "ca.pem"))
        ran = [
            bridging.run(queue.name, secure, "--once", *trusted, LVQ_AMQP_PASSWORD=PASSWORD),
            bridging.run(secure, queue.name, "--once", *trusted, "--consume", LVQ_AMQP_PASSWORD=PASSWORD),
            bridging.run(secure, queue.name, "--once", *trusted, code=3, LVQ_AMQP_PASSWORD=f"{PASSWORD}-not"),
            bridging.run(secure, queue.name, "--once", code=3, LVQ_AMQP_PASSWORD=PASSWORD),
            bridging.run(secure, queue.name, "--once", *trusted, code=2),
            bridging.run(secure.replace("@", f":{PASSWORD}@"), queue.name, "--once", *trusted, code=2),
        ]
    assert [each.get("copied") for each in ran[:2]] == [1, 1]
    assert "Check the user in the address, and LVQ_AMQP_PASSWORD." in ran[2]["said"]
    assert "--ssl-ca" in ran[3]["said"]
    assert "There is no password for reader." in ran[4]["said"]
    assert not [each for each in ran if PASSWORD in str(each)]


@pytest.mark.parametrize("peer", PEERS[1:], indirect=True)  # Artemis creates what is missing
def test_a_name_that_the_other_broker_does_not_know_is_refused(
    bridging: Bridging, queue: LastValueQueue[bytes]
) -> None:
    ran = bridging.run(f"{bridging.address}-not", queue.name, "--once", code=3)
    assert "Check the name of the queue in the address." in ran["said"]
