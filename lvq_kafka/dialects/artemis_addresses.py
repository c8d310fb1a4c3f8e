"""Addresses of Artemis: ``queue://address::queue?last-value-key=code``, or any part of it."""

from __future__ import annotations

import re
from typing import Literal

from lvq_kafka.dialects.address import Address, AddressDraft
from lvq_kafka.dialects.url_options import decoded, url_options

__all__ = ["ARTEMIS_PREFIXES", "parse_artemis_address"]

ARTEMIS_PREFIXES = ("queue://", "topic://")

_HEAD = re.compile(r"(?:(?P<kind>queue|topic)://)?(?P<name>[^?]*)(?P<options>\?|$)", re.DOTALL)


def parse_artemis_address(text: str) -> Address:
    """Parse an address of Artemis, which declares what is missing for any sender or receiver.

    Raises:
        ConfigError: it is malformed, or asks for something that no queue of this library has; says where.
    """
    draft = AddressDraft(text)
    head = _HEAD.match(text)
    assert head is not None  # it matches any text
    at = head.start("name")
    name = decoded(draft, head["name"].replace("+", "%2B"), at)
    draft.name(name, at)
    draft.note("create", "always", at)
    shared = "::" in name
    if head["kind"] is not None:
        _note_routing(draft, "multicast" if head["kind"] == "topic" else "anycast", 0, shared=shared)
    for name, value, at in url_options(draft, head.end() if head["options"] else len(text)):
        if name == "routing-type":
            _note_routing(draft, draft.chosen(name, value, at, Literal["anycast", "multicast"]), at, shared=shared)
        else:
            draft.option(name, value, at)
    return draft.finish()


def _note_routing(draft: AddressDraft, kind: str, at: int, *, shared: bool) -> None:
    """Note how messages reach receivers: all of them get all, or each message goes to one.

    Consumers share a queue that the address names (``address::queue``), even if multicast fills it.
    """
    draft.note("mode", "browse" if kind == "multicast" and not shared else "consume", at, "routing-type")
