"""The port to a cluster's clients: readers, group members and writers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Fetch
from lvq_kafka.errors import TransportError

if TYPE_CHECKING:
    from lvq_kafka.core.measures.measured import ProducerFacts

__all__ = ["Answered", "Commit", "GroupListener", "GroupMember", "LogReader", "LogWriter", "Membership", "Receipt"]


@dataclass(frozen=True, slots=True)
class Commit:
    """A group's committed offset in one partition, with its metadata text.

    ``leader_epoch`` is the last epoch of the records that the group has read there; -1 if unknown. See
    `Logs.overwritten`. Comparisons ignore it, since not every broker stores it.
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

    @property
    def position(self) -> Position | None:
        """The position, if the record is known to be stored. A failure still counts as not seen."""

    def add_done_callback(self, callback: Callable[[Receipt], object]) -> None:
        """Call back when the outcome is known, or at once if it already is.

        The callback runs on the thread that learns the outcome, so keep it short.

        Raises:
            ConfigError: the callback is not a plain function of one argument.
        """


class LogWriter(Protocol):
    """Appends to topics. Thread-safe.

    Appends are idempotent, acknowledged by all in-sync replicas, and partitioned by murmur2 of their key. Those without
    a key go to any partition.
    """

    def append(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] | None = None,
        partition: int = -1,
    ) -> Receipt:
        """Hand over one record; blocks while the local buffer is full.

        Inside `at_once`, it fails instead. The record goes to this partition; by default, to that of its key.

        Raises:
            MessageTooLarge: the client rejects the size.
            TransportError: there was no room in time (code ``_QUEUE_FULL``), or a newer writer with this transactional
                id has fenced this one off (``_FENCED``).
            StateError: there is a transactional id, and no transaction is open.
            Closed: the writer is closed.
        """

    @property
    def has_room(self) -> bool:
        """False while an append would have to wait for room in the local buffer."""

    def flush(self, timeout: float | None = None) -> int:
        """Wait until every append is decided; return how many still are not."""

    def pop_failures(self) -> list[TransportError]:
        """Return the errors of failed appends that no one has seen, each once.

        An error is seen when its receipt is asked for it (`result`, `exception`).
        """

    def count_appends(self) -> None:
        """Count appends from now on; each costs a little more then."""

    @property
    def facts(self) -> ProducerFacts:
        """The numbers of appends. One that falls has begun again."""

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

    def send_offsets_of(
        self, group: str, topic: str, offsets: Mapping[int, Commit], timeout: float | None = None
    ) -> None:
        """Make a commit of a group that has no members part of the open transaction.

        Only the transactional id keeps two writers from committing for one group; see `send_offsets` for members.

        Raises:
            TransportError: as for `send_offsets`.
        """

    def commit_transaction(self, timeout: float | None = None) -> None:
        """Make the transaction's records visible, all or none."""

    def abort_transaction(self, timeout: float | None = None) -> None:
        """Drop the transaction's records."""

    @property
    def uncommitted(self) -> int | None:
        """The number of appends in the open transaction; None if none is open."""

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

    def unassign(self, partitions: Iterable[int]) -> None:
        """Stop reading these partitions; no later poll returns any of their records."""

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


class Membership(NamedTuple):
    """A member of a group as it knows itself."""

    member: str
    """The member's id; empty while it has none."""
    partitions: frozenset[int]
    """The partitions that it has heard of."""


class GroupMember(Protocol):
    """A member of a consumer group on one topic. For use by one thread."""

    @property
    def losses(self) -> int:
        """The number of connections lost while in use.

        A commit in flight at that moment is sent again, so it may arrive a second time, late. A loss is counted before
        any answer to a request that was resent because of it.
        """

    @property
    def unheard(self) -> int:
        """The number of answers of the group that the member may have missed.

        With them, it may have missed what they assigned or took away.
        """

    @property
    def membership(self) -> Membership:
        """The partitions that the member has heard of, for comparison with `Assigned`."""

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
