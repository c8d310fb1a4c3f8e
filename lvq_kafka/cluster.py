"""What the library asks of a cluster: the ports that the Kafka client and the in-memory cluster both implement.

Drivers (producer, view, browser, consumer) know these protocols and nothing of a client. The adapters are
`lvq_kafka.kafka.KafkaCluster` and `lvq_kafka.testing.MemoryCluster`; one contract suite runs on both.

Every call that talks to a cluster may raise `TransportError` and its kinds (`BrokerUnavailable`,
`AuthenticationFailed`, `Unauthorized`); the docstrings name what comes on top. Timeouts are seconds.
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
    """A topic as the cluster describes it. ``id`` changes when a topic of the same name is created again."""

    name: str
    id: str
    partitions: int
    replication_factor: int


class LogEnd(NamedTuple):
    """How far a partition's log reached, and in which epoch of its leader; -1 where that is not known."""

    offset: int
    leader_epoch: int


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's committed offset in one partition, with its metadata text.

    ``leader_epoch`` is the last in which anything of what the group has read there was written; -1 where it is not
    known. See `Cluster.overwritten`. Two commits that say the same are equal without it: not every broker keeps it.
    """

    offset: int
    metadata: str = ""
    leader_epoch: int = field(default=-1, compare=False)


class Receipt(Protocol):
    """The outcome of one append, as a future: it resolves to the record's position when all replicas have it (G14).

    ``await receipt`` is the position, too, or raises what `result` does.
    """

    def result(self, timeout: float | None = None) -> Position:
        """Wait for the position.

        Raises:
            DeliveryFailed: the message was not stored (`MessageTooLarge`: the topic refused its size).
            DeliveryUnknown: it may have been stored, and nothing more will be known of it.
            OutcomeUnknown: it was not decided in time.
        """

    def __await__(self) -> Generator[Any, None, Position]: ...

    def exception(self, timeout: float | None = None) -> Exception | None:
        """Wait, and return the error that `result` would raise for a message that has failed, or None.

        Raises:
            OutcomeUnknown: it was not decided in time.
        """

    def done(self) -> bool:
        """Whether the outcome is known."""

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call back when the outcome is known, at once if it is. Runs on the thread that learns it: be short."""


class LogWriter(Protocol):
    """Appends to topics: idempotent, acknowledged by all in-sync replicas, murmur2-partitioned. Thread-safe."""

    def append(
        self,
        topic: str,
        key: bytes,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
    ) -> Receipt:
        """Hand over one record; blocks while the local buffer is full.

        Raises:
            MessageTooLarge: the client refuses the size.
            TransportError: there was no room in time (code ``_QUEUE_FULL``), or a newer writer with this
                transactional id has fenced this one off (``_FENCED``).
            StateError: with a transactional id, when no transaction is open.
            Closed: after `close`.
        """

    def flush(self, timeout: float | None = None) -> int:
        """Wait until every append is decided; return how many are not yet."""

    def pop_failures(self) -> list[TransportError]:
        """The errors of failed appends that nobody has asked a receipt for (`result`, `exception`); each once."""

    def begin_transaction(self, timeout: float | None = None) -> None:
        """Open a transaction. Appends until its end belong to it.

        Where the end of the one before was not answered, that is decided first.

        Raises:
            TransportError: it could not be decided in time (retriable), or a newer writer with this transactional id
                has fenced this one off (code ``_FENCED``).
            StateError: one is open already.
        """

    def send_offsets(self, member: GroupMember, offsets: Mapping[int, Commit], timeout: float | None = None) -> None:
        """Make a group's commit part of the open transaction.

        Raises:
            TransportError: refused, or not answered in time; then the transaction can only be aborted, if even that.
        """

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Make the transaction's records visible, all or none."""

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop the transaction's records."""

    def close(self, timeout: float | None = None) -> int:
        """Flush and close; return how many appends were not decided. Their receipts fail."""


class LogReader(Protocol):
    """Reads partitions of one topic without a group. For one thread."""

    def poll(self, timeout: float) -> Fetch:
        """Wait up to ``timeout`` for anything new and return all that is at hand, possibly nothing.

        Positions move past markers, aborted records and holes too, and are reported at the end of a partition at the
        latest. Only committed records come, up to the last stable offset.

        Raises:
            TopicNotFound: the topic is gone.
            DataLoss: a position is below the start or beyond the end of the log.
            TransportError: ``retriable`` when the reader goes on by itself as soon as the cluster is back.
        """

    def assign(self, positions: Mapping[int, int]) -> None:
        """Read these partitions too, each from its offset; a partition that is already read starts anew there."""

    def close(self) -> None:
        """Let go of the connection."""


