"""Checks of the certificates, keys and tokens in a client's properties."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from lvq_kafka.errors import ConfigError
from lvq_kafka.kafka.properties import named_in

__all__ = ["certificate_of", "check_credentials", "mechanism_of", "refused_credentials"]

_CERTIFICATES = ("ssl.certificate.location", "ssl.certificate.pem", "ssl.keystore.location")
_KEYS = ("ssl.key.location", "ssl.key.pem")
_FILES = (
    "ssl.ca.location",
    "ssl.certificate.location",
    "ssl.key.location",
    "ssl.keystore.location",
    "ssl.crl.location",
)
_TOKENS = ("oauth_cb", "sasl.oauthbearer.method", "enable.sasl.oauthbearer.unsecure.jwt")


def certificate_of(properties: Mapping[str, Any]) -> str | None:
    """Return the name of the property with the client's certificate; None if it has none."""
    return next((name for name in _CERTIFICATES if properties.get(name)), None)


def mechanism_of(properties: Mapping[str, Any]) -> str:
    """Return the client's SASL mechanism in upper case; empty if it does not use SASL."""
    if not str(properties.get("security.protocol", "")).lower().startswith("sasl"):
        return ""
    return str(properties.get("sasl.mechanism") or properties.get("sasl.mechanisms") or "GSSAPI").upper()


def check_credentials(properties: Mapping[str, Any]) -> None:
    """Reject credentials that the client accepts silently, but cannot log in with.

    Raises:
        ConfigError: a certificate comes without its key, or nothing provides a token.
    """
    certificate = certificate_of(properties)
    if certificate in _CERTIFICATES[:2] and not any(properties.get(name) for name in _KEYS):
        raise ConfigError(
            f"{certificate} is given without its private key.",
            options=[certificate, "ssl.key.location"],
            hint="Give it in ssl.key.location or ssl.key.pem.",
        )
    if mechanism_of(properties) == "OAUTHBEARER" and not any(properties.get(name) for name in _TOKENS):
        raise ConfigError(
            "The mechanism OAUTHBEARER has no source of tokens.",
            options=["oauth_cb", "sasl.oauthbearer.method"],
            hint="Give the callback oauth_cb, or sasl.oauthbearer.method=oidc and its properties.",
        )


def refused_credentials(reason: str, properties: Mapping[str, Any]) -> ConfigError | None:
    """Return the error for a file or text that the client cannot use; None for other reasons.

    The client's own reason names the OpenSSL function that failed, and seldom the cause.
    """
    for name in _FILES:
        if named_in(reason, [name]) and (obstacle := _obstacle(properties.get(name))):
            return ConfigError(
                f"{name} names {properties[name]}, which cannot be read: {obstacle}.",
                options=[name],
                hint="Check the path, and that this process may read the file.",
            )
    if named_in(reason, _KEYS):
        return _refused_key(reason, properties)
    if "PKCS#12" in reason:
        return _refused_keystore(reason)
    for name in named_in(reason, ("ssl.ca.location", "ssl.ca.pem", *_CERTIFICATES)):
        return ConfigError(
            f"{name} holds no certificate in PEM format.",
            options=[name],
            hint="A PEM text begins with -----BEGIN CERTIFICATE-----; openssl x509 converts other formats.",
        )
    return None


def _refused_key(reason: str, properties: Mapping[str, Any]) -> ConfigError:
    (name, *_) = named_in(reason, _KEYS)
    certificate = certificate_of(properties)
    if "key values mismatch" in reason:
        return ConfigError(
            f"{name} is not the private key of the certificate in {certificate}.",
            options=[name, *filter(None, [certificate])],
            hint="Give a matching pair.",
        )
    if "ENCRYPTED" not in _text(name, properties):
        return ConfigError(
            f"{name} holds no private key in PEM format.",
            options=[name],
            hint="A PEM text begins with -----BEGIN PRIVATE KEY-----; openssl pkey converts other formats.",
        )
    if not properties.get("ssl.key.password"):
        return ConfigError(
            f"The private key in {name} is encrypted, and ssl.key.password is not set.",
            options=["ssl.key.password", name],
            hint="Set it; LVQ_SSL_KEY_PASSWORD_FILE names a file that holds it.",
        )
    return ConfigError(
        f"ssl.key.password does not open the private key in {name}.",
        options=["ssl.key.password", name],
        hint="Check the password, and that the file is the right one.",
    )


def _refused_keystore(reason: str) -> ConfigError:
    if "mac verify failure" in reason or "password" in reason:
        return ConfigError(
            "ssl.keystore.password does not open the keystore in ssl.keystore.location.",
            options=["ssl.keystore.password", "ssl.keystore.location"],
            hint="Check the password, and that the file is the right one.",
        )
    return ConfigError(
        "ssl.keystore.location holds no keystore in PKCS#12 format.",
        options=["ssl.keystore.location"],
        hint="Convert a JKS file with keytool -importkeystore -deststoretype pkcs12.",
    )


def _text(name: str, properties: Mapping[str, Any]) -> str:
    given = str(properties.get(name, ""))
    return Path(given).read_text("latin-1") if name.endswith(".location") else given


def _obstacle(path: object) -> str:
    """Return why a file cannot be read; empty if it can."""
    try:
        if path is not None and not Path(str(path)).is_dir():
            Path(str(path)).read_bytes()
    except OSError as error:
        return error.strerror or type(error).__name__
    return ""
