"""What a ledger counts."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["LedgerStats"]


@dataclass(slots=True)
class LedgerStats:
    """What a ledger has seen since it began; messages, over all partitions it was ever assigned."""

    read: int = 0
    """Values that were taken in. Those that the group had consumed before do not count."""
    replaced: int = 0
    """Values that were waiting when a newer one of their key took their place."""
    deleted: int = 0
    """Values that were waiting when a delete removed them."""
    delivered: int = 0
    redelivered: int = 0
    """Deliveries that were not the first of their message, or may not have been."""
    acked: int = 0
    rejected: int = 0
    released: int = 0
    timed_out: int = 0
    """Deliveries whose holder did not settle them in time."""
    lost: int = 0
    """Deliveries whose partition went away before they were settled."""
