"""The embedded broker: real JVMs, started, used, killed and stopped."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest
import trustme
from confluent_kafka import Consumer, KafkaException, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from lvq_kafka.embedded import (
    EmbeddedBroker,
    Listener,
    daemon_status,
    ensure_jars,
    find_java,
    node,
    start_daemon,
    stop_daemon,
)
from lvq_kafka.embedded.jvm import Jvm
from lvq_kafka.embedded.processes import ProcessIdentity
from lvq_kafka.errors import BrokerStartFailed, DiskFull, EmbeddedBrokerError
from tests.waiting import eventually

SILENT = {"log_level": 0}


@pytest.fixture(scope="module", autouse=True)
def _class_archive() -> None:
    """Write the class archive before the tests. The first broker does that when it stops."""
    if Jvm(find_java(), ensure_jars(), heap="512m").new_archive is not None:
        with EmbeddedBroker():
            pass


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Return a private cache directory that already has the jars."""
    jars = ensure_jars()[0].parent
    path = tmp_path / "cache"
    path.mkdir()
    (path / jars.name).symlink_to(jars)
    monkeypatch.setenv("LVQ_CACHE_DIR", str(path))
    return path


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Callable[[int], Path]]:
    """Return a function that mounts file systems of a few megabytes. It needs root on Linux, as in CI."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    mounted: list[Path] = []

    def mount(megabytes: int) -> Path:
        path = tmp_path / f"disk{len(mounted)}"
        path.mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={megabytes}m", "tmpfs", str(path)], check=True)
        mounted.append(path)
        return path

    yield mount
    for path in mounted:
        subprocess.run(["umount", "--lazy", str(path)], check=True)


def write(bootstrap_servers: str, topic: str, values: Sequence[str]) -> None:
    """Write values, and wait until all are acknowledged."""
    refused = []
    producer = Producer({"bootstrap.servers": bootstrap_servers, "acks": "all"} | SILENT)
    for value in values:
        producer.produce(topic, value, on_delivery=lambda error, _: refused.append(error) if error else None)
    assert producer.flush(20) == 0
    assert refused == []


def read(bootstrap_servers: str, topic: str, count: int, **settings: str) -> list[str]:
    """Read the first ``count`` values of partition 0."""
    consumer = Consumer(
        {"bootstrap.servers": bootstrap_servers, "group.id": "reader", "enable.auto.commit": False} | SILENT | settings
    )
    values: list[str] = []
    try:
        consumer.assign([TopicPartition(topic, 0, 0)])
        deadline = time.monotonic() + 20
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                values.append((message.value() or b"").decode())
    finally:
        consumer.close()
    return values


def create_topic(bootstrap_servers: str, name: str, **settings: str) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap_servers} | SILENT | settings)
    admin.create_topics([NewTopic(name, 1)])[name].result(20)


def identities(broker: EmbeddedBroker) -> tuple[ProcessIdentity, ProcessIdentity]:
    supervisor, jvm = ProcessIdentity.of(broker.supervisor_pid), ProcessIdentity.of(broker.pid)
    assert supervisor is not None
    assert jvm is not None
    return supervisor, jvm


def test_a_broker_serves_clients_and_leaves_no_process_and_no_file() -> None:
    with EmbeddedBroker() as broker:
        supervisor, jvm = identities(broker)
        home = broker.data_dir
        assert broker.running
        assert home.is_dir()
        create_topic(broker.bootstrap_servers, "t")
        write(broker.bootstrap_servers, "t", ["a", "b"])
        assert read(broker.bootstrap_servers, "t", 2) == ["a", "b"]
    assert not broker.running
    assert not jvm.alive
    assert not supervisor.alive
    assert not home.exists()


def test_two_brokers_run_side_by_side_and_know_nothing_of_each_other() -> None:
    with EmbeddedBroker() as one, EmbeddedBroker() as other:
        assert one.port != other.port
        assert cluster_id(one) != cluster_id(other)
        create_topic(one.bootstrap_servers, "only-here")
        topics = AdminClient({"bootstrap.servers": other.bootstrap_servers}).list_topics(timeout=10).topics
        assert "only-here" not in topics


def cluster_id(broker: EmbeddedBroker) -> str:
    """Return the cluster id that clients see."""
    client = AdminClient({"bootstrap.servers": broker.bootstrap_servers} | SILENT)
    return str(client.describe_cluster().result(10).cluster_id)


def test_a_killed_broker_comes_back_on_the_same_address_with_all_that_it_acknowledged() -> None:
    values = [f"value {number}" for number in range(500)]
    with EmbeddedBroker() as broker:
        address = broker.bootstrap_servers
        create_topic(address, "t")
        write(address, "t", values)
        _, jvm = identities(broker)
        broker.kill()
        assert not jvm.alive
        assert not broker.running
        assert broker.failure is None  # it was intended
        broker.restart()
        assert broker.running
        assert broker.bootstrap_servers == address
        assert read(address, "t", len(values)) == values


def test_a_paused_broker_answers_nothing_until_it_is_resumed() -> None:
    with EmbeddedBroker() as broker:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap_servers} | SILENT)
        admin.list_topics(timeout=10)
        broker.pause()
        assert broker.running
        with pytest.raises(KafkaException):
            admin.list_topics(timeout=0.5)
        broker.resume()
        assert admin.list_topics(timeout=20).brokers


def test_a_given_directory_keeps_its_data_for_the_next_broker(tmp_path: Path) -> None:
    home = tmp_path / "data"
    with EmbeddedBroker(data_dir=home) as broker:
        create_topic(broker.bootstrap_servers, "t")
        write(broker.bootstrap_servers, "t", ["kept"])
    with EmbeddedBroker(data_dir=home) as broker:
        assert read(broker.bootstrap_servers, "t", 1) == ["kept"]


def test_the_jvm_and_the_files_go_when_the_program_is_killed() -> None:
    program = (
        "import sys\nfrom lvq_kafka.embedded import EmbeddedBroker\nbroker = EmbeddedBroker()\nbroker.start()\n"
        "print(broker.pid, broker.data_dir, flush=True)\nsys.stdin.read()"
    )
    with subprocess.Popen([sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE) as parent:
        assert parent.stdout is not None
        pid, home = parent.stdout.readline().decode().split()
        jvm = ProcessIdentity.of(int(pid))
        assert jvm is not None
        assert Path(home).is_dir()
        parent.kill()
    assert jvm.wait(10)
    eventually(lambda: not Path(home).exists())


def test_a_port_that_is_taken_is_named_and_so_is_the_option() -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerStartFailed, match=f"Port {port} .* is taken.*option port.*--port"):
            EmbeddedBroker(port=port).start()


def test_losing_the_race_for_a_port_leads_to_another_port(monkeypatch: pytest.MonkeyPatch) -> None:
    choices = [node.free_ports(2), node.free_ports(2)]
    with socket.create_server(("127.0.0.1", choices[0][1])):
        remaining = iter(choices)
        monkeypatch.setattr(node, "free_ports", lambda count: next(remaining))
        with EmbeddedBroker() as broker:
            assert broker.port == choices[1][1]


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"num.io.threads": "abc"}, "Invalid value abc for configuration num.io.threads"),
        ({"authorizer.class.name": "no.such.Class"}, "no.such.Class"),
    ],
)
def test_a_bad_property_is_reported_in_kafkas_words_and_the_log_is_kept(
    cache: Path, properties: dict[str, str], said: str
) -> None:
    with pytest.raises(BrokerStartFailed, match=said) as caught:
        EmbeddedBroker(properties=properties).start()
    assert said in caught.value.log
    (kept,) = (cache / "logs").iterdir()
    assert str(kept) in str(caught.value)
    assert said in kept.read_text()


def test_a_failed_start_leaves_no_process_and_no_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    temporary = tmp_path / "tmp"
    temporary.mkdir()
    monkeypatch.setattr(node.tempfile, "tempdir", str(temporary))
    broker = EmbeddedBroker(startup_timeout=0.2)
    with pytest.raises(BrokerStartFailed, match=r"not ready within 0\.2 seconds"):
        broker.start()
    assert list(temporary.iterdir()) == []
    assert not broker.running


def murder(broker: EmbeddedBroker) -> None:
    assert broker.pid is not None
    os.kill(broker.pid, signal.SIGKILL)
    eventually(lambda: not broker.running)


@pytest.mark.usefixtures("cache")
def test_a_broker_that_dies_by_itself_is_reported_when_the_block_is_left() -> None:
    broker = EmbeddedBroker()
    with pytest.raises(BrokerStartFailed, match=r"died \(by SIGKILL\).*Its log is in"), broker:
        murder(broker)
    assert not broker.running


@pytest.mark.usefixtures("cache")
def test_an_error_in_the_block_gets_the_broker_s_death_as_a_note() -> None:
    def fail() -> None:
        with EmbeddedBroker() as broker:
            murder(broker)
            raise RuntimeError("the test's own")

    with pytest.raises(RuntimeError, match="the test's own") as caught:
        fail()
    assert "The embedded broker died" in caught.value.__notes__[0]


def test_a_disk_without_room_is_refused_before_the_start(small_disk: Callable[[int], Path]) -> None:
    home = small_disk(16)
    with pytest.raises(DiskFull, match="MB free") as caught:
        EmbeddedBroker(data_dir=home / "data").start()
    assert caught.value.path == home / "data"


def fill(broker: EmbeddedBroker) -> None:
    """Write until the disk is full and the broker dies."""
    create_topic(broker.bootstrap_servers, "t")
    producer = Producer({"bootstrap.servers": broker.bootstrap_servers} | SILENT)

    def dead() -> bool:
        for _ in range(10):
            producer.produce("t", os.urandom(500_000))
        producer.flush(1)
        return not broker.running

    eventually(dead, timeout=60)
    producer.purge()
    producer.flush(1)


def test_a_disk_that_fills_up_is_what_the_broker_died_of(small_disk: Callable[[int], Path]) -> None:
    home = small_disk(100)
    broker = EmbeddedBroker(data_dir=home)
    with pytest.raises(DiskFull) as caught, broker:
        fill(broker)
    assert caught.value.path == home
    assert str(home) in str(caught.value)


def test_sasl_over_tls_with_acls_admits_who_may_and_refuses_the_others(tmp_path: Path) -> None:
    authority = trustme.CA()
    leaf = authority.issue_cert("127.0.0.1")
    (tmp_path / "ca.pem").write_bytes(authority.cert_pem.bytes())
    listener = Listener.sasl(
        {"alice": 'pass "word"', "bob": "b"},
        certificate=b"".join(pem.bytes() for pem in leaf.cert_chain_pems).decode(),
        key=pkcs8(leaf.private_key_pem.bytes()),
    )
    with EmbeddedBroker(listeners={"SECURE": listener}, acls=True) as broker:
        login = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanism": "PLAIN",
            "ssl.ca.location": str(tmp_path / "ca.pem"),
            "sasl.username": "alice",
            "sasl.password": 'pass "word"',
        }
        create_topic(broker.bootstrap_servers, "t")
        write(broker.bootstrap_servers, "t", ["secret"])
        with pytest.raises(KafkaException, match="AUTHORIZATION_FAILED"):
            create_topic(broker.address("SECURE"), "u", **login)
        wrong = {"bootstrap.servers": broker.address("SECURE")} | SILENT | login | {"sasl.password": "x"}
        stranger = AdminClient(wrong)
        with pytest.raises(KafkaException):
            stranger.list_topics(timeout=1.5)


def pkcs8(pem: bytes) -> str:
    """Return a private key in the only PEM form that Kafka reads."""
    from cryptography.hazmat.primitives import serialization as s

    key = s.load_pem_private_key(pem, None)
    return key.private_bytes(s.Encoding.PEM, s.PrivateFormat.PKCS8, s.NoEncryption()).decode()


@pytest.fixture
def daemon(cache: Path) -> Iterator[None]:
    yield
    stop_daemon()


@pytest.mark.usefixtures("daemon")
def test_a_daemon_outlives_the_program_that_starts_it_until_it_is_stopped(cache: Path) -> None:
    assert daemon_status() is None
    program = "from lvq_kafka.embedded import start_daemon; print(start_daemon(port=None).port)"
    done = subprocess.run(
        [sys.executable, "-W", "error", "-c", program], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stderr == ""
    status = daemon_status()
    assert status is not None
    assert status.port == int(done.stdout)
    assert status.temporary
    assert AdminClient({"bootstrap.servers": status.bootstrap_servers}).list_topics(timeout=10).brokers
    jvm = ProcessIdentity.of(status.pid)
    assert jvm is not None
    assert stop_daemon() == status
    assert not jvm.alive
    assert not status.data_dir.exists()
    assert status.log_path.exists()
    assert daemon_status() is None
    assert stop_daemon() is None


@pytest.mark.usefixtures("daemon")
def test_starting_the_daemon_again_is_harmless_and_starting_it_otherwise_is_refused(tmp_path: Path) -> None:
    first = start_daemon(port=None, data_dir=tmp_path / "data")
    for port in (None, 0, first.port):
        assert start_daemon(port=port, data_dir=tmp_path / "data") == first
    with pytest.raises(EmbeddedBrokerError, match=f"already running on port {first.port}.*stop it first"):
        start_daemon(port=first.port + 1, data_dir=tmp_path / "data")
    with pytest.raises(EmbeddedBrokerError, match="already running"):
        start_daemon(port=None, data_dir=tmp_path / "other")
    stop_daemon()
    assert (tmp_path / "data").is_dir()


@pytest.mark.usefixtures("daemon")
def test_a_daemon_that_died_is_not_running_and_can_be_started_again() -> None:
    first = start_daemon(port=None)
    os.kill(first.pid, signal.SIGKILL)
    eventually(lambda: daemon_status() is None)
    eventually(lambda: not first.data_dir.exists())
    again = start_daemon(port=first.port)
    assert again.pid != first.pid


@pytest.mark.usefixtures("daemon")
def test_the_daemon_s_port_when_taken_is_named_and_nothing_is_recorded(cache: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port = server.getsockname()[1]
        with pytest.raises(BrokerStartFailed, match=f"Port {port} .*option port"):
            start_daemon(port=port)
    assert daemon_status() is None
    assert not (cache / "daemon.json").exists()


def test_a_record_of_a_process_that_is_gone_never_leads_to_a_signal(cache: Path) -> None:
    myself_long_ago = {"pid": os.getpid(), "started": "long ago"}
    status = {"pid": 1, "port": 1, "data_dir": "/a", "temporary": False, "log_path": "/b", "started_at": 0.0}
    record = {"status": status, "supervisor": myself_long_ago, "jvm": myself_long_ago}
    (cache / "daemon.json").write_text(json.dumps(record))
    assert daemon_status() is None
    assert stop_daemon() is None  # otherwise this test run would end here
