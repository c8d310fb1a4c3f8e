"""A process's journal: a line for each event, in a file that outlives the process."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Sequence
from enum import StrEnum
from pathlib import Path
from typing import Any, NamedTuple

__all__ = ["Event", "Journal", "Kind", "read_journal"]


class Kind(StrEnum):
    """A kind of event. Lines about messages name them by the numbers that this process gave them."""

    ACQUIRED = "acquired"
    """Written before the message is used."""
    ACKING = "acking"
    """Written before the ack, or before the end of the transaction. The same goes for the next two."""
    REJECTING = "rejecting"
    """A rejection with a dead letter topic. Without that topic, to reject is to ack."""
    RELEASING = "releasing"
    DURABLE = "durable"
    VAIN = "vain"
    """The lock was lost before the ack (``refused``) or its commit, or the dead letter could not be stored."""
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """It is unknown whether the transaction was committed."""
    GOT = "got"
    GONE = "gone"
    PAGED = "paged"
    """Values lie on disk."""
    EVICTED = "evicted"
    """A ring dropped a message that waited, as done."""
    CLOSING = "closing"
    """The process leaves. It has acked everything that it will ack."""
    CLOSED = "closed"
    SAID = "said"
    """A line of the library's log, to help explain a finding."""
    FAILED = "failed"
    """The consumer stopped with an error, and a new one helps."""
    DIED = "died"
    """The consumer stopped with another error."""


class Event(NamedTuple):
    """A line of a journal. ``at`` is in seconds of the machine's monotonic clock, which all processes share."""

    kind: Kind
    at: float
    facts: dict[str, Any]


class Journal:
    """Appends events. A line is one write, so threads do not mix lines, and a kill tears none."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: Kind, **facts: Any) -> None:
        """Append an event. On return it is in the file, even if the process dies."""
        line = json.dumps({"kind": kind, "at": time.monotonic(), **facts}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def read_journal(path: Path) -> Sequence[Event]:
    """Return all events, in the order of their lines."""
    if not path.exists():
        return []
    events = []
    for line in path.read_text().splitlines():
        facts = json.loads(line)
        events.append(Event(Kind(facts.pop("kind")), facts.pop("at"), facts))
    return events
