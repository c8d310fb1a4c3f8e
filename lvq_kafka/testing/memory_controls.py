"""What a test can do to the in-memory cluster that no client could: cleaning, losing, failing."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence

from lvq_kafka.cluster import GroupMember
from lvq_kafka.core.records import Position, Record
from lvq_kafka.errors import StateError, TransportError
from lvq_kafka.testing.memory_group import METADATA_LIMIT
from lvq_kafka.testing.memory_member import MemoryMember
from lvq_kafka.testing.memory_state import ClusterState

__all__ = ["Controls"]


class Controls:
    """What a cluster, its other users and its network do.

    Args:
        clock: the time in seconds since the epoch, for record timestamps. Blocking calls always wait in real time.
        brokers: the number of brokers, which bounds the replication factor.
        fetch_limit: the most records that one poll returns.
        metadata_limit: the most characters that the metadata of a commit may have.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        brokers: int = 1,
        fetch_limit: int = 100_000,
        metadata_limit: int = METADATA_LIMIT,
    ) -> None:
        self._state = ClusterState(clock, brokers, fetch_limit, metadata_limit)

    def records(self, topic: str) -> list[Record]:
        """All committed records that lie in the topic now, by partition and offset: superseded ones and deletes too."""
        with self._state.changed:
            return [record for partition in self._state.topic(topic).partitions for record in partition.records()]

    def write(
        self,
        topic: str,
        key: bytes | None,
        value: bytes | None,
        headers: Sequence[tuple[str, bytes | None]] = (),
        *,
        partition: int | None = None,
        timestamp: int | None = None,
    ) -> Position:
        """Store a record as another program might: in any partition, at any time (ms), without a key.

        Raises:
            DeliveryFailed: the topic does not exist, or is compacted and takes no record without a key.
        """
        with self._state.changed:
            return self._state.store(topic, key, value, tuple(headers), partition=partition, timestamp=timestamp)

    def compact(
        self,
        topic: str,
        partition: int | None = None,
        *,
        up_to: int | None = None,
        drop_tombstones: bool = False,
        choose: Callable[[Record], bool] = lambda record: True,
    ) -> None:
        """Clean the topic as Kafka's log cleaner may, at once. Offsets stay; what goes leaves holes.

        Superseded and aborted records may go. Never touched are the last record of a partition, unless its segment was
        closed (`close_segments`), and everything from the oldest open transaction on.

        Args:
            topic: the topic; its ``cleanup.policy`` is not looked at.
            partition: only this one; default all.
            up_to: clean below this offset; default as far as may be.
            drop_tombstones: remove deletes too, as happens when they are older than ``delete.retention.ms``. A delete
                never goes while a value is left that it hides.
            choose: asked for each record that may go whether it does. Any answer is a legal compaction.
        """
        with self._state.changed:
            if partition is None:
                logs = self._state.topic(topic).partitions
            else:
                logs = [self._state.partition(topic, partition)]
            for log in logs:
                log.compact(up_to, drop_tombstones, choose)

    def close_segments(self, topic: str) -> None:
        """Have each partition's active segment begin at its end, empty: the last record may be cleaned away as well.

        So a log stands whose leader was cut back to where a segment begins.
        """
        with self._state.changed:
            for log in self._state.topic(topic).partitions:
                log.closed = log.end

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Move the start of a partition's log up to the offset ``before``, as retention and DeleteRecords do.

        The topic's ``cleanup.policy`` is not looked at; a broker keeps the start of a topic that is only compacted.

        Raises:
            TransportError: the offset is beyond the end.
        """
        with self._state.changed:
            log = self._state.partition(topic, partition)
            if before > log.end:
                raise TransportError(
                    f"Partition {partition} of {topic!r} ends at offset {log.end}.", code="OFFSET_OUT_OF_RANGE"
                )
            log.delete_before(before)
            self._state.changed.notify_all()

    def elect(self, topic: str, partition: int, *, end: int | None = None) -> None:
        """Have another leader of a partition; with ``end`` one that lacks what lies from there on.

        That is what an unclean election does (``unclean.leader.election.enable``), or a disk that has lost something.
        """
        with self._state.changed:
            log = self._state.partition(topic, partition)
            log.elect(log.end if end is None else min(end, log.end))
            self._state.changed.notify_all()

    def expel(self, member: GroupMember) -> None:
        """Take a member's partitions away as if its session had timed out.

        Others get them at once; its commits are refused; its next poll calls ``lost`` and joins anew.
        """
        if not isinstance(member, MemoryMember):
            raise StateError("The group member belongs to another cluster.")
        with self._state.changed:
            member.expel()

    def fail_next(self, operation: str, error: Exception, times: int = 1) -> None:
        """Make the next ``times`` calls of an operation raise ``error``, whoever makes them.

        Operations have the names of the methods in `lvq_kafka.cluster`: ``"poll"`` stands for readers and group
        members, ``"commit"`` for members and `commit`. A call that is waiting in `poll` fails at once. A
        `DeliveryFailed`, `MessageTooLarge` or `DeliveryUnknown` planned for ``"append"`` comes through the receipt, any
        other error out of the call.

        Raises:
            ConfigError: there is no such operation.
        """
        with self._state.changed:
            self._state.plan(operation, error, times)
            self._state.changed.notify_all()

    def lose_answers(self, operation: str, times: int = 1) -> None:
        """Let the next ``times`` calls of an operation do what they are to do, and lose the answer.

        The operation is ``"commit"`` of group members, where `commit_async` is never answered and `commit` raises,
        ``"commit_transaction"``, or ``"append"``. What is raised is a `BrokerUnavailable` with the code ``_TIMED_OUT``;
        the receipt of an append fails with `DeliveryUnknown`.

        Raises:
            ConfigError: it is another operation.
        """
        with self._state.changed:
            self._state.lose_answers(operation, times)

    def disconnect(self) -> None:
        """Begin an outage: every call raises `BrokerUnavailable` (retriable), readers and members too.

        Appends are buffered, as the Kafka client does, and decided at `reconnect`. Nothing stored is lost.
        """
        with self._state.changed:
            self._state.connected = False
            self._state.outages += 1
            self._state.changed.notify_all()

    def reconnect(self) -> None:
        """End the outage. Buffered appends are stored before this returns; readers and members go on by themselves."""
        with self._state.changed:
            self._state.connected = True
            stored = [send_waiting() for send_waiting in self._state.outbox]
            self._state.changed.notify_all()
        for tell in stored:
            tell()
