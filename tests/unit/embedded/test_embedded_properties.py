from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka.embedded import EmbeddedBroker, Listener
from lvq_kafka.embedded.server_properties import render, server_properties
from lvq_kafka.errors import ConfigError, StateError


def properties(**changes: object) -> dict[str, str]:
    arguments: dict[str, object] = {
        "data": Path("/data"),
        "ports": {"PLAINTEXT": 1},
        "controller_port": 9,
        "listeners": {},
        "acls": False,
        "overrides": {},
    }
    return server_properties(**(arguments | changes))  # type: ignore[arg-type]


def test_a_single_node_is_configured_on_the_loopback_address() -> None:
    result = properties()
    assert result["listeners"] == "PLAINTEXT://127.0.0.1:1,CONTROLLER://127.0.0.1:9"
    assert result["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1"
    assert result["controller.quorum.voters"] == "1@127.0.0.1:9"
    assert result["offsets.topic.replication.factor"] == "1"
    assert result["auto.create.topics.enable"] == "false"


def test_a_further_listener_has_its_own_address_protocol_and_properties() -> None:
    result = properties(
        ports={"PLAINTEXT": 1, "SECURE": 2}, listeners={"SECURE": Listener.sasl({"alice": "a", "bob": "b"})}
    )
    assert result["advertised.listeners"] == "PLAINTEXT://127.0.0.1:1,SECURE://127.0.0.1:2"
    assert "SECURE:SASL_PLAINTEXT" in result["listener.security.protocol.map"]
    assert result["listener.name.secure.sasl.enabled.mechanisms"] == "PLAIN"
    assert 'user_alice="a" user_bob="b";' in result["listener.name.secure.plain.sasl.jaas.config"]


def test_a_certificate_and_a_key_make_sasl_run_over_tls() -> None:
    listener = Listener.sasl({}, mechanism="SCRAM-SHA-512", certificate="CERT", key="KEY")
    assert listener.protocol == "SASL_SSL"
    assert listener.properties["ssl.keystore.certificate.chain"] == "CERT"
    assert "ScramLoginModule" in listener.properties["scram-sha-512.sasl.jaas.config"]


def test_no_password_is_in_a_repr() -> None:
    assert "hunter2" not in repr(Listener.sasl({"alice": "hunter2"}))
    assert "hunter2" not in repr(EmbeddedBroker(properties={"ssl.key.password": "hunter2"})._options)


def test_the_caller_s_properties_win() -> None:
    assert properties(overrides={"num.partitions": "3", "log.cleaner.backoff.ms": "7"}).items() >= {
        ("num.partitions", "3"),
        ("log.cleaner.backoff.ms", "7"),
    }


def test_with_acls_the_plain_listener_is_the_administrator() -> None:
    assert properties(acls=True)["super.users"] == "User:ANONYMOUS"
    assert "authorizer.class.name" not in properties()


@pytest.mark.parametrize(
    ("value", "written"),
    [("a\\b", "a\\\\b"), ("line\nline", "line\\nline"), (" x", "\\ x"), ("ü", "\\u00fc"), ("😀", "\\ud83d\\ude00")],
)
def test_values_are_escaped_for_java(value: str, written: str) -> None:
    assert render({"k": value}) == f"k={written}\n"


def test_a_listener_cannot_take_the_name_of_one_that_is_there() -> None:
    with pytest.raises(ConfigError, match="CONTROLLER"):
        EmbeddedBroker(listeners={"CONTROLLER": Listener("PLAINTEXT")})


def test_a_broker_that_was_not_started_says_so() -> None:
    broker = EmbeddedBroker()
    assert (broker.running, broker.pid, broker.failure) == (False, None, None)
    with pytest.raises(StateError, match="not been started"):
        _ = broker.bootstrap_servers
    with pytest.raises(StateError, match="not been started"):
        broker.kill()
    broker.stop()
