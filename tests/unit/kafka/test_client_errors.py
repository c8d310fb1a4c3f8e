"""The mapping from the client's error codes to the library's errors."""

from __future__ import annotations

import pickle

import pytest
from confluent_kafka import KafkaError, KafkaException

from lvq_kafka.core.facts import Resource, Right
from lvq_kafka.errors import (
    AuthenticationFailed,
    BrokerUnavailable,
    ConfigError,
    DataLoss,
    LVQError,
    MessageTooLarge,
    TopicNotFound,
    TransportError,
    Unauthorized,
)
from lvq_kafka.kafka.connect import Health
from lvq_kafka.kafka.error_mapping import TRANSIENT, kafka_error, translate

KINDS = [
    (KafkaError._AUTHENTICATION, AuthenticationFailed),
    (KafkaError._SSL, AuthenticationFailed),
    (KafkaError.SASL_AUTHENTICATION_FAILED, AuthenticationFailed),
    (KafkaError.TOPIC_AUTHORIZATION_FAILED, Unauthorized),
    (KafkaError.GROUP_AUTHORIZATION_FAILED, Unauthorized),
    (KafkaError.CLUSTER_AUTHORIZATION_FAILED, Unauthorized),
    (KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, Unauthorized),
    (KafkaError.UNKNOWN_TOPIC_OR_PART, TopicNotFound),
    (KafkaError._UNKNOWN_TOPIC, TopicNotFound),
    (KafkaError._TRANSPORT, BrokerUnavailable),
    (KafkaError._DESTROY_BROKER, BrokerUnavailable),
    (KafkaError._ALL_BROKERS_DOWN, BrokerUnavailable),
    (KafkaError._RESOLVE, BrokerUnavailable),
    (KafkaError._TIMED_OUT, BrokerUnavailable),
    (KafkaError.MSG_SIZE_TOO_LARGE, MessageTooLarge),
    (KafkaError._AUTO_OFFSET_RESET, DataLoss),
    (KafkaError.OFFSET_OUT_OF_RANGE, DataLoss),
    (KafkaError.INVALID_CONFIG, ConfigError),
    (KafkaError.INVALID_REPLICATION_FACTOR, ConfigError),
    (KafkaError.POLICY_VIOLATION, ConfigError),
    (KafkaError.OFFSET_METADATA_TOO_LARGE, TransportError),
]


@pytest.mark.parametrize(("code", "kind"), KINDS)
def test_each_code_becomes_the_kind_of_error_it_means(code: int, kind: type[LVQError]) -> None:
    error = translate(KafkaError(code, "the reason"), "do the thing", topic="prices", servers="a:1")
    assert type(error) is kind
    assert "Cannot do the thing" in str(error)
    if isinstance(error, TransportError):
        assert error.code == KafkaError(code).name()


@pytest.mark.parametrize("code", sorted(TRANSIENT))
def test_a_failure_that_passes_by_itself_is_retriable(code: int) -> None:
    error = translate(KafkaError(code), "do the thing")
    assert isinstance(error, TransportError)
    assert error.retriable


def test_a_refusal_is_not_retriable_and_says_what_to_check() -> None:
    error = translate(KafkaError(KafkaError._AUTHENTICATION, "bad password"), "do the thing")
    assert isinstance(error, AuthenticationFailed)
    assert not error.retriable
    assert "sasl.password" in error.hint
    assert "ssl.ca.location" in translate(KafkaError(KafkaError._SSL, "no CA"), "do the thing").hint


def test_an_unreachable_cluster_is_named_with_its_servers_and_what_the_client_saw() -> None:
    error = translate(KafkaError(KafkaError._TIMED_OUT), "do it", servers="a:1,b:2", detail="Connection refused")
    assert isinstance(error, BrokerUnavailable)
    assert error.retriable
    assert "a:1,b:2" in str(error)
    assert "Connection refused" in str(error)
    assert "security.protocol" in error.hint


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("a:1/1: Connection refused (after 0ms in state CONNECT)", "a:1/1: Connection refused."),
        (
            "a:1/1: Connection refused (after 0ms in state CONNECT, 3 identical error(s) suppressed)",
            "a:1/1: Connection refused.",
        ),
        ("a:1/1: connecting to a PLAINTEXT broker listener?", "a:1/1: connecting to a PLAINTEXT broker listener?"),
        (
            "ssl://a:1/1: Disconnected: SSL connection closed by peer (after 8ms in state SSL_HANDSHAKE)",
            "ssl://a:1/1: The other side broke off the TLS handshake: is it a PLAINTEXT listener?",
        ),
        (
            "ssl://a:1/1: SSL handshake failed: Disconnected: SSL connection closed by peer: connecting to a PLAINTEXT"
            " broker listener? (after 8ms in state SSL_HANDSHAKE)",
            "ssl://a:1/1: The other side broke off the TLS handshake: is it a PLAINTEXT listener?",
        ),
        (
            "a:1/1: Receive failed: Invalid response size 1213486160 (0..100000000): increase receive.message.max.bytes"
            " (after 0ms in state APIVERSION_QUERY)",
            "a:1/1: The server there does not speak Kafka's protocol.",
        ),
    ],
)
def test_the_report_of_the_client_is_shown_without_details_for_its_authors(said: str, told: str) -> None:
    error = translate(KafkaError(KafkaError._TIMED_OUT), "do it", servers="a:1", detail=said)
    assert f"No answer from a:1. The client says: {told} Check" in str(error)


