"""The fate of a record of another topic that feeds a queue: a message, or nothing (R29)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Literal, NamedTuple

from lvq_kafka.core.log.records import UNREADABLE, Record, header_value
from lvq_kafka.core.log.selecting import Selects
from lvq_kafka.core.producer.field_lifter import FieldLifter
from lvq_kafka.core.queue.rules import KeyRule
from lvq_kafka.core.text.quoting import quoted

__all__ = ["FeedRules", "LeftOut", "Reason"]

Reason = Literal["unselected", "unreadable", "keyless"]
"""Why a record is no message of the queue."""


class LeftOut(NamedTuple):
    """A record that the queue does not get."""

    reason: Reason
    told: str = ""
    """The fault and the remedy; empty if there is no fault."""


class FeedRules:
    """Judges each record by itself, before any value replaces another.

    Args:
        keys: the rule of the queue's keys.
        reads: the headers that the queue's selector reads.
        selects: that selector; None if the queue takes all messages.
    """

    def __init__(self, keys: KeyRule, reads: Iterable[str] = (), selects: Selects | None = None) -> None:
        self._header = keys.header
        self._needs_key = keys.conflates
        self._selects = selects
        self._lifter = FieldLifter({*reads, *filter(None, (keys.header,))}, keys.header)

    def message_of(self, record: Record) -> Record | LeftOut:
        """Return the record with its key, and with all headers that the queue looks at."""
        if record.headers is UNREADABLE:
            return LeftOut("unreadable", "its headers cannot be read, as a name among them is not UTF-8 (R16).")
        lifted, fault = self._lifter.lift(record)
        key = record.key if self._header is None else header_value(lifted.headers, self._header)
        message = lifted._replace(key=key)
        selected = self._selects is None or self._selects(message)
        if selected and (key is not None or not self._needs_key):
            return message
        if fault:
            return LeftOut("unreadable", f"{fault}. Send objects of JSON, or set the headers that the queue looks at.")
        return self._keyless(record) if selected else LeftOut("unselected")

    def _keyless(self, record: Record) -> LeftOut:
        if self._header is None:
            return LeftOut("keyless", "it has no record key. Send it with one.")
        name = quoted(self._header)
        if record.value is None:
            return LeftOut("keyless", f"it is a delete without the header {name}. Set that header to the key.")
        where = f"no header {name}, and its body no field of that name that is text, a whole number or a boolean"
        return LeftOut("keyless", f"it has {where}. Send it with one of them.")
