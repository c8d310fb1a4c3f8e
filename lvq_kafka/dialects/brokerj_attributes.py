"""Attributes of queues, as the REST interface of Broker-J takes them.

They are JSON: ``{"name": "prices", "type": "lvq", "lvqKey": "ticker"}``.
"""

from __future__ import annotations

from lvq_kafka.dialects.address import Address, AddressDraft
from lvq_kafka.dialects.map_syntax import MapSyntaxError, parse_map, plain

__all__ = ["parse_attributes"]


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
        if attribute == "context" and isinstance(part.value, dict):
            for variable, inner in part.value.items():
                draft.option(variable, plain(inner), inner.named_at)
        elif part.value is not None:
            draft.option(attribute, plain(part), part.named_at)
    return draft.finish()
