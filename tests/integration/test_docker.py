"""Docker's own parts: the images, the compose file, and the containers for tests."""

from __future__ import annotations

import os
import re
import socket
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from threading import Event
from typing import Any

import pytest
import trustme
from confluent_kafka import Consumer, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from docker.errors import APIError

from lvq_kafka import TEXT, LastValueQueue, Settlement, TopicSpec
from lvq_kafka.cluster import Receipt
from lvq_kafka.embedded import Listener
from lvq_kafka.embedded.jars import KAFKA_VERSION
from lvq_kafka.embedded.ports import free_ports
from lvq_kafka.errors import BrokerStartFailed
from lvq_kafka.testing import containers
from lvq_kafka.testing.containers import KafkaContainer, docker_unavailable_reason
from lvq_kafka.testing.docker_cluster import DockerCluster
from lvq_kafka.testing.docker_engine import STAND_IN_IMAGE, kafka_image, owner_labels, prepare
from tests.integration.composing import Compose, answers, composed, docker, run, stopped
from tests.running import ROOT
from tests.waiting import eventually

pytestmark = [pytest.mark.usefixtures("docker_engine"), pytest.mark.timeout(240)]

CLI_IMAGE = os.environ.get("LVQ_CLI_IMAGE", "lvq-kafka/lvq")


@pytest.fixture(scope="module")
def kafka(docker_engine: None) -> Iterator[KafkaContainer]:
    with KafkaContainer() as container:
        yield container


# -- the container for tests -------------------------------------------------------------------------------------------


def test_a_container_serves_clients_on_the_loopback_address(kafka: KafkaContainer) -> None:
    create(kafka.bootstrap_servers, "hello")
    write(kafka.bootstrap_servers, "hello", [b"first"])

    assert read(kafka.bootstrap_servers, "hello") == [b"first"]
    assert kafka.bootstrap_servers == f"127.0.0.1:{kafka.port}"
    bindings = kafka.get_wrapped_container().attrs["HostConfig"]["PortBindings"].values()
    assert {binding["HostIp"] for port in bindings for binding in port} == {"127.0.0.1"}


def test_the_broker_does_not_run_as_root(kafka: KafkaContainer) -> None:
    user_id = kafka.exec(["id", "-u"]).output.decode().strip()

    assert int(user_id) >= 1000


def test_a_killed_broker_comes_back_on_the_same_port_with_its_data(kafka: KafkaContainer) -> None:
    before = kafka.bootstrap_servers
    create(before, "durable")
    write(before, "durable", [b"acknowledged"])

    kafka.kill()
    assert not kafka.running
    kafka.restart()

    assert kafka.bootstrap_servers == before
    assert read(before, "durable") == [b"acknowledged"]


def test_a_paused_broker_answers_nothing_until_it_is_resumed(kafka: KafkaContainer) -> None:
    create(kafka.bootstrap_servers, "paused")
    producer = Producer(client(kafka.bootstrap_servers))

    kafka.pause()
    producer.produce("paused", b"waits")
    unsent_while_paused = producer.flush(1.0)
    kafka.resume()

    assert kafka.running
    assert unsent_while_paused == 1
    assert producer.flush(30.0) == 0


def test_a_broker_that_could_not_be_frozen_is_paused_by_another_attempt(
    kafka: KafkaContainer, monkeypatch: pytest.MonkeyPatch
) -> None:
    container, reasons = kafka.get_wrapped_container(), ["OCI runtime pause failed: unable to freeze: unknown"] * 2
    pause = container.pause

    def reluctant() -> None:
        if reasons:
            raise APIError(reasons.pop())
        pause()

    monkeypatch.setattr(container, "pause", reluctant)
    monkeypatch.setattr(kafka, "get_wrapped_container", lambda: container)
    kafka.pause()
    kafka.resume()
    assert kafka.running
    reasons.append("No such container")
    with pytest.raises(APIError, match="No such container"):
        kafka.pause()


