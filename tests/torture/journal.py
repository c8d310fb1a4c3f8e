"""The traces of a process: a line for every event, in a file of its own that outlives it."""

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
    """Written before anything is done with the message."""
    ACKING = "acking"
    """Written before the ack, or before the end of the transaction; so with the next two."""
    REJECTING = "rejecting"
    """To a dead letter topic; where there is none, to reject is to ack."""
    RELEASING = "releasing"
    DURABLE = "durable"
    VAIN = "vain"
    """The lock was lost before the ack (then it was ``refused``), or before it was durable; or its dead letter
    could not be stored."""
    ABORTED = "aborted"
    UNKNOWN = "unknown"
    """Whether the transaction has committed is not known."""
    GOT = "got"
    GONE = "gone"
    CLOSING = "closing"
    """It leaves; all that it acks it has acked."""
    CLOSED = "closed"
    SAID = "said"
    """A line of the library's log, for those who look for the reason of a finding."""
    FAILED = "failed"
    """The consumer stopped with an error that a new one helps against."""
    DIED = "died"
    """It stopped with another one."""


class Event(NamedTuple):
    """A line of a journal. ``at`` are seconds of the machine's monotonic clock, which all processes share."""

    kind: Kind
    at: float
    facts: dict[str, Any]


class Journal:
    """Appends events. A line is one write, so that those of several threads do not mix, and a kill tears none."""

    def __init__(self, path: str) -> None:
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)

    def write(self, kind: Kind, **facts: Any) -> None:
        """Append an event; it is in the file, whatever becomes of this process, when this returns."""
        line = json.dumps({"kind": kind, "at": time.monotonic(), **facts}, separators=(",", ":"))
        os.write(self._file, line.encode() + b"\n")


def read_journal(path: Path) -> Sequence[Event]:
    """All events, in the order of their lines."""
    if not path.exists():
        return []
    events = []
    for line in path.read_text().splitlines():
        facts = json.loads(line)
        events.append(Event(Kind(facts.pop("kind")), facts.pop("at"), facts))
    return events
