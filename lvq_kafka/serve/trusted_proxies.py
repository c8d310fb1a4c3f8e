"""Proxies that have authenticated a user, and name him in a header."""

from __future__ import annotations

import re
from collections.abc import Iterable
from ipaddress import IPv4Network, IPv6Address, IPv6Network, ip_address, ip_network

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.serve.http_requests import HttpRequest
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["TrustedProxies"]

_NAME = re.compile(r"[a-z0-9!#$%&'*+.^_`|~-]+")
_OTHER_USES = ("authorization", "cookie", "host", "origin", "referer", "user-agent")
_LOOPBACK = ("127.0.0.0/8", "::1/128")


class TrustedProxies:
    """The header in which proxies name users, and the addresses from which it counts.

    Such a header is as good as the proxy: it must take away what a client sends under that name.

    Args:
        header: the name of the header.
        addresses: addresses and networks of proxies; this machine, if there are none.

    Raises:
        ConfigError: one of them is something else.
    """

    def __init__(self, header: str, addresses: Iterable[str]) -> None:
        said: object = header
        if not isinstance(said, str) or not _NAME.fullmatch(said.lower()) or said.lower() in _OTHER_USES:
            raise ConfigError(
                f"`user_header` is {quoted(header)}, which cannot be a header that names a user.",
                options=["user_header"],
                hint="Give the one that your proxy sets, such as Remote-User.",
            )
        self._header = said.lower()
        self._networks = [_network(address) for address in _several(addresses) or _LOOPBACK]

    def user_of(self, request: HttpRequest) -> str | None:
        """Return the user whom a proxy names; None if nobody is named.

        Raises:
            HttpRefusal: somebody else names him, or he is named twice.
        """
        named = [value for name, value in request.headers if name == self._header.encode()]
        if not named:
            return None
        if not self._trusts(request.peer):
            raise HttpRefusal(
                403,
                f"The header {self._header} counts only if a proxy sends it, and this address is none.",
            )
        if len(named) > 1:
            raise HttpRefusal(400, f"The header {self._header} is there {len(named)} times.", hint="Its proxy adds it.")
        return named[0].strip().decode("utf-8", "replace")

    def _trusts(self, peer: str | None) -> bool:
        try:
            address = ip_address(peer or "")
        except ValueError:
            return False
        if isinstance(address, IPv6Address) and address.ipv4_mapped is not None:
            address = address.ipv4_mapped
        return any(address in network for network in self._networks)


def _several(addresses: Iterable[str]) -> list[str]:
    if isinstance(addresses, str):
        raise ConfigError(
            f"`proxies` is {quoted(addresses)}, which is one address, not several.",
            options=["proxies"],
            hint="Put it in a list.",
        )
    return list(addresses)


def _network(address: object) -> IPv4Network | IPv6Network:
    try:
        if isinstance(address, str):
            return ip_network(address)
    except ValueError:
        pass
    raise ConfigError(
        f"`proxies` has {quoted(address)}, which is neither an address nor a network.",
        options=["proxies"],
        hint="For example 10.1.2.3, or 10.1.2.0/24.",
    )