def test_a_listener_with_tls_and_sasl_can_be_added() -> None:
    authority = trustme.CA()
    server = authority.issue_cert("127.0.0.1")
    pem = server.private_key_and_cert_chain_pem.bytes().decode()
    key_end = pem.index("-----BEGIN CERTIFICATE-----")
    secure = Listener.sasl({"alice": "wonderland"}, certificate=pem[key_end:], key=pkcs8(pem[:key_end]))

    with KafkaContainer(listeners={"SECURE": secure}) as container, authority.cert_pem.tempfile() as ca:
        credentials = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": ca,
            "sasl.mechanism": "PLAIN",
            "sasl.username": "alice",
            "sasl.password": "wonderland",
        }
        admin = AdminClient(client(container.address("SECURE"), **credentials))
        assert list(admin.list_topics(timeout=20).brokers) == [1]
        assert "wonderland" not in repr(container.get_wrapped_container().attrs)


def test_a_broker_that_cannot_start_reports_its_own_words() -> None:
    with pytest.raises(BrokerStartFailed, match=r"ended while starting \(exit code 1\)") as failure:
        KafkaContainer(properties={"process.roles": "nonsense"}).start()

    assert "Invalid value nonsense for configuration process.roles" in failure.value.log
    assert "Invalid value nonsense" in failure.value.__notes__[0]
    assert ended_containers() == []


