"""A queue as it is served: a view of it, and the form of its values."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from lvq_kafka.codecs import BYTES, CODECS
from lvq_kafka.core.facts import Format
from lvq_kafka.core.log.records import Record
from lvq_kafka.json_lines import value_line
from lvq_kafka.reading.entries import Entry, to_entry
from lvq_kafka.reading.view import LiveMapping
from lvq_kafka.serve.event_cache import EventCache
from lvq_kafka.serve.event_stream import event_bytes
from lvq_kafka.serve.problems import HttpRefusal

__all__ = ["ServedQueue"]

_TYPES: Mapping[Format, str] = {"bytes": "application/octet-stream", "text": "text/plain", "json": "application/json"}


@dataclass(frozen=True, slots=True)
class ServedQueue:
    """A queue, whose view is open."""

    name: str
    view: LiveMapping[bytes]
    form: Format
    """The format of its values. Nothing else decides their type, and no message does."""
    decoded: LiveMapping[Any]
    """The view with its own codec, for columns."""
    shared: EventCache = field(init=False, repr=False, compare=False)
    """The events of values, without ids, for the streams of one event loop."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "shared", EventCache(self._value_event))

    @property
    def media_type(self) -> str:
        """The type of a value, without parameters."""
        return _TYPES[self.form]

    def check_complete(self) -> None:
        """Check that the view has been complete; before, a missing key means nothing (R46).

        Raises:
            HttpRefusal: it has not.
            ReaderFailed, Closed: the view no longer follows the queue.
        """
        if self.view.complete:
            return
        status = self.view.status
        if status.state in ("failed", "closed"):
            _ = self.view.cut  # it raises the reason
        done, total = status.progress
        why = "; ".join(map(str, [*filter(None, [status.trouble]), *status.blocked_by]))
        raise HttpRefusal(
            503,
            f"{self.name} is not complete yet: {done:,} of {total:,} offsets read, {status.state}"
            f"{f' ({why})' if why else ''}.",
            hint="Ask again.",
            headers=[("retry-after", "1"), ("lvq-state", status.state)],
        )

    def _value_event(self, record: Record) -> bytes:
        return event_bytes("value", self.line(to_entry(record, self.view.topic, BYTES)))

    def line(self, entry: Entry[bytes]) -> bytes:
        """Return an entry as JSON, as `lvq_kafka.json_lines` has it, without a line end."""
        at = entry.position
        value: Any = CODECS[self.form].decode_at(entry.value, at, headers=entry.headers, raw_on_error=True)
        shown: Entry[Any] = replace(entry, value=value)
        return value_line(shown, self.form)[:-1]
