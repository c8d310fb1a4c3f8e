"""Diagnose a broker's certificate by a TLS handshake of our own.

The client reports only that the certificate is wrong.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Mapping
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Flaw", "flaw_of"]

_TIMEOUT = 2.0  # seconds, for the connection and the handshake each
_NOT_YET, _EXPIRED, _NAMES = 9, 10, (62, 64)  # OpenSSL's X509_V_ERR_CERT_NOT_YET_VALID and so on


class Flaw(NamedTuple):
    """The reason why a certificate is not accepted."""

    what: str
    hint: str


def flaw_of(address: str, properties: Mapping[str, Any]) -> Flaw | None:
    """Return why a client with these properties rejects the certificate of a server.

    Returns None if the handshake shows no reason.

    Args:
        address: ``host:port``.
    """
    host, _, port = address.rpartition(":")
    name = host.strip("[]")
    try:
        context = _context(properties)
        with socket.create_connection((name, int(port)), _TIMEOUT) as plain:
            context.wrap_socket(plain, server_hostname=name).close()
    except ssl.SSLCertVerificationError as error:
        return Flaw(error.verify_message.rstrip("."), _hint(error.verify_code, name))
    except (OSError, ValueError):  # the server may require a client certificate, or be down
        return None
    return None


def _context(properties: Mapping[str, Any]) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = properties.get("ssl.endpoint.identification.algorithm", "https") == "https"
    place, text = properties.get("ssl.ca.location"), properties.get("ssl.ca.pem")
    if text:
        context.load_verify_locations(cadata=str(text))
    elif place and Path(str(place)).is_dir():
        context.load_verify_locations(capath=str(place))
    elif place:
        context.load_verify_locations(cafile=str(place))
    else:
        context.load_default_certs()
    return context


def _hint(code: int, host: str) -> str:
    if code == _EXPIRED:
        return "Renew the certificate in the broker's ssl.keystore.location."
    if code == _NOT_YET:
        return "Check the clock here, and the certificate in the broker's ssl.keystore.location."
    if code in _NAMES:
        return (
            "Name the broker in bootstrap.servers, and in its own advertised.listeners, as the certificate does, or "
            f"add {host} to the certificate."
        )
    return "Set ssl.ca.location to a PEM file with the authority that issued it."
