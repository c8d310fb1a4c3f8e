"""The life of a message in a queue: its states, events and transitions.

`TRANSITIONS` is all of it, as data: the ledger follows this table, and docs/protocol.md shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["TRANSITIONS", "Event", "State"]


class State(StrEnum):
    """The state of a message."""

    AVAILABLE = "available"
    """It waits for its turn, for the end of catch-up, or for its key to be free."""
    SCHEDULED = "scheduled"
    """It does not count yet (R11). The value that it will replace still does."""
    DELAYED = "delayed"
    """It was released with a delay, and waits for the delay to pass."""
    ACQUIRED = "acquired"
    """It is held, or set aside for a holder, and still the newest value of its key."""
    STALE = "stale"
    """It is held, but superseded by a newer value or a delete: it will not be offered again."""
    LEAVING = "leaving"
    """Its holder is done with it; a transaction or the write of its dead letter decides."""
    LEAVING_STALE = "leaving, stale"
    """Like ``leaving``, but superseded by a newer value or a delete since the hand-out."""
    RELEASED = "released"
    """Its holder returned it; it is available again under a new handle."""
    ACKED = "acked"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    """A newer value or a delete replaced it before it was settled."""
    EXPIRED = "expired"
    """Its time was over before it was settled."""
    EVICTED = "evicted"
    """It was beyond the queue's ring before anybody received it (R12)."""
    LOST = "lost"
    """Its holder lost it: the partition was revoked, or the time to settle it ran out."""


class Event(StrEnum):
    """An event in the life of a message."""

    ACQUIRE = "acquire"
    ACK = "ack"
    RELEASE = "release"
    """Returned by the holder, at once or with a delay."""
    DUE = "due"
    """The delay is over, or the time has come from which on a scheduled message counts."""
    REJECT = "reject"
    LEAVE = "leave"
    """Acked in a transaction, or rejected into a dead letter topic."""
    COMMIT = "commit"
    """The transaction committed."""
    BURY = "bury"
    """The dead letter is stored."""
    RETURN = "return"
    """The transaction aborted, or the dead letter could not be stored."""
    WITHDRAW = "withdraw"
    """Purged or moved by the operator before it was due. A commit decides."""
    EXTEND = "extend"
    """The holder asked for more time."""
    TIME_OUT = "time out"
    """The holder did not settle it in time."""
    SUPERSEDE = "supersede"
    """A newer value or a delete of the same key was read, or is due."""
    EXPIRE = "expire"
    """Its time is over (R10). A message in work stays with its holder; if it comes back, it expires then."""
    EVICT = "evict"
    """Its queue is a ring that has become too full (R12)."""
    REVOKE = "revoke"
    """Its partition was revoked."""


TRANSITIONS: Mapping[Event, Mapping[State, State]] = MappingProxyType(
    {
        Event.ACQUIRE: {State.AVAILABLE: State.ACQUIRED},
        Event.ACK: {State.ACQUIRED: State.ACKED, State.STALE: State.ACKED},
        Event.RELEASE: {State.ACQUIRED: State.RELEASED, State.STALE: State.SUPERSEDED},
        Event.DUE: {State.SCHEDULED: State.AVAILABLE, State.DELAYED: State.AVAILABLE},
        Event.REJECT: {State.ACQUIRED: State.REJECTED, State.STALE: State.REJECTED},
        Event.LEAVE: {State.ACQUIRED: State.LEAVING, State.STALE: State.LEAVING_STALE},
        Event.COMMIT: {State.LEAVING: State.ACKED, State.LEAVING_STALE: State.ACKED},
        Event.BURY: {State.LEAVING: State.REJECTED, State.LEAVING_STALE: State.REJECTED},
        Event.RETURN: {State.LEAVING: State.RELEASED, State.LEAVING_STALE: State.SUPERSEDED},
        Event.WITHDRAW: {State.SCHEDULED: State.LEAVING},
        Event.EXTEND: {State.ACQUIRED: State.ACQUIRED, State.STALE: State.STALE},
        Event.TIME_OUT: {State.ACQUIRED: State.LOST, State.STALE: State.LOST},
        Event.SUPERSEDE: {
            State.SCHEDULED: State.SUPERSEDED,
            State.AVAILABLE: State.SUPERSEDED,
            State.DELAYED: State.SUPERSEDED,
            State.ACQUIRED: State.STALE,
            State.STALE: State.STALE,
            State.LEAVING: State.LEAVING_STALE,
            State.LEAVING_STALE: State.LEAVING_STALE,
        },
        Event.EXPIRE: {State.AVAILABLE: State.EXPIRED, State.DELAYED: State.EXPIRED},
        Event.EVICT: {State.AVAILABLE: State.EVICTED, State.DELAYED: State.EVICTED},
        Event.REVOKE: dict.fromkeys(
            (
                State.SCHEDULED,
                State.AVAILABLE,
                State.DELAYED,
                State.ACQUIRED,
                State.STALE,
                State.LEAVING,
                State.LEAVING_STALE,
            ),
            State.LOST,
        ),
    }
)
"""The next state, by event and state. Anything not listed is refused and changes nothing."""
