"""Unusable certificates, keys and tokens: an error names the property before a broker is asked."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
import trustme
from cryptography.hazmat.primitives.serialization import (
    BestAvailableEncryption,
    Encoding,
    PrivateFormat,
    load_pem_private_key,
)

from lvq_kafka.errors import AuthenticationFailed, ConfigError
from lvq_kafka.kafka import ClientConfig, KafkaCluster
from lvq_kafka.kafka.tokens import Tokens
from tests.waiting import eventually

NOWHERE = "127.0.0.1:1"  # nothing listens there
PASSWORD = "s3cret-tiger"


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a folder with ``mine.pem``, its key ``mine.key``, plain and encrypted, another key, and garbage."""
    folder, authority = tmp_path_factory.mktemp("pem"), trustme.CA()
    for name in ("mine", "other"):
        issued = authority.issue_cert(f"{name}@example.org")
        issued.cert_chain_pems[0].write_to_path(str(folder / f"{name}.pem"))
        issued.private_key_pem.write_to_path(str(folder / f"{name}.key"))
    key = load_pem_private_key((folder / "mine.key").read_bytes(), None)
    encrypted = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, BestAvailableEncryption(PASSWORD.encode()))
    (folder / "encrypted.key").write_bytes(encrypted)
    (folder / "rubbish").write_text("rubbish")
    return folder


CERTIFICATE = {"ssl.certificate.location": "mine.pem"}

# The fault, and: the properties (files without their folder), the culprits, and the error's text.
FILES: Mapping[str, tuple[dict[str, str], tuple[str, ...], str]] = {
    "an authority's file that is not there": (
        {"ssl.ca.location": "missing.pem"},
        *(("ssl.ca.location",), r"missing\.pem, which cannot be read: No such file"),
    ),
    "an authority's file that is none": (
        {"ssl.ca.location": "rubbish"},
        *(("ssl.ca.location",), "ssl.ca.location holds no certificate in PEM format"),
    ),
    "an authority's text that is none": (
        {"ssl.ca.pem": "rubbish"},
        *(("ssl.ca.pem",), "ssl.ca.pem holds no certificate in PEM format"),
    ),
    "a certificate that is none": (
        {"ssl.certificate.location": "rubbish", "ssl.key.location": "mine.key"},
        *(("ssl.certificate.location",), "ssl.certificate.location holds no certificate"),
    ),
    "a certificate without its key": (
        CERTIFICATE,
        *(("ssl.certificate.location", "ssl.key.location"), "without its private key"),
    ),
    "a key that is not there": (
        CERTIFICATE | {"ssl.key.location": "missing.key"},
        *(("ssl.key.location",), r"missing\.key, which cannot be read: No such file"),
    ),
    "a key that is none": (
        CERTIFICATE | {"ssl.key.location": "rubbish"},
        *(("ssl.key.location",), "ssl.key.location holds no private key"),
    ),
    "the key of another certificate": (
        CERTIFICATE | {"ssl.key.location": "other.key"},
        *(("ssl.key.location", "ssl.certificate.location"), "is not the private key of the certificate"),
    ),
    "an encrypted key without a password": (
        CERTIFICATE | {"ssl.key.location": "encrypted.key"},
        *(("ssl.key.password", "ssl.key.location"), r"is encrypted, and ssl\.key\.password is not set"),
    ),
    "an encrypted key with a wrong password": (
        CERTIFICATE | {"ssl.key.location": "encrypted.key", "ssl.key.password": "hunter2"},
        *(("ssl.key.password", "ssl.key.location"), r"ssl\.key\.password does not open"),
    ),
    "a keystore that is none": (
        {"ssl.keystore.location": "rubbish", "ssl.keystore.password": "hunter2"},
        *(("ssl.keystore.location",), "holds no keystore in PKCS#12 format"),
    ),
}


@pytest.mark.parametrize("wrong", FILES)
def test_a_file_or_text_that_does_not_serve_is_named(folder: Path, wrong: str) -> None:
    given, culprits, said = FILES[wrong]
    properties = {name: str(folder / value) if name.endswith(".location") else value for name, value in given.items()}
    for protocol in ("ssl", "sasl_ssl"):
        login = {"sasl.mechanism": "PLAIN", "sasl.username": "alice", "sasl.password": PASSWORD}
        config = ClientConfig(NOWHERE, {"security.protocol": protocol, **login, **properties})
        with pytest.raises(ConfigError, match=said) as caught:
            KafkaCluster(config)
        assert caught.value.options == culprits
        assert caught.value.hint
        assert not {PASSWORD, "hunter2"} & set(str(caught.value).split())


