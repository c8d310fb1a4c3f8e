"""The life of a message in a queue: its states, what can happen to it, and what follows.

`TRANSITIONS` is the whole of it, as data: the ledger moves by this table, and a diagram can be drawn from it.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
from types import MappingProxyType

__all__ = ["TRANSITIONS", "Event", "State", "diagram"]


class State(StrEnum):
    """Where a message stands."""

    AVAILABLE = "available"
    """It waits: for its turn, for the end of catch-up, or for its key to be free."""
    DELAYED = "delayed"
    """It was given back with a delay, and waits for that to pass."""
    ACQUIRED = "acquired"
    """A holder has it, or it is set aside for one, and it is still the newest value of its key."""
    STALE = "stale"
    """A holder has it, and a newer value or a delete has come since: it will not be offered again."""
    LEAVING = "leaving"
    """Its holder is done with it, and something else decides: a transaction, or the write of its dead letter."""
    LEAVING_STALE = "leaving, stale"
    """As ``leaving``, and a newer value or a delete has come since it was handed out."""
    RELEASED = "released"
    """Its holder gave it back; it is available again under a new handle."""
    ACKED = "acked"
    REJECTED = "rejected"
    SUPERSEDED = "superseded"
    """A newer value or a delete took its place before anybody settled it."""
    LOST = "lost"
    """Its holder has it no more: its partition went to another consumer, or the time to settle it was over."""


class Event(StrEnum):
    """What can happen to a message."""

    ACQUIRE = "acquire"
    ACK = "ack"
    RELEASE = "release"
    """Given back, at once or with a delay."""
    DUE = "due"
    """The delay is over."""
    REJECT = "reject"
    LEAVE = "leave"
    """Acked in a transaction, or rejected where rejects go to a dead letter topic first."""
    COMMIT = "commit"
    """The transaction has committed."""
    BURY = "bury"
    """The dead letter is stored."""
    RETURN = "return"
    """The transaction has aborted, or the dead letter could not be stored."""
    EXTEND = "extend"
    """Its holder asks for more time."""
    TIME_OUT = "time out"
    """Its holder did not settle it in time."""
    SUPERSEDE = "supersede"
    """A newer value, or a delete, of the same key was read."""
    REVOKE = "revoke"
    """Its partition went away."""


TRANSITIONS: Mapping[Event, Mapping[State, State]] = MappingProxyType(
    {
        Event.ACQUIRE: {State.AVAILABLE: State.ACQUIRED},
        Event.ACK: {State.ACQUIRED: State.ACKED, State.STALE: State.ACKED},
        Event.RELEASE: {State.ACQUIRED: State.RELEASED, State.STALE: State.SUPERSEDED},
        Event.DUE: {State.DELAYED: State.AVAILABLE},
        Event.REJECT: {State.ACQUIRED: State.REJECTED, State.STALE: State.REJECTED},
        Event.LEAVE: {State.ACQUIRED: State.LEAVING, State.STALE: State.LEAVING_STALE},
        Event.COMMIT: {State.LEAVING: State.ACKED, State.LEAVING_STALE: State.ACKED},
        Event.BURY: {State.LEAVING: State.REJECTED, State.LEAVING_STALE: State.REJECTED},
        Event.RETURN: {State.LEAVING: State.RELEASED, State.LEAVING_STALE: State.SUPERSEDED},
        Event.EXTEND: {State.ACQUIRED: State.ACQUIRED, State.STALE: State.STALE},
        Event.TIME_OUT: {State.ACQUIRED: State.LOST, State.STALE: State.LOST},
        Event.SUPERSEDE: {
            State.AVAILABLE: State.SUPERSEDED,
            State.DELAYED: State.SUPERSEDED,
            State.ACQUIRED: State.STALE,
            State.STALE: State.STALE,
            State.LEAVING: State.LEAVING_STALE,
            State.LEAVING_STALE: State.LEAVING_STALE,
        },
        Event.REVOKE: dict.fromkeys(
            (
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
"""Event by event, the state that follows each state. Whatever is not listed is refused and changes nothing."""


def diagram() -> str:
    """The table as a Mermaid state diagram, for CONSUMING.md."""
    arrows: dict[tuple[State, State], list[str]] = {}
    for event, outcomes in TRANSITIONS.items():
        for before, after in outcomes.items():
            arrows.setdefault((before, after), []).append(event.value)
    ends = [state for state in State if all(before is not state for before, _ in arrows)]
    lines = ["stateDiagram-v2", f"    [*] --> {State.AVAILABLE.name}: read"]
    lines += [f"    {before.name} --> {after.name}: {' / '.join(events)}" for (before, after), events in arrows.items()]
    lines += [f"    {State.RELEASED.name} --> {again.name}: new handle" for again in (State.AVAILABLE, State.DELAYED)]
    lines += [f"    {state.name} --> [*]" for state in ends if state is not State.RELEASED]
    return "\n".join(lines)
