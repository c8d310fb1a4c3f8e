"""The Kafka writer on librdkafka's mock cluster, with messages undecided for longer than allowed (G14)."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Callable, Iterator

import pytest
from confluent_kafka import KafkaError

from lvq_kafka.cluster import Receipt
from lvq_kafka.core.log.keys import home_partition
from lvq_kafka.errors import BrokerUnavailable, ConfigError, DeliveryFailed, DeliveryUnknown, OutcomeUnknown
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.writer import KafkaWriter
from tests.contract.harness import read_all
from tests.unit.kafka.mock_cluster import PRODUCE, MockCluster
from tests.waiting import eventually

OpenWriter = Callable[..., KafkaWriter]


@pytest.fixture
def open_writer(mock: MockCluster) -> Iterator[OpenWriter]:
    writers: list[KafkaWriter] = []

    def open_writer(limit: object = 500, max_block: float | None = None, **properties: str | int) -> KafkaWriter:
        """Open a writer and store something, so that it knows the leaders of the topic's partitions."""
        config = {"delivery.timeout.ms": limit, **{name.replace("_", "."): v for name, v in properties.items()}}
        writers.append(KafkaWriter(ClientConfig(mock.bootstrap_servers, config), max_block=max_block))  # type: ignore[arg-type]
        eventually(lambda: writers[-1].append("t", b"k", b"0").exception(10) is None)
        return writers[-1]

    yield open_writer
    for writer in writers:
        writer.close(0)


@pytest.fixture
def cluster(mock: MockCluster) -> Iterator[KafkaCluster]:
    cluster = KafkaCluster(mock.bootstrap_servers)
    yield cluster
    cluster.close()


def values(cluster: KafkaCluster) -> list[int]:
    return [int(record.value or b"") for record in read_all(cluster, "t")]


def test_a_message_without_an_answer_may_have_been_stored_and_the_error_says_so(
    open_writer: OpenWriter, mock: MockCluster
) -> None:
    writer = open_writer()
    mock.down()
    with pytest.raises(DeliveryUnknown, match=r"whether the message for key 'IBM' in 't' was stored") as caught:
        writer.append("t", b"IBM", b"v").result(10)
    error = caught.value
    assert not isinstance(error, DeliveryFailed)
    assert isinstance(error, OutcomeUnknown)
    assert (error.key, error.code, error.retriable) == (b"IBM", "_TIMED_OUT", True)
    assert isinstance(error.__cause__, BrokerUnavailable)
    assert mock.bootstrap_servers in str(error)
    assert error.hint.endswith("Send the key's current value again.")


def test_a_message_sent_before_that_waits_to_be_sent_again_may_have_been_stored(
    open_writer: OpenWriter, mock: MockCluster, cluster: KafkaCluster
) -> None:
    writer = open_writer(limit=1000)
    mock.delay_next(PRODUCE, 30)
    receipt = writer.append("t", b"k", b"1")
    eventually(lambda: values(cluster)[-1:] == [1])
    mock.down()  # the connection breaks, and the client queues the message again
    assert isinstance(receipt.exception(10), DeliveryUnknown)


def test_a_close_cannot_tell_whether_what_it_takes_back_was_stored(
    open_writer: OpenWriter, mock: MockCluster, cluster: KafkaCluster
) -> None:
    writer = open_writer()
    mock.delay_next(PRODUCE, 30)
    receipt = writer.append("t", b"IBM", b"1")
    eventually(lambda: values(cluster)[-1:] == [1])
    assert writer.close(0.05) == 1
    with pytest.raises(DeliveryUnknown, match=r"'IBM' in 't' was stored: the producer was closed before"):
        receipt.result(0)


@pytest.mark.parametrize("code", [KafkaError.INVALID_RECORD, KafkaError.TOPIC_AUTHORIZATION_FAILED])
def test_a_message_that_a_broker_refuses_was_not_stored(open_writer: OpenWriter, mock: MockCluster, code: int) -> None:
    writer = open_writer()
    mock.fail_next(PRODUCE, code)
    assert isinstance(writer.append("t", b"k", b"v").exception(10), DeliveryFailed)


