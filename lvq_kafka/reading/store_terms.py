"""The meaning of a store's values: the queue, its options, and the selection (R40)."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from hashlib import sha256
from typing import Any

from lvq_kafka.codecs import Undecodable
from lvq_kafka.core.latest.footing import Terms
from lvq_kafka.core.queue.message_groups import Groups
from lvq_kafka.core.queue.rules import KeyRule, OrderRule, QueueRules
from lvq_kafka.reading.selection import Selection

__all__ = ["Subject", "store_terms"]

_LONGEST = 200  # characters of a term; of a longer one, the hash is kept


@dataclass(frozen=True, slots=True)
class Subject:
    """The queue that the values of a store are of, for readers in other processes (R41)."""

    queue: str
    topic: str
    key_header: str | None
    order: OrderRule
    partitions: frozenset[int] | None
    """The partitions that are read; None for all."""
    timed: bool = field(compare=False)
    """Whether messages expire, or may be scheduled. A queue may be altered to either (R39)."""
    groups: Groups | None = None

    @classmethod
    def of(cls, queue: str, rules: QueueRules, partitions: frozenset[int] | None) -> Subject:
        """Return the subject of a view's values.

        Args:
            queue: the name of the queue.
            rules: its rules.
            partitions: the partitions that are read; None for all.
        """
        keys = rules.keys
        return cls(queue, keys.topic, keys.naming_header, rules.order, partitions, rules.times.matters, rules.groups)

    @property
    def rules(self) -> QueueRules:
        """The rules of the queue, as far as they matter to those who only read values."""
        return QueueRules(keys=KeyRule(self.topic, self.key_header), order=self.order, groups=self.groups)

    def to_note(self) -> bytes:
        """Return it as bytes."""
        groups = None if self.groups is None else self.groups.to_wire()
        partitions = self.partitions and sorted(self.partitions)
        return json.dumps({**asdict(self), "partitions": partitions, "groups": groups}).encode()

    @classmethod
    def from_note(cls, note: bytes) -> Subject:
        """Parse the result of `to_note`."""
        said: dict[str, Any] = json.loads(note)
        partitions = said["partitions"] and frozenset(said["partitions"])
        groups = said.get("groups")
        parsed = {"groups": None if groups is None else Groups.from_wire(groups), "partitions": partitions}
        return cls(**{**said, **parsed, "order": OrderRule(**said["order"])})


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
