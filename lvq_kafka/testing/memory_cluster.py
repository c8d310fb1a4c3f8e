"""An in-memory cluster with the Kafka behavior that last value queues depend on."""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Mapping, Sequence

from lvq_kafka.cluster import Cluster, GroupListener, GroupMember, LogReader, LogWriter
from lvq_kafka.core.facts import Position
from lvq_kafka.core.log.records import Record
from lvq_kafka.core.text.validation import at_least_one, delays, function
from lvq_kafka.errors import StateError, TransportError
from lvq_kafka.runtime.overriding import override
from lvq_kafka.testing.memory_admin import MemoryGroups, MemoryLogs, MemoryTopics
from lvq_kafka.testing.memory_group import METADATA_LIMIT
from lvq_kafka.testing.memory_member import MemoryMember
from lvq_kafka.testing.memory_reader import MemoryReader
from lvq_kafka.testing.memory_state import ClusterState
from lvq_kafka.testing.memory_writer import MemoryWriter

__all__ = ["MemoryCluster"]


class MemoryCluster(Cluster):
    """`lvq_kafka.cluster.Cluster` in memory: Kafka for tests, without broker, thread or sleep.

    Pass it as ``cluster=`` wherever the library takes bootstrap servers. One contract suite runs against it and a real
    broker, so it behaves the same: markers, aborted records and compaction skip offsets, readers stop at the last
    stable offset, and groups rebalance.

    A test can play the cluster itself (`compact`, `delete_records`, `elect`, `expel`), its other users (`records`,
    `write`) and its network (`fail_next`, `lose_answers`, `disconnect`, `reconnect`).

    Args:
        clock: the time in seconds since the epoch, for record timestamps and for what expires. Blocking calls always
            wait in real time.
        brokers: the number of brokers, which bounds the replication factor.
        fetch_limit: the maximum number of records that one poll returns.
        metadata_limit: the maximum number of characters in the metadata of a commit.
        retention: the seconds for which the commits of a group without members are kept, by the clock; forever by
            default.
    """

    def __init__(
        self,
        *,
        clock: Callable[[], float] = time.time,
        brokers: int = 1,
        fetch_limit: int = 100_000,
        metadata_limit: int = METADATA_LIMIT,
        retention: float = math.inf,
    ) -> None:
        function("clock", clock, hint="Return the time as a number of seconds.")
        at_least_one(brokers=brokers, fetch_limit=fetch_limit, metadata_limit=metadata_limit)
        if retention != math.inf:
            delays(retention=retention)
        self._state = ClusterState(clock, brokers, fetch_limit, metadata_limit, retention)
        self.topics = MemoryTopics(self._state)
        self.logs = MemoryLogs(self._state)
        self.groups = MemoryGroups(self._state)

    @override
    def now(self) -> float:
        return self._state.clock()

    @override
    def broker_count(self, *, timeout: float = 10.0) -> int:
        with self._state.changed:
            self._state.ask("broker_count")
            return self._state.brokers

    @override
    def reader(
        self,
        topic: str,
        positions: Mapping[int, int],
        *,
        headers: bool = True,
        late: bool = False,
        decided: bool = True,
    ) -> LogReader:
        self._state.check_open()
        return MemoryReader(self._state, topic, positions, headers=headers, decided=decided)

    @override
    def member(self, group: str, topic: str, listener: GroupListener, *, renews: bool = False) -> GroupMember:
        self._state.check_open()
        return MemoryMember(self._state, group, topic, listener)

    @override
    def writer(self, *, transactional_id: str | None = None, max_block: float | None = None) -> LogWriter:
        self._state.check_open()
        return MemoryWriter(self._state, transactional_id, max_block)

    @override
    def close(self) -> None:
        """Close the cluster. A test can still read what was written (`records`), and write more."""
        self._state.closed = True

    def records(self, topic: str) -> list[Record]:
        """Return all committed records in the topic, including superseded ones and deletes.

        They are ordered by partition and offset.
        """
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
        """Store a record as another program might.

        It may go to any partition, at any time (ms), without a key.

        Raises:
            DeliveryFailed: the topic does not exist, or is compacted and the record has no key.
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
        """Clean the topic at once, as Kafka's log cleaner may.

        Offsets stay; removed records leave holes. Superseded and aborted records may be removed. The last record of a
        partition is never touched unless its segment was closed (`close_segments`), nor is anything from the oldest
        open transaction on.

        Args:
            topic: the topic; its ``cleanup.policy`` is ignored.
            partition: the only partition to clean; all by default.
            up_to: clean below this offset; by default as far as allowed.
            drop_tombstones: remove deletes too, as happens when they are older than ``delete.retention.ms``. A delete
                is never removed while a value that it hides is left.
            choose: called for each removable record; return whether to remove it. Any answer is a legal compaction.
        """
        function("choose", choose, "record", hint="Return whether to remove the record.", classes=False)
        with self._state.changed:
            if partition is None:
                logs = self._state.topic(topic).partitions
            else:
                logs = [self._state.partition(topic, partition)]
            for log in logs:
                log.compact(up_to, drop_tombstones, choose)

    def close_segments(self, topic: str) -> None:
        """Start a new, empty active segment in each partition.

        The last record of each partition may then be cleaned, too. A log looks like this after its leader was truncated
        to a segment boundary.
        """
        with self._state.changed:
            for log in self._state.topic(topic).partitions:
                log.closed = log.end

    def delete_records(self, topic: str, partition: int, before: int) -> None:
        """Advance a partition's log start offset to ``before``, as retention and DeleteRecords do.

        The topic's ``cleanup.policy`` is ignored; a broker keeps the start of a topic that is only compacted.

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
        """Elect another leader for a partition.

        With ``end``, the new leader lacks everything from there on. An unclean election does that
        (``unclean.leader.election.enable``), or a disk that has lost data.
        """
        with self._state.changed:
            log = self._state.partition(topic, partition)
            log.elect(log.end if end is None else min(end, log.end))
            self._state.changed.notify_all()

    def expel(self, member: GroupMember) -> None:
        """Take a member's partitions away as if its session had timed out.

        Others get them at once. The member's commits are refused; its next poll calls ``lost`` and rejoins.
        """
        if not isinstance(member, MemoryMember):
            raise StateError("The group member belongs to another cluster.")
        with self._state.changed:
            member.expel()

    def fail_next(self, operation: str, error: Exception, times: int = 1) -> None:
        """Make the next ``times`` calls of an operation raise ``error``, from any caller.

        Operations are named as they are called on a cluster, such as ``"topics.create"`` or ``"broker_count"``, or on
        what it opens: ``"poll"`` covers readers and group members, ``"commit"`` covers members and
        `ConsumerGroups.commit`. A call that is waiting in `poll` fails at once. A `DeliveryFailed`, `MessageTooLarge`
        or `DeliveryUnknown` planned for ``"append"`` is delivered through the receipt; any other error is raised by the
        call.

        Raises:
            ConfigError: there is no such operation.
        """
        with self._state.changed:
            self._state.plan(operation, error, times)
            self._state.changed.notify_all()

    def lose_answers(self, operation: str, times: int = 1) -> None:
        """Let the next ``times`` calls of an operation take effect, but lose the answer.

        The operation is ``"commit"`` of group members (`commit_async` is then never answered, and `commit` raises),
        ``"commit_transaction"`` or ``"append"``. The calls raise `BrokerUnavailable` with the code ``_TIMED_OUT``; the
        receipt of an append fails with `DeliveryUnknown`.

        Raises:
            ConfigError: it is another operation.
        """
        with self._state.changed:
            self._state.lose_answers(operation, times)

    def disconnect(self) -> None:
        """Begin an outage: every call raises `BrokerUnavailable` (retriable).

        This includes readers and members. Appends are buffered, as in the Kafka client, and decided at `reconnect`.
        Nothing stored is lost.
        """
        with self._state.changed:
            self._state.connected = False
            self._state.outages += 1
            self._state.changed.notify_all()

    def reconnect(self) -> None:
        """End the outage. Buffered appends are stored before this returns.

        Readers and members continue by themselves.
        """
        with self._state.changed:
            self._state.connected = True
            stored = [send_waiting() for send_waiting in self._state.outbox]
            self._state.changed.notify_all()
        for tell in stored:
            tell()
