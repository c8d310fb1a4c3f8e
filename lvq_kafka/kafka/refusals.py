"""Reasons why a broker, or the check of its certificate, refuses a connection.

Each comes with a remedy.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from confluent_kafka import KafkaError

from lvq_kafka.kafka.credentials import certificate_of, mechanism_of
from lvq_kafka.kafka.handshake import flaw_of

__all__ = ["Refusal", "is_refusal", "refusal_of"]

_CODES = frozenset(
    {
        KafkaError._AUTHENTICATION,
        KafkaError._SSL,
        KafkaError.SASL_AUTHENTICATION_FAILED,
        KafkaError.UNSUPPORTED_SASL_MECHANISM,
        KafkaError.ILLEGAL_SASL_STATE,
    }
)
# In TLS 1.3 a broker rejects a client after the handshake, from the client's point of view; librdkafka (2.16.1) then
# reports a connection error. Now and then it does so for a certificate that it has rejected itself, too.
_ALERT = re.compile(r"SSL alert number (\d+)")
_UNVERIFIED = "certificate verify failed"
_ADDRESS = re.compile(r"ssl://(\S+:\d+)/")

_HANDSHAKE_FAILURE, _BAD, _REVOKED, _EXPIRED, _UNKNOWN, _UNKNOWN_CA = 40, 42, 44, 45, 46, 48
_DENIED, _DECRYPT, _VERSION, _INSUFFICIENT, _NAME, _REQUIRED = 49, 51, 70, 71, 112, 116
_REFUSING = frozenset({*range(_HANDSHAKE_FAILURE, _DENIED + 1), _DECRYPT, _VERSION, _INSUFFICIENT, _NAME, _REQUIRED})
"""TLS alerts that reject what the client is or offers.

Others are accidents, and may pass.
"""


class Refusal(NamedTuple):
    """The reason for a refusal, and its remedy."""

    code: str
    """The client's symbolic name for the error."""
    reason: str
    """A sentence in addition to the client's own message; may be empty."""
    hint: str


def is_refusal(error: KafkaError) -> bool:
    """Return whether the broker, or our check of its certificate, refuses the connection."""
    text = error.str()
    return error.code() in _CODES or _alert(text) in _REFUSING or _UNVERIFIED in text


def refusal_of(error: KafkaError, properties: Mapping[str, Any]) -> Refusal:
    """Return the reason and the remedy for the refusal of a client with these properties."""
    text = error.str()
    alert = _alert(text)
    if alert is not None:
        return Refusal("_SSL", *_by_alert(alert, certificate_of(properties)))
    if _UNVERIFIED in text:
        return Refusal("_SSL", *_unverified(text, properties))
    if error.code() == KafkaError._SSL:
        return Refusal("_SSL", "", f"Check ssl.ca.location, {_SERVER}")
    return Refusal(error.name(), "", _SASL.get(mechanism_of(properties), _PASSWORD))


def _alert(text: str) -> int | None:
    found = _ALERT.search(text)
    return int(found[1]) if found else None


_SERVER = "the certificate's host names, and that security.protocol matches the port."
_GIVE = "Give it one in ssl.certificate.location and ssl.key.location (PEM), or in ssl.keystore.location (PKCS#12)."
_PASSWORD = "Check sasl.username, sasl.password and sasl.mechanism."  # noqa: S105
_SASL = {
    "OAUTHBEARER": "Check the source of the token, oauth_cb or sasl.oauthbearer.token.endpoint.url with its client "
    "id and secret, and that the broker accepts tokens from there.",
    "GSSAPI": "Check sasl.kerberos.principal, sasl.kerberos.keytab and sasl.kerberos.service.name.",
}


def _by_alert(alert: int, certificate: str | None) -> tuple[str, str]:
    """Return the reason and the remedy for an alert from the broker.

    ``certificate`` is the property that holds the client's certificate.
    """
    if certificate is None and alert in (_HANDSHAKE_FAILURE, _BAD, _REQUIRED):
        return "The broker requires a client certificate, and the client has none.", _GIVE
    if alert in (_VERSION, _INSUFFICIENT, _HANDSHAKE_FAILURE):
        return (
            "The broker and the client have no TLS version or no cipher in common.",
            "Compare ssl.cipher.suites with the broker's ssl.enabled.protocols and ssl.cipher.suites.",
        )
    if alert == _NAME or certificate is None:
        return "", f"Check bootstrap.servers, {_SERVER}"
    if alert in (_EXPIRED, _REVOKED):
        state = "expired" if alert == _EXPIRED else "been revoked"
        return f"The client's certificate has {state}.", f"Get a new certificate for {certificate}."
    return (
        "The broker does not accept the client's certificate.",
        f"Check that the one in {certificate} has not expired, and that the broker's ssl.truststore.location has the "
        "authority that issued it.",
    )


def _unverified(text: str, properties: Mapping[str, Any]) -> tuple[str, str]:
    """Return the reason and the remedy for a failed check of the broker's certificate."""
    address = _ADDRESS.search(text)
    flaw = flaw_of(address[1], properties) if address else None
    if flaw is None:
        return "", f"Check ssl.ca.location, {_SERVER}"
    return f"The broker's certificate is not accepted: {flaw.what}.", flaw.hint
