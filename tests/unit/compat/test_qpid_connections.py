"""Connections of ``qpid.messaging``: their URLs and options as a configuration of Kafka's client, and opening one."""

from __future__ import annotations

from typing import Any

import pytest

from lvq_kafka.compat.qpid_messaging import (
    AuthenticationFailure,
    ConnectError,
    Connection,
    ConnectionError,
    Detached,
    MessagingError,
    NontransactionalSession,
    Timeout,
    TransactionError,
    VersionError,
)
from lvq_kafka.compat.qpid_messaging.connection_options import client_config
from lvq_kafka.errors import AuthenticationFailed, BrokerUnavailable, LVQError
from lvq_kafka.testing import MemoryCluster

PASSWORD = "geheim-7"


@pytest.mark.parametrize(
    ("url", "options", "properties"),
    [
        ("localhost", {}, {"bootstrap.servers": "localhost:9092"}),
        ("kafka1:9093", {}, {"bootstrap.servers": "kafka1:9093"}),
        ("amqp://kafka1", {"port": 9094}, {"bootstrap.servers": "kafka1:9094"}),
        ("kafka1:9093", {"port": 9094}, {"bootstrap.servers": "kafka1:9093"}),
        ("", {"host": "kafka2"}, {"bootstrap.servers": "kafka2:9092"}),
        ("[::1]", {}, {"bootstrap.servers": "[::1]:9092"}),
        ("a", {"reconnect": True, "reconnect_urls": ["b", "amqp://c:9"]}, {"bootstrap.servers": "a:9092,b:9092,c:9"}),
        ("amqps://k", {"ssl_trustfile": "ca.pem"},
         {"bootstrap.servers": "k:9092", "security.protocol": "ssl", "ssl.ca.location": "ca.pem"}),
        ("k", {"transport": "ssl", "ssl_certfile": "c.pem", "ssl_keyfile": "k.pem", "sasl_mechanisms": "EXTERNAL",
               "ssl_skip_hostname_check": True},
         {"bootstrap.servers": "k:9092", "security.protocol": "ssl", "ssl.certificate.location": "c.pem",
          "ssl.key.location": "k.pem", "ssl.endpoint.identification.algorithm": "none"}),
        (f"alice/{PASSWORD}@k", {}, {"bootstrap.servers": "k:9092", "security.protocol": "sasl_plaintext",
                                     "sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}),
        ("k", {"username": "alice", "password": PASSWORD, "sasl_mechanisms": "DIGEST-MD5 SCRAM-SHA-256 PLAIN",
               "transport": "tcp+tls"},
         {"bootstrap.servers": "k:9092", "security.protocol": "sasl_ssl", "sasl.mechanism": "SCRAM-SHA-256",
          "sasl.username": "alice", "sasl.password": PASSWORD}),
        ("k", {"sasl_mechanisms": "GSSAPI", "sasl_service": "kafka"},
         {"bootstrap.servers": "k:9092", "security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI",
          "sasl.kerberos.service.name": "kafka"}),
        ("k", {"username": "guest", "sasl_mechanisms": "ANONYMOUS PLAIN"}, {"bootstrap.servers": "k:9092"}),
        ("k", {"tcp_nodelay": True, "heartbeat": 5, "address_ttl": 1, "protocol": "amqp0-10", "sasl_max_ssf": 0,
               "client_properties": {"a": "b"}, "reconnect_interval": 1, "reconnect_limit": 3, "reconnect_log": True},
         {"bootstrap.servers": "k:9092", "socket.nagle.disable": True}),
    ],
)  # fmt: skip
def test_a_url_and_options_are_properties_of_the_client(
    url: str, options: dict[str, Any], properties: dict[str, Any]
) -> None:
    assert client_config(url, options, {}).properties == properties


@pytest.mark.parametrize(
    ("environ", "properties"),
    [
        ({"LVQ_BOOTSTRAP_SERVERS": "k1:1,k2:2"}, {"bootstrap.servers": "k1:1,k2:2"}),
        ({"LVQ_SASL_USERNAME": "bob"}, {"sasl.username": "bob", "bootstrap.servers": "k:9092"}),
        ({"LVQ_SECURITY_PROTOCOL": "SASL_SSL", "LVQ_SASL_MECHANISM": "SCRAM-SHA-512"},
         {"security.protocol": "SASL_SSL", "sasl.mechanism": "SCRAM-SHA-512"}),
    ],
)  # fmt: skip
def test_the_environment_overrides_them(environ: dict[str, str], properties: dict[str, str]) -> None:
    config = client_config(f"alice/{PASSWORD}@k", {"sasl_mechanisms": "PLAIN"}, environ)
    assert config.properties.items() >= properties.items()
    assert config.properties["sasl.password"] == PASSWORD


@pytest.mark.parametrize(
    ("url", "options", "says"),
    [
        ("", {}, r"not of the form \[amqp://\]"),
        ("localhost", {"reconect": True}, "reconect"),
        (f"alice:{PASSWORD}@k", {}, "not of the form"),
        (f"k:{PASSWORD}", {}, "not of the form"),
        ("k:0", {}, "1 to 65535"),
        ("k", {"transport": "rdma"}, "rdma"),
        ("k", {"sasl_mechanisms": "DIGEST-MD5 CRAM-MD5"}, "DIGEST-MD5"),
        ("k", {"sasl_min_ssf": 56}, "TLS"),
        ("k", {"reconnect_urls": ["a b"]}, "not of the form"),
    ],
)
def test_a_url_or_an_option_that_means_nothing_here_is_an_error_without_a_password(
    url: str, options: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConnectionError, match=says) as caught:
        Connection(url, **options)
    assert PASSWORD not in repr(caught.value)
    assert PASSWORD not in repr(caught.value.__cause__)


def test_another_protocol_is_an_error_as_it_is_in_qpid() -> None:
    with pytest.raises(VersionError, match=r"amqp1\.0"):
        Connection("localhost", protocol="amqp1.0")


def test_a_connection_opens_once_and_again_after_it_was_closed(memory_cluster: MemoryCluster) -> None:
    connection = Connection("localhost", cluster=memory_cluster)
    assert (connection.opened(), connection.attached()) == (False, False)
    with pytest.raises(Detached):
        connection.session().sender("prices")
    connection.open()
    with pytest.raises(ConnectionError, match="open already"):
        connection.open()
    connection.close()
    connection.close()
    assert not connection.opened()
    with pytest.raises(Detached):
        connection.session().receiver("prices")
    connection.open()
    assert connection.opened()
    connection.close()
    established = Connection.establish("localhost", cluster=memory_cluster)
    assert established.opened()
    established.close()


def test_sessions_have_names(memory_cluster: MemoryCluster) -> None:
    connection = Connection("localhost", cluster=memory_cluster)
    one, other = connection.session("one"), connection.session()
    assert connection.session("one") is one
    assert connection.session() is not other
    one.close()
    assert connection.session("one") is not one
    assert {session.name for session in connection.sessions.values()} == connection.sessions.keys()


def test_a_session_cannot_be_transactional_and_says_what_can(memory_cluster: MemoryCluster) -> None:
    connection = Connection("localhost", cluster=memory_cluster)
    with pytest.raises(TransactionError, match=r"consumer\.transaction"):
        connection.session(transactional=True)
    for end in (connection.session().commit, connection.session().rollback):
        with pytest.raises(NontransactionalSession):
            end()


class Answers(MemoryCluster):
    """A cluster that fails to answer for some time."""

    def __init__(self, *failures: LVQError) -> None:
        super().__init__()
        self._failures = list(failures)

    def broker_count(self, *, timeout: float = 10.0) -> int:
        if self._failures:
            raise self._failures.pop(0) if len(self._failures) > 1 else self._failures[0]
        return 1


AWAY = BrokerUnavailable("No broker answers.", code="_TRANSPORT", retriable=True)


def test_a_cluster_that_does_not_answer_is_an_error_that_names_the_port_of_amqp(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("lvq_kafka.kafka.KafkaCluster", lambda config: Answers(AWAY))
    with pytest.raises(ConnectError, match=r"^No broker answers\. localhost:5672 names the port of an AMQP broker"):
        Connection("localhost:5672", reconnect_timeout=0).open()
    with pytest.raises(ConnectError, match=r"^No broker answers\.$"):
        Connection("localhost", reconnect_timeout=0).open()
    with pytest.raises(Timeout, match="No broker answers"):
        Connection("localhost", reconnect=True).open(timeout=0)


def test_reconnect_waits_for_a_cluster_that_does_not_answer_yet() -> None:
    class Late(Answers):
        def broker_count(self, *, timeout: float = 10.0) -> int:
            return super().broker_count(timeout=timeout) if len(self._failures) > 1 else 1

    connection = Connection("localhost", reconnect=True, cluster=Late(AWAY, AWAY, AWAY))
    connection.open()
    assert connection.opened()
    connection.close()


def test_a_user_who_may_not_log_in_is_an_error_of_its_own() -> None:
    refused = AuthenticationFailed("Authentication failed.", code="_AUTHENTICATION")
    with pytest.raises(AuthenticationFailure, match="Authentication failed") as caught:
        Connection("localhost", cluster=Answers(refused)).open()
    assert isinstance(caught.value.__cause__, AuthenticationFailed)
    assert isinstance(caught.value, MessagingError | LVQError)