def test_appends_that_wait_for_room_go_on_once_older_messages_are_given_up(
    open_writer: OpenWriter, mock: MockCluster, cluster: KafkaCluster
) -> None:
    writer = open_writer(queue_buffering_max_messages=10)
    mock.down()
    receipts: list[Receipt] = []

    def send() -> None:
        receipts.extend(writer.append("t", b"k", b"%d" % number) for number in range(1, 36))

    thread = threading.Thread(target=send)
    thread.start()
    thread.join(30)
    assert not thread.is_alive()
    assert [type(receipt.exception(10)) for receipt in receipts[:20]] == [DeliveryUnknown] * 20
    mock.up()
    numbers = itertools.count(36)
    eventually(lambda: writer.append("t", b"k", b"%d" % next(numbers)).exception(10) is None, 30)
    stored = [value for value in values(cluster) if value]
    assert stored == sorted(set(stored))
    assert stored[-1] >= 36


def test_a_callback_that_waits_for_room_does_not_keep_older_messages_from_being_given_up(
    open_writer: OpenWriter, mock: MockCluster
) -> None:
    writer = open_writer(queue_buffering_max_messages=10)
    more: list[Receipt] = []
    mock.down()
    first = writer.append("t", b"k", b"v")
    first.add_done_callback(lambda _: more.extend(writer.append("t", b"k", b"v") for _ in range(20)))
    eventually(lambda: len(more) == 20)
    assert [type(receipt.exception(10)) for receipt in (first, *more)] == [DeliveryUnknown] * 21


def test_a_flush_and_a_close_tell_of_messages_that_are_given_up(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer()
    mock.down()
    for _ in range(3):
        writer.append("t", b"k", b"v")
    assert writer.flush(20) == 0
    assert [type(failure) for failure in writer.pop_failures()] == [DeliveryUnknown] * 3


def test_every_receipt_is_told_once_outage_after_outage(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer(limit=300)
    told: list[Receipt] = []
    mock.down()
    receipts = []
    for _ in range(3):
        for _ in range(10):
            receipts.append(writer.append("t", b"k", b"v"))
            receipts[-1].add_done_callback(told.append)
        assert writer.flush(20) == 0
    assert told == receipts


def test_when_a_message_is_given_up_others_in_healthy_partitions_are_stored() -> None:
    mock = MockCluster(brokers=2)
    mock.create_topic("t", 2)
    for partition in range(2):
        mock.elect("t", partition, partition + 1)
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers, {"delivery.timeout.ms": 2000}))
    keys = {home_partition(b"%d" % n, 2): b"%d" % n for n in range(20)}
    for key in keys.values():
        eventually(lambda key=key: writer.append("t", key, b"0").exception(10) is None)  # type: ignore[misc]
    mock.down(2)
    outcomes: dict[int, list[Exception | None]] = {0: [], 1: []}
    deadline = time.monotonic() + 20
    while not outcomes[1]:  # sends nonstop while the other partition's messages are undecided
        assert time.monotonic() < deadline
        for partition, key in keys.items():
            writer.append("t", key, b"1").add_done_callback(
                lambda receipt, partition=partition: outcomes[partition].append(receipt.exception(0))  # type: ignore[misc]
            )
        time.sleep(0.01)
    assert isinstance(outcomes[1][0], DeliveryUnknown)
    assert len(outcomes[0]) > 50
    assert not any(outcomes[0])
    writer.close(0)
    mock.close()


@pytest.mark.parametrize("name", ["delivery.timeout.ms", "message.timeout.ms"])
def test_the_limit_has_two_names_and_must_be_a_number(mock: MockCluster, name: str) -> None:
    with pytest.raises(ConfigError, match=f"{name} is not a number of milliseconds: '2 minutes'") as caught:
        KafkaWriter(ClientConfig(mock.bootstrap_servers, {name: "2 minutes"}))
    assert caught.value.options == (name,)
    writer = KafkaWriter(ClientConfig(mock.bootstrap_servers, {name: "300"}))
    eventually(lambda: writer.append("t", b"k", b"0").exception(10) is None)
    mock.down()
    assert isinstance(writer.append("t", b"k", b"v").exception(10), DeliveryUnknown)
    writer.close(0)


def test_without_a_limit_a_message_waits_for_as_long_as_it_takes(open_writer: OpenWriter, mock: MockCluster) -> None:
    writer = open_writer(limit=0)
    mock.down()
    receipt = writer.append("t", b"k", b"v")
    with pytest.raises(OutcomeUnknown, match="neither stored nor refused"):
        receipt.result(1)
    mock.up()
    assert receipt.result(20)