OAUTH = {"security.protocol": "sasl_ssl", "sasl.mechanism": "OAUTHBEARER"}
NEEDS = (
    Right("Read", "Group", "lvq.prices"),
    Right("Read", "Topic", "prices"),
    Right("Write", "TransactionalId", "feed"),
    Right("DescribeConfigs", "Cluster", "kafka-cluster"),
)


@pytest.mark.parametrize(
    ("code", "text", "arguments"),
    [
        (KafkaError.TOPIC_AUTHORIZATION_FAILED, "Read on Topic prices", "--operation Read --topic prices"),
        (KafkaError.GROUP_AUTHORIZATION_FAILED, "Read on Group lvq.prices", "--operation Read --group lvq.prices"),
        (
            KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
            "Write on TransactionalId feed",
            "--operation Write --transactional-id feed",
        ),
        (
            KafkaError.CLUSTER_AUTHORIZATION_FAILED,
            "DescribeConfigs on Cluster kafka-cluster",
            "--operation DescribeConfigs --cluster",
        ),
    ],
)
def test_of_the_rights_that_are_needed_the_missing_one_is_named(code: int, text: str, arguments: str) -> None:
    error = translate(KafkaError(code), "do it", needs=NEEDS)
    assert isinstance(error, Unauthorized)
    assert f"Cannot do it: this user lacks {text}." in str(error)
    assert str(error.missing) == text
    assert Right.named_in(str(error)) == error.missing
    assert arguments in error.hint
    assert pickle.loads(pickle.dumps(error)).missing == error.missing


def test_a_right_that_is_not_known_is_said_to_be_on_what_it_is_on() -> None:
    error = translate(KafkaError(KafkaError.GROUP_AUTHORIZATION_FAILED), "do it")
    assert isinstance(error, Unauthorized)
    assert error.missing is None
    assert "ACL on the Group " in error.hint


def test_a_user_who_may_write_nowhere_learns_that_and_nothing_of_the_cluster() -> None:
    reason = "Failed to acquire idempotence PID from broker a:1/1: Broker: Cluster authorization failed"
    write = Right("Write", "Topic", "prices")
    error = translate(KafkaError(KafkaError.CLUSTER_AUTHORIZATION_FAILED, reason), "store it", needs=[write])
    assert isinstance(error, Unauthorized)
    assert error.missing == write


@pytest.mark.parametrize(
    ("resource", "more"), [("Topic", "Read, which readers need"), ("Group", "Read, which consumers need")]
)
def test_a_hint_about_describe_names_the_rights_that_include_it(resource: Resource, more: str) -> None:
    assert more in Right("Describe", resource, "it").hint
    assert more not in Right("Delete", resource, "it").hint


def test_a_topic_that_no_broker_can_hold_yet_is_no_mistake_of_the_caller() -> None:
    fenced = "Unable to replicate the partition 1 time(s): All brokers are currently fenced."
    error = translate(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, fenced), "create topic 'prices'")
    assert isinstance(error, BrokerUnavailable)
    assert error.retriable
    few = "Unable to replicate the partition 3 time(s): The target replication factor of 3 cannot be reached."
    error = translate(KafkaError(KafkaError.INVALID_REPLICATION_FACTOR, few), "create topic 'prices'")
    assert isinstance(error, ConfigError)


def test_a_missing_topic_is_named() -> None:
    error = translate(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART), "describe topic 'prices'", topic="prices")
    assert isinstance(error, TopicNotFound)
    assert error.topic == "prices"
    assert "'prices'" in str(error)


def test_only_exceptions_of_the_client_hold_its_error() -> None:
    error = KafkaError(KafkaError._TRANSPORT)
    assert kafka_error(KafkaException(error)) is error
    assert kafka_error(KafkaException("text")) is None
    assert kafka_error(ValueError("text")) is None


