"""Additional listeners of the embedded broker: TLS, SASL, or plain."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

__all__ = ["Listener", "Protocol"]

Protocol = Literal["PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"]


@dataclass(frozen=True, slots=True)
class Listener:
    """An additional listener of the broker.

    ``properties`` are broker properties without their ``listener.name.<name>.`` prefix. They may hold secrets, so the
    ``repr`` omits them.
    """

    protocol: Protocol
    properties: Mapping[str, str] = field(default_factory=dict, repr=False)

    @classmethod
    def tls(cls, *, certificate: str, key: str, client_ca: str | None = None) -> Listener:
        """Return a TLS listener.

        ``certificate`` (a chain) and ``key`` (PKCS#8, not encrypted) are PEM texts. With ``client_ca``, also a PEM
        text, clients must present a certificate of that authority.
        """
        return cls("SSL", _tls(certificate, key, client_ca))

    @classmethod
    def sasl(
        cls,
        users: Mapping[str, str],
        *,
        mechanism: str = "PLAIN",
        certificate: str | None = None,
        key: str | None = None,
    ) -> Listener:
        """Return a SASL listener, with TLS if ``certificate`` and ``key`` are given.

        ``users`` maps names to passwords and is used by ``PLAIN``; the users of a ``SCRAM-`` mechanism are created
        through an admin client.
        """
        prefix = f"{mechanism.lower()}.sasl.jaas.config"
        if mechanism == "PLAIN":
            entries = " ".join(f"user_{name}={_quoted(password)}" for name, password in users.items())
            login = f"org.apache.kafka.common.security.plain.PlainLoginModule required {entries};"
        else:
            login = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        properties = {"sasl.enabled.mechanisms": mechanism, prefix: login}
        if certificate is None or key is None:
            return cls("SASL_PLAINTEXT", properties)
        return cls("SASL_SSL", properties | _tls(certificate, key, None))


def _tls(certificate: str, key: str, client_ca: str | None) -> dict[str, str]:
    properties = {
        "ssl.keystore.type": "PEM",
        "ssl.keystore.certificate.chain": certificate,
        "ssl.keystore.key": key,
    }
    if client_ca is not None:
        properties |= {
            "ssl.truststore.type": "PEM",
            "ssl.truststore.certificates": client_ca,
            "ssl.client.auth": "required",
        }
    return properties


def _quoted(text: str) -> str:
    return '"' + text.replace("\\", "\\\\").replace('"', '\\"') + '"'
