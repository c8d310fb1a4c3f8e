"""The counters of a ledger."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LedgerStats"]


@dataclass(slots=True)
class LedgerStats:
    """Counts of messages since a ledger began, over all partitions it was ever assigned."""

    read: int = 0
    """Values read, except those that the group had consumed before."""
    replaced: int = 0
    """Waiting values replaced by a newer one of their key."""
    deleted: int = 0
    """Waiting values removed by a delete, or by a value that is not in the queue (R26)."""
    expired: int = 0
    """Messages that expired before anyone received them."""
    evicted: int = 0
    """Waiting messages that were beyond the queue's ring (R12)."""
    displaced: int = 0
    """Keys that lost their places, since the commit map had no room for them (R4)."""
    delivered: int = 0
    redelivered: int = 0
    """Deliveries that were not, or may not have been, the first of their message."""
    acked: int = 0
    rejected: int = 0
    released: int = 0
    timed_out: int = 0
    """Deliveries that the holder did not settle in time."""
    lost: int = 0
    """Deliveries whose partition was revoked before they were settled."""
    out_of_order: int = 0
    """Messages handed out although one of better rank waited for room in the commit map (R20)."""
