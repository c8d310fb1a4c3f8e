"""The address of another broker, and the credentials for it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote, urlsplit

from lvq_kafka.core.text.quoting import printable
from lvq_kafka.errors import ConfigError

__all__ = ["BrokerAddress", "is_address"]

_PORTS = {"amqp": 5672, "amqps": 5671}
_PASSWORD = "LVQ_AMQP_PASSWORD"  # noqa: S105  # the name of a variable


def is_address(text: str) -> bool:
    """Return whether a text is the URL of a broker, not the name of a queue."""
    return text.partition("://")[0].lower() in _PORTS and "://" in text


@dataclass(frozen=True, slots=True)
class BrokerAddress:
    """A queue in another broker, with the credentials to log in.

    No text of it has the password.
    """

    host: str
    port: int
    node: str
    """The queue, or what else the broker has under that name."""
    tls: bool = False
    user: str | None = None
    password: str | None = field(default=None, repr=False)
    virtual_host: str | None = None
    """The host that the broker is asked for, if it is not the one of its address."""
    ca: str | None = None
    """A file with the authorities to trust, in PEM; None for those of this machine."""
    certificate: str | None = None
    """A file with this client's certificate and its key, in PEM."""

    def __str__(self) -> str:
        user = "" if self.user is None else f"{printable(self.user)}@"
        host = f"[{self.host}]" if ":" in self.host else printable(self.host)
        return f"{'amqps' if self.tls else 'amqp'}://{user}{host}:{self.port}/{printable(self.node)}"

    @classmethod
    def of(
        cls,
        url: str,
        *,
        virtual_host: str | None = None,
        ca: str | None = None,
        certificate: str | None = None,
        environ: Mapping[str, str] | None = None,
    ) -> BrokerAddress:
        """Read a URL, and the password for its user from the environment.

        Raises:
            ConfigError: the URL is malformed or has a password, there is none in the environment, or an option needs
                TLS.
        """
        scheme, _, rest = url.partition("://")
        scheme = scheme.lower()
        if "@" in rest and ":" in rest.rpartition("@")[0]:
            raise ConfigError(
                f"The address of the broker has a password, which others on this machine could see: "
                f"{scheme}://…@{printable(rest.rpartition('@')[2])}.",
                hint=f"Leave it out, and set {_PASSWORD}; or name a file that holds it in {_PASSWORD}_FILE.",
            )
        try:
            parts = urlsplit(url)
            host, port, user = parts.hostname, parts.port or _PORTS[scheme], parts.username
        except (ValueError, KeyError) as error:
            raise ConfigError(f"{printable(url)} is not an address: {error}.", hint=_EXAMPLE) from None
        node = unquote(parts.path.removeprefix("/"))
        if not host or not node or parts.query or parts.fragment:
            lacks = "names no host" if not host else "names no queue" if not node else "has a ? or #; write %3F and %23"
            raise ConfigError(f"{printable(url)} {lacks}.", hint=_EXAMPLE)
        tls = scheme == "amqps"
        given = [option for option, value in (("ssl_ca", ca), ("ssl_certificate", certificate)) if value is not None]
        if given and not tls:
            raise ConfigError(f"`{given[0]}` needs an address that begins with amqps://.", options=given)
        password = None
        if user is not None:
            user, password = unquote(user), _password(os.environ if environ is None else environ, unquote(user))
        return cls(host, port, node, tls, user, password, virtual_host, ca, certificate)


_EXAMPLE = "For example amqp://reader@broker.example:5672/prices, or amqps:// for TLS."


def _password(environ: Mapping[str, str], user: str) -> str:
    in_file = f"{_PASSWORD}_FILE"
    if environ.get(_PASSWORD) and environ.get(in_file):
        raise ConfigError(f"{_PASSWORD} and {in_file} are both set.")
    if environ.get(in_file):
        path = Path(environ[in_file])
        try:
            return path.read_text().rstrip("\r\n")
        except (OSError, UnicodeDecodeError) as error:
            why = getattr(error, "strerror", None) or "it is not UTF-8"
            raise ConfigError(f"{in_file} names {path}, which cannot be read: {why}.") from None
    if _PASSWORD not in environ:
        raise ConfigError(
            f"There is no password for {printable(user)}.",
            hint=f"Set {_PASSWORD}, or name a file that holds it in {in_file}.",
        )
    return environ[_PASSWORD]
