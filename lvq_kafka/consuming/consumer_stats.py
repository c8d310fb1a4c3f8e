"""What a consumer has, and what it has done."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, Self

from lvq_kafka.core.commits import Commits
from lvq_kafka.core.ledger import Ledger

__all__ = ["ConsumerStats"]


@dataclass(slots=True)
class ConsumerStats:
    """What a consumer has, and what it has done since it was opened. Counts are messages and never negative."""

    partitions: tuple[int, ...] = ()
    """The partitions it is assigned now."""
    catching_up: tuple[int, ...] = ()
    """Those it must still read to their end before it hands out anything of them (G12)."""
    available: int = 0
    """Messages that wait."""
    gated: int = 0
    """Of these, those that wait for lower ones of their partition to be settled, since the commit text has no room for
    them: only where messages are acked in transactions, which commit all or nothing."""
    in_work: int = 0
    """Messages that are held, or on their way to a holder."""
    read: int = 0
    replaced: int = 0
    """Values that were replaced while they waited, by a newer one of their key."""
    deleted: int = 0
    """Values that were deleted while they waited."""
    delivered: int = 0
    redelivered: int = 0
    """Deliveries of messages that were, or may have been, delivered before."""
    acked: int = 0
    released: int = 0
    rejected: int = 0
    timed_out: int = 0
    """Deliveries that were not settled within ``lock_timeout``."""
    lost: int = 0
    """Deliveries whose partition went away before they were settled."""
    mismatched: int = 0
    """Records whose key header disagrees with their record key, or cannot be read (R16)."""
    commits: int = 0
    commit_text: int = 0
    """Characters of the longest commit text."""
    text_limit: int = 0
    """How many characters fit: 4095 by a broker's default, and less after it has refused a text."""
    unsaid: int = 0
    """Runs of acked messages for which the text has no room. They are stored when lower ones are settled; after a crash
    they come again."""
    trouble: str = ""
    """What is the matter just now, and what helps; empty when all is well.

    The cluster cannot be reached, or commits fail. Or nothing is handed out though the cluster answers: no partition is
    assigned, the group accepts no commit, an open transaction hides what follows, or all that may be in work is held.
    Or the commit text has no room for all that is acked.
    """

    @classmethod
    def of(
        cls, ledger: Ledger, commits: Commits[Any], partitions: Iterable[int], *, mismatched: int, trouble: str
    ) -> Self:
        """Read them off."""
        stats = ledger.stats
        return cls(
            partitions=tuple(sorted(partitions)),
            catching_up=tuple(sorted(ledger.catching_up)),
            available=ledger.available,
            gated=ledger.gated,
            in_work=ledger.in_work,
            read=stats.read,
            replaced=stats.replaced,
            deleted=stats.deleted,
            delivered=stats.delivered,
            redelivered=stats.redelivered,
            acked=stats.acked,
            released=stats.released,
            rejected=stats.rejected,
            timed_out=stats.timed_out,
            lost=stats.lost,
            mismatched=mismatched,
            commits=commits.sent,
            commit_text=commits.longest,
            text_limit=ledger.limit,
            unsaid=sum(missing.runs for missing in commits.unsaid.values()),
            trouble=trouble,
        )
