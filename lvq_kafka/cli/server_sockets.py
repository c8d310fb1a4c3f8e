"""Sockets that commands listen on, and the addresses of these."""

from __future__ import annotations

import socket
from ipaddress import ip_address

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError

__all__ = ["BACKLOG", "is_loopback", "names_of", "open_listener", "url_of"]

BACKLOG = 1024
"""Connections that wait to be accepted, at most."""


def open_listener(host: str, port: int) -> socket.socket:
    """Return a socket that listens. Connections wait in it until they are served.

    They inherit that nothing is delayed, which asyncio sees to only on sockets of another kind. Otherwise a body would
    wait until the client has acknowledged the headers, which takes some 40 ms.

    Raises:
        ConfigError: the host is none.
        OSError: this machine does not have it, or the port is taken.
    """
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
    except (OSError, UnicodeError) as error:
        raise ConfigError(
            f"`host` is {quoted(host)}, which is neither an address nor a name that can be resolved.",
            options=["host"],
            hint="Give it without scheme and port, such as 127.0.0.1; `port` is the port.",
        ) from error
    family, _, _, _, address = found[0]
    try:
        listening = socket.create_server(address[:2], family=family, backlog=BACKLOG)
    except OSError as error:
        error.filename = f"{host}:{port}"
        raise
    listening.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return listening


def url_of(listening: socket.socket) -> str:
    """Return the address at which it is served."""
    host, port = listening.getsockname()[:2]
    return f"http://[{host}]:{port}" if ":" in host else f"http://{host}:{port}"


def is_loopback(host: str) -> bool:
    """Return whether only this machine reaches an address."""
    try:
        return ip_address(host).is_loopback
    except ValueError:
        return host == "localhost"


def names_of(host: str) -> list[str]:
    """Return the name that clients use, if the server listens on one."""
    try:
        ip_address(host)
    except ValueError:
        return [host]
    return []
