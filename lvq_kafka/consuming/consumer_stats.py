"""A consumer's current state and counters."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Self

from lvq_kafka.core.consumer.consumer_core import ConsumerCore

__all__ = ["ConsumerStats"]


@dataclass(slots=True)
class ConsumerStats:
    """A consumer's current state, and its counters since it was opened.

    Counts are numbers of messages and never negative.
    """

    partitions: tuple[int, ...] = ()
    """The currently assigned partitions."""
    standby: bool = False
    """True if the consumer has no partition because the group has more members than the topic partitions.

    It takes over when another consumer leaves. To work in parallel, share one consumer between threads, tasks, workers
    or sessions, or declare the queue on more partitions. Known within seconds, if this user may describe the group.
    """
    catching_up: tuple[int, ...] = ()
    """Partitions that must be read to their end before anything is handed out from them (G12)."""
    positions: Mapping[int, int] = field(default_factory=dict)
    """By assigned partition, the offset that is read next."""
    suspended: bool = False
    """True while messages wait for the group to accept a commit, since others may have them by now."""
    available: int = 0
    """Messages waiting to be acquired, some of them until an older value of their key is settled (G13)."""
    gated: int = 0
    """Of these, messages that wait for room in the commit text, until lower ones of their partition are settled.

    Only with transactions, which commit all or nothing, and in queues with an order by rank: there, order is exact
    among the first messages only (R20). If no other message has room, they are handed out one after another, outside of
    transactions.
    """
    out_of_order: int = 0
    """Messages handed out although one of better rank waited for room in the commit text (R20)."""
    in_work: int = 0
    """Messages that are held, or on their way to a holder."""
    groups: int = 0
    """Message groups of which messages wait (R36)."""
    pinned: int = 0
    """Groups whose messages are for one session only, whether any waits or not."""
    sessions: int = 0
    """Sessions that are open; none without groups."""
    scheduled: int = 0
    """Messages that do not count yet (R11); deletes that do not are not counted."""
    read: int = 0
    replaced: int = 0
    """Values replaced by a newer one of their key while waiting."""
    deleted: int = 0
    """Values deleted while waiting."""
    expired: int = 0
    """Messages that expired before anyone received them (R10)."""
    evicted: int = 0
    """Waiting messages that were beyond the queue's ring (R12)."""
    displaced: int = 0
    """Keys whose places only this consumer knows (R4).

    The commit text had no room for the places, so the next consumer and browsers find these keys where their newest
    values are.
    """
    paged: int = 0
    """Waiting messages whose values are on disk (R12)."""
    paged_bytes: int = 0
    """The bytes of these values."""
    not_paged: int = 0
    """Values that stayed in memory beyond the limits, since the disk refused them."""
    delivered: int = 0
    redelivered: int = 0
    """Deliveries of messages that were, or may have been, delivered before."""
    acked: int = 0
    released: int = 0
    rejected: int = 0
    timed_out: int = 0
    """Deliveries not settled within ``lock_timeout``."""
    lost: int = 0
    """Deliveries whose partition was revoked or lost before they were settled."""
    mismatched: int = 0
    """Records whose key header disagrees with their record key, or cannot be read (R16)."""
    ignored: int = 0
    """Deletes in a standard queue, where they mean nothing (R35)."""
    unjudged: int = 0
    """Messages with a text too long for a pattern of the queue's selector: unknown, and so not in the queue (R26)."""
    malformed: int = 0
    """Messages whose TTL is 0, or whose TTL, due time or rank cannot be read (R10, R11, R20).

    They count as having none of their own.
    """
    clock_behind: float = 0.0
    """Seconds by which the newest message read is ahead of this machine's clock.

    The clock is slow by at least this much, or a producer's fast. Messages are due and expire by the later time of
    the two, unless the message is ahead by more than an hour.
    """
    commits: int = 0
    commit_text: int = 0
    """Characters of the longest commit text."""
    text_limit: int = 0
    """The number of characters that fit: a broker's default of 4095, or less after a refusal."""
    omitted: int = 0
    """Runs of messages that are done, by an ack or an eviction, and do not fit into the commit text.

    They are stored once lower messages are settled; after a crash these messages are redelivered.
    """
    trouble: str = ""
    """The current problem, and its remedy; empty when all is well.

    The cluster cannot be reached, or commits fail. Or nothing is handed out even though the cluster answers: no
    partition is assigned, the group accepts no commit, an open transaction hides later records, all messages that may
    be in work are held, or all waiting messages are in message groups of other sessions than the callers'. Or the
    commit text has no room for all acks. Or values cannot be paged to disk.
    """

    @classmethod
    def of(cls, core: ConsumerCore[Any], now: float) -> Self:
        """Build the stats from a consumer's core.

        Args:
            now: the time by the consumer's clock.
        """
        ledger, commits = core.ledger, core.commits
        assignment, stats, times = ledger.assignment, ledger.stats, ledger.times
        groups, paging = ledger.groups, ledger.paging
        return cls(
            partitions=tuple(sorted(core.partitions)),
            standby=core.stands_by and not core.partitions,
            catching_up=tuple(sorted(assignment.catching_up)),
            positions=assignment.positions,
            suspended=core.hand_out.is_suspended(now),
            available=assignment.available,
            gated=assignment.gated,
            out_of_order=stats.out_of_order,
            in_work=ledger.in_work,
            groups=0 if groups is None else groups.waiting,
            pinned=0 if groups is None else groups.pinned,
            sessions=0 if groups is None else groups.sessions,
            scheduled=0 if times is None else times.scheduled,
            read=stats.read,
            replaced=stats.replaced,
            deleted=stats.deleted,
            expired=stats.expired,
            evicted=stats.evicted,
            displaced=stats.displaced,
            paged=0 if paging is None else paging.messages,
            paged_bytes=0 if paging is None else paging.bytes,
            not_paged=0 if paging is None else paging.refused,
            delivered=stats.delivered,
            redelivered=stats.redelivered,
            acked=stats.acked,
            released=stats.released,
            rejected=stats.rejected,
            timed_out=stats.timed_out,
            lost=stats.lost,
            mismatched=core.mismatched,
            ignored=core.ignored,
            malformed=sum(judge.malformed for judge in (times, ledger.ranking) if judge is not None),
            clock_behind=0.0 if times is None else times.time.behind / 1000,
            commits=commits.sent,
            commit_text=commits.longest,
            text_limit=ledger.capacity.limit,
            omitted=sum(missing.runs for missing in commits.omitted.values()),
            trouble=core.obstacle,
        )
