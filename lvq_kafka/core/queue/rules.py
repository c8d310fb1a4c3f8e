"""The rules of a queue: the meaning of its definition, composed once.

Consumers, and functions that measure or move a queue's messages, take one `QueueRules`, so that none of them can miss
an option. Rules are immutable. Each reader gets judges of its own from them, since judges count the headers that they
cannot read.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lvq_kafka.core.log.mismatch import KeyMismatchPolicy, choose_keys, only_key_headers
from lvq_kafka.core.log.records import RecordBatch
from lvq_kafka.core.log.selecting import Selects, only_selected
from lvq_kafka.core.queue.definition import KeylessPolicy, QueueDefinition, time_rule
from lvq_kafka.core.queue.foreign_headers import ForeignHeaders
from lvq_kafka.core.queue.limits import Limits
from lvq_kafka.core.queue.message_groups import Groups, Placement
from lvq_kafka.core.queue.ranking import Order, QueueOrder, Ranking, place_order
from lvq_kafka.core.queue.standard import judged_keys
from lvq_kafka.core.timing.time_rule import ALWAYS, TimeRule

__all__ = ["PLAIN", "KeyRule", "OrderRule", "QueueRules"]


@dataclass(frozen=True, slots=True)
class KeyRule:
    """The key of each record (R1, R16), and whether a newer value replaces an older one (R35)."""

    topic: str = ""
    """For errors."""
    header: str | None = None
    """The key header; None if only the record key names the key."""
    mismatch: KeyMismatchPolicy = "record"
    conflates: bool = True
    keyless: KeylessPolicy = "pass"
    """The policy of producers for messages without a key (R1)."""

    @property
    def naming_header(self) -> str | None:
        """The header whose value decides which message is replaced; None in a standard queue."""
        return self.header if self.conflates else None

    def choose(self, batch: RecordBatch) -> tuple[list[bytes | None], int]:
        """Return the key of each record, and the number of mismatches.

        Raises:
            KeyMismatch: there is one, and the policy is ``"fail"``.
        """
        return choose_keys(batch, self.topic, self.naming_header, self.mismatch)

    def of(self, batch: RecordBatch) -> list[bytes | None]:
        """Return the key of each record, without counting mismatches.

        Raises:
            KeyMismatch: there is one, and the policy is ``"fail"``.
        """
        header = self.naming_header
        if self.mismatch == "record" or header is None or not any(batch.headers):
            return batch.keys
        if only_key_headers(header, batch.keys, batch.headers):
            return batch.keys
        return self.choose(batch)[0]


@dataclass(frozen=True, slots=True)
class OrderRule:
    """The order of messages: by arrival (R4), or by rank and then by arrival (R20)."""

    order: QueueOrder = "tail"
    priorities: int | None = None
    sort_header: str | None = None

    @property
    def in_place(self) -> bool:
        """True if a newer value takes the place of the one that it replaces."""
        return self.order == "in-place"

    @property
    def place(self) -> Order:
        """The place of a new value among those of its rank."""
        return place_order(self.order)

    def ranking(self) -> Ranking | None:
        """Return a new judge of ranks; None if messages have none."""
        return Ranking.of(self.order, priorities=self.priorities, sort_header=self.sort_header)


@dataclass(frozen=True, slots=True, kw_only=True)
class QueueRules:
    """The rules of one queue."""

    keys: KeyRule = KeyRule()
    selects: Selects | None = None
    """The condition on a message to be in the queue; None if all are (R26), or nobody asks: producers do not."""
    selector: str | None = None
    """The text of that condition."""
    times: TimeRule = ALWAYS
    order: OrderRule = OrderRule()
    groups: Groups | None = None
    """How messages are grouped; None if each is for any consumer (R36)."""
    limits: Limits | None = None
    """How much the queue may hold; None for no limit (R12)."""

    @classmethod
    def of(cls, definition: QueueDefinition, selects: Selects | None = None) -> QueueRules:
        """Return the rules of a queue.

        Args:
            definition: its definition.
            selects: its selector, compiled; see `lvq_kafka.selectors.of_queues.queue_rules`.
        """
        return cls(
            keys=KeyRule(
                definition.topic,
                definition.key_header,
                definition.key_mismatch,
                definition.conflate,
                definition.keyless,
            ),
            selects=selects,
            selector=definition.selector,
            times=time_rule(definition),
            order=OrderRule(definition.order, definition.priorities, definition.sort_header),
            groups=definition.groups,
            limits=definition.limits,
        )

    @property
    def placement(self) -> Placement:
        """The property by which producers choose the partition of a message (R14, R36)."""
        return "key" if self.groups is None else self.groups.placement

    @property
    def ring(self) -> Limits | None:
        """The limits beyond which waiting messages are evicted; None if they never are (R12)."""
        return self.limits if self.limits is not None and self.limits.policy == "ring" else None

    @property
    def paged(self) -> Limits | None:
        """The limits beyond which consumers keep values on disk; None if they never do (R12)."""
        return self.limits if self.limits is not None and self.limits.policy == "disk" else None

    def foreign_headers(self) -> ForeignHeaders:
        """Return a new judge of headers that mean something in other systems."""
        return ForeignHeaders(
            self.keys.topic,
            scheduled=self.times.max_delay is not None,
            group_header=None if self.groups is None else self.groups.header,
            taken=(self.keys.header, self.order.sort_header),
        )

    def selected(self, batch: RecordBatch, keys: Sequence[bytes | None]) -> RecordBatch:
        """Return the records, with deletes for the values that the queue does not select.

        Args:
            batch: the records.
            keys: the key of each.
        """
        if self.selects is None:
            return batch
        return only_selected(batch, keys if self.keys.conflates else judged_keys(keys), self.selects)


PLAIN = QueueRules()
"""The rules of a last value queue without options, whose record keys are its keys."""