Answered = Callable[[Mapping[int, "TransportError | None"]], None]
"""Takes the outcome of a commit by partition: None where it is stored, else why nothing is known of it."""


class GroupListener(Protocol):
    """Learns of partitions that come and go. Called inside `GroupMember.poll` and `close`, on the polling thread."""

    def assigned(self, partitions: Sequence[int], commits: Mapping[int, Commit]) -> Mapping[int, int]:
        """New partitions with the group's commits (missing: none). Returns where to start reading each.

        What it raises comes out of the poll. The next poll asks again: until then nothing of these is read.
        """

    def revoked(self, partitions: Sequence[int]) -> None:
        """These are about to go: the last moment to commit for them."""

    def lost(self, partitions: Sequence[int]) -> None:
        """These are gone already: nothing can be committed for them."""


class GroupMember(Protocol):
    """A member of a consumer group on one topic. For one thread."""

    @property
    def losses(self) -> int:
        """Connections that were lost in use. A commit on its way then was sent again, and may arrive once more, late.

        A loss is counted before an answer comes to what was sent again because of it.
        """

    def poll(self, timeout: float) -> Fetch:
        """As `LogReader.poll`, for the partitions this member is assigned; also drives the membership."""

    def commit(self, commits: Mapping[int, Commit]) -> None:
        """Commit synchronously for partitions that are assigned now.

        Raises:
            TransportError: nothing is known about what was stored; commit a fresh state after the next poll.
        """

    def commit_async(self, commits: Mapping[int, Commit], answered: Answered) -> None:
        """Commit for partitions that are assigned now, and be told of the outcome by a later `poll`.

        It may never be told: a member that loses its coordinator can lose the answer, too.

        Raises:
            TransportError: as `commit`.
        """

    def close(self) -> None:
        """Leave the group; the listener sees the revocation first."""