def test_a_port_that_somebody_else_took_is_replaced_by_another(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.socket() as other:
        other.bind(("127.0.0.1", 0))
        other.listen()
        taken = other.getsockname()[1]
        offers = iter([[taken]])
        monkeypatch.setattr(containers, "free_ports", lambda count: next(offers, None) or free_ports(count))

        with KafkaContainer() as container:
            assert container.port != taken
            assert list(AdminClient(client(container.bootstrap_servers)).list_topics(timeout=20).brokers) == [1]


def test_leftovers_of_a_killed_process_are_removed_by_the_next_one() -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    abandoned = f"lvq-kafka.owner={socket.gethostname()}:{gone.pid}"
    container = docker("run", "--detach", "--label", abandoned, kafka_image(), "sleep", "600")
    network = docker("network", "create", "--label", abandoned, f"lvq-kafka-test-{gone.pid}")

    prepare.cache_clear()
    prepare(at_exit=lambda: None)

    assert container not in docker("ps", "--all", "--quiet", "--no-trunc").split()
    assert network not in docker("network", "ls", "--quiet", "--no-trunc").split()


# -- a cluster of three ------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def cluster(docker_engine: None) -> Iterator[DockerCluster]:
    """Start three brokers that would, by default, acknowledge what only one of them has."""
    with DockerCluster(properties={"min.insync.replicas": "1"}) as cluster:
        yield cluster


@contextmanager
def killed(cluster: DockerCluster, broker: int) -> Iterator[None]:
    """Kill a broker for the block, and restart it afterwards."""
    cluster.nodes[broker - 1].kill()
    try:
        yield
    finally:
        cluster.nodes[broker - 1].restart()


def leader(admin: AdminClient, topic: str) -> int:
    return int(admin.list_topics(topic, timeout=20).topics[topic].partitions[0].leader)


def test_g14_acknowledged_messages_outlive_the_leader_and_a_view_goes_on(cluster: DockerCluster) -> None:
    servers = cluster.bootstrap_servers
    admin = AdminClient(client(servers))
    receipts: list[Receipt] = []
    enough = Event()
    with LastValueQueue.declare("replicated", key_header="k", value=TEXT, bootstrap_servers=servers) as queue:
        assert queue.cluster.topics.describe("replicated").replication_factor == 3
        eventually(lambda: queue.cluster.topics.config("replicated")["min.insync.replicas"] == "2")  # when all know

        def feed() -> None:
            while not enough.wait(0.001):
                number = len(receipts)
                receipts.append(producer.put(f"k{number % 20}", str(number)))

        with queue.producer() as producer, queue.view() as view, ThreadPoolExecutor() as threads:
            feeding = threads.submit(feed)
            try:
                eventually(lambda: len(receipts) > 200 and receipts[200].done(), 60)
                before = leader(admin, "replicated")
                with killed(cluster, before):
                    at_the_kill = len(receipts)
                    eventually(lambda: leader(admin, "replicated") not in (-1, before), 60, every=0.1)
                    eventually(lambda: len(receipts) > at_the_kill + 500, 60)
                    enough.set()
                    feeding.result(60)
                    positions = [receipt.result(120) for receipt in receipts]
                    newest = {f"k{number % 20}": str(number) for number in range(len(receipts))}
                    view.barrier(60)  # while the old leader is dead
                    assert dict(view) == newest
            finally:
                enough.set()
            view.wait_for(producer.put("last", "of all").result(60), 60)
            assert view["last"] == "of all"
            assert view.stats.stale == 0
    stored = read(servers, "replicated")
    assert stored == [str(number).encode() for number in range(len(receipts))] + [b"of all"]
    assert [position.offset for position in positions] == list(range(len(receipts)))


def test_g10_a_consumer_outlives_the_coordinator_of_its_group_and_no_ack_is_lost(cluster: DockerCluster) -> None:
    servers, count = cluster.bootstrap_servers, 600
    durable: set[str] = set()
    taken: list[str] = []
    acks: list[Settlement] = []
    with LastValueQueue.declare(
        "work", key_header="k", value=TEXT, spec=TopicSpec(partitions=3), bootstrap_servers=servers
    ) as queue:
        with queue.producer() as producer:
            for number in range(count):
                producer.put(f"k{number}", str(number))

        def take_one() -> bool:
            """Take a message; return whether none is left, and every ack has ended.

            An ack whose commit was stored, and whose answer was lost with the coordinator, fails for a message that is
            done and never comes again.
            """
            delivery = consumer.acquire(0.2)
            if delivery is None:
                return all(ack.done() for ack in acks) and queue.stats().depth == 0
            value = delivery.value
            assert value not in durable, "a durable ack was forgotten"
            taken.append(value)
            acks.append(delivery.ack())
            acks[-1].add_done_callback(lambda ack: ack.exception() is None and durable.add(value))
            return False

        with queue.consumer() as consumer:
            eventually(lambda: take_one() or len(durable) > 20, 60)
            admin = AdminClient(client(servers))
            groups = admin.describe_consumer_groups([queue.definition.group])
            coordinator = groups[queue.definition.group].result(20).coordinator.id
            with killed(cluster, coordinator):
                # An ack is durable within milliseconds, so wait for one that cannot be committed now.
                eventually(lambda: take_one() or len(taken) > len(durable), 60)
                assert len(durable) < count, "nothing is at stake"
                try:
                    eventually(take_one, 150)
                except AssertionError as error:
                    ends = Counter(repr(ack.exception()) if ack.done() else "pending" for ack in acks)
                    error.add_note(f"acks ended with {ends}; the consumer says {consumer.stats!r}")
                    raise
        assert set(taken) == {str(number) for number in range(count)}
        assert queue.stats().depth == 0


# -- without an engine -------------------------------------------------------------------------------------------------


def test_a_missing_engine_is_a_reason_that_names_the_address(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{tmp_path}/nobody")

    reason = docker_unavailable_reason()

    assert reason is not None
    assert f"no Docker engine answers at unix://{tmp_path}/nobody" in reason


def test_the_docker_run_is_left_out_in_one_line_where_there_is_no_engine(tmp_path: Path) -> None:
    nowhere = {"DOCKER_HOST": f"unix://{tmp_path}/nobody", "LVQ_DOCKER_RUN": str(tmp_path), "CI": ""}

    said = run([str(ROOT / "docker" / "run-tests.sh"), sys.executable], os.environ | nowhere)

    assert said.startswith("Docker tests are left out: no Docker engine answers")
    assert said.count("\n") == 1


# -- the compose file --------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def compose(docker_engine: None) -> Iterator[Compose]:
    with composed("cluster", "lvq") as compose:
        yield compose


def test_the_compose_file_is_valid(compose: Compose) -> None:
    every = [word for name in ("cluster", "lvq", "spark", "spark-submit") for word in ("--profile", name)]
    services = compose(*every, "config", "--services").split()

    assert sorted(services) == [
        *("kafka", "kafka-1", "kafka-2", "kafka-3", "lvq"),
        *("spark-master", "spark-submit", "spark-worker-1", "spark-worker-2"),
    ]


def test_the_compose_file_starts_one_node_for_clients_outside_and_inside(compose: Compose) -> None:
    compose("up", "--detach")
    compose.wait_healthy("kafka")

    assert len(compose("ps", "--quiet").split()) == 1
    outside = f"127.0.0.1:{compose.ports['KAFKA_PORT']}"
    create(outside, "composed")
    write(outside, "composed", [b"from outside"])
    assert read(outside, "composed") == [b"from outside"]
    inside = ("run", "--rm", "-T", "lvq")
    compose(*inside, "declare", "prices", "--key-header", "ticker")
    compose(*inside, "put", "prices", "IBM", "118.50")
    assert "118.50" in compose(*inside, "get", "prices", "IBM")


def test_a_broker_that_stands_still_is_unhealthy(compose: Compose) -> None:
    compose("up", "--detach")
    compose.wait_healthy("kafka")

    container = compose.container("kafka")

    with stopped(container):
        assert not answers(container)
    eventually(lambda: answers(container), 60.0, every=0.5)


def test_the_compose_file_starts_three_nodes_that_replicate(compose: Compose) -> None:
    nodes = ["kafka-1", "kafka-2", "kafka-3"]
    compose("up", "--detach", *nodes)
    compose.wait_healthy(*nodes)

    servers = ",".join(f"127.0.0.1:{compose.ports[name]}" for name in ("KAFKA_1_PORT", "KAFKA_2_PORT", "KAFKA_3_PORT"))
    create(servers, "three", replicas=3)
    write(servers, "three", [b"replicated"])
    assert read(servers, "three") == [b"replicated"]


# -- the images --------------------------------------------------------------------------------------------------------


def test_every_place_names_the_same_versions() -> None:
    compose_file = (ROOT / "docker" / "compose.yaml").read_text()
    makefile = (ROOT / "Makefile").read_text()

    assert set(re.findall(r"kafka:(\d+\.\d+\.\d+)", compose_file)) == {KAFKA_VERSION}
    pinned = re.findall(r"UV_VERSION := (.+)", makefile)
    for image in ("Dockerfile", "spark/Dockerfile"):
        assert re.findall(r"UV_VERSION=(.+)", (ROOT / "docker" / image).read_text()) == pinned


def test_the_stand_in_image_is_not_built_again_when_nothing_changed() -> None:
    if kafka_image() != STAND_IN_IMAGE:
        pytest.skip(f"{kafka_image()} is used here, not the stand-in")
    created = docker("image", "inspect", "--format", "{{.Created}}", kafka_image())

    name = run([str(ROOT / "docker" / "build-kafka-image.sh")])

    assert name.strip() == kafka_image()
    assert docker("image", "inspect", "--format", "{{.Created}}", kafka_image()) == created


def test_the_command_line_image_runs_lvq_without_root() -> None:
    assert docker("image", "inspect", "--format", "{{.Config.User}} {{.Config.Entrypoint}}", CLI_IMAGE) == (
        "10001:10001 [lvq]"
    )
    assert "Usage" in docker("run", "--rm", CLI_IMAGE)


def test_the_command_line_image_holds_the_locked_versions_of_two_extras_and_nothing_else() -> None:
    program = "import importlib.metadata as m; print(*(f'{d.name}=={d.version}' for d in m.distributions()))"
    installed = set(docker("run", "--rm", "--entrypoint", "python3", CLI_IMAGE, "-c", program).lower().split())
    locked = set(re.findall(r"^([\w.-]+==[\w.]+)", (ROOT / "requirements.lock").read_text().lower(), re.MULTILINE))

    names = {item.partition("==")[0] for item in installed}
    assert {"lvq-kafka", "confluent-kafka", "click", "rich", "lmdb"} <= names
    assert names.isdisjoint({"pyspark", "pytest", "uv", "pip", "testcontainers"})
    assert {item for item in installed if not item.startswith("lvq-kafka==")} <= locked


_ATTACH = """
import sys
from lvq_kafka import TEXT, attach
with attach("/var/lib/lvq/parities", value=TEXT) as view:
    view.wait_for(sys.argv[1], 60)  # until the next holder writes, the store is as the one before has left it
    view.wait_caught_up(60)
    print(dict(view), view.state)
"""


@pytest.mark.timeout(600)  # six containers start one after another
def test_r41_containers_share_a_store_on_a_volume_in_one_pid_namespace(kafka: KafkaContainer) -> None:
    with LastValueQueue.declare(
        "parities", key_header="currency", value=TEXT, bootstrap_servers=kafka.bootstrap_servers
    ) as queue:
        with queue.producer() as producer:
            position = str(producer.put("CHF", "0.94").result(60))
        volume = f"lvq-test-store-{os.getpid()}"
        shared = ("--volume", f"{volume}:/var/lib/lvq")
        reading = ("run", "--rm", "--network", "none", "--entrypoint", "python3", *shared)
        holding = ("hold", "parities", "--store", "/var/lib/lvq/parities")
        holder = docker(
            "run", "--detach", "--network", "host", *shared, CLI_IMAGE, "-b", kafka.bootstrap_servers, *holding
        )
        try:
            together = f"--pid=container:{holder}"
            assert docker(*reading, together, CLI_IMAGE, "-c", _ATTACH, position) == "{'CHF': '0.94'} caught-up"
            with pytest.raises(AssertionError, match="PID namespace"):
                docker(*reading, CLI_IMAGE, "-c", _ATTACH, position)
            docker("kill", holder)
            with queue.producer() as producer:
                position = str(producer.put("CHF", "0.95").result(60))
            docker("start", holder)
            assert docker(*reading, together, CLI_IMAGE, "-c", _ATTACH, position) == "{'CHF': '0.95'} caught-up"
        finally:
            docker("rm", "--force", holder)
            docker("volume", "rm", volume)


def test_a_build_of_the_command_line_image_leaves_nothing_behind_without_a_name() -> None:
    stages = ("images", "--quiet", "--filter", "label=lvq-kafka.stage=build")

    assert docker(*stages) != ""
    assert docker(*stages, "--filter", "dangling=true") == ""


def test_the_engine_script_uses_an_engine_that_answers() -> None:
    before = docker("info", "--format", "{{.ID}}")

    run([str(ROOT / "docker" / "engine.sh"), "up"])

    assert docker("info", "--format", "{{.ID}}") == before


# -- helpers -----------------------------------------------------------------------------------------------------------


def client(servers: str, **options: Any) -> dict[str, Any]:
    return {"bootstrap.servers": servers, "log_level": 0, "reconnect.backoff.max.ms": 500, **options}


def create(servers: str, topic: str, *, replicas: int = 1) -> None:
    admin = AdminClient(client(servers))
    admin.create_topics([NewTopic(topic, 1, replicas)])[topic].result()

    def has_leader() -> bool:
        partitions = admin.list_topics(topic, timeout=20).topics[topic].partitions
        return 0 in partitions and partitions[0].leader > 0 and len(partitions[0].isrs) == replicas

    eventually(has_leader, 60.0, every=0.05)


def write(servers: str, topic: str, values: list[bytes]) -> None:
    producer = Producer(client(servers))
    for value in values:
        producer.produce(topic, value)
    assert producer.flush(30.0) == 0


def read(servers: str, topic: str) -> list[bytes]:
    """Return all values of a topic with one partition."""
    consumer = Consumer(client(servers, **{"group.id": "reader", "enable.partition.eof": True}))
    consumer.assign([TopicPartition(topic, 0, 0)])
    values: list[bytes] = []
    deadline = time.monotonic() + 30
    while time.monotonic() < deadline:
        message = consumer.poll(1.0)
        if message is None:
            continue
        if message.error() is None:
            values.append(message.value())
        elif message.error().name() == "_PARTITION_EOF":
            consumer.close()
            return values
    raise AssertionError(f"{topic} was not read to its end within 30 seconds; {len(values)} values came")


def ended_containers() -> list[str]:
    """Return the ids of this process's containers that have ended but still exist."""
    label = "=".join(*owner_labels().items())
    return docker("ps", "--all", "--quiet", "--filter", f"label={label}", "--filter", "status=exited").split()


def pkcs8(key: str) -> str:
    """Convert a private key to PKCS #8, the only form that Kafka accepts."""
    from cryptography.hazmat.primitives import serialization

    private = serialization.load_pem_private_key(key.encode(), None)
    form = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    return private.private_bytes(*form).decode()
