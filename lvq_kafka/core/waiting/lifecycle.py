"""The life of a message in a queue: its states, events and transitions.

`TRANSITIONS` lists them all: the ledger follows this table, and docs/protocol.md shows it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["TRANSITIONS", "MessageEvent", "MessageState"]


class MessageState(StrEnum):
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
    """The queue's ring was too full for it before a holder received it (R12)."""
    LOST = "lost"
    """Its holder lost it: the partition was revoked, or the time to settle it ran out."""


class MessageEvent(StrEnum):
    """An event in the life of a message."""

    ACQUIRE = "acquire"
    ACK = "ack"
    RELEASE = "release"
    """Returned by the holder, at once or with a delay."""
    DUE = "due"
    """The delay is over, or a scheduled message is due."""
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
    """Its time is over (R10). A message in work stays with its holder; if returned, it expires then."""
    EVICT = "evict"
    """Its queue is a ring that has become too full (R12)."""
    REVOKE = "revoke"
    """Its partition was revoked."""


(
    _AVAILABLE,
    _SCHEDULED,
    _DELAYED,
    _ACQUIRED,
    _STALE,
    _LEAVING,
    _LEAVING_STALE,
    _RELEASED,
    _ACKED,
    _REJECTED,
    _SUPERSEDED,
    _EXPIRED,
    _EVICTED,
    _LOST,
) = MessageState

TRANSITIONS: Mapping[MessageEvent, Mapping[MessageState, MessageState]] = MappingProxyType(
    {
        MessageEvent.ACQUIRE: {_AVAILABLE: _ACQUIRED},
        MessageEvent.ACK: {_ACQUIRED: _ACKED, _STALE: _ACKED},
        MessageEvent.RELEASE: {_ACQUIRED: _RELEASED, _STALE: _SUPERSEDED},
        MessageEvent.DUE: {_SCHEDULED: _AVAILABLE, _DELAYED: _AVAILABLE},
        MessageEvent.REJECT: {_ACQUIRED: _REJECTED, _STALE: _REJECTED},
        MessageEvent.LEAVE: {_ACQUIRED: _LEAVING, _STALE: _LEAVING_STALE},
        MessageEvent.COMMIT: {_LEAVING: _ACKED, _LEAVING_STALE: _ACKED},
        MessageEvent.BURY: {_LEAVING: _REJECTED, _LEAVING_STALE: _REJECTED},
        MessageEvent.RETURN: {_LEAVING: _RELEASED, _LEAVING_STALE: _SUPERSEDED},
        MessageEvent.WITHDRAW: {_SCHEDULED: _LEAVING},
        MessageEvent.EXTEND: {_ACQUIRED: _ACQUIRED, _STALE: _STALE},
        MessageEvent.TIME_OUT: {_ACQUIRED: _LOST, _STALE: _LOST},
        MessageEvent.SUPERSEDE: {
            _SCHEDULED: _SUPERSEDED,
            _AVAILABLE: _SUPERSEDED,
            _DELAYED: _SUPERSEDED,
            _ACQUIRED: _STALE,
            _STALE: _STALE,
            _LEAVING: _LEAVING_STALE,
            _LEAVING_STALE: _LEAVING_STALE,
        },
        MessageEvent.EXPIRE: {_AVAILABLE: _EXPIRED, _DELAYED: _EXPIRED},
        MessageEvent.EVICT: {_AVAILABLE: _EVICTED, _DELAYED: _EVICTED},
        MessageEvent.REVOKE: dict.fromkeys(
            (_SCHEDULED, _AVAILABLE, _DELAYED, _ACQUIRED, _STALE, _LEAVING, _LEAVING_STALE),
            _LOST,
        ),
    }
)
"""The next state, by event and state. Anything not listed is refused and changes nothing."""