@runtime_checkable
class Cluster(Protocol):
    """A cluster: its topics, offsets and groups, and the readers and writers on it. Thread-safe."""

    def describe_topic(self, topic: str, *, timeout: float = 10.0) -> TopicDescription:
        """Describe a topic.

        Raises:
            TopicNotFound: it does not exist or may not be seen.
        """

    def topic_config(self, topic: str, *, timeout: float = 10.0) -> dict[str, str]:
        """The topic's settings, defaults included.

        Raises:
            TopicNotFound: it does not exist.
            Unauthorized: this user may not read settings.
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
        """Create a topic; False when it exists already. ``replication_factor`` None takes the cluster's default."""

    def check_may_create(
        self,
        topic: str,
        *,
        partitions: int,
        replication_factor: int | None = None,
        config: Mapping[str, str],
        timeout: float = 10.0,
    ) -> None:
        """Raise what `create_topic` would raise, and create nothing."""

    def check_may(self, operation: Operation, topic: str, *, timeout: float = 10.0) -> None:
        """See whether this user is allowed an operation on a topic, as far as the cluster tells; nothing is done.

        Raises:
            Unauthorized: the user may not.
            TopicNotFound: it does not exist.
        """

    def check_may_commit(self, group: str, topic: str, *, timeout: float = 10.0) -> None:
        """See whether this user may commit for a group what was read of a topic; nothing is committed.

        Neither has to exist.

        Raises:
            Unauthorized: the user may not.
        """

    def alter_topic_config(self, topic: str, config: Mapping[str, str], *, timeout: float = 10.0) -> None:
        """Set these settings and leave the others alone."""

    def add_partitions(self, topic: str, total: int, *, timeout: float = 10.0) -> None:
        """Raise the partition count."""

    def delete_topic(self, topic: str, *, timeout: float = 10.0) -> None:
        """Delete a topic.

        Raises:
            TopicNotFound: it does not exist.
        """

    def broker_count(self, *, timeout: float = 10.0) -> int:
        """How many brokers live now.

        Raises:
            BrokerUnavailable: none, as far as the one knows that answers.
        """

    def commit_text_limit(self, *, timeout: float = 10.0) -> int:
        """How many characters a commit's metadata text may have, as a broker is configured.

        Raises:
            Unauthorized: this user may not read the settings of brokers.
        """

    def start_offsets(self, topic: str, *, timeout: float = 10.0) -> dict[int, int]:
        """The first offset of each partition's log.

        Raises:
            TopicNotFound: it does not exist.
        """

    def end_offsets(
        self, topic: str, *, stable: bool = False, partitions: int | None = None, timeout: float = 10.0
    ) -> dict[int, int]:
        """The true end of each partition's log; with ``stable`` its last stable offset (open transactions end it).

        Who knows how many ``partitions`` there are saves a question by saying so. Added ones are then left out, and
        ones that do not exist, too.

        Goes over a connection of its own, so that it never queues behind a fetch that waits for data.

        Raises:
            TopicNotFound: it does not exist.
        """

    def stable_ends(self, topic: str, *, partitions: int | None = None, timeout: float = 10.0) -> dict[int, LogEnd]:
        """The last stable offset of each partition and the epoch of its leader, in one answer; for `check_uncut`.

        ``partitions`` is as for `end_offsets`.

        Raises:
            TopicNotFound: it does not exist.
        """

    def check_uncut(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> None:
        """See that no log was cut below where it ended, even where it has grown beyond that since.

        Offsets alone do not tell: a leader that was elected although it lacked records, or whose disk has lost some,
        writes others under the same offsets. But it does so in another epoch, and remembers where each one ended.

        Raises:
            DataLoss: a log was cut, or begins behind such an end.
            TopicNotFound: it does not exist.
        """

    def overwritten(self, topic: str, ends: Mapping[int, LogEnd], *, timeout: float = 10.0) -> dict[int, int]:
        """Where records lie, below what was read of a log, that were not there then: it was cut, and has grown again.

        Every record has the epoch of the leader that wrote it, and epochs ascend in a log. So one below ``ends`` whose
        epoch is later than all that was read is another than the one that was read at its offset.

        Returns, by partition, the first such offset; partitions without one are missing. Only committed records count:
        what a transaction leaves beside them, in whatever epoch, nobody has read.

        Args:
            ends: how far each log was read, and the last epoch of what was read there.

        Raises:
            TopicNotFound: it does not exist.
        """

    def offsets_at(self, topic: str, timestamp: int, *, timeout: float = 10.0) -> dict[int, int]:
        """For each partition the first offset whose timestamp (ms) is at or after ``timestamp``, or the log end."""

    def delete_before(self, topic: str, offsets: Mapping[int, int], *, timeout: float = 10.0) -> dict[int, int]:
        """Delete all records below these offsets, for good; returns where the logs of these partitions begin now.

        A partition that begins beyond its offset already is left alone.

        Raises:
            TopicNotFound: it does not exist.
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
        """What a group has committed in a topic; partitions without a commit are missing.

        ``partitions`` is as for `end_offsets`.

        Args:
            decided: wait while an open transaction holds offsets of the group. Without it what was committed before is
                returned, which that transaction may change.

        Raises:
            OffsetsPending: an open transaction still holds some when the time is up, or replicas of it lag.
        """

    def commit(self, group: str, topic: str, commits: Mapping[int, Commit], *, timeout: float = 10.0) -> None:
        """Commit for a group that has no members now.

        Raises:
            TransportError: for any partition that was refused; a group with members refuses all.
        """

    def committed_at(self, group: str, *, timeout: float = 10.0) -> float:
        """When the group's coordinator last stored a commit, by its own clock, in seconds since the epoch.

        Of this group, or of another one that it keeps in the same place: after a commit that is the cluster's time of
        then, or later.

        Raises:
            Unauthorized, TopicNotFound: this user may not see where commits lie.
        """

    def delete_group(self, group: str, *, timeout: float = 10.0) -> bool:
        """Delete a group without members; False when there is none."""

    def member_count(self, group: str, *, timeout: float = 10.0) -> int:
        """How many members a group has now; 0 where there is no such group. One that died counts for its session."""

    def reader(
        self, topic: str, positions: Mapping[int, int], *, headers: bool = True, late: bool = False
    ) -> LogReader:
        """A reader that starts at these positions, one for each partition to read.

        Without ``headers`` every record comes as if it had none; where they have, that halves the work. With ``late``
        a batch may make its columns, and read headers, when they are first asked for: it pays where few records of many
        are kept, by their `RecordBatch.entries`.
        """

    def member(self, group: str, topic: str, listener: GroupListener) -> GroupMember:
        """A new member of a group, subscribed to the topic."""

    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        """A writer. With a transactional id it writes in transactions only, and fences off its predecessor.

        ``max_block`` is how many seconds an append may wait for room in the local buffer; None for as long as it takes.
        """

    def close(self) -> None:
        """Close what the log itself holds open, and not its readers, members and writers.

        From then on it opens and answers nothing: every other call raises `Closed`. A second `close` does nothing.
        """
