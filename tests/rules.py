"""Rules and ledgers of queues with some options, for tests of the core."""

from __future__ import annotations

from typing import Any

from lvq_kafka.core.ledger.ledger import Ledger
from lvq_kafka.core.log.selecting import Selects
from lvq_kafka.core.queue.definition import QueueDefinition
from lvq_kafka.core.queue.rules import QueueRules

__all__ = ["new_ledger", "rules"]

_OF_LEDGERS = frozenset({"limit", "count_deliveries", "bounded", "pages", "hand_out"})


def rules(*, selects: Selects | None = None, **options: Any) -> QueueRules:
    """Return the rules of a queue that was declared with these options of `QueueDefinition`."""
    return QueueRules.of(QueueDefinition(**{"name": "q", "topic": "t", "key_header": None, **options}), selects)


def new_ledger(**options: Any) -> Ledger:
    """Return a ledger with the options of `Ledger` among these, and the rules for the others."""
    own = {name: options.pop(name) for name in _OF_LEDGERS & options.keys()}
    return Ledger(rules(**options), **own)