def test_an_encrypted_key_with_its_password_serves(folder: Path) -> None:
    files = {"ssl.certificate.location": str(folder / "mine.pem"), "ssl.key.location": str(folder / "encrypted.key")}
    KafkaCluster(ClientConfig(NOWHERE, {"security.protocol": "ssl", **files, "ssl.key.password": PASSWORD})).close()


# -- tokens ---------------------------------------------------------------------------------------

OAUTH = {"security.protocol": "sasl_plaintext", "sasl.mechanism": "OAUTHBEARER"}


class Refused(Exception):
    pass


def raising(_: str | None) -> Any:
    raise Refused(f"the server knows no {PASSWORD}")


def open_cluster(callback: Callable[[str | None], Any] | None, **more: object) -> None:
    own = {} if callback is None else {"oauth_cb": callback}
    KafkaCluster(ClientConfig(NOWHERE, {**OAUTH, **own, **more})).close()  # type: ignore[arg-type]


def test_an_error_of_a_token_callback_reaches_the_opener_of_the_client_and_shows_no_secret() -> None:
    with pytest.raises(AuthenticationFailed, match="oauth_cb raised Refused: the server knows no") as caught:
        open_cluster(raising, **{"sasl.oauthbearer.config": PASSWORD})
    assert isinstance(caught.value.__cause__, Refused)
    assert caught.value.code == "_AUTHENTICATION"
    assert not caught.value.retriable
    assert "oauth_cb" in caught.value.hint
    assert PASSWORD not in str(caught.value)


@pytest.mark.parametrize("token", ["token", ("token",), ("token", "soon"), (b"token", 1.0), None])
def test_a_value_that_is_no_token_is_a_configuration_error(token: object) -> None:
    with pytest.raises(ConfigError, match="oauth_cb returns") as caught:
        open_cluster(lambda _: token)
    assert caught.value.options == ("oauth_cb",)


def test_a_token_that_is_no_longer_good_is_refused() -> None:
    with pytest.raises(AuthenticationFailed, match="oauth_cb expired at 1,"):
        open_cluster(lambda _: ("token", 1))


def test_a_client_is_given_the_token_that_was_fetched_before() -> None:
    asked: list[str | None] = []

    def callback(config: str | None) -> tuple[str, float]:
        asked.append(config)
        return "token", time.time() + 300

    open_cluster(callback)
    open_cluster(callback, **{"sasl.oauthbearer.config": "scope=all"})
    assert asked == [None, "scope=all"]  # once per client, with the argument that the client would pass


def test_a_later_token_that_does_not_come_is_told_and_raised_for_the_client_to_ask_again() -> None:
    answers: list[Any] = [("token", time.time() + 300)]
    told: list[str] = []

    def callback(_: str | None) -> Any:
        return answers.pop()

    tokens = Tokens({"oauth_cb": callback, "sasl.oauthbearer.config": PASSWORD}, told.append)
    tokens.fetch()
    assert tokens(PASSWORD)[0] == "token"
    with pytest.raises(IndexError):
        tokens(PASSWORD)
    assert told == ["oauth_cb raised IndexError: pop from empty list"]


def test_oauth_without_anything_that_brings_a_token_is_a_configuration_error() -> None:
    with pytest.raises(ConfigError, match="no source of tokens") as caught:
        open_cluster(None)
    assert caught.value.options == ("oauth_cb", "sasl.oauthbearer.method")


def test_an_identity_provider_that_does_not_answer_is_told_at_once_and_not_an_absent_broker() -> None:
    oidc = {
        "sasl.oauthbearer.method": "oidc",
        "sasl.oauthbearer.client.id": "me",
        "sasl.oauthbearer.client.secret": PASSWORD,
        "sasl.oauthbearer.token.endpoint.url": f"http://{NOWHERE}/token",
    }
    cluster = KafkaCluster(ClientConfig(NOWHERE, OAUTH | oidc))
    reader = cluster.reader("prices", {0: 0})
    for call in (lambda: cluster.topics.describe("prices", timeout=30), lambda: reader.poll(0.1).positions):
        with pytest.raises(AuthenticationFailed, match=r"Failed to connect to 127\.0\.0\.1") as caught:
            eventually(call)
        assert "sasl.oauthbearer.token.endpoint.url" in caught.value.hint
        assert PASSWORD not in str(caught.value)
    reader.close()
    cluster.close()


def test_a_mechanism_that_the_client_lacks_is_named() -> None:
    with pytest.raises(ConfigError, match="GSSAPI") as caught:
        KafkaCluster(ClientConfig(NOWHERE, {"security.protocol": "sasl_plaintext", "sasl.mechanism": "GSSAPI"}))
    assert caught.value.options == ("sasl.mechanism",)
