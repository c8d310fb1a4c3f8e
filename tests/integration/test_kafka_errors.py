"""Failures to connect, log in or be authorized: the right type of error, soon, with the reason."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import suppress

import pytest
from confluent_kafka.admin import AclOperation, ResourcePatternType, ResourceType

from lvq_kafka.cluster import TopicDescription
from lvq_kafka.errors import AuthenticationFailed, BrokerUnavailable, TransportError, Unauthorized
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from tests.integration.secure import PASSWORD, SecureBroker, secure_broker, web_server
from tests.waiting import eventually

COMPACT = {"cleanup.policy": "compact"}
NOWHERE = "127.0.0.1:1"


@pytest.fixture(scope="module")
def secure(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecureBroker]:
    with secure_broker(tmp_path_factory.mktemp("tls"), ["alice", "mallory", "carol"]) as broker:
        broker.allow("alice", ResourceType.TOPIC, "alice-", AclOperation.ALL, pattern=ResourcePatternType.PREFIXED)
        yield broker


def described(cluster: KafkaCluster, topic: str) -> TopicDescription | None:
    """Return the description, or None while the broker does not apply the ACL yet."""
    with suppress(Unauthorized):
        return cluster.topics.describe(topic)
    return None


class TestNobodyThere:
    def test_no_broker_is_reported_with_its_address_and_what_to_check(self) -> None:
        cluster = KafkaCluster(NOWHERE)
        with pytest.raises(BrokerUnavailable, match=NOWHERE) as caught:
            cluster.topics.describe("prices", timeout=0.5)
        assert caught.value.retriable
        assert "Connection refused" in str(caught.value)
        assert "broker is running" in caught.value.hint
        cluster.close()

    def test_the_callers_timeout_is_kept(self) -> None:
        cluster = KafkaCluster(NOWHERE)
        started = time.monotonic()
        with pytest.raises(BrokerUnavailable):
            cluster.logs.end_offsets("prices", timeout=0.5)
        assert time.monotonic() - started < 8, "not that of 10 s"
        cluster.close()

    def test_a_name_that_does_not_resolve_is_named(self) -> None:
        cluster = KafkaCluster("no-such-host.invalid:9092")
        with pytest.raises(BrokerUnavailable, match=r"no-such-host\.invalid"):
            cluster.broker_count(timeout=1)
        cluster.close()

    def test_a_reader_reports_it_and_lives_on(self) -> None:
        cluster = KafkaCluster(NOWHERE)
        reader = cluster.reader("prices", {0: 0})
        with pytest.raises(BrokerUnavailable) as caught:
            eventually(lambda: reader.poll(0.1).positions)
        assert caught.value.retriable

        def polls() -> bool:
            try:
                return reader.poll(0).positions == {}
            except BrokerUnavailable:  # by then, the client may have tried again
                return False

        eventually(polls)
        reader.close()
        cluster.close()

    def test_a_port_where_no_kafka_answers_is_reported(self) -> None:
        with web_server() as address:
            cluster = KafkaCluster(address)
            with pytest.raises(BrokerUnavailable, match=address):
                cluster.broker_count(timeout=1)
            cluster.close()


class TestRefused:
    def refused(self, config: ClientConfig) -> AuthenticationFailed:
        cluster = KafkaCluster(config)
        started = time.monotonic()
        with pytest.raises(AuthenticationFailed) as caught:
            cluster.topics.describe("alice-prices", timeout=30)
        assert time.monotonic() - started < 10  # it does not wait for the impossible
        assert not caught.value.retriable
        assert PASSWORD not in str(caught.value)
        cluster.close()
        return caught.value

    def test_a_wrong_password(self, secure: SecureBroker) -> None:
        error = self.refused(secure.config(password=f"not {PASSWORD}"))
        assert error.code == "_AUTHENTICATION"
        assert "sasl.password" in error.hint

    def test_an_unknown_user(self, secure: SecureBroker) -> None:
        assert self.refused(secure.config(user="nobody")).code == "_AUTHENTICATION"

    def test_a_mechanism_that_the_broker_does_not_offer(self, secure: SecureBroker) -> None:
        error = self.refused(secure.config(sasl_mechanism="SCRAM-SHA-256"))
        assert "sasl.mechanism" in error.hint

    def test_a_certificate_of_an_unknown_authority(self, secure: SecureBroker) -> None:
        error = self.refused(secure.config(ssl_ca_location=secure.wrong_ca))
        assert error.code == "_SSL"
        assert "ssl.ca.location" in error.hint

    def test_a_certificate_for_another_host(self, secure: SecureBroker) -> None:
        port = secure.secure.rpartition(":")[2]
        config = ClientConfig(
            f"localhost:{port}", secure.config().properties | {"bootstrap.servers": f"localhost:{port}"}
        )
        assert self.refused(config).code == "_SSL"

    def test_a_reader_learns_of_it(self, secure: SecureBroker) -> None:
        cluster = KafkaCluster(secure.config(password=f"not {PASSWORD}"))
        reader = cluster.reader("alice-prices", {0: 0})
        with pytest.raises(AuthenticationFailed):
            eventually(lambda: reader.poll(0.1).positions)
        with pytest.raises(AuthenticationFailed):
            reader.poll(0)
        reader.close()
        cluster.close()

    def test_a_plain_client_at_a_tls_port_is_told_about_the_protocol(self, secure: SecureBroker) -> None:
        cluster = KafkaCluster(secure.secure)
        with pytest.raises(TransportError, match=r"security\.protocol"):
            cluster.broker_count(timeout=1)
        cluster.close()


class TestAllowed:
    def test_the_right_password_and_authority_get_through(self, secure: SecureBroker) -> None:
        cluster = KafkaCluster(secure.config())
        assert cluster.topics.create("alice-open", partitions=1, config=COMPACT)
        assert cluster.topics.describe("alice-open").partitions == 1
        writer = cluster.writer()
        position = writer.append("alice-open", b"k", b"v").result(20)
        writer.close()
        reader = cluster.reader("alice-open", {0: 0})
        assert eventually(lambda: len(reader.poll(0.1).batch)) == 1
        assert cluster.logs.end_offsets("alice-open") == {0: position.offset + 1}
        reader.close()
        cluster.close()


class TestForbidden:
    """The user mallory logs in, but has no ACL."""

    @pytest.fixture
    def cluster(self, secure: SecureBroker) -> Iterator[KafkaCluster]:
        cluster = KafkaCluster(secure.config(user="mallory"))
        yield cluster
        cluster.close()

    @pytest.fixture
    def topic(self, secure: SecureBroker) -> str:
        cluster = KafkaCluster(secure.plain)
        cluster.topics.create("alice-prices", partitions=1, config=COMPACT)
        cluster.close()
        return "alice-prices"

    def test_every_question_about_a_topic_is_refused_with_its_name(self, cluster: KafkaCluster, topic: str) -> None:
        for call in (
            lambda: cluster.topics.describe(topic),
            lambda: cluster.topics.config(topic),
            lambda: cluster.logs.start_offsets(topic),
            lambda: cluster.logs.end_offsets(topic),
            lambda: cluster.topics.delete(topic),
            lambda: cluster.topics.alter_config(topic, COMPACT),
            lambda: cluster.topics.add_partitions(topic, 3),
            lambda: cluster.topics.create("alice-new", partitions=1, config=COMPACT),
        ):
            with pytest.raises(Unauthorized, match="'alice-") as caught:
                call()
            assert not caught.value.retriable
            assert "ACL" in caught.value.hint

    def test_settings_records_and_groups_may_be_forbidden_where_the_topic_may_be_seen(
        self, secure: SecureBroker, topic: str
    ) -> None:
        secure.allow("carol", ResourceType.TOPIC, topic, AclOperation.DESCRIBE)
        cluster = KafkaCluster(secure.config(user="carol"))
        assert eventually(lambda: described(cluster, topic)).partitions == 1
        with pytest.raises(Unauthorized, match=f"settings of topic '{topic}'"):
            cluster.topics.config(topic)
        with pytest.raises(Unauthorized, match=r"lvq\.prices"):
            cluster.groups.committed("lvq.prices", topic)
        reader = cluster.reader(topic, {0: 0})
        with pytest.raises(Unauthorized, match=topic):
            eventually(lambda: reader.poll(0.1).positions)
        reader.close()
        cluster.close()

    def test_a_reader_needs_no_rights_on_any_group(self, secure: SecureBroker, topic: str) -> None:
        """The client insists on a group id, and asks for its coordinator. The broker need not answer."""
        cluster = KafkaCluster(secure.config())
        reader = cluster.reader(topic, {0: 0})
        assert eventually(lambda: reader.poll(0.1).positions) == {0: 0}
        assert reader.poll(0.5).positions == {}
        reader.close()
        cluster.close()
