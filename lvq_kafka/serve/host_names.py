"""The hosts that requests may name, against DNS rebinding.

In DNS rebinding, the name of an attacker's page gets the address of a server in the reader's network. His browser then
takes that server for the page's own, and lets the page read what it answers; but it still sends the page's name.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable
from ipaddress import ip_address

from lvq_kafka.core.text.quoting import quoted
from lvq_kafka.errors import ConfigError
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["ANY", "check_host", "host_rule"]

ANY = "*"
"""Allows every host."""

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+\]|[A-Za-z0-9._-]+)(?::[0-9]{1,5})?")
_NAME = re.compile(r"[a-z0-9._-]+")


def host_rule(names: Iterable[str]) -> frozenset[str]:
    """Return the names of hosts in the form that `check_host` takes.

    Raises:
        ConfigError: one is not a name.
    """
    if isinstance(names, str):
        raise ConfigError(
            f"`hosts` is {quoted(names)}, which is one name, not several.", options=["hosts"], hint="Put it in a list."
        )
    given: list[object] = list(names)
    for name in given:
        if not isinstance(name, str) or not (name == ANY or _NAME.fullmatch(name.lower())):
            raise ConfigError(
                f"`hosts` has {quoted(name)}, which is not the name of a host.",
                options=["hosts"],
                hint='Give names without scheme and port, such as "prices.example.com", or "*" for any.',
            )
    return frozenset(str(name).lower() for name in given)


def check_host(header: str | None, allowed: Collection[str]) -> None:
    """Check the host that a request names.

    Addresses and localhost are always allowed: no page has them as its name, unless it comes from this machine.

    Args:
        header: the header ``Host``, or the host of an address in absolute form; None if there is none.
        allowed: the names of `host_rule`.

    Raises:
        HttpRefusal: it names another host, or none.
    """
    if ANY in allowed:
        return
    found = _HOST.fullmatch(header or "")
    if found is None:
        raise HttpRefusal(400, "The request names no host, or something that is none.")
    name = found[1].lower().rstrip(".")
    if name not in allowed and name != "localhost" and not name.endswith(".localhost") and not _is_address(name):
        raise HttpRefusal(
            421,
            f"The request is for the host {quoted(name)}, which this server does not answer for.",
            hint="Its owner can allow the name.",
        )


def _is_address(name: str) -> bool:
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True
