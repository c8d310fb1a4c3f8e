"""The meaning of a store's values: the queue, its options, and the selection (R40)."""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Any

from lvq_kafka.codecs import Undecodable
from lvq_kafka.core.latest.footing import Terms
from lvq_kafka.core.queue.rules import QueueRules
from lvq_kafka.reading.selection import Selection

__all__ = ["store_terms"]

_LONGEST = 200  # characters of a term; of a longer one, the hash is kept


def store_terms(rules: QueueRules, selector: str | None, selection: Selection[Any], undecodable: Undecodable) -> Terms:
    """Return the terms of a view's values.

    Args:
        rules: the rules of the queue.
        selector: the selector of the queue.
        selection: what the view selects.
        undecodable: what the view does with values that it cannot decode.
    """
    keys = rules.keys
    said = {
        "topic": keys.topic,
        "key header": "none" if keys.header is None else keys.header,
        "key_mismatch": keys.mismatch,
        "order": rules.order.order,
        "placement": rules.placement,
        "selector": "none" if selector is None else selector,
        "time rule": json.dumps(rules.times.to_wire(), sort_keys=True),
        "selection": json.dumps(selection.said, sort_keys=True),
    }
    lasting = not selection.by_function and undecodable != "skip"
    return Terms({name: _bounded(value) for name, value in said.items()}, lasting)


def _bounded(text: str) -> str:
    return text if len(text) <= _LONGEST else sha256(text.encode()).hexdigest()
