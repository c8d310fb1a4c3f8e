"""Opening clients: refused properties, and the destination of the client's log."""

from __future__ import annotations

import logging
import subprocess
import sys
from contextlib import closing

import pytest
from confluent_kafka import KafkaError, TopicPartition

from lvq_kafka.errors import BrokerUnavailable, Closed, ConfigError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.connect import Health, open_consumer
from tests.unit.kafka.mock_cluster import OFFSET_COMMIT, MockCluster
from tests.waiting import eventually

NOWHERE = "127.0.0.1:1"  # nothing listens there


def test_an_unknown_property_is_refused_and_the_nearest_name_offered() -> None:
    with pytest.raises(ConfigError, match=r"Did you mean socket\.timeout\.ms\?") as caught:
        KafkaCluster(ClientConfig(NOWHERE, {"socket.timeout.mss": 1}))
    assert caught.value.options == ("socket.timeout.mss",)


def test_a_value_that_the_client_refuses_is_reported_by_its_property() -> None:
    with pytest.raises(ConfigError, match=r"security\.protocol") as caught:
        KafkaCluster(ClientConfig(NOWHERE, {"security.protocol": "tls"}))
    assert caught.value.options == ("security.protocol",)


def test_a_secret_never_shows_in_the_refusal_of_another_property() -> None:
    with pytest.raises(ConfigError) as caught:
        KafkaCluster(ClientConfig(NOWHERE, {"security.protocol": "tiger", "sasl.password": "tiger"}))
    assert "tiger" not in str(caught.value)


def test_a_ca_file_that_does_not_exist_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"ssl\.ca\.location"):
        KafkaCluster(ClientConfig(NOWHERE, {"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}))


def test_a_callback_that_cannot_be_called_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="oauth_cb"):
        KafkaCluster(ClientConfig(NOWHERE, {"oauth_cb": 5}))


def test_properties_of_other_clients_raise_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        cluster = KafkaCluster(ClientConfig(NOWHERE, {"linger.ms": 5, "fetch.min.bytes": 1}))
        reader = cluster.reader("nothing", {0: 0})
        with pytest.raises(BrokerUnavailable):
            cluster.broker_count(timeout=0.2)
        reader.close()
        cluster.close()
    assert not [record for record in caplog.records if "property" in record.getMessage()]


def test_the_clients_log_goes_to_our_logger_without_repeating_itself(caplog: pytest.LogCaptureFixture) -> None:
    cluster = KafkaCluster("127.0.0.1:2")  # its own address: the lines of another test would count as repeats
    with caplog.at_level(logging.DEBUG, "lvq_kafka.client"), pytest.raises(BrokerUnavailable):
        cluster.broker_count(timeout=0.5)
    cluster.close()
    lines = [record.getMessage() for record in caplog.records if record.name == "lvq_kafka.client"]
    assert len([line for line in lines if "Connection refused" in line]) == 1


def test_a_line_that_counts_those_left_out_is_a_repeat_too(caplog: pytest.LogCaptureFixture) -> None:
    logger = logging.getLogger("lvq_kafka.client")
    with caplog.at_level(logging.DEBUG, logger.name):
        for after in ("1ms in state CONNECT", "0ms in state CONNECT, 1 identical error(s) suppressed"):
            logger.error("FAIL [rdkafka#producer-5] 127.0.0.1:3: Connection refused (after %s)", after)
    assert len(caplog.records) == 1


@pytest.mark.parametrize(
    ("properties", "passed_on"),
    [({}, False), ({"log.connection.close": True}, True), ({"log_level": 3, "log.connection.close": True}, False)],
    ids=["by default", "asked for", "below the level that was asked for"],
)
def test_a_lost_connection_is_counted_before_the_answer_comes_and_logged_where_that_was_asked_for(
    properties: dict[str, str | int], passed_on: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.DEBUG, "lvq_kafka.client")
    with closing(MockCluster()) as mock:
        mock.create_topic("t")
        health = Health(mock.bootstrap_servers)
        config = ClientConfig(mock.bootstrap_servers, properties)
        answers: list[int] = []
        consumer = open_consumer(
            config, health, {"group.id": "g", "on_commit": lambda *_: answers.append(health.losses)}
        )
        consumer.subscribe(["t"])
        eventually(lambda: consumer.poll(0.01) is None and consumer.assignment(), 30)
        before = health.losses
        mock.fail_next(OFFSET_COMMIT, KafkaError._TRANSPORT)
        consumer.commit(offsets=[TopicPartition("t", 0, 1)], asynchronous=True)
        eventually(lambda: consumer.poll(0.01) is None and answers, 30)
        consumer.close()
    assert answers[0] > before
    assert any("Disconnected" in message for message in caplog.messages) == passed_on


def test_debug_lines_come_where_they_were_asked_for(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.DEBUG, "lvq_kafka.client")
    with closing(MockCluster()) as mock:
        config = ClientConfig(mock.bootstrap_servers, {"debug": "broker"})
        with closing(open_consumer(config, Health(mock.bootstrap_servers), {"group.id": "g"})) as consumer:
            eventually(lambda: consumer.poll(0.01) is None and caplog.messages, 30)


def test_nothing_is_written_to_stderr_where_logging_is_not_set_up() -> None:
    script = f"""
from lvq_kafka.errors import ConfigError
from lvq_kafka.errors import BrokerUnavailable
from lvq_kafka.kafka import ClientConfig, KafkaCluster
cluster = KafkaCluster("{NOWHERE}")
reader = cluster.reader("nothing", {{0: 0}})
for call in (lambda: cluster.broker_count(timeout=0.3), lambda: reader.poll(0.3)):
    try:
        call()
    except BrokerUnavailable:
        pass
reader.close()
try:
    KafkaCluster(ClientConfig("{NOWHERE}", {{"security.protocol": "ssl", "ssl.ca.location": "/no/such/file"}}))
except ConfigError:
    pass
cluster.close()
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=True)
    assert done.stderr == ""
    assert done.stdout == ""


def test_a_closed_log_and_a_closed_reader_say_so() -> None:
    cluster = KafkaCluster(NOWHERE)
    reader = cluster.reader("nothing", {0: 0})
    reader.close()
    reader.close()
    with pytest.raises(Closed, match="'nothing'"):
        reader.poll(0)
    with pytest.raises(Closed):
        reader.assign({0: 0})
    cluster.close()
    cluster.close()
    with pytest.raises(Closed):
        cluster.broker_count()


def test_the_repr_of_a_log_names_its_servers_only() -> None:
    cluster = KafkaCluster(ClientConfig(NOWHERE, {"sasl.password": "tiger"}))
    assert repr(cluster) == f"KafkaCluster('{NOWHERE}')"
    cluster.close()
