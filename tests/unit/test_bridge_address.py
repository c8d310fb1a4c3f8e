"""Addresses of other brokers, and where passwords come from."""

from __future__ import annotations

from pathlib import Path

import pytest

from lvq_kafka.bridging.broker_address import BrokerAddress, is_address
from lvq_kafka.errors import ConfigError

PASSWORD = "s3cret-tiger"


@pytest.mark.parametrize(
    ("url", "host", "port", "node", "tls"),
    [
        ("amqp://broker.example/prices", "broker.example", 5672, "prices", False),
        ("AMQP://broker.example:5673/prices", "broker.example", 5673, "prices", False),
        ("amqps://broker.example/prices", "broker.example", 5671, "prices", True),
        ("amqp://[::1]:5672/a/b%2Fc", "::1", 5672, "a/b/c", False),
        ("amqp://broker.example/address::queue", "broker.example", 5672, "address::queue", False),
    ],
)
def test_an_address_names_a_host_and_a_queue(url: str, host: str, port: int, node: str, tls: bool) -> None:
    address = BrokerAddress.of(url, environ={})
    assert (address.host, address.port, address.node, address.tls, address.user) == (host, port, node, tls, None)
    assert BrokerAddress.of(str(address), environ={}).port == port


@pytest.mark.parametrize(
    ("url", "why"),
    [
        ("amqp://broker.example", "names no queue"),
        ("amqp://broker.example/", "names no queue"),
        ("amqp:///prices", "names no host"),
        ("amqp://broker.example:x/prices", "is not an address"),
        ("amqp://broker.example:70000/prices", "is not an address"),
        ("amqp://[::1/prices", "is not an address"),
        ("amqp://broker.example/prices?x=1", r"has a \? or #"),
        ("amqp://broker.example/prices#1", r"has a \? or #"),
    ],
)
def test_a_malformed_address_is_refused_with_an_example(url: str, why: str) -> None:
    with pytest.raises(ConfigError, match=f"{why}.* For example amqp://"):
        BrokerAddress.of(url, environ={})


@pytest.mark.parametrize(
    "url",
    [
        f"amqp://alice:{PASSWORD}@broker.example/prices",
        f"amqp://alice:{PASSWORD}/x@broker.example/prices",
        f"amqp://alice:x@{PASSWORD}@broker.example/prices",
        f"amqps://:{PASSWORD}@/prices",
        f"amqp://alice:{PASSWORD}@[::1/prices",
    ],
)
def test_an_address_with_a_password_is_refused_and_the_error_does_not_have_it(url: str) -> None:
    with pytest.raises(ConfigError, match="LVQ_AMQP_PASSWORD") as caught:
        BrokerAddress.of(url, environ={"LVQ_AMQP_PASSWORD": PASSWORD})
    assert PASSWORD not in repr(caught.value)


def test_a_password_comes_from_the_environment_or_a_file_and_no_text_has_it(tmp_path: Path) -> None:
    (tmp_path / "password.txt").write_text(f"{PASSWORD}\n")
    for environ in ({"LVQ_AMQP_PASSWORD": PASSWORD}, {"LVQ_AMQP_PASSWORD_FILE": str(tmp_path / "password.txt")}):
        address = BrokerAddress.of("amqp://al%40ice@broker.example/prices", environ=environ)
        assert (address.user, address.password) == ("al@ice", PASSWORD)
        assert PASSWORD not in repr(address) + str(address)


def test_a_user_without_a_password_is_an_error_that_names_where_to_put_it(tmp_path: Path) -> None:
    url = "amqp://alice@broker.example/prices"
    with pytest.raises(ConfigError, match=r"no password for alice\. Set LVQ_AMQP_PASSWORD"):
        BrokerAddress.of(url, environ={})
    with pytest.raises(ConfigError, match="both set"):
        BrokerAddress.of(url, environ={"LVQ_AMQP_PASSWORD": "a", "LVQ_AMQP_PASSWORD_FILE": "b"})
    with pytest.raises(ConfigError, match="cannot be read: No such file"):
        BrokerAddress.of(url, environ={"LVQ_AMQP_PASSWORD_FILE": str(tmp_path / "none")})
    (tmp_path / "binary").write_bytes(b"\xff")
    with pytest.raises(ConfigError, match="it is not UTF-8"):
        BrokerAddress.of(url, environ={"LVQ_AMQP_PASSWORD_FILE": str(tmp_path / "binary")})


def test_options_of_tls_need_an_address_with_tls() -> None:
    with pytest.raises(ConfigError, match="ssl_ca needs an address that begins with amqps://"):
        BrokerAddress.of("amqp://broker.example/prices", ca="ca.pem", environ={})


@pytest.mark.parametrize("text", ["prices", "amqp", "amqp:prices", "queue://prices", "http://x/y"])
def test_a_queue_is_not_an_address(text: str) -> None:
    assert not is_address(text)
