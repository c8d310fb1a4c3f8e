"""The ports to a cluster, implemented by the Kafka client and by the in-memory cluster.

Drivers (producer, view, browser, consumer) know these protocols and nothing about a client. The adapters are
`lvq_kafka.kafka.KafkaCluster` and `lvq_kafka.testing.MemoryCluster`; one contract suite runs on both.

Every call that talks to a cluster may raise `TransportError` and its subclasses (`BrokerUnavailable`,
`AuthenticationFailed`, `Unauthorized`); the docstrings list only additional errors. Timeouts are in seconds.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Protocol, runtime_checkable

from lvq_kafka.core.records import Fetch, Position
from lvq_kafka.core.rights import Operation
from lvq_kafka.errors import TransportError

__all__ = [
    "Answered",
    "Cluster",
    "Commit",
    "GroupListener",
    "GroupMember",
    "LogEnd",
    "LogReader",
    "LogWriter",
    "Receipt",
    "TopicDescription",
]


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """A topic as the cluster describes it. ``id`` changes when the topic is recreated."""

    name: str
    id: str
    partitions: int
    replication_factor: int


class LogEnd(NamedTuple):
    """The end of a partition's log and its leader epoch; -1 if unknown."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's committed offset in one partition, with its metadata text.

    ``leader_epoch`` is the last epoch of the records that the group has read there; -1 if unknown. See
    `Cluster.overwritten`. Comparisons ignore it, since not every broker stores it.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = field(default=-1, compare=False)


class Receipt(Protocol):
    """The outcome of one append, as a future.

    It resolves to the record's position once all replicas have the record (G14). ``await receipt`` returns the
    position, too, or raises what `result` raises.
    """

    def result(self, timeout: float | None = None) -> Position:
        """Wait for the position.

        Raises:
            DeliveryFailed: the message was not stored (`MessageTooLarge`: the topic rejected its size).
            DeliveryUnknown: the message may have been stored, and this will never be known.
            OutcomeUnknown: it was not decided in time.
        """

    def __await__(self) -> Generator[Any, None, Position]: ...

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait; return the error that `result` would raise for a failed message, or None.

        Raises:
            OutcomeUnknown: it was not decided in time.
        """

    def done(self) -> bool:
        """Return whether the outcome is known."""

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call back when the outcome is known, or at once if it already is.

        The callback runs on the thread that learns the outcome, so keep it short.
        """


