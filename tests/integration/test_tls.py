"""Brokers that require a client certificate or have a bad one: a refused client learns at once which setting is wrong.

A broker refuses a client's certificate during the handshake in TLS 1.2, and after it in TLS 1.3.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat, load_pem_private_key

from lvq_kafka import TEXT, Consumer, LastValueQueue, QueueDefinition, queues
from lvq_kafka.embedded import EmbeddedBroker, Listener
from lvq_kafka.errors import AuthenticationFailed, DeliveryFailed
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from tests.integration.bad_input import AT_ONCE, IN_TIME, enter, error_of, lvq, queue_of, send

DEFINITION = QueueDefinition(name="prices", topic="prices", key_header="ticker")
LONG_AGO = datetime(2020, 1, 1)  # a naive datetime, for trustme
VERSIONS = {"V12": "TLSv1.2", "V13": "TLSv1.3"}


@dataclass(frozen=True)
class Brokers:
    """A broker's addresses by listener, and the folder of the certificates."""

    addresses: Mapping[str, str]
    folder: Path

    def config(self, listener: str, certificate: str | None = None, **properties: str) -> ClientConfig:
        own = {
            "ssl.certificate.location": str(self.folder / f"{certificate}.pem"),
            "ssl.key.location": str(self.folder / f"{certificate}.key"),
        }
        return ClientConfig(
            self.addresses[listener],
            {"security.protocol": "ssl", "ssl.ca.location": str(self.folder / "ca.pem")}
            | (own if certificate else {})
            | properties,
        )


def chain(issued: trustme.LeafCert) -> str:
    return "".join(part.bytes().decode() for part in issued.cert_chain_pems)


def key(issued: trustme.LeafCert) -> str:
    loaded = load_pem_private_key(issued.private_key_pem.bytes(), None)
    return loaded.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()).decode()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """Start a broker that requires client certificates.

    It has one such listener for each TLS version, and a listener whose own certificate has expired.
    """
    folder, authority = tmp_path_factory.mktemp("tls"), trustme.CA()
    authority.cert_pem.write_to_path(str(folder / "ca.pem"))
    server, old = authority.issue_cert("127.0.0.1"), authority.issue_cert("127.0.0.1", not_after=LONG_AGO)
    for name, issued in {
        "good": authority.issue_cert("me@example.org"),
        "foreign": trustme.CA().issue_cert("me@example.org"),
        "expired": authority.issue_cert("me@example.org", not_after=LONG_AGO),
    }.items():
        (folder / f"{name}.pem").write_text(chain(issued))
        (folder / f"{name}.key").write_text(key(issued))
    wanting = Listener.tls(certificate=chain(server), key=key(server), client_ca=authority.cert_pem.bytes().decode())
    listeners = {
        name: Listener("SSL", {**wanting.properties, "ssl.enabled.protocols": version, "ssl.protocol": version})
        for name, version in VERSIONS.items()
    }
    listeners["OLD"] = Listener.tls(certificate=chain(old), key=key(old))
    with EmbeddedBroker(listeners=listeners) as broker:
        LastValueQueue.declare("prices", key_header="ticker", bootstrap_servers=broker.bootstrap_servers).close()
        yield Brokers({name: broker.address(name) for name in listeners}, folder)


@pytest.mark.parametrize("listener", VERSIONS)
def test_a_client_whose_certificate_the_broker_trusts_gets_in(brokers: Brokers, listener: str) -> None:
    assert [queue.name for queue in queues(config=brokers.config(listener, "good"))] == ["prices"]


# The broken configuration, the error's text, and the setting in its hint.
REFUSALS: Mapping[str, tuple[Callable[[Brokers], ClientConfig], str, str]] = {
    **{
        f"{what} by {version}": (lambda brokers, own=own, name=name: brokers.config(name, own), reason, setting)
        for name, version in VERSIONS.items()
        for what, own, reason, setting in (
            ("no certificate", None, "requires a client certificate", "ssl.certificate.location"),
            ("one of another authority", "foreign", "does not accept the client's certificate", "ssl.truststore"),
            ("an expired one", "expired", "does not accept the client's certificate", "ssl.certificate.location"),
        )
    },
    "a broker's expired one": (
        lambda brokers: brokers.config("OLD"),
        *("certificate has expired", "Renew the certificate"),
    ),
    "a broker's for another host": (
        lambda brokers: ClientConfig(
            brokers.addresses["OLD"].replace("127.0.0.1", "localhost"),
            {"security.protocol": "ssl", "ssl.ca.location": str(brokers.folder / "ca.pem")},
        ),
        *("certificate", "the certificate"),
    ),
    "a broker's of an unknown authority": (
        lambda brokers: brokers.config("OLD", **{"ssl.ca.location": str(brokers.folder / "foreign.pem")}),
        *("issuer certificate", "ssl.ca.location"),
    ),
}


@pytest.mark.parametrize("wrong", REFUSALS)
def test_a_refused_client_learns_it_at_once_from_every_call(brokers: Brokers, wrong: str) -> None:
    make, reason, setting = REFUSALS[wrong]
    config = make(brokers)
    calls: list[Callable[[], object]] = [
        lambda: LastValueQueue.declare("prices", key_header="ticker", config=config),
        lambda: queues(config=config),
        lambda: enter(queue_of(config).view()),
        lambda: enter(queue_of(config).browser()),
        lambda: Consumer(KafkaCluster(config), DEFINITION, TEXT),
        lambda: queue_of(config).producer(transactional_id="feed"),
    ]
    for call in calls:
        error = error_of(call, AT_ONCE)
        assert type(error) is AuthenticationFailed
        assert (error.code, error.retriable) == ("_SSL", False)
        assert config.bootstrap_servers in str(error)
        assert reason in str(error)
        assert setting in error.hint


def test_the_shell_and_a_message_that_is_not_stored_say_it_too(brokers: Brokers, tmp_path: Path) -> None:
    config = brokers.config("V13")
    code, line = lvq("get", "prices", "IBM", config=config, folder=tmp_path)
    assert code == 3
    assert "requires a client certificate" in line
    assert "ssl.certificate.location" in line
    queue = queue_of(ClientConfig(config.bootstrap_servers, config.properties | {"delivery.timeout.ms": 1000}))
    error = error_of(lambda: send(queue), IN_TIME)
    assert isinstance(error, DeliveryFailed)
    assert isinstance(error.__cause__, AuthenticationFailed)
    assert "ssl.certificate.location" in error.hint
