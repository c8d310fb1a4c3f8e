"""The life of a message in a queue: its states, what can happen to it, and what follows.

`TRANSITIONS` is the whole of it, as data: the ledger moves by this table, and a diagram can be drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["TRANSITIONS", "Event", "State"]


class State(StrEnum):
    """Where a message stands."""

    AVAILABLE = "available"
    """It waits: for its turn, for the end of catch-up, or for its key to be free."""
    ACQUIRED = "acquired"
    """A holder has it, and it is still the newest value of its key."""
    STALE = "stale"
    """A holder has it, and a newer value or a delete has come since: it will not be offered again."""
    RELEASED = "released"
    """Its holder gave it back; it is available again under a new handle."""
    ACKED = "acked"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    """A newer value or a delete took its place before anybody settled it."""
    LOST = "lost"
    """Its partition went to another consumer, which decides about it now."""


class Event(StrEnum):
    """What can happen to a message."""

    ACQUIRE = "acquire"
    ACK = "ack"
    RELEASE = "release"
    REJECT = "reject"
    SUPERSEDE = "supersede"
    """A newer value, or a delete, of the same key was read."""
    REVOKE = "revoke"


TRANSITIONS: Mapping[Event, Mapping[State, State]] = MappingProxyType(
    {
        Event.ACQUIRE: {State.AVAILABLE: State.ACQUIRED},
        Event.ACK: {State.ACQUIRED: State.ACKED, State.STALE: State.ACKED},
        Event.RELEASE: {State.ACQUIRED: State.RELEASED, State.STALE: State.SUPERSEDED},
        Event.REJECT: {State.ACQUIRED: State.REJECTED, State.STALE: State.REJECTED},
        Event.SUPERSEDE: {
            State.AVAILABLE: State.SUPERSEDED,
            State.ACQUIRED: State.STALE,
            State.STALE: State.STALE,
        },
        Event.REVOKE: {State.AVAILABLE: State.LOST, State.ACQUIRED: State.LOST, State.STALE: State.LOST},
    }
)
"""Event by event, the state that follows each state. Whatever is not listed is refused and changes nothing."""