class TestHealth:
    def test_a_timeout_after_a_refusal_is_the_refusal(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._AUTHENTICATION, "bad password"))
        assert not health.refused  # another broker may let us in
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.refused
        error = health.explain(KafkaError(KafkaError._TIMED_OUT), "do it")
        assert isinstance(error, AuthenticationFailed)
        assert "bad password" in str(error)

    @pytest.mark.parametrize(
        ("alert", "certificate", "hint"),
        [
            (42, None, "Give it one in ssl.certificate.location"),
            (116, None, "Give it one in ssl.certificate.location"),
            (46, "ssl.certificate.location", "ssl.truststore.location"),
            (48, "ssl.keystore.location", "the one in ssl.keystore.location"),
            (45, "ssl.certificate.pem", "a new certificate for ssl.certificate.pem"),
            (70, None, "ssl.enabled.protocols"),
        ],
    )
    def test_an_alert_of_tls_after_the_handshake_is_a_refusal(
        self, alert: int, certificate: str | None, hint: str
    ) -> None:
        health = Health("a:1", {} if certificate is None else {certificate: "x"})
        said = f"ssl://a:1/1: Receive failed: error:0A000412:SSL routines::ssl/tls alert: SSL alert number {alert}"
        health.report(KafkaError(KafkaError._TRANSPORT, said))
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.refused
        error = health.explain(KafkaError(KafkaError._TIMED_OUT), "do it")
        assert isinstance(error, AuthenticationFailed)
        assert error.code == "_SSL"
        assert hint in error.hint

    def test_an_alert_of_an_accident_is_none(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._TRANSPORT, "internal error: SSL alert number 80"))
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert not health.refused

    def test_a_refusal_by_a_broker_that_is_back_is_news(self) -> None:
        """The client reports once that all brokers are gone, and again only after one was there."""
        health = Health("a:1")
        health.report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.pop_news() is not None
        health.report(KafkaError(KafkaError._AUTHENTICATION, "bad password"))
        news = health.pop_news()
        assert news is not None
        assert isinstance(health.explain(news, "do it"), AuthenticationFailed)

    def test_a_token_that_does_not_come_is_a_refusal_only_while_no_broker_has_answered(self) -> None:
        said = KafkaError(KafkaError._AUTHENTICATION, "Failed to acquire SASL OAUTHBEARER token: no route")
        health = Health("a:1", OAUTH)
        health.report(said)
        assert health.refused
        assert health.pop_news() is not None
        health.recovered()
        health.report(said)
        assert not health.refused
        assert health.pop_news() is None

    def test_why_the_next_token_did_not_come_is_told_when_the_broker_takes_the_old_one_no_longer(self) -> None:
        health = Health("a:1", OAUTH)
        health.recovered()
        health.report_token("oauth_cb raised ValueError: no route")
        health.report(KafkaError(KafkaError._AUTHENTICATION, "invalid token"))
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        error = health.explain(KafkaError(KafkaError._TIMED_OUT), "do it")
        assert "invalid token; oauth_cb raised ValueError: no route" in str(error)
        assert "oauth_cb" in error.hint

    def test_a_refusal_does_not_hide_what_a_broker_answers(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._AUTHENTICATION, "bad password"))
        assert isinstance(health.explain(KafkaError(KafkaError.INVALID_CONFIG), "do it"), ConfigError)

    def test_an_answer_makes_history_of_it(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._SSL, "no CA"))
        health.report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        health.recovered()
        error = health.explain(KafkaError(KafkaError._TIMED_OUT), "do it")
        assert isinstance(error, BrokerUnavailable)
        assert "Connection refused" not in str(error)
        assert not health.refused

    def test_an_outage_is_news_once_for_each_report(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        assert health.pop_news() is None
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        news = health.pop_news()
        assert news is not None
        assert news.code() == KafkaError._ALL_BROKERS_DOWN
        assert health.pop_news() is None

    def test_a_connection_that_is_closed_in_good_order_is_no_news_unless_the_next_one_is_too(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.pop_news() is None
        health.recovered()
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.pop_news() is None
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.pop_news() is not None

    def test_a_connection_that_is_closed_in_good_order_is_news_when_the_next_one_fails(self) -> None:
        """As behind a proxy. The client reports once that all brokers are gone, and again only after one was there."""
        health = Health("a:1")
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert health.pop_news() is None
        health.report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        news = health.pop_news()
        assert news is not None
        assert news.code() == KafkaError._ALL_BROKERS_DOWN
        assert "Connection refused" in str(health.explain(news, "do it"))
        health.recovered()
        health.report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        assert health.pop_news() is None

    def test_an_outage_without_a_reason_is_a_connection_that_the_other_side_closes(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._ALL_BROKERS_DOWN))
        assert "closed by the other side" in str(health.explain(KafkaError(KafkaError._TIMED_OUT), "do it"))
        health.report(KafkaError(KafkaError._TRANSPORT, "Connection refused"))
        assert "closed by" not in str(health.explain(KafkaError(KafkaError._TIMED_OUT), "do it"))

    def test_a_topic_that_is_gone_is_news(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError.UNKNOWN_TOPIC_OR_PART))
        assert health.pop_news() is not None

    def test_a_partition_that_the_client_does_not_know_yet_is_none(self) -> None:
        health = Health("a:1")
        health.report(KafkaError(KafkaError._UNKNOWN_PARTITION))
        assert health.pop_news() is None
