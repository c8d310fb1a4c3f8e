"""Attributes of queues, as the REST interface of Broker-J takes them.

They are JSON: ``{"name": "prices", "type": "lvq", "lvqKey": "ticker"}``.
"""

from __future__ import annotations

from collections.abc import Mapping

from lvq_kafka.dialects.address import COME_AND_GO, Address, AddressDraft
from lvq_kafka.dialects.map_syntax import MapSyntaxError, Part, parse_map
from lvq_kafka.dialects.qpid_addresses import FILTERS, REPLAY_PERIOD

__all__ = ["parse_attributes"]

# Attributes that a queue cannot have, with the value that asks for nothing, and the reason.
_OFF: Mapping[str, tuple[str, str]] = {
    "exclusive": ("NONE", "any client may use a queue"),
    "lifetimePolicy": ("PERMANENT", COME_AND_GO),
    "noLocal": ("FALSE", "receivers get the messages of all producers"),
}
_OPTIONS = {REPLAY_PERIOD: "default-replay-period", **dict.fromkeys(FILTERS, "default-selector")}
"""By name of a filter, our option for browsers that name none."""


def parse_attributes(text: str) -> Address:
    """Parse the attributes of a queue, in JSON. They declare it if it is missing.

    Raises:
        ConfigError: they are malformed, or ask for something that no queue of this library has; says where.
    """
    draft = AddressDraft(text)
    try:
        attributes = parse_map(text).value
    except MapSyntaxError as error:
        raise draft.malformed(error) from None
    name = attributes.pop("name", None)
    if name is None or not isinstance(name.value, str):
        at = 0 if name is None else name.at
        raise draft.wrong("the attributes need the name of the queue", at, 'For example "name": "prices".')
    draft.note("queue", name.value, name.at)
    draft.note("create", "always", 0)
    for attribute, part in attributes.items():
        if part.value is None:
            continue
        if attribute in _OFF:
            idle, reason = _OFF[attribute]
            if str(part.value).upper() != idle:
                raise draft.refused(f"{attribute} {part.value}", part.named_at, reason, "Leave it out.")
        elif attribute == "durable":
            draft.truth(attribute, part.value, part.at)
        elif attribute == "defaultFilters":
            _read_filters(draft, part)
        elif attribute == "context":
            for variable, inner in _map(draft, part, "context").items():
                draft.option(variable, inner.value, inner.named_at)
        else:
            draft.option(attribute, part.value, part.named_at)
    return draft.finish()


def _read_filters(draft: AddressDraft, part: Part) -> None:
    """Read default filters: by any name, the type of a filter and a list with its argument."""
    shape = f'For example {{"{REPLAY_PERIOD}": {{"{REPLAY_PERIOD}": ["60"]}}}}.'
    for filters in _map(draft, part, "defaultFilters").values():
        for kind, arguments in _map(draft, filters, "defaultFilters").items():
            if kind not in _OPTIONS:
                raise draft.unknown(kind, arguments.named_at, "in defaultFilters", _OPTIONS)
            if not isinstance(arguments.value, list) or len(arguments.value) != 1:
                raise draft.wrong(f"{kind} takes a list with one argument", arguments.at, shape)
            draft.option(_OPTIONS[kind], arguments.value[0].value, arguments.named_at)


def _map(draft: AddressDraft, part: Part, name: str) -> dict[str, Part]:
    if not isinstance(part.value, dict):
        raise draft.wrong(f"{name} is a map", part.at, option=name)
    return part.value
