"""Why a broker, or the check of its certificate, refuses a connection, and what to do about it."""

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
# In TLS 1.3 a broker refuses a client after the handshake, from the client's point of view; then it is an error of the
# connection for librdkafka (2.16.1). So is, now and then, a certificate that it has found to be wrong itself.
_ALERT = re.compile(r"SSL alert number (\d+)")
_UNVERIFIED = "certificate verify failed"
_ADDRESS = re.compile(r"ssl://(\S+:\d+)/")

_HANDSHAKE_FAILURE, _BAD, _REVOKED, _EXPIRED, _UNKNOWN, _UNKNOWN_CA = 40, 42, 44, 45, 46, 48
_DENIED, _DECRYPT, _VERSION, _INSUFFICIENT, _NAME, _REQUIRED = 49, 51, 70, 71, 112, 116
_REFUSING = frozenset({*range(_HANDSHAKE_FAILURE, _DENIED + 1), _DECRYPT, _VERSION, _INSUFFICIENT, _NAME, _REQUIRED})
"""Alerts of TLS that say no to what the client is, or offers. Others are accidents, and may pass."""


class Refusal(NamedTuple):
    """What is behind a refusal."""

    code: str
    """The client's symbolic name for it."""
    reason: str
    """A sentence on top of what the client says; may be empty."""
    hint: str


def is_refusal(error: KafkaError) -> bool:
    """Whether the broker, or our own check of its certificate, refuses the connection."""
    text = error.str()
    return error.code() in _CODES or _alert(text) in _REFUSING or _UNVERIFIED in text


def refusal_of(error: KafkaError, properties: Mapping[str, Any]) -> Refusal:
    """What is behind a refusal that a client with these properties has met."""
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


_SERVER = "the certificate's host names, and that security.protocol fits the port."
_GIVE = "Give it one in ssl.certificate.location and ssl.key.location (PEM), or in ssl.keystore.location (PKCS#12)."
_PASSWORD = "Check sasl.username, sasl.password and sasl.mechanism."  # noqa: S105
_SASL = {
    "OAUTHBEARER": "Check what brings the token, oauth_cb or sasl.oauthbearer.token.endpoint.url with its client id "
    "and secret, and that the broker takes tokens from there.",
    "GSSAPI": "Check sasl.kerberos.principal, sasl.kerberos.keytab and sasl.kerberos.service.name.",
}


def _by_alert(alert: int, certificate: str | None) -> tuple[str, str]:
    """The reason and the remedy for an alert from the broker. ``certificate`` is the property that gives one."""
    if certificate is None and alert in (_HANDSHAKE_FAILURE, _BAD, _REQUIRED):
        return "The broker wants a certificate of the client, which has none.", _GIVE
    if alert in (_VERSION, _INSUFFICIENT, _HANDSHAKE_FAILURE):
        return (
            "The broker and the client have no version of TLS, or no cipher, in common.",
            "Compare ssl.cipher.suites with the broker's ssl.enabled.protocols and ssl.cipher.suites.",
        )
    if alert == _NAME or certificate is None:
        return "", f"Check bootstrap.servers, {_SERVER}"
    if alert in (_EXPIRED, _REVOKED):
        state = "expired" if alert == _EXPIRED else "been revoked"
        return f"The client's certificate has {state}.", f"Have a new one issued for {certificate}."
    return (
        "The broker does not accept the client's certificate.",
        f"Check that the one in {certificate} has not expired, and that the broker's ssl.truststore.location has the "
        "authority that issued it.",
    )


def _unverified(text: str, properties: Mapping[str, Any]) -> tuple[str, str]:
    """The reason and the remedy where the check of the broker's certificate fails: of all that can be wrong with it."""
    address = _ADDRESS.search(text)
    flaw = flaw_of(address[1], properties) if address else None
    if flaw is None:
        return "", f"Check ssl.ca.location, {_SERVER}"
    return f"The broker's certificate is not accepted: {flaw.what}.", flaw.hint
