"""Errors without a broker, or after its loss: the counterpart of `test_bad_input`."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from lvq_kafka import LastValueQueue, queues
from lvq_kafka.embedded import EmbeddedBroker
from lvq_kafka.errors import BrokerUnavailable, DeliveryFailed, DeliveryUnknown, DiskFull, TransportError
from lvq_kafka.kafka import ClientConfig
from lvq_kafka.testing.brokers import ProvidedBroker
from tests.integration.bad_input import IN_TIME, enter, error_of, lvq, queue_of, send
from tests.integration.secure import web_server
from tests.waiting import eventually

NOWHERE = "127.0.0.1:1"


# -- nobody there ---------------------------------------------------------------------------------


@pytest.fixture(params=["no broker", "a web server"])
def address(request: pytest.FixtureRequest) -> Iterator[str]:
    if request.param == "no broker":
        yield NOWHERE
    else:
        with web_server() as address:
            yield address


def test_where_no_broker_is_everything_says_so_in_time_and_names_the_address(address: str, tmp_path: Path) -> None:
    config = ClientConfig(address, {"delivery.timeout.ms": 2000})
    calls: list[Callable[[], object]] = [
        lambda: LastValueQueue.declare("prices", key_header="ticker", config=config),
        lambda: LastValueQueue.open("prices", config=config),
        lambda: queues(config=config),
        lambda: enter(queue_of(config).view()),
        lambda: enter(queue_of(config).browser()),
        lambda: send(queue_of(config)),
    ]
    with ThreadPoolExecutor(len(calls) + 1) as pool:  # each may take its whole timeout
        shell = pool.submit(lvq, "queues", config=address, folder=tmp_path)
        errors = list(pool.map(lambda call: error_of(call, IN_TIME), calls))
        code, line = shell.result()
    assert [type(error) for error in errors] == [BrokerUnavailable] * 5 + [DeliveryFailed]
    reason = "Connection refused" if address == NOWHERE else "does not speak Kafka's protocol"
    for error in errors:
        assert isinstance(error, TransportError)
        assert isinstance(error, ConnectionError)
        assert error.retriable
        assert f"No answer from {address}" in str(error)
        assert reason in str(error)
        assert "broker is running" in error.hint
    assert isinstance(errors[-1], DeliveryFailed)
    assert errors[-1].key == b"IBM"
    assert code == 3
    assert address in line
    assert reason in line


def test_when_the_broker_goes_every_new_reader_says_so_and_all_is_well_when_it_is_back(
    private_broker: ProvidedBroker,
) -> None:
    address = private_broker.bootstrap_servers
    queue = LastValueQueue.declare("prices", key_header="ticker", bootstrap_servers=address)
    with queue.producer() as producer:
        producer.put("IBM", b"118.50").result(20)
    private_broker.kill()
    calls = [queue.consumer, lambda: enter(queue.view()), lambda: enter(queue.browser()), lambda: queue.drop()]
    with ThreadPoolExecutor(len(calls)) as pool:
        for error in pool.map(lambda call: error_of(call, IN_TIME), calls):
            assert isinstance(error, BrokerUnavailable)
            assert address in str(error)
    private_broker.restart()
    with queue.view() as view:
        assert dict(view) == {"IBM": b"118.50"}
    with queue.consumer() as consumer:
        delivery = consumer.acquire(30)
        assert delivery is not None
        delivery.ack(wait=True, timeout=30)
    queue.close()


# -- a disk that fills up -------------------------------------------------------------------------


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """Mount a file system of 100 MB. It needs root on Linux, as in CI."""
    if sys.platform != "linux" or os.geteuid() != 0:
        pytest.skip("mounting a small file system needs root on Linux")
    path = tmp_path / "disk"
    path.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=100m", "tmpfs", str(path)], check=True)
    yield path
    subprocess.run(["umount", "--lazy", str(path)], check=True)


def test_a_full_disk_is_what_the_broker_died_of_and_nothing_acknowledged_is_lost(disk: Path) -> None:
    with EmbeddedBroker(data_dir=disk) as broker:
        config = ClientConfig(broker.bootstrap_servers, {"delivery.timeout.ms": 5000})
        queue = LastValueQueue.declare("blobs", key_header="n", config=config)
        stored: list[int] = []

        def fill() -> bool:
            with queue.producer() as producer:
                receipts = {number: producer.put(number, os.urandom(500_000)) for number in range(len(stored), 300)}
                for number, receipt in receipts.items():
                    if receipt.exception(30) is not None:
                        break
                    stored.append(number)
                producer.flush(30)
            return not broker.running

        with pytest.raises(DeliveryUnknown) as caught:
            eventually(fill, 60)
        assert caught.value.retriable
        eventually(lambda: broker.failure is not None)
        failure = broker.failure
        assert isinstance(failure, DiskFull)
        assert isinstance(failure, OSError)
        assert failure.path == disk
        assert str(disk) in str(failure)
        assert "Free some space" in failure.hint
        assert 0 < len(stored) < 300
        subprocess.run(["mount", "-o", "remount,size=400m", str(disk)], check=True)
        broker.restart()
        with queue.view() as view, queue.producer() as producer:
            assert {str(number) for number in stored} <= set(view)
            view.wait_for(producer.put("after", b"1").result(20))
            assert view["after"] == b"1"
        queue.close()


ASKING = """
import sys
from lvq_kafka.errors import TransportError
from lvq_kafka.kafka import KafkaCluster

cluster = KafkaCluster(sys.argv[1])
while True:
    try:
        cluster.groups.member_count("lvq.prices", timeout=1)
    except TransportError as error:
        assert error.retriable
        print("no answer", flush=True)
    else:
        print("answer", flush=True)
"""


def test_a_process_that_keeps_asking_for_consumers_outlives_outages(tmp_path: Path) -> None:
    """The admin client (2.16.1) can end the process when a coordinator comes back; see `KafkaGroups`."""
    said = tmp_path / "said"
    with EmbeddedBroker() as broker, said.open("wb") as output:
        LastValueQueue.declare("prices", key_header=None, config=ClientConfig(broker.bootstrap_servers)).close()
        command = [sys.executable, "-c", ASKING, broker.bootstrap_servers]
        with subprocess.Popen(command, stdout=output, stderr=output) as asking:

            def hears(line: bytes) -> None:
                before = said.stat().st_size
                eventually(lambda: line in said.read_bytes()[before:] or asking.poll() is not None, timeout=30)
                assert asking.poll() is None, said.read_text()

            try:
                hears(b"answer\n")
                for _ in range(3):
                    broker.kill()
                    hears(b"no answer\n")
                    broker.restart()
                    hears(b"\nanswer\n")
            finally:
                asking.kill()
