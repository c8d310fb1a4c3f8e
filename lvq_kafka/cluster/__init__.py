"""The ports to a cluster, implemented by the Kafka client and by the in-memory cluster.

Drivers (producer, view, browser, consumer) know these protocols and nothing about a client. The adapters are
`lvq_kafka.kafka.KafkaCluster` and `lvq_kafka.testing.MemoryCluster`; one contract suite runs on both.

Every call that talks to a cluster may raise `TransportError` and its subclasses (`BrokerUnavailable`,
`AuthenticationFailed`, `Unauthorized`); the docstrings list only additional errors. Timeouts are in seconds.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol, runtime_checkable

from lvq_kafka.cluster.admin import Assigned, ConsumerGroups, LogEnd, Logs, TopicDescription, Topics
from lvq_kafka.cluster.clients import (
    Answered,
    Commit,
    GroupListener,
    GroupMember,
    LogReader,
    LogWriter,
    Membership,
    Receipt,
)

__all__ = [
    "Answered",
    "Assigned",
    "Cluster",
    "Commit",
    "ConsumerGroups",
    "GroupListener",
    "GroupMember",
    "LogEnd",
    "LogReader",
    "LogWriter",
    "Logs",
    "Membership",
    "Receipt",
    "TopicDescription",
    "Topics",
]


@runtime_checkable
class Cluster(Protocol):
    """A cluster: its topics, logs and groups, with their readers and writers. Thread-safe."""

    topics: Topics
    logs: Logs
    groups: ConsumerGroups

    def now(self) -> float:
        """Return the time in seconds since the epoch, by which messages expire.

        A client cannot read a broker's clock, so on Kafka this is the machine's own. It never blocks.
        """

    def broker_count(self, *, timeout: float = 10.0) -> int:
        """Return the number of live brokers.

        Raises:
            BrokerUnavailable: the broker that answers knows of none.
        """

    def reader(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        late: bool = False,
        decided: bool = True,
    ) -> LogReader:
        """Return a reader that starts at these positions, one for each partition to read.

        Without ``headers``, records arrive as if they had no headers; if they do have some, that halves the work. With
        ``late``, a batch may build its columns and read headers on first access: that pays off if only a few of many
        records are kept, through `RecordBatch.entries`. With ``decided=False``, the records of open and aborted
        transactions come, too.
        """

    def member(self, group: str, topic: str, listener: GroupListener, *, renews: bool = False) -> GroupMember:
        """Return a new member of a group, subscribed to the topic.

        With ``renews``, the group's commits are as new when it leaves, whatever the members of the group usually do;
        see `ConsumerGroups.retention`.
        """

    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        """Return a writer.

        With a transactional id, it writes only in transactions, and fences off its predecessor. ``max_block`` is how
        many seconds an append may wait for room in the local buffer; None for no limit.
        """

    def close(self) -> None:
        """Close what the cluster itself holds open, but not its readers, members and writers.

        From then on it opens and answers nothing: every other call but `now` raises `Closed`. A second `close` does
        nothing.
        """
