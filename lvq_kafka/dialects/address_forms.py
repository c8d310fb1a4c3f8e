"""The form of an address, which shows the system that it comes from."""

from __future__ import annotations

import re

from lvq_kafka.core.queue.definition import is_name
from lvq_kafka.core.text.validation import instance
from lvq_kafka.dialects.address import Address, AddressDraft, check_text
from lvq_kafka.dialects.artemis_addresses import ARTEMIS_PREFIXES, parse_artemis_address
from lvq_kafka.dialects.binding_urls import BINDING_CLASSES, parse_binding_url
from lvq_kafka.dialects.brokerj_attributes import parse_attributes
from lvq_kafka.dialects.qpid_addresses import parse_qpid_address

__all__ = ["parse_address"]

_SCHEME = re.compile(r"(?:BURL:)?([A-Za-z][A-Za-z0-9+.-]*)://")
_FIRST_MARK = re.compile(r"[;/?'\"]|:(?=\s*\{)|::")


def parse_address(address: str) -> Address:
    """Parse an address of any of the systems, or a plain name.

    A text that has none of their forms is a name, whether a queue can have it or not.

    Raises:
        ConfigError: it is malformed, or asks for something that no queue of this library has; says where.
    """
    instance("address", address, str, "For example 'prices; {create: always, mode: browse}'.")
    stripped = address.strip()
    scheme = _SCHEME.match(stripped)
    mark = _FIRST_MARK.search(stripped)
    if is_name(stripped):
        return Address(queue=address, text=address)
    if stripped.startswith("{"):
        return parse_attributes(address)
    if scheme is not None and not stripped.startswith("ADDR:"):
        return _parse_url(stripped, scheme[1])
    if stripped.startswith("ADDR:"):
        return parse_qpid_address(stripped)
    if mark is None:
        check_text(address)
        return Address(queue=address, text=address)
    if mark[0] == "?" or (mark[0] == "::" and not re.search(r"[;/]|:\s*\{", stripped)):
        return parse_artemis_address(stripped)
    return parse_qpid_address(stripped)


def _parse_url(url: str, scheme: str) -> Address:
    path = url.partition("://")[2].partition("?")[0]
    binding = scheme in BINDING_CLASSES and (url.startswith("BURL:") or "/" in path or scheme != "topic")
    if binding:
        return parse_binding_url(url)
    if f"{scheme}://" in ARTEMIS_PREFIXES:
        return parse_artemis_address(url)
    known = [*ARTEMIS_PREFIXES, *(f"{kind}://" for kind in BINDING_CLASSES if kind != "topic")]
    raise AddressDraft(url).wrong(
        f"{scheme}:// is not the beginning of an address",
        0,
        f"An address begins with {', '.join(known)} or a queue's name. Brokers belong to the client's configuration.",
    )