class LogWriter(Protocol):
    """Appends to topics. Thread-safe.

    Appends are idempotent, acknowledged by all in-sync replicas, and partitioned by murmur2.
    """

    def append(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> Receipt:
        """Hand over one record; blocks while the local buffer is full.

        Raises:
            MessageTooLarge: the client rejects the size.
            TransportError: there was no room in time (code ``_QUEUE_FULL``), or a newer writer with this transactional
                id has fenced this one off (``_FENCED``).
            StateError: there is a transactional id, and no transaction is open.
            Closed: the writer is closed.
        """

    def flush(self, timeout: float | None = None) -> int:
        """Wait until every append is decided; return how many still are not."""

    def pop_failures(self) -> list[TransportError]:
        """Return the errors of failed appends that no one has seen, each once.

        An error is seen when its receipt is asked for it (`result`, `exception`).
        """

    def begin_transaction(self, timeout: float | None = None) -> None:
        """Open a transaction. Appends belong to it until it ends.

        If the end of the previous transaction was not answered, its outcome is resolved first.

        Raises:
            TransportError: the outcome could not be resolved in time (retriable), or a newer writer with this
                transactional id has fenced this one off (code ``_FENCED``).
            StateError: a transaction is already open.
        """

    def send_offsets(self, member: GroupMember, offsets: Mapping[int, Commit], timeout: float | None = None) -> None:
        """Make a group's commit part of the open transaction.

        Raises:
            TransportError: the commit was refused, or not answered in time; the transaction can then only be aborted,
                if at all.
        """

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Make the transaction's records visible, all or none."""

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop the transaction's records."""

    def close(self, timeout: float | None = None) -> int:
        """Flush and close; return how many appends are undecided. Their receipts fail."""


class LogReader(Protocol):
    """Reads partitions of one topic without a group. For use by one thread."""

    def poll(self, timeout: float) -> Fetch:
        """Wait up to ``timeout`` for new records and return all that are ready, possibly none.

        Positions also advance past markers, aborted records and gaps; they are reported at the end of a partition at
        the latest. Returns only committed records, up to the last stable offset.

        Raises:
            TopicNotFound: the topic no longer exists.
            DataLoss: a position is below the log start offset or beyond the end of the log.
            TransportError: ``retriable`` if the reader continues by itself once the cluster is back.
        """

    def assign(self, positions: Mapping[int, int]) -> None:
        """Also read these partitions, each from its offset.

        A partition that is already being read restarts there.
        """

    def close(self) -> None:
        """Close the connection."""


Answered = Callable[[Mapping[int, "TransportError | None"]], None]
"""Receives a commit's outcome by partition: None if stored, else why that is unknown."""


class GroupListener(Protocol):
    """Handles assigned, revoked and lost partitions.

    Called inside `GroupMember.poll` and `close`, on the polling thread.
    """

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """Handle new partitions and their commits; return where to start reading each partition.

        Partitions without a commit are missing from ``commits``. Errors propagate out of the poll. The next poll calls
        this again; until then, nothing is read from these partitions.
        """

    def revoked(self, partitions: Sequence[int]) -> None:
        """Handle partitions about to be revoked: the last chance to commit for them."""

    def lost(self, partitions: Sequence[int]) -> None:
        """Handle partitions that are already lost: nothing can be committed for them."""


class GroupMember(Protocol):
    """A member of a consumer group on one topic. For use by one thread."""

    @property
    def losses(self) -> int:
        """The number of connections lost while in use.

        A commit in flight at that moment is sent again, so it may arrive a second time, late. A loss is counted before
        any answer to a request that was resent because of it.
        """

    def poll(self, timeout: float) -> Fetch:
        """Like `LogReader.poll`, for the assigned partitions; also drives the membership."""

    def commit(self, commits: Mapping[int, Commit]) -> None:
        """Commit synchronously for currently assigned partitions.

        Raises:
            TransportError: it is unknown what was stored; commit the current state after the next poll.
        """

    def commit_async(self, commits: Mapping[int, Commit], answered: Answered) -> None:
        """Commit for currently assigned partitions; a later `poll` reports the outcome.

        The outcome may never be reported: a member that loses its coordinator can lose the answer, too.

        Raises:
            TransportError: as for `commit`.
        """

    def close(self) -> None:
        """Leave the group; the listener sees the revocation first."""


@runtime_checkable
class Cluster(Protocol):
    """A cluster: its topics, offsets and groups, with their readers and writers. Thread-safe."""

    def describe_topic(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        """Describe a topic.

        Raises:
            TopicNotFound: it does not exist, or this user may not see it.
        """

    def topic_config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        """Return the topic's settings, including defaults.

        Raises:
            TopicNotFound: it does not exist.
            Unauthorized: this user may not read its settings.
        """

    def create_topic(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> bool:
        """Create a topic; return False if it already exists.

        With ``replication_factor`` None, the cluster's default applies.
        """

    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        """Raise what `create_topic` would raise, without creating anything."""

    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        """Check whether this user may perform an operation on a topic, without performing it.

        The check goes as far as the cluster reveals.

        Raises:
            Unauthorized: the user may not.
            TopicNotFound: the topic does not exist.
        """

    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        """Check whether this user may commit for a group on a topic, without committing.

        Neither has to exist.

        Raises:
            Unauthorized: the user may not.
        """

    def alter_topic_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """Change these settings and leave the others alone."""

    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        """Raise the partition count."""

    def delete_topic(self, topic: str, *, timeout: float = 10.0) -> None:
        """Delete a topic.

        Raises:
            TopicNotFound: it does not exist.
        """

    def broker_count(self, *, timeout: float = 10.0) -> int:
        """Return the number of live brokers.

        Raises:
            BrokerUnavailable: the broker that answers knows of none.
        """

    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        """Return the maximum length of a commit's metadata text, as configured on a broker.

        Raises:
            Unauthorized: this user may not read broker settings.
        """

    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        """Return the log start offset of each partition.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        """Return the true end of each partition's log, or its last stable offset.

        ``stable`` selects the last stable offset, which open transactions hold back.

        Pass ``partitions``, the partition count, if you know it: that saves a request. Partitions added since are then
        left out, and so are ones that do not exist.

        Uses its own connection, so it never queues behind a fetch that waits for data.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        """Return each partition's last stable offset and leader epoch, for `check_uncut`.

        Both come from the same response. ``partitions`` is as for `end_offsets`.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        """Check that no log was truncated below its end, even if it has grown beyond that since.

        Offsets alone do not show this: a leader that was elected without some of the records, or whose disk has lost
        some, writes other records at the same offsets. But it does so in another leader epoch, and remembers where each
        epoch ended.

        Raises:
            DataLoss: a log was truncated, or starts after its end in ``ends``.
            TopicNotFound: the topic does not exist.
        """

    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        """Find records that overwrote ones already read: a log was truncated and grew again.

        Every record carries the epoch of the leader that wrote it, and epochs ascend within a log. So if a record below
        ``ends`` has a later epoch than everything that was read, it is not the record that was read at its offset.

        Returns, by partition, the first such offset; partitions without one are missing. Only committed records count:
        whatever else a transaction leaves in the log, in any epoch, was never read.

        Args:
            ends: how far each log was read, and the last epoch of the records read there.

        Raises:
            TopicNotFound: the topic does not exist.
        """

    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        """Return each partition's first offset with a timestamp (ms) at or after ``timestamp``.

        That is the log end if there is no such record.
        """

    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        """Permanently delete all records below these offsets; return the new log start offsets.

        A partition that already starts beyond its offset is left alone.

        Raises:
            TopicNotFound: the topic does not exist.
            ConfigError: the topic's ``cleanup.policy`` does not include ``delete``.
            DataLoss: an offset is beyond the end of the log.
        """

    def committed(
        self,
        group: str,
        topic: str,
        *,
        decided: bool = True,
        partitions: int | None = None,
        timeout: float = 10.0,
    ) -> dict[int, Commit]:
        """Return a group's commits in a topic; partitions without a commit are missing.

        ``partitions`` is as for `end_offsets`.

        Args:
            decided: wait while an open transaction holds offsets of the group. Otherwise return the previous commits,
                which that transaction may change.

        Raises:
            OffsetsPending: time is up, and an open transaction still holds some offsets, or its replicas lag.
        """

    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        """Commit for a group that currently has no members.

        Raises:
            TransportError: a partition was refused; a group with members refuses all of them.
        """

    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        """Return when the group's coordinator last stored a commit, in seconds since the epoch.

        The time is by the coordinator's clock. The commit may be of this group, or of another that is kept in the same
        place. So after a commit, this is the cluster's time of that commit, or later.

        Raises:
            Unauthorized, TopicNotFound: this user may not see where commits are stored.
        """

    def delete_group(self, group: str, *, timeout: float = 10.0) -> bool:
        """Delete a group without members; return False if there is no such group."""

    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        """Return the group's current number of members; 0 if there is no such group.

        A dead member counts until its session times out.
        """

    def reader(
        self, topic: str, positions: Mapping[int, int], *, headers: bool = True, late: bool = False
    ) -> LogReader:
        """Return a reader that starts at these positions, one for each partition to read.

        Without ``headers``, records arrive as if they had no headers; if they do have some, that halves the work. With
        ``late``, a batch may build its columns and read headers on first access: that pays off if only a few of many
        records are kept, through `RecordBatch.entries`.
        """

    def member(self, group: str, topic: str, listener: GroupListener) -> GroupMember:
        """Return a new member of a group, subscribed to the topic."""

    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        """Return a writer.

        With a transactional id, it writes only in transactions, and fences off its predecessor. ``max_block`` is how
        many seconds an append may wait for room in the local buffer; None for no limit.
        """

    def close(self) -> None:
        """Close what the cluster itself holds open, but not its readers, members and writers.

        From then on it opens and answers nothing: every other call raises `Closed`. A second `close` does nothing.
        """
